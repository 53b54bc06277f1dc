"""What a solver is given holds no answer; repairs that failed are bugs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from plain import plain_python
from proven import Proven

from harness.higher_order import Failed, HigherOrderInjector, candidate_of
from harness.tasks import copies, open_task
from pytest_ssr.campaign import Campaign
from pytest_ssr.codebase import CodebaseState
from pytest_ssr.errors import ProjectError
from pytest_ssr.making import candidate_state
from pytest_ssr.opening import open_workbench
from pytest_ssr.patch import FileEntry
from pytest_ssr.sandbox.protocol import Limits
from pytest_ssr.settings import RuleSettings
from pytest_ssr.store import Store

pytestmark = pytest.mark.bubblewrap


def test_a_failed_repair_is_a_bug_of_second_order(proven: Proven, tmp_path: Path) -> None:
    original = CodebaseState(proven.bench.snapshot)
    buggy = original.apply(proven.artifact.bug)
    text = proven.source.replace("return a + b", "return a * b")
    wrong = buggy.replace({"calc.py": FileEntry(text.encode())}).patch_from(buggy)
    failed = Failed(proven.verdict.artifact_id, proven.artifact, wrong)
    candidate = candidate_of(original, failed)
    assert candidate is not None
    assert (candidate.strategy, candidate.order, candidate.parent) == ("higher-order", 2, proven.verdict.artifact_id)
    assert candidate_state(proven.bench.snapshot, candidate).entry("calc.py") == FileEntry(text.encode())
    campaign = Campaign(proven.bench.scoped(), proven.store, [HigherOrderInjector([failed, failed])], seed=0)
    try:
        attempt = campaign.attempt(0)
        assert attempt is not None
        assert attempt.status == "valid", attempt.reason
        assert campaign.attempt(1) is None, "the same bug is made once"
    finally:
        campaign.close()
    info = proven.store.artifact(attempt.artifact_id).info
    assert (info["order"], info["parent"]) == (2, proven.verdict.artifact_id)
    assert info["injector"]["strategy"] == "higher-order"
    undone = Failed(proven.verdict.artifact_id, proven.artifact, proven.artifact.bug.reverse())
    assert candidate_of(original, undone) is None, "a repair is no bug"
    nothing = Failed(proven.verdict.artifact_id, proven.artifact, proven.artifact.weaken.reverse())
    assert candidate_of(original, nothing) is None, "tests are no code"


def test_a_copy_of_the_fix_is_hidden_from_the_solver(proven: Proven, tmp_path: Path) -> None:
    bench = proven.bench.scoped()
    installed = tmp_path / "site-packages"
    installed.mkdir()
    (installed / "calc.py").write_text(proven.source)
    bench.interpreter = replace(bench.interpreter, readable=(*bench.interpreter.readable, installed))
    assert [leak.path for leak in copies(proven.artifact, bench)] == [str(installed / "calc.py")]
    (installed / "more.py").write_text("X = 1\n")
    task = open_task(bench, proven.artifact, tmp_path / "task")
    assert str(installed / "calc.py") in task.interpreter.hidden
    shown = {"readable": task.interpreter.readable, "hidden": task.interpreter.hidden}
    with task.provider.open(task.folder, mount_at=str(task.origin), **shown) as sandbox:
        done = sandbox.exec(["cat", str(installed / "calc.py"), str(installed / "more.py")], limits=Limits())
    assert done.stdout == b"X = 1\n"


def test_a_copy_of_the_fix_that_cannot_be_hidden_stops_the_attempts(proven: Proven, tmp_path: Path) -> None:
    bench = open_workbench(
        proven.project, Store(tmp_path / "store"), settings=RuleSettings(), sandbox="process", python=plain_python()
    )
    installed = tmp_path / "site-packages"
    installed.mkdir()
    (installed / "calc.py").write_text(proven.source)
    bench.interpreter = replace(bench.interpreter, readable=(*bench.interpreter.readable, installed))
    with pytest.raises(ProjectError, match=r"a solver could read the fix of .* in .*site-packages/calc\.py"):
        open_task(bench, proven.artifact, tmp_path / "task")
    (installed / "calc.py").write_text("def other(a, b):\n    return a + b\n")
    open_task(bench, proven.artifact, tmp_path / "task")
