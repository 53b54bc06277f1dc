"""Test that a solver's task does not contain the answer, and that failed repairs become bugs."""

from __future__ import annotations

import graphlib
import io
import py_compile
import re
import shutil
import tarfile
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
from plain import plain_python
from proven import Proven

from harness.injectors.campaign import ModelCampaign
from harness.rollouts.runner import RolloutRunner
from harness.rollouts.task import find_copies, open_task
from harness.selfplay.higher_order import (
    FailedRepair,
    HigherOrderArtifacts,
    HigherOrderInjector,
    failed_repair_candidate,
    parent_rules,
)
from harness.solvers.search.solver import SearchSolver
from pytest_ssr.campaign.artifact_builder import candidate_state
from pytest_ssr.campaign.campaign import Campaign
from pytest_ssr.campaign.factory import open_runner
from pytest_ssr.errors import LeakError
from pytest_ssr.patch import FileEntry
from pytest_ssr.project.state import CodebaseState
from pytest_ssr.records.check_reasons import CheckCode
from pytest_ssr.sandbox.protocol import Limits
from pytest_ssr.settings import RuleSettings
from pytest_ssr.storage.store import Store

pytestmark = [pytest.mark.bubblewrap, pytest.mark.long]


def test_a_failed_repair_is_a_second_order_bug(proven: Proven, tmp_path: Path) -> None:
    original = CodebaseState(proven.runner.snapshot)
    buggy = original.apply(proven.artifact.bug)
    text = proven.source.replace("return a + b", "return a * b")
    wrong = buggy.replace({"calc.py": FileEntry(text.encode())}).patch_from(buggy)
    failed = FailedRepair(proven.verdict.artifact_id, proven.artifact, wrong)
    candidate = failed_repair_candidate(original, failed)
    assert candidate is not None
    assert (candidate.strategy, candidate.order, candidate.parent) == ("higher-order", 2, proven.verdict.artifact_id)
    assert candidate_state(proven.runner.snapshot, candidate).entry("calc.py") == FileEntry(text.encode())
    campaign = Campaign(proven.runner.scoped(), proven.store, [HigherOrderInjector([failed, failed])], seed=0)
    try:
        attempt = campaign.attempt(0)
        assert attempt is not None
        assert attempt.status == "valid", attempt.reason
        assert campaign.attempt(1) is None, "the same bug is made once"
    finally:
        campaign.close()
    campaign.take(attempt)
    info = proven.store.artifact(attempt.artifact_id).info
    assert (info["order"], info["parent"]) == (2, proven.verdict.artifact_id)
    assert info["injector"]["strategy"] == "higher-order"
    undone = FailedRepair(proven.verdict.artifact_id, proven.artifact, proven.artifact.bug.reverse())
    assert failed_repair_candidate(original, undone) is None, "a successful repair is not a bug"
    nothing = FailedRepair(proven.verdict.artifact_id, proven.artifact, proven.artifact.weaken.reverse())
    assert failed_repair_candidate(original, nothing) is None, "tests are not code"


def test_a_failed_repair_keeps_its_parent_s_tests_in_the_paper_s_form(proven: Proven, tmp_path: Path) -> None:
    original = CodebaseState(proven.runner.snapshot)
    buggy = original.apply(proven.artifact.bug)
    # Another test fails, too, which the parent's weakening does not hide.
    text = proven.source.replace("return a + b", "return a * b").replace("return low", "return high")
    wrong = buggy.replace({"calc.py": FileEntry(text.encode())}).patch_from(buggy)
    failed = FailedRepair(proven.verdict.artifact_id, proven.artifact, wrong)
    nothing = FailedRepair(proven.verdict.artifact_id, proven.artifact, proven.artifact.weaken.reverse())
    injector = HigherOrderArtifacts([failed, nothing])
    runner = proven.runner.scoped()
    runner = replace(runner, settings=parent_rules(runner.settings))
    campaign = ModelCampaign(runner, Store(tmp_path / "store"), injector, seed=0)
    attempt = campaign.attempt(0)
    assert attempt is not None
    assert attempt.status == "valid", attempt.reason
    artifact = campaign.store.artifact(attempt.artifact_id)
    parent = proven.artifact
    kept = (artifact.script, artifact.test_files, artifact.parser, artifact.weaken.data)
    assert kept == (parent.script, parent.test_files, parent.parser, parent.weaken.data)
    assert original.apply(artifact.bug).entry("calc.py") == FileEntry(text.encode())
    assert (artifact.info["order"], artifact.info["parent"]) == (2, proven.verdict.artifact_id)
    assert set(proven.verdict.fail_to_pass) < set(artifact.info["FAIL_TO_PASS"])
    undone = campaign.attempt(1)
    assert undone is not None
    assert undone.reason is not None
    assert undone.reason.code is CheckCode.NOTHING_CHANGED


def test_a_copy_of_the_fix_is_hidden_from_the_solver(proven: Proven, tmp_path: Path) -> None:
    runner = proven.runner.scoped()
    installed = tmp_path / "site-packages"
    installed.mkdir()
    (installed / "calc.py").write_text(proven.source)
    runner = replace(
        runner, interpreter=replace(runner.interpreter, readable=(*runner.interpreter.readable, installed))
    )
    assert [leak.path for leak in find_copies(proven.artifact, runner)] == [str(installed / "calc.py")]
    (installed / "more.py").write_text("X = 1\n")
    task = open_task(runner, proven.artifact, tmp_path / "task")
    assert str(installed / "calc.py") in task.interpreter.hidden
    shown = {"readable": task.interpreter.readable, "hidden": task.interpreter.hidden}
    with task.provider.open(task.folder, mount_at=str(task.origin), **shown) as sandbox:
        done = sandbox.exec(["cat", str(installed / "calc.py"), str(installed / "more.py")], limits=Limits())
    assert done.stdout == b"X = 1\n"


def _compile(folder: Path, text: str, *, level: int = 0, bare: bool = False) -> None:
    (folder / "calc.py").write_text(text)
    target = str(folder / "calc.pyc") if bare else None
    py_compile.compile(str(folder / "calc.py"), cfile=target, dfile="elsewhere.py", optimize=level)
    (folder / "calc.py").unlink()


def _of_another_python(folder: Path, text: str) -> None:
    _compile(folder, text, bare=True)
    data = (folder / "calc.pyc").read_bytes()
    (folder / "calc.pyc").write_bytes(b"\x01\x02\r\n" + data[4:])


def _zip(path: Path, name: str, data: bytes) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("other/notes.txt", b"x" * 1000)
        archive.writestr(name, data)


def _tar(path: Path, name: str, data: bytes, compression: str) -> None:
    with tarfile.open(path, f"w:{compression}") as archive:
        for member, content in (("calc-1/more.py", b"X = 1\n"), (name, data)):
            item = tarfile.TarInfo(member)
            item.size = len(content)
            archive.addfile(item, io.BytesIO(content))


COPIES = {
    "__pycache__/calc.cpython-311.pyc": _compile,
    "__pycache__/calc.cpython-311.opt-2.pyc": lambda f, text: _compile(f, text, level=2),
    "calc.pyc": lambda f, text: _compile(f, text, bare=True),
    "another.pyc": _of_another_python,
    "calc-1.whl": lambda f, text: _zip(f / "calc-1.whl", "calc.py", text.encode()),
    "calc-1.egg": lambda f, text: _zip(f / "calc-1.egg", "a/calc.py", text.encode()),
    "calc-1.zip": lambda f, text: _zip(f / "calc-1.zip", "calc.py", text.encode()),
    "calc-1.tar.gz": lambda f, text: _tar(f / "calc-1.tar.gz", "calc-1/src/calc.py", text.encode(), "gz"),
    "calc-1.tar.xz": lambda f, text: _tar(f / "calc-1.tar.xz", "calc-1/src/calc.py", text.encode(), "xz"),
}


@pytest.mark.parametrize("kind", COPIES)
def test_compiled_and_packed_copies_are_found(proven: Proven, tmp_path: Path, kind: str) -> None:
    """A copy of the buggy file, or another project's file of the same name, does not count."""
    plant = COPIES[kind]
    runner = proven.runner.scoped()
    runner = replace(runner, interpreter=replace(runner.interpreter, readable=(*runner.interpreter.readable, tmp_path)))
    buggy = CodebaseState(proven.runner.snapshot).apply(proven.artifact.bug).entry("calc.py")
    assert buggy is not None
    if kind != "another.pyc":
        plant(tmp_path, buggy.data.decode())
        assert find_copies(proven.artifact, runner) == []
    plant(tmp_path, "LIMIT = 7\n\n\ndef other(a, b):\n    return a + b\n\n\ndef more():\n    return [LIMIT]\n")
    assert find_copies(proven.artifact, runner) == []
    plant(tmp_path, proven.source)
    (leak,) = find_copies(proven.artifact, runner)
    (planted,) = [p for p in tmp_path.rglob("*") if p.is_file()]
    assert leak.path == str(planted)


def test_the_search_of_archives_is_limited(proven: Proven, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runner = proven.runner.scoped()
    runner = replace(runner, interpreter=replace(runner.interpreter, readable=(*runner.interpreter.readable, tmp_path)))
    _tar(tmp_path / "calc.tar.gz", "calc-1/calc.py", proven.source.encode(), "gz")
    (tmp_path / "broken.whl").write_bytes(b"PK\x03\x04")
    (tmp_path / "broken.tar.gz").write_bytes(b"\x1f\x8b")
    assert len(find_copies(proven.artifact, runner)) == 1
    for name, value in (("_ARCHIVES_S", 0), ("_ARCHIVES_BYTES", 10)):
        with monkeypatch.context() as patch:
            patch.setattr(f"harness.rollouts.task.{name}", value)
            assert find_copies(proven.artifact, runner) == []


def test_a_copy_of_the_fix_that_cannot_be_hidden_stops_the_attempts(proven: Proven, tmp_path: Path) -> None:
    runner = open_runner(
        proven.project, Store(tmp_path / "store"), settings=RuleSettings(), sandbox="process", python=plain_python()
    )
    installed = tmp_path / "site-packages"
    installed.mkdir()
    (installed / "calc.py").write_text(proven.source)
    runner = replace(
        runner, interpreter=replace(runner.interpreter, readable=(*runner.interpreter.readable, installed))
    )
    with pytest.raises(LeakError, match=r"a solver could read the fix of .* in .*site-packages/calc\.py"):
        open_task(runner, proven.artifact, tmp_path / "task")
    # `search` reads only the tree.
    store = Store(tmp_path / "store")
    attempts = RolloutRunner(runner, proven.artifact, proven.verdict, SearchSolver(), store).attempts(1)
    assert [rollout.verdict is not None for rollout in attempts] == [True]
    (installed / "calc.py").write_text("def other(a, b):\n    return a + b\n")
    open_task(runner, proven.artifact, tmp_path / "task")


def test_a_copy_of_the_fix_in_the_standard_library_is_not_hidden(proven: Proven, tmp_path: Path) -> None:
    """Pytest may need the module, as it needs `tomllib`, which is a copy of tomli."""
    project = tmp_path / "project"
    shutil.copytree(proven.project, project, ignore=shutil.ignore_patterns(".ssr"))
    (project / "backport").mkdir()
    shutil.copy(graphlib.__file__, project / "backport" / "graphlib.py")
    runner = open_runner(project, Store(tmp_path / "store"), settings=RuleSettings(), sandbox="bubblewrap")
    original = CodebaseState(runner.snapshot)
    entry = original.entry("backport/graphlib.py")
    assert entry is not None
    buggy = original.replace({"backport/graphlib.py": FileEntry(entry.data.replace(b"self._nfinished += 1", b"pass"))})
    artifact = replace(proven.artifact, bug=buggy.patch_from(original))
    with pytest.raises(LeakError, match=re.escape(graphlib.__file__)):
        open_task(runner, artifact, tmp_path / "task")
