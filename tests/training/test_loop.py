"""The closed loop plays, fits and measures, and continues after a kill."""

from __future__ import annotations

import json
import os
import shutil
import signal

import pytest
from board_parts import episode
from started import started, wait_for
from tiny_projects import CODE, project

from harness.cli.main import main
from harness.exporters.skipped import SkipCode, SkippedError
from harness.records.episode import Refusal, RefusalCode
from harness.solvers.search.policy import load_policy
from harness.training.search.loop import LoopReport, NotAttempted, not_attempted, repaired_files, write_report
from harness.training.search.stored_bugs import bug_in_one_function, stored_bugs
from pytest_ssr.campaign.factory import open_runner
from pytest_ssr.patch import FileEntry, Patch
from pytest_ssr.project.snapshot import take_snapshot
from pytest_ssr.project.state import CodebaseState
from pytest_ssr.records.artifact import MAX_FILE_BYTES, BugArtifact
from pytest_ssr.settings import RuleSettings
from pytest_ssr.storage.store import Store


@pytest.mark.long
@pytest.mark.bubblewrap
def test_the_loop_plays_and_measures_and_continues(tmp_path, capsys):
    one, two, other = (str(project(tmp_path, name)) for name in ("one", "two", "other"))
    out = tmp_path / "policy"
    arguments = ["train", "selfplay", one, two, "--held-out", other, "--out", str(out), "--json"]
    arguments += ["--count", "1", "--attempts", "2", "--tries", "30", "--held-out-bugs", "2", "--bugs", "30"]
    arguments += ["--injector", "mutation", "--held-out-attempts", "2", "--min-passing-tests", "1"]
    assert main([*arguments, "--rounds", "1"]) == 0
    first = json.loads(capsys.readouterr().out)
    assert [r["round"] for r in first["rounds"]] == [0, 1]
    assert first["bugs"] == 2
    assert [r["budget"] for r in first["rounds"][1]["held_out"]] == [5, 20]
    assert 0 < first["rounds"][1]["target"] < 1
    assert first["rounds"][1]["solve_rate"] is not None
    # Mutations of tiny functions are repaired by the inverse operators within thirty candidates.
    assert first["patterns"][1]["rate"] > 0
    # A second round continues: the first has the same results.
    assert main([*arguments, "--rounds", "2"]) == 0
    second = json.loads(capsys.readouterr().out)
    assert second["rounds"][:2] == first["rounds"]
    assert second["rounds"][2]["proven"] >= first["rounds"][1]["proven"]
    assert load_policy(out).key == load_policy(out / "policies" / "round-002").key
    assert json.loads((out / "report.json").read_text())["bugs"] == 2
    assert (out / "report.png").stat().st_size > 1000
    # The bugs and attempts of the store are learned from later, too, without those of a held-out project.
    bugs = list(stored_bugs([out / "store"], pytest.fail))
    assert {bug.project for bug in bugs} == {"one", "two", "other"}
    assert any(bug.bug.repairs for bug in bugs)
    files = {(bug.project, bug.bug.project()) for bug in bugs if bug.bug.project is not None}
    assert len(files) == 3, "the files of a project are read once"
    assert all(set(of_project.code) == {f"src/{name}.py"} for name, of_project in files)
    later = ["train", "search", one, two, "--episodes", str(out / "store"), "--bugs", "30", "--injector", "mutation"]
    assert main([*later, "--held-out", other, "--out", str(tmp_path / "later"), "--json"]) == 0
    learned = json.loads(capsys.readouterr().out)["proven"][0]
    # One of the two projects decides when to stop.
    assert learned in {sum(bug.project == name for bug in bugs) for name in ("one", "two")}
    assert load_policy(tmp_path / "later").trained_on["proven"] == learned > 0


@pytest.mark.long
@pytest.mark.bubblewrap
def test_a_loop_that_was_killed_gives_the_same_report(tmp_path, capsys):
    one, two, other = (str(project(tmp_path, name)) for name in ("one", "two", "other"))
    arguments = ["train", "selfplay", one, two, "--held-out", other, "--json", "--fixed-mixture", "--rounds", "1"]
    arguments += ["--count", "1", "--attempts", "2", "--tries", "20", "--held-out-bugs", "1", "--bugs", "20"]
    arguments += ["--injector", "mutation", "--held-out-attempts", "1", "--min-passing-tests", "1"]
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    assert main([*arguments, "--out", str(whole)]) == 0
    expected = json.loads(capsys.readouterr().out)
    # What is kept before the first attempt is tested elsewhere.
    Store(killed / "store")
    for finished in ("tokens", "examples", "store/trees", "store/baselines"):
        shutil.copytree(whole / finished, killed / finished, symlinks=True, dirs_exist_ok=True)
    process = started(*arguments, "--out", killed)
    wait_for(lambda: any(killed.glob("store/rollouts/*/trajectory.jsonl")) or process.poll() is not None)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert main([*arguments, "--out", str(killed)]) == 0
    assert json.loads(capsys.readouterr().out)["rounds"] == expected["rounds"]
    assert load_policy(killed).key == load_policy(whole).key


@pytest.mark.bubblewrap
def test_only_bugs_in_one_function_are_learned_from(tmp_path):
    folder = project(tmp_path, "one")
    runner = open_runner(folder, Store(tmp_path / "store"), settings=RuleSettings(), compiled=False)
    original, text = runner.original, CODE.format(name="one")

    def function(changed: str) -> str | None:
        buggy = original.replace({"src/one.py": FileEntry(changed.encode())})
        artifact = BugArtifact(b"", ("test_one.py",), b"", buggy.patch_from(original), Patch.parse(b""))
        bug = bug_in_one_function(artifact, "operator", original.entry)
        return bug.qualname if bug is not None else None

    one = text.replace("value < low", "value <= low")
    assert function(one) == "clamp"
    assert function(one.replace("least=1", "least=2")) is None
    assert function("LIMIT = 1\n\n\n" + one) is None
    assert function(one.replace("def clamp", "@staticmethod\ndef clamp")) is None
    assert function(one + "\n\ndef clamp(value):\n    return value\n") is None


@pytest.mark.bubblewrap
@pytest.mark.parametrize("damage", ["tree", "large", "manifest", "artifact", "edited", "pipe", ""])
def test_a_stored_bug_that_cannot_be_read_is_left_out(tmp_path, capsys, damage):
    one = project(tmp_path, "one")
    store = tmp_path / "store"
    make = ["inject", str(one), "--count", "1", "--store", str(store), "--min-passing-tests", "1", "--json"]
    assert main(make) == 0
    (artifact,) = (store / "artifacts").iterdir()
    if damage == "tree":
        (tree,) = (store / "trees").glob("*/tree/src/one.py")
        tree.chmod(0o644)
        tree.write_text("def clamp(): pass\n")
    elif damage == "large":
        (tree,) = (store / "trees").glob("*/tree/src/one.py")
        tree.chmod(0o644)
        tree.write_bytes(bytes(MAX_FILE_BYTES + 1))
    elif damage == "manifest":
        (manifest,) = (store / "trees").glob("*/manifest.json")
        manifest.write_text(json.dumps({"src/one.py": [[1], "hash"], "../other.py": [0o100644, "hash"]}))
    elif damage == "edited":
        # Comments of the script change nothing but the id.
        script = artifact / "test_script.sh"
        script.write_text(script.read_text() + "# more\n")
    elif damage == "pipe":
        (artifact / "artifact.json").unlink()
        os.mkfifo(artifact / "artifact.json")
    elif damage == "artifact":
        (artifact / "bug_inject.diff").write_text("not a patch\n")
    skipped: list[SkippedError] = []
    bugs = list(stored_bugs([store], lambda _, error: skipped.append(error)))
    no_tree = damage in ("tree", "manifest")
    assert [error.code for error in skipped] == [SkipCode.NO_TREE if no_tree else SkipCode.DAMAGED] * bool(damage)
    assert [bug.project for bug in bugs] == ([] if damage else ["one"])


def test_a_store_without_bugs_is_refused(tmp_path, capsys):
    one, two = (str(project(tmp_path, name)) for name in ("one", "two"))
    Store(tmp_path / "store").put_record("rollouts/none", "none", {})
    arguments = ["train", "search", one, two, "--episodes", str(tmp_path / "store"), "--out", str(tmp_path / "policy")]
    assert main(arguments) == 2
    assert not (tmp_path / "policy").exists()


def test_a_held_out_project_is_not_learned_from(tmp_path, capsys):
    one, two = (str(project(tmp_path, name)) for name in ("one", "two"))
    assert main(["train", "selfplay", one, two, "--held-out", two, "--out", str(tmp_path / "policy")]) == 2
    assert not (tmp_path / "policy").exists()


@pytest.mark.bubblewrap
@pytest.mark.parametrize(
    "mistake",
    [
        ["--alpha", "nan"],
        ["--alpha", "1"],
        ["--python", "/missing/python"],
        ["--sandbox", "missing"],
        ["one"],
        ["untested"],
        ["--held-out", "other", "--held-out", "other"],
    ],
    ids=" ".join,
)
def test_a_mistake_is_reported_before_any_example_is_made(tmp_path, monkeypatch, mistake):
    for name in ("one", "two", "other", "untested"):
        project(tmp_path, name)
    (tmp_path / "untested" / "test_untested.py").unlink()
    monkeypatch.chdir(tmp_path)
    assert main(["train", "selfplay", "one", "two", *mistake, "--out", "policy"]) == 2
    assert not (tmp_path / "policy" / "examples").exists()


def test_bugs_that_are_not_attempted_are_counted_by_project():
    hidden, broken = (Refusal(code, "in a.py") for code in (RefusalCode.FIX_READABLE, RefusalCode.PROJECT_UNUSABLE))
    episodes = [
        episode(number, project=name, refused=refused)
        for number, (name, refused) in enumerate([("a", hidden), ("b", None), ("a", broken), ("c", broken)])
    ]
    assert list(not_attempted(episodes)) == [NotAttempted("a", 2, hidden), NotAttempted("c", 1, broken)]


def test_a_report_leaves_the_unfinished_one_of_another_run(tmp_path):
    other = tmp_path / ".report.json"
    other.write_text("of another run")
    path = write_report(LoopReport(2, (), ()), tmp_path)
    assert json.loads(path.read_text())["bugs"] == 2
    assert other.read_text() == "of another run"


def test_only_repairs_of_the_file_with_the_bug_are_learned_from(tmp_path):
    buggy = CodebaseState(take_snapshot(project(tmp_path, "one"), tmp_path / "trees"))
    path, other = sorted(name for name in buggy.snapshot.files if name.endswith(".py"))[:2]
    right, elsewhere = FileEntry(b"x = 1\n", 0o100644), FileEntry(b"y = 2\n", 0o100644)
    own = buggy.replace({path: right}).patch_from(buggy)
    foreign = buggy.replace({other: elsewhere}).patch_from(buggy)
    both = buggy.replace({path: right, other: elsewhere}).patch_from(buggy)
    assert list(repaired_files(path, buggy, [foreign, own, both])) == [right.data]
