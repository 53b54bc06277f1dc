"""`pytest --ssr-shard`: the part of one machine, also with workers, whose results ssr merge joins."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from test_inject import run

from harness.cli.exit_code import ExitCode
from harness.cli.main import main
from pytest_ssr.storage.store import Store

TRIED = 21
SHORT_TIME = f"""\
from pytest_ssr.plugin.inject import InjectPlugin

InjectPlugin.is_time_up = lambda self: len(self.results) >= {TRIED}
"""
"""The time budget ends after so many changes."""
INTERRUPTING = f"""\
from pytest_ssr.plugin.inject import InjectPlugin


def enough_before(self, index):
    if len(self.results) >= {TRIED}:
        raise KeyboardInterrupt
    return False


InjectPlugin.enough_before = enough_before
"""


@pytest.mark.long
@pytest.mark.any_pytest
def test_shards_of_sessions_with_and_without_workers_are_joined(
    project: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    common = ("--ssr-inject", "--ssr-changes", "5", "--ssr-fail-under", "100")
    workers = ((), ("-n", "2"))
    for number, options in enumerate(workers, 1):
        done = run(project, *common, f"--ssr-shard={number}/2", f"--ssr-store=../{number}", *options)
        planned = 4 - number
        # A shard does not fail by its own score.
        assert done.returncode == pytest.ExitCode.OK, done.stdout + done.stderr
        assert done.stdout.splitlines()[-1] == f"ssr: shard {number}/2: {planned} of {planned} planned changes tried"
    done = run(project, *common, "--ssr-shard=1/1", "--ssr-store=../one", "--ssr-json=../one.json")
    assert done.returncode == pytest.ExitCode.TESTS_FAILED, done.stdout + done.stderr
    capsys.readouterr()
    assert main(["merge", str(tmp_path / "1"), str(tmp_path / "2"), "--into", str(tmp_path / "all"), "--json"]) == 1
    one, joined = (tmp_path / "one.json").read_text(), capsys.readouterr().out
    assert one.partition('\n "run": ')[0] == joined.partition('\n "run": ')[0]
    assert json.loads(joined)["score"]["gate"] in ("under", "too-few")


@pytest.mark.any_pytest
def test_a_shard_without_changes_passes(project: Path, tmp_path: Path) -> None:
    done = run(project, "--ssr-inject", "--ssr-changes=1", "--ssr-shard=2/2", "--ssr-fail-under=50")
    assert done.returncode == pytest.ExitCode.OK, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "ssr: shard 2/2: 0 of 0 planned changes tried"


@pytest.mark.parametrize(
    "options",
    [
        ("--ssr-inject", "--ssr-shard=0/2"),
        ("--ssr-inject", "--ssr-shard=1/2", "--ssr-count=3"),
        ("--ssr-inject", "--ssr-shard=1/2", "--ssr-suggest=3"),
        ("--ssr-inject", "--ssr-shard=1/2", "-k", "clamp"),
        ("--ssr-validate=bugs", "--ssr-shard=3/2"),
        ("--ssr-solve=bugs", "--ssr-shard=1/2"),
    ],
)
def test_what_cannot_be_split_is_refused(project: Path, tmp_path: Path, options: tuple[str, ...]) -> None:
    bug = project / "bugs" / "b"
    bug.mkdir(parents=True)
    (bug / "bug_inject.diff").write_text("")
    (bug / "test_script.sh").write_text("")
    done = run(project, *options)
    assert done.returncode == pytest.ExitCode.USAGE_ERROR, done.stdout + done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.long
@pytest.mark.any_pytest
@pytest.mark.parametrize(
    ("options", "gate"),
    [
        (("--ssr-fail-under=0", "--ssr-changes=22"), "cut"),
        (("--ssr-fail-under=0", "--ssr-changes=44", "--ssr-shard=1/2"), None),
    ],
)
def test_a_session_that_its_time_budget_cuts_fails_and_says_so(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], gate: str | None
) -> None:
    # Enough changes for a figure, which reaches the limit.
    (tmp_path / "short_time.py").write_text(SHORT_TIME)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    common = ("--ssr-inject", "--ssr-time=1h", "--ssr-json=../out.json", "-p", "short_time")
    done = run(project, *common, *options)
    assert done.returncode == pytest.ExitCode.TESTS_FAILED, done.stdout + done.stderr
    content = json.loads((tmp_path / "out.json").read_text())
    assert (content["ending"]["cut"], content["ending"]["tried"], content["time_is_up"]) == ("time", TRIED, True)
    assert content["score"].get("gate") == gate
    assert done.stdout.splitlines()[-1].startswith(f"ssr: {'shard 1/2: ' if gate is None else ''}cut by the time ")
    for path in (project / ".ssr" / "shards").rglob("*.json"):
        assert json.loads(path.read_text())["ending"] == "time"


@pytest.mark.any_pytest
def test_an_interrupted_session_says_what_it_has_tried(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "interrupting.py").write_text(INTERRUPTING)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    gate = ("--ssr-fail-under=0", "--ssr-changes=22", "--ssr-shard=1/1", "--ssr-json=../out.json")
    done = run(project, "--ssr-inject", "-p", "interrupting", *gate)
    assert done.returncode == pytest.ExitCode.INTERRUPTED, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == f"ssr: shard 1/1: interrupted: {TRIED} of 22 planned changes tried"
    content = json.loads((tmp_path / "out.json").read_text())
    assert (content["ending"]["cut"], content["score"]["gate"]) == ("interrupt", "cut")
    (record,) = (project / ".ssr" / "shards").rglob("*.json")
    assert json.loads(record.read_text())["ending"] == "interrupted"


@pytest.mark.long
@pytest.mark.any_pytest
def test_validations_of_sessions_are_joined(project: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(project, "--ssr-inject", "--ssr-count=3", "--ssr-store=../made").returncode == 0
    bugs = shutil.copytree(tmp_path / "made" / "artifacts", project / "bugs")
    (sorted(bugs.iterdir())[1] / "test_parser.py").write_text("")
    codes = []
    for number, options in enumerate(((), ("-n", "2")), 1):
        done = run(project, "--ssr-validate=bugs", f"--ssr-shard={number}/2", f"--ssr-store=../{number}", *options)
        planned = "2 of 2 planned artifacts" if number == 1 else "1 of 1 planned artifact"
        assert done.stdout.splitlines()[-1] == f"ssr: shard {number}/2: {planned} validated"
        codes.append(done.returncode)
    assert codes == [pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED]
    capsys.readouterr()
    command = ["merge", str(tmp_path / "1"), str(tmp_path / "2"), "--into", str(tmp_path / "all"), "--json"]
    assert main(command) == ExitCode.NO
    joined = json.loads(capsys.readouterr().out)["artifacts"]
    assert [a["valid"] for a in joined] == [True, False, True]
    assert [Path(a["path"]).name for a in joined] == sorted(path.name for path in bugs.iterdir())
    assert Store(tmp_path / "all").fetch("validations")
