"""Artifacts, verdicts, snapshots, states and the store are written, read back, and refused when invalid."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.records.attempt import Attempt
from harness.records.episode import Episode
from pytest_ssr.errors import ArtifactError, ProjectError, SettingsError, StoreError
from pytest_ssr.execution.baseline import Baseline, Verification
from pytest_ssr.execution.coverage_map import CoverageMap
from pytest_ssr.patch import FileEntry, Patch, make_patch
from pytest_ssr.project.snapshot import take_snapshot
from pytest_ssr.project.state import CodebaseState
from pytest_ssr.records.artifact import BugArtifact, read_artifact, write_artifact
from pytest_ssr.records.candidate_result import CandidateResult, CandidateStatus
from pytest_ssr.records.check_reasons import CheckCode, CheckReason
from pytest_ssr.records.reasons import Flag, FlagCode, Reason, ReasonCode
from pytest_ssr.records.test_run import SetAside
from pytest_ssr.records.verdict import CheckResult, RunRecord, Verdict
from pytest_ssr.settings import RuleSettings
from pytest_ssr.storage.store import Store, resolve_artifact

BUG = make_patch({"calc.py": (FileEntry(b"a = 1\n"), FileEntry(b"a = 2\n"))})
WEAKEN = make_patch({"tests/test_a.py": (FileEntry(b"x\ny\n"), FileEntry(b"x\n"))})
ARTIFACT = BugArtifact(b"#!/bin/sh\n", ("tests/test_a.py",), b"print('{}')\n", BUG, WEAKEN)


@pytest.mark.parametrize("prompt_names", [False, True])
def test_an_artifact_round_trips_in_both_naming_schemes(tmp_path: Path, prompt_names: bool) -> None:
    write_artifact(tmp_path, ARTIFACT, prompt_names=prompt_names)
    assert ("bug_patch.diff" in os.listdir(tmp_path)) is prompt_names
    artifact = read_artifact(tmp_path)
    assert artifact == ARTIFACT
    assert artifact.content_id("tree") == ARTIFACT.content_id("tree")
    assert artifact.content_id("tree") != artifact.content_id("other")
    assert replace(artifact, script=b"#!/bin/sh\n\n").content_id("tree") != artifact.content_id("tree")


def damage(folder: Path, kind: str) -> None:
    if kind == "missing":
        (folder / "test_parser.py").unlink()
    elif kind == "extra":
        (folder / "notes.txt").write_text("x")
    elif kind == "twice":
        (folder / "bug_patch.diff").write_bytes(BUG.data)
    elif kind == "huge":
        (folder / "test_script.sh").write_bytes(b"#" * (16 * 1024**2 + 1))
    elif kind == "bytes":
        (folder / "test_parser.py").write_bytes(b"\xff\xfe")
    elif kind == "escape":
        (folder / "test_files.txt").write_text("../outside.py\n")
    elif kind == "absolute":
        (folder / "test_files.txt").write_text("/etc/passwd\n")
    elif kind == "link":
        (folder / "test_parser.py").unlink()
        (folder / "test_parser.py").symlink_to("/etc/passwd")
    elif kind == "diff":
        (folder / "bug_inject.diff").write_bytes(BUG.data.replace(b"@@ -1 ", b"@@ -1,7 "))
    elif kind == "leaving diff":
        (folder / "bug_inject.diff").write_bytes(BUG.data.replace(b"calc.py", b"../calc.py"))
    elif kind == "version":
        (folder / "artifact.json").write_text('{"schema_version": 99}')


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("missing", "test_parser.py missing; an artifact needs"),
        ("extra", "'notes.txt' does not belong to an artifact; remove it"),
        ("twice", "bug_inject.diff exists under both of its names; keep one"),
        ("huge", "test_script.sh is larger than 16 MiB"),
        ("bytes", "test_parser.py is not UTF-8 at byte 0"),
        ("escape", "line 1: '../outside.py' is not a plain relative path"),
        ("absolute", "line 1: '/etc/passwd' is not a plain relative path"),
        ("link", "test_parser.py is a symbolic link"),
        ("diff", "bug_inject.diff: line"),
        ("leaving diff", "bug_inject.diff: line"),
        ("version", "artifact.json has schema version 99; this release reads 1"),
    ],
)
def test_a_damaged_artifact_is_one_clear_error(tmp_path: Path, kind: str, message: str) -> None:
    write_artifact(tmp_path, ARTIFACT)
    damage(tmp_path, kind)
    with pytest.raises(ArtifactError) as caught:
        read_artifact(tmp_path)
    assert message in str(caught.value)


TEXT = st.text(max_size=12)
RESULT = st.builds(
    CheckResult,
    TEXT,
    st.sampled_from([True, False, None]),
    st.builds(CheckReason.of, st.sampled_from([CheckCode.FILE_MISSING]), files=st.lists(TEXT)),
    st.floats(0, 9),
    st.lists(st.builds(RunRecord, TEXT, TEXT, TEXT, st.floats(0, 9)), max_size=2).map(tuple),
)
RESULTS = st.lists(RESULT, max_size=3).map(tuple)
IDS = st.lists(TEXT, max_size=3).map(tuple)


@given(
    st.builds(
        Verdict,
        TEXT,
        TEXT,
        RESULTS,
        RESULTS,
        RESULTS,
        IDS,
        IDS,
        st.dictionaries(TEXT, st.sampled_from(SetAside)),
        st.dictionaries(TEXT, IDS),
    )
)
def test_a_verdict_round_trips(verdict: Verdict) -> None:
    assert Verdict.from_json(json.loads(json.dumps(verdict.to_json()))) == verdict
    assert "seconds" not in json.dumps(verdict.without_times()["checks"])


def test_a_verdict_without_all_of_its_results_is_not_valid() -> None:
    assert not Verdict("a", "b").valid
    with pytest.raises(StoreError, match="schema version 7"):
        Verdict.from_json({"schema_version": 7})


def git(folder: Path, *arguments: str) -> None:
    env = {"PATH": os.environ["PATH"], "HOME": str(folder), "GIT_CONFIG_NOSYSTEM": "1"}
    identity = ["-c", "user.name=A", "-c", "user.email=a@example.org"]
    subprocess.run(["git", *identity, *arguments], cwd=folder, env=env, check=True, capture_output=True)


@pytest.mark.parametrize("layout", ["plain", "git", "dirty", "subfolder"])
def test_a_snapshot_contains_the_project_s_files(tmp_path: Path, layout: str) -> None:
    top = tmp_path / "top"
    project = top / "sub" if layout == "subfolder" else top
    for name in ("src/pkg/__init__.py", "src/pkg/_version.py", "tests/test_a.py", "src/pkg.egg-info/PKG-INFO", "run"):
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text(name)
    (project / "run").chmod(0o755)
    (project / "link").symlink_to("run")
    for name in ("__pycache__/x.pyc", ".venv/pyvenv.cfg", ".venv/a.py", ".ssr/x.py", "build.log"):
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text("no")
    expected = {
        "src/pkg/__init__.py",
        "src/pkg/_version.py",
        "tests/test_a.py",
        "src/pkg.egg-info/PKG-INFO",
        "run",
        "link",
    }
    if layout == "plain":
        expected.add("build.log")
    else:
        (project / ".gitignore").write_text("_version.py\n*.egg-info\n*.log\n.venv\n")
        git(top, "init", "-q")
        git(top, "add", "-A")
        git(top, "commit", "-qm", "one")
        expected.add(".gitignore")
    if layout == "dirty":
        (project / "tests/test_a.py").unlink()
        (project / "new.py").write_text("new")
        expected = expected - {"tests/test_a.py"} | {"new.py"}
    snapshot = take_snapshot(project, tmp_path / "trees")
    assert set(snapshot.paths()) == expected
    assert snapshot.files["run"].mode == 0o100755
    assert snapshot.entry("link") == FileEntry(b"run", 0o120000)
    written = (tmp_path / "trees").stat().st_mtime_ns
    assert take_snapshot(project, tmp_path / "trees") == snapshot
    assert (tmp_path / "trees").stat().st_mtime_ns == written, "an existing copy is not written again"
    (snapshot.directory / "run").write_text("edited behind its back")
    restored = take_snapshot(project, tmp_path / "trees")
    assert restored.read("run") == b"run"


@pytest.mark.parametrize(
    ("text", "name"),
    [('[project]\nname = "calc"\n', "calc"), ("[project\n", "here"), ("[project]\nname = 3\n", "here"), (None, "here")],
)
def test_a_project_is_named_by_its_metadata_or_its_folder(tmp_path: Path, text: str | None, name: str) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "m.py").write_text("")
    if text is not None:
        (tmp_path / "here" / "pyproject.toml").write_text(text)
    assert take_snapshot(tmp_path / "here", tmp_path / "t").project_name == name


def test_states_are_values_of_the_snapshot(tmp_path: Path) -> None:
    (tmp_path / "p").mkdir()
    (tmp_path / "p" / "calc.py").write_bytes(b"a = 1\n")
    state = CodebaseState(take_snapshot(tmp_path / "p", tmp_path / "trees"))
    buggy = state.apply(BUG)
    assert buggy.entry("calc.py") == FileEntry(b"a = 2\n")
    assert buggy.tree_hash != state.tree_hash
    assert buggy.apply(BUG.reverse()).tree_hash == state.tree_hash
    assert buggy.patch_from(state).data == BUG.data
    assert buggy.restore(["calc.py"]) == state
    with pytest.raises(ArtifactError, match="may not make or change a symlink"):
        state.apply(make_patch({"x": (None, FileEntry(b"/etc", 0o120000))}))
    with pytest.raises(ArtifactError, match=r"calc\.py"):
        buggy.apply(BUG)


FLAG = Flag(FlagCode.TESTS_RESTORED, ("x.py:1: a table",))
ROLLOUT = Attempt("a", "s", Reason(ReasonCode.RESOLVED), id="r", resolved=True, reward=1.0, flags=(FLAG,))
EPISODE = Episode("p", "a", 1, 1, "", "direct", "m", "x.py", "f", 3, 2, True, None, rollouts=(ROLLOUT,))
ATTEMPT = CandidateResult(0, CandidateStatus.VALID, "s", "o", "p", 1, "", "", "")
REACH = CoverageMap(("t",), {"x.py": {(1, 0): 1}}, {}, 0, {})
BASELINE = Baseline(("t",), frozenset(("t",)), {}, {"t": 0.1}, {}, ("x.py",), (), 1.0, 0.1, "", "3", reach=REACH)
VERIFICATION = Verification({"t": SetAside.FLICKERS}, REACH)


@pytest.mark.parametrize("record", [ROLLOUT, EPISODE, ATTEMPT, BASELINE, VERIFICATION], ids=lambda r: type(r).__name__)
def test_an_incomplete_record_is_none_and_not_an_error(
    record: Attempt | Episode | CandidateResult | Baseline | Verification,
) -> None:
    data, kind = json.loads(json.dumps(record.to_json())), type(record)
    assert kind.from_json(data) == record
    assert kind.from_json({"schema_version": data["schema_version"]}) is None
    for key in data:
        kind.from_json({k: v for k, v in data.items() if k != key})
        for other in (5, None, "x", [1], {"a": 1}):
            kind.from_json({**data, key: other})


def test_several_runs_may_open_a_new_store_at_once(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        for number in range(20):
            list(pool.map(Store, [tmp_path / str(number)] * 8))


def test_a_store_is_atomic_and_lists_its_artifacts(tmp_path: Path) -> None:
    store = Store(tmp_path / "s")
    name = ARTIFACT.content_id("t")
    store.put_artifact(name, ARTIFACT)
    store.put_artifact(name, ARTIFACT)
    assert store.artifact_ids() == [name]
    assert store.artifact(name) == ARTIFACT
    assert resolve_artifact(name[:5], store).name == name
    store.make_spare(name)
    assert store.artifact_ids() == []
    assert store.has_artifact(name)
    store.publish(name)
    assert store.artifact_ids() == [name]
    store.make_spare(name)
    assert store.artifact_ids() == [name], "a later run that needs fewer removes nothing"
    other = "b" * 20
    store.put_artifact(other, ARTIFACT, spare=True)
    assert store.has_artifact(other)
    assert store.artifact_ids() == [name], "no run has published it"
    store.publish(other, provisional=True)
    assert store.artifact_ids() == sorted([name, other])
    store.make_spare(other)
    assert store.artifact_ids() == [name]
    leftover = tmp_path / "s" / "tmp" / "999999999-left"
    leftover.write_text("half")
    Store(tmp_path / "s")
    assert not leftover.exists()


def test_an_invalid_store_is_refused(tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "a.txt").write_text("mine")
    with pytest.raises(StoreError, match="is not a store and not empty"):
        Store(tmp_path / "full")
    Store(tmp_path / "old")
    (tmp_path / "old" / "ssr-store.json").write_text('{"store_version": 0}')
    with pytest.raises(StoreError, match="written by another release"):
        Store(tmp_path / "old")
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="choose another place with --store"):
        Store(tmp_path / "file" / "s")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_is_an_error_and_finished_work_stays(tmp_path: Path) -> None:
    store = Store(tmp_path / "s")
    store.put_record("verdicts", "done", {"a": 1})
    code = (
        "import resource, sys; from pathlib import Path; from pytest_ssr.storage.store import Store; import signal\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "store = Store(Path(sys.argv[1])); resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
        "store.put_record('verdicts', 'big', {'a': 'x' * 100000})\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(store.root)], capture_output=True, text=True, check=False)
    assert "StoreWriteError: cannot write" in done.stderr
    assert "(what is finished is kept)" in done.stderr
    assert store.record("verdicts", "done") == {"a": 1}
    assert store.record("verdicts", "big") is None
    assert not list((store.root / "tmp").iterdir())


@pytest.mark.parametrize("pid", ["0", "99999999999999999999"])
def test_temporary_files_of_impossible_processes_are_removed(tmp_path, pid):
    left = Store(tmp_path / "store").root / "tmp" / f"{pid}-left"
    left.mkdir()
    Store(tmp_path / "store")
    assert not left.exists()


def test_invalid_projects_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ProjectError, match="absent does not exist"):
        take_snapshot(tmp_path / "absent", tmp_path / "t")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ProjectError, match="holds no Python file"):
        take_snapshot(tmp_path / "empty", tmp_path / "t")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"min_failing_tests": 0}, "min_failing_tests must be at least 1, not 0"),
        ({"max_broken_fraction": 0.0}, r"max_broken_fraction must lie in \(0, 1\], not 0.0"),
        ({"time_limit_s": -1.0}, "time_limit must be a positive number of seconds, not -1.0"),
    ],
)
def test_impossible_settings_are_refused(values: dict[str, float], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        RuleSettings(**values)  # type: ignore[arg-type]


def test_an_empty_patch_is_a_patch() -> None:
    assert Patch.parse(b"").files == ()
