"""Bugs from single replies of a model: a changed or rewritten function, and a past change that is taken out again."""

from __future__ import annotations

import subprocess
from pathlib import Path
from random import Random
from typing import Any

import pytest
from proven import Proven

from harness.injectors.campaign import ModelCampaign
from harness.injectors.model import Injected
from harness.injectors.replay import ReplayInjector
from harness.injectors.single_reply import MIRROR, MODIFY, REWRITE, SingleReplyInjector
from harness.models.scripted import ScriptedModel
from harness.records.messages import ASSISTANT, Message
from harness.records.trajectory import ExitReason, Journal, Trajectory
from pytest_ssr.campaign.factory import open_runner
from pytest_ssr.errors import ProjectError, SettingsError
from pytest_ssr.project.snapshot import take_snapshot
from pytest_ssr.records.check_reasons import CheckCode
from pytest_ssr.settings import RuleSettings
from pytest_ssr.storage.store import Store

CLAMP = "def clamp(x, low, high):\n    if x < low:\n        return {}\n    return min(x, high)\n"


def block(code: str, path: str = "") -> str:
    return f"Here it is.\n\n```python {path}\n{code}```\n"


def injector(proven: Proven, strategy: str, *replies: str) -> SingleReplyInjector:
    model = ScriptedModel("scripted", [Message(ASSISTANT, text) for text in replies])
    return SingleReplyInjector(model, strategy, proven.store)


def inject(proven: Proven, path: Path, strategy: str, reply: str) -> Injected:
    journal = Journal(Trajectory("r", proven.runner.snapshot.tree_hash, "injector", 0, "scripted"), path)
    return injector(proven, strategy, reply).inject(proven.runner.scoped(), seed=1, journal=journal)


def test_a_function_that_a_comment_excludes_is_not_drawn(proven: Proven, tmp_path: Path) -> None:
    text = (proven.project / "calc.py").read_text()
    text = text.replace("):\n", "):  # ssr: skip\n")
    (tmp_path / "p" / "tests").mkdir(parents=True)
    (tmp_path / "p" / "calc.py").write_text(text)
    (tmp_path / "p" / "tests" / "test_calc.py").write_text("def test_nothing():\n    pass\n")
    snapshot = take_snapshot(tmp_path / "p", tmp_path / "trees")
    assert injector(proven, MODIFY).request(proven.runner.snapshot, Random(0)) is not None
    assert injector(proven, MODIFY).request(snapshot, Random(0)) is None


@pytest.mark.long
def test_a_changed_function_becomes_a_valid_bug(proven: Proven, tmp_path: Path) -> None:
    """The model sees the function alone; the tests are found and weakened here."""
    path = tmp_path / "played" / "trajectory.jsonl"
    done = inject(proven, path, MODIFY, block(CLAMP.format("high")))
    assert done.valid, done.reason
    assert done.strategy == MODIFY
    task = done.trajectory.messages[1].content
    assert "def clamp" in task
    assert "def add" not in task
    assert len(done.trajectory.calls) == 1
    assert done.artifact is not None
    assert done.artifact.weaken.files
    again = Journal(Trajectory("x", proven.runner.snapshot.tree_hash, "injector", 0, "m"), tmp_path / "again.jsonl")
    repeated = ReplayInjector(path.parent).inject(proven.runner.scoped(), seed=1, journal=again)
    assert repeated.valid
    assert (tmp_path / "again.jsonl").read_bytes() == path.read_bytes()


@pytest.mark.parametrize(
    ("strategy", "reply", "code"),
    [
        (MODIFY, "I will not.", CheckCode.UNREADABLE),
        (MODIFY, block("def other():\n    pass\n"), CheckCode.UNREADABLE),
        (MODIFY, block("def clamp(x:\n"), CheckCode.UNREADABLE),
        (REWRITE, block(CLAMP.format("low")), CheckCode.NOT_NOTICED),
    ],
)
def test_a_reply_without_a_bug_is_a_reason(
    proven: Proven, tmp_path: Path, strategy: str, reply: str, code: CheckCode
) -> None:
    done = inject(proven, tmp_path / "t.jsonl", strategy, reply)
    assert not done.valid
    assert done.reason is not None
    assert done.reason.code is code, done.reason
    assert done.trajectory.exit_reason is ExitReason.SUBMITTED
    if strategy == REWRITE:
        assert "return" not in done.trajectory.messages[1].content


def test_a_model_without_a_reply_is_an_aborted_attempt(proven: Proven, tmp_path: Path) -> None:
    journal = Journal(Trajectory("r", "t", "injector", 0, "scripted"), tmp_path / "t.jsonl")
    done = injector(proven, MODIFY).inject(proven.runner.scoped(), seed=1, journal=journal)
    assert (done.trajectory.status, done.valid) == ("aborted", False)


def test_a_decorated_method_is_replaced_in_its_place(tmp_path: Path) -> None:
    files = {"m.py": "class A:\n    @staticmethod\n    def f(x):\n        y = x\n        return y\n\n    Z = 1\n"}
    snapshot: Any = type("S", (), {"code_paths": lambda _: list(files), "read": lambda _, p: files[p].encode()})()
    request = SingleReplyInjector(ScriptedModel("m", []), MODIFY, Store(tmp_path)).request(snapshot, Random(0))
    assert request is not None
    assert "@staticmethod\ndef f(x):\n" in request.prompt
    changed = request.changes(block("@staticmethod\ndef f(x):\n    return -x\n"), snapshot)
    assert changed == {"m.py": b"class A:\n    @staticmethod\n    def f(x):\n        return -x\n\n    Z = 1\n"}


@pytest.mark.long
def test_a_past_change_is_taken_out(tmp_path: Path, calculator: dict[str, str]) -> None:
    project = tmp_path / "project"
    before = {**calculator, "calc.py": calculator["calc.py"].replace("return a + b", "return a - b")}
    for number, files in enumerate((before, calculator)):
        for name, text in files.items():
            (project / name).parent.mkdir(parents=True, exist_ok=True)
            (project / name).write_text(text)
        identity = ["-c", "user.name=a", "-c", "user.email=a@localhost"]
        for arguments in (["init", "-q"], ["add", "-A"], [*identity, "commit", "-q", "-m", f"change {number}"]):
            subprocess.run(["git", *arguments], cwd=project, check=True)
    runner = open_runner(project, Store(tmp_path / "store"), settings=RuleSettings())
    text = block(before["calc.py"], "calc.py")
    model = ScriptedModel("scripted", [Message(ASSISTANT, text)])
    mirror = SingleReplyInjector(model, MIRROR, Store(tmp_path / "store"))
    campaign = ModelCampaign(runner, Store(tmp_path / "store"), mirror, seed=0)
    attempt = campaign.attempt(0)
    assert attempt is not None
    assert attempt.status == "valid", attempt.reason
    assert attempt.strategy == MIRROR
    (path,) = (tmp_path / "store" / "rollouts").rglob("trajectory.jsonl")
    assert "-    return a - b" in path.read_text()


def test_a_project_without_commits_cannot_be_mirrored(proven: Proven, tmp_path: Path) -> None:
    snapshot: Any = type("S", (), {"origin": tmp_path, "code_paths": lambda _: []})()
    with pytest.raises(ProjectError, match="has no past commit that pr-mirror could use"):
        injector(proven, MIRROR).require(snapshot)
    with pytest.raises(SettingsError, match="'lm' is not a strategy"):
        injector(proven, "lm")
