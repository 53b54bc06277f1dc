"""The search policy is learned from source code, ranks repairs, and survives a kill and damaged files."""

from __future__ import annotations

import hashlib
import json
import math
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from started import wait_for

import harness
import pytest_ssr
from harness.cli.main import main
from harness.models.factory import is_model
from harness.rollouts.player_factory import PlayerFactory
from harness.solvers.search.features import NAMES, Lines, ScopeFeatures
from harness.solvers.search.patterns import repairs_of
from harness.solvers.search.policy import GENERATOR, Policy, has_generator, load_policy
from harness.solvers.search.project_files import ProjectFiles
from harness.solvers.search.token_model import Kind, TokenModel, tokens_of
from harness.storage.atomic_write import write_bytes
from harness.training.search.examples import Bug, Example, examples_of, load_examples, save_examples, static_bugs
from harness.training.search.policy_fitting import (
    Lesson,
    ProvenExamples,
    StaticData,
    TrainingSettings,
    validation_folders,
)
from harness.training.search.ranker import Lists, fit
from harness.training.search.rates import compare, pattern_logits
from harness.training.search.reversal import Reversal, changed_lines, code_lines
from harness.training.search.sources import SourceFolder, open_sources, unique_names, without_shared_code
from harness.training.search.training import collect
from pytest_ssr.campaign.factory import load_injectors
from pytest_ssr.errors import ProjectError, SettingsError
from pytest_ssr.source.syntax_tree import Edit, parse, scopes

SOURCE = b"""\
def smallest(items, default):
    best = default
    for item in items:
        # A comment.
        if item > best:
            best = item
    return best
"""
_WAIT_S = 180
"""A machine under load may need so long to start a process."""
ORIGINAL = SOURCE.replace(b"item > best", b"item < best").replace(b"        # A comment.\n", b"")


def parsed(data: bytes = SOURCE):
    source = parse("a.py", data)
    assert source is not None
    return source, scopes(source)


def test_tokens_have_kinds_and_offsets():
    tokens = tokens_of(b'if x != "a b":  # why\n\n    y **= 0x1f\n', 10)
    assert [t.text for t in tokens] == [b"if", b"x", b"!=", b'"a b"', b":", b"\n", b"y", b"**=", b"0x1f", b"\n"]
    assert [t.kind for t in tokens[:4]] == [Kind.KEYWORD, Kind.NAME, Kind.SIGN, Kind.TEXT]
    assert tokens[1].start == 13


def test_tokens_of_incomplete_code_are_found():
    assert [t.text for t in tokens_of(b"x = 'open")] == [b"x", b"=", b"'", b"open"]


def test_a_sequence_that_was_seen_is_likelier():
    model = TokenModel()
    model.add(tokens_of(b"a.b(c)\na.b(d)\n"))
    assert model.log_probability(b"a", b".", b"b") > model.log_probability(b"a", b".", b"c")
    assert math.isfinite(model.log_probability(b"never", b"never", b"never"))


def test_the_reversal_is_recognized_without_comments_and_blank_space():
    source, all_scopes = parsed()
    reversal = Reversal(source, all_scopes[0], ORIGINAL)
    repairs = repairs_of(source, all_scopes[0], all_scopes)
    right = [r for r in repairs if reversal.matches(r)]
    assert right
    for repair in right:
        assert code_lines(SOURCE[: repair.edits[0].start] + repair.edits[0].text + SOURCE[repair.edits[0].end :]) == (
            code_lines(ORIGINAL)
        )
    assert len(right) < len(repairs)


def test_the_reversal_of_a_removed_last_line_is_recognized():
    buggy = SOURCE.replace(b"    return best\n", b"")
    source, all_scopes = parsed(buggy)
    end = all_scopes[0].node.end_byte
    repair = repairs_of(source, all_scopes[0], all_scopes)[0]
    assert Reversal(source, all_scopes[0], SOURCE).matches(
        replace(repair, edits=(Edit(end, end, b"\n    return best"),))
    )
    assert not Reversal(source, all_scopes[0], SOURCE).matches(
        replace(repair, edits=(Edit(end, end, b"\n    return 1"),))
    )


def test_changed_lines_are_those_of_the_larger_side():
    assert changed_lines(ORIGINAL, SOURCE) == 1
    assert changed_lines(b"a\nb\nc\n", b"a\n") == 2


def test_features_describe_the_change_and_not_its_pattern():
    source, all_scopes = parsed()
    repairs = repairs_of(source, all_scopes[0], all_scopes)
    model = TokenModel()
    model.add(tokens_of(SOURCE))
    rows = ScopeFeatures(source, all_scopes[0], model).rows(repairs)
    assert {len(row) for row in rows} == {len(NAMES)}
    assert np.isfinite(np.array(rows, dtype=float)).all()
    negation = next(i for i, r in enumerate(repairs) if any(e.text.startswith(b"not ") for e in r.edits))
    assert rows[negation][NAMES.index("negates")] == 1
    same = [row for row, r in zip(rows, repairs, strict=True) if r.edits == repairs[negation].edits]
    assert all(row == same[0] for row in same)


@given(lines=st.lists(st.frozensets(st.sampled_from([b"a", b"b", b"c", b"d"])), max_size=5), texts=st.data())
def test_the_most_similar_line_is_found(lines, texts):
    tokens, apart = (texts.draw(st.frozensets(st.sampled_from([b"a", b"b", b"c", b"x", b"y"]))) for _ in range(2))
    indices = [len(tokens & line) / len(tokens | line) for line in lines if line != apart and tokens | line]
    assert Lines(lines).likeness(tokens, apart) == max(indices, default=0.0)


def example(right: int, size: int = 4, project: str = "p", *, value: float = 1.0) -> Example:
    rows = np.zeros((size, len(NAMES)), dtype=np.float32)
    rows[right, 0] = value
    flags = np.arange(size) == right
    return Example(project, "operator", 1, rows, np.full(size, 1 / size), flags, size)


def slopes(function: Callable[[np.ndarray], float], at: np.ndarray) -> list[float]:
    """Return the numeric derivative of a function in each direction."""
    steps = 1e-5 * np.eye(len(at))
    return [(function(at + step) - function(at - step)) / 2e-5 for step in steps]


def test_the_gradients_are_those_of_the_loss_and_of_the_expected_reward():
    lists = Lists([example(1), example(2, 5)])
    logits = np.linspace(-1, 1, 9)
    losses = slopes(lambda values: lists.loss(values) * len(lists), logits)
    assert list(lists.gradient(logits)[0]) == pytest.approx(losses, abs=1e-6)
    rewards = slopes(lambda values: -lists.probabilities(values)[1].sum(), logits)
    assert list(lists.reward_gradient(logits)[0]) == pytest.approx(rewards, abs=1e-6)


def test_a_rewarded_repair_is_right_although_it_is_not_the_original():
    other = SOURCE.replace(b"item > best", b"item <= best")
    bug = Bug("o", "a.py", "smallest", ORIGINAL, SOURCE, repairs=(other,))
    (rewarded,) = examples_of(iter([bug]), "p", TokenModel(), count=1, seed=1)
    (reverse,) = examples_of(iter([replace(bug, repairs=None)]), "p", TokenModel(), count=1, seed=1)
    (neither,) = examples_of(iter([replace(bug, repairs=())]), "p", TokenModel(), count=1, seed=1)
    assert rewarded.is_covered
    assert reverse.is_covered
    assert not neither.is_covered


@pytest.mark.parametrize(
    ("lesson", "counts"), [(Lesson.REVERSE, (1, 0)), (Lesson.GRADES, (0, 1)), (Lesson.BOTH, (1, 1))]
)
def test_a_lesson_chooses_what_is_learned_from_a_proven_bug(lesson, counts):
    bug = Bug("o", "a.py", "smallest", ORIGINAL, SOURCE, repairs=())
    static = StaticData({}, TokenModel(), TrainingSettings(seed=1))
    proven = ProvenExamples.of([("p", bug), ("p", replace(bug, qualname="none"))], static, lesson)
    assert (len(proven.reversed), len(proven.rewarded)) == counts
    assert all(e.is_covered for e in proven.reversed)
    assert not any(e.is_covered for e in proven.rewarded)
    both = proven + proven
    assert (len(both.reversed), len(both.rewarded)) == (2 * counts[0], 2 * counts[1])


def test_pieces_of_namesakes_are_candidates_of_training(tmp_path):
    buggy = b"class A:\n    def read(self, line):\n        text = line.strip()\n        return text\n"
    guard = b"        if line is None:\n            raise NothingToRead(line)\n"
    original = buggy.replace(b"        text =", guard + b"        text =")
    files = {"a.py": original, "b.py": original.replace(b"class A", b"class B")}
    bug = Bug("o", "a.py", "A.read", original, buggy, project=lambda: ProjectFiles(files.keys(), files.get))
    (alone,) = examples_of(iter([replace(bug, project=None)]), "p", TokenModel(), count=1, seed=1)
    (among,) = examples_of(iter([bug]), "p", TokenModel(), count=1, seed=1)
    assert not alone.is_covered
    assert among.is_covered


def test_the_tests_of_a_project_have_their_own_key(tmp_path):
    for name, tests in (("one", "assert 1"), ("two", "assert 2")):
        (tmp_path / name / "tests").mkdir(parents=True)
        (tmp_path / name / "a.py").write_bytes(ORIGINAL)
        (tmp_path / name / "tests" / "test_a.py").write_text(tests)
    one, two = (SourceFolder(tmp_path / name) for name in ("one", "two"))
    assert one.key == two.key
    assert one.key_of_all != two.key_of_all


def test_rewards_change_the_ranker():
    examples = [example(i % 4, project=f"p{i % 3}") for i in range(120)]
    # Rewarded candidates have another feature than those that are right for the other examples.
    rewarded = []
    for index in range(200):
        rows = np.zeros((4, len(NAMES)), dtype=np.float32)
        rows[index % 4, 1] = 1
        rewarded.append(replace(examples[0], rows=rows, right=np.arange(4) == index % 4))
    plain, taught = (fit(examples, examples, seed=1, rewarded=r) for r in ([], rewarded))
    rows = rewarded[0].rows
    margins = [m.predict(rows) for m in (plain, taught)]
    assert margins[1][0] - margins[1][1] > margins[0][0] - margins[0][1] + 0.5


def test_left_out_candidates_count():
    # 3 wrong candidates stand for 30: the right one has 1 of 31 parts.
    full = example(0)
    lists = Lists([Example("p", "o", 1, full.rows, full.shares, full.right, 31)])
    assert lists.probabilities(np.zeros(4))[1][0] == pytest.approx(1 / 31)


def test_a_ranker_learns_which_candidate_is_right():
    examples = [example(i % 4, project=f"p{i % 3}") for i in range(120)]
    ranker = fit(examples, examples, seed=1)
    logits = ranker.predict(examples[0].rows)
    assert logits[0] == max(logits)
    assert list(logits).count(logits[0]) == 1
    comparison = compare(examples, lambda e: ranker.predict(e.rows), seed=1)
    assert comparison.policy[0].rate > comparison.patterns[0].rate + 0.2
    assert comparison.policy[0].by_bug[0] <= comparison.policy[0].rate <= comparison.policy[0].by_bug[1]


def test_bugs_without_a_right_candidate_count_in_rates():
    missed = Example("p", "o", 3, np.zeros((0, len(NAMES)), np.float32), np.zeros(0), np.zeros(0, bool), 50)
    comparison = compare([example(0), missed], lambda e: np.zeros(len(e.right)), seed=1)
    assert (comparison.bugs, comparison.covered) == (2, 1)
    assert max(r.rate for r in comparison.policy) == pytest.approx(0.5)


def test_left_out_candidates_count_in_rates():
    # Without weights, the right one of 1000 candidates is the first of them once in 1000 draws.
    full = example(0)
    one = Example("p", "o", 1, full.rows, full.shares, full.right, 1000)
    comparison = compare([one] * 50, lambda e: np.zeros(len(e.right)), seed=1)
    assert [r.rate for r in comparison.policy] == pytest.approx([0.001, 0.005, 0.02, 0.1], abs=0.03)


def test_one_project_has_no_interval_by_project():
    one, other = example(0), example(1, project="other")
    assert compare([one, one], pattern_logits, seed=1).policy[0].by_project is None
    assert compare([one, other], pattern_logits, seed=1).policy[0].by_project is not None


def test_projects_that_are_not_played_decide_when_to_stop():
    bare = replace(example(0), right=np.zeros(4, bool))
    groups = {Path(f"top{i}/src"): [example(0, project=f"src (top{i})")] for i in range(5)}
    static = StaticData({**groups, Path("bare"): [bare]}, TokenModel(), TrainingSettings())
    for path in groups:
        (validating,) = validation_folders(static, seed=1, played=[p for p in groups if p != path])
        assert validating == path
    first = next(iter(groups))
    with pytest.raises(ProjectError):
        validation_folders(replace(static, examples={first: groups[first], Path("bare"): [bare]}), seed=1)


def test_projects_of_one_folder_name_are_two_projects(projects, tmp_path):
    for index, name in ((0, "one"), (1, "two")):
        shutil.copytree(projects[index], tmp_path / name / "src")
    shutil.copytree(projects[0], tmp_path / "copy")
    sources = open_sources([tmp_path / "one" / "src", tmp_path / "two" / "src", tmp_path / "one" / "src"])
    assert len(set(unique_names(sources).values())) == len(sources) == 2
    # A copy, a folder inside and a folder around share code with the first project.
    assert sources[0].shares_code(SourceFolder(tmp_path / "copy"))
    assert sources[0].shares_code(SourceFolder(tmp_path / "one"))
    assert not sources[0].shares_code(sources[1])


def test_a_project_and_its_installed_copy_share_code(projects, tmp_path, capsys):
    for top in ("site/fee", "repository/src/fee"):
        shutil.copytree(projects[2], tmp_path / top)
        (tmp_path / top / "__init__.py").write_text("")
    shutil.copytree(projects[1], tmp_path / "other")
    (tmp_path / "other" / "__init__.py").write_text("")
    (tmp_path / "repository" / "setup.py").write_text("from setuptools import setup\n\nsetup()\n")
    held_out = SourceFolder(tmp_path / "repository")
    installed, other = open_sources([tmp_path / "site" / "fee", tmp_path / "other"])
    assert installed.shares_code(held_out)
    assert held_out.shares_code(installed)
    # Both have the same empty file.
    assert not other.shares_code(held_out)
    lines: list[str] = []
    assert without_shared_code([installed, other], [held_out], lines.append) == [other]
    assert [str(installed.folder) in line for line in lines] == [True]


@pytest.mark.long
def test_a_damaged_token_model_is_made_again(projects, tmp_path):
    sources = [SourceFolder(p) for p in projects[:2]]
    settings = TrainingSettings(bugs=1, injectors="mutation")

    def run() -> StaticData:
        return collect(sources, tmp_path, settings, watch=lambda _: None, finished=lambda *_: None)

    first = run()
    (path,) = (tmp_path / "tokens").iterdir()
    path.write_bytes(b"PK")
    assert run().tokens == first.tokens


def test_a_built_copy_gets_no_bugs(projects, tmp_path):
    shutil.copytree(projects[0], tmp_path / "src" / "fee")
    before = SourceFolder(tmp_path)
    shutil.copytree(tmp_path / "src" / "fee", tmp_path / "build" / "lib" / "fee")
    after = SourceFolder(tmp_path)
    assert len(after.paths()) == 2 * len(before.paths())
    assert after.code_paths() == before.code_paths()
    # What is learned elsewhere must not be in such a copy, either.
    for path in before.code_paths():
        (tmp_path / path).write_text("def changed(): pass\n")
    assert SourceFolder(projects[0]).shares_code(SourceFolder(tmp_path))


def test_examples_are_read_as_they_were_written(projects, tmp_path):
    bugs = static_bugs(SourceFolder(projects[0]), load_injectors("mutation"), seed=1)
    examples = list(examples_of(bugs, "p", TokenModel(), count=12, seed=1))
    assert len(examples) == 12
    assert any(e.is_covered for e in examples)
    save_examples(tmp_path / "e.npz", examples)
    for one, other in zip(examples, load_examples(tmp_path / "e.npz"), strict=True):
        assert (one.project, one.operator, one.candidates) == (other.project, other.operator, other.candidates)
        assert np.array_equal(one.rows, other.rows)
        assert np.array_equal(one.right, other.right)


def test_installed_packages_are_projects_of_their_own(tmp_path):
    for name in ("one", "two", "three-1.0.dist-info"):
        (tmp_path / name).mkdir()
    (tmp_path / "one" / "__init__.py").write_text("x = 1\n")
    (tmp_path / "two" / "__init__.py").write_text("x = 2\n")
    assert [s.name for s in open_sources([tmp_path])] == ["one", "two"]
    with pytest.raises(ProjectError):
        open_sources([tmp_path / "three-1.0.dist-info"])


@pytest.fixture(scope="session")
def trained(projects, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("policy") / "out"
    sources = [str(p) for p in projects[:3]]
    arguments = ["--held-out", str(projects[3]), "--bugs", "40", "--out", str(out), "--injector", "mutation"]
    assert main(["train", "search", *sources, *arguments]) == 0
    return out


@pytest.mark.long
def test_a_policy_is_trained_and_scores_repairs(trained):
    policy = load_policy(trained)
    source, all_scopes = parsed()
    repairs = repairs_of(source, all_scopes[0], all_scopes)
    scores, total = policy.scores(source, all_scopes[0], repairs), sum(r.weight for r in repairs)
    assert len(scores) == len(repairs)
    assert scores != pytest.approx([math.log(r.weight / total) for r in repairs])
    assert policy.scores(source, all_scopes[0], []) == []
    assert PlayerFactory().solver(f"search:policy={trained}").name == f"search:policy={trained}"


@pytest.mark.long
def test_a_policy_names_only_the_files_that_it_has_written(trained, tmp_path, monkeypatch):
    folder = tmp_path / "policy"
    policy = load_policy(trained)
    # The network of an earlier policy, which would count as a model.
    folder.mkdir()
    (folder / GENERATOR).write_bytes(b"")
    policy.save(folder)
    assert not has_generator(folder)
    assert load_policy(folder).key == policy.key

    def write_and_lose(path: Path, data: bytes) -> None:
        write_bytes(path, data)
        if path.name == "ranker.txt":
            # As if another run wrote its own ranker in between.
            path.write_text(policy.ranker.text.replace("\nend of trees", "\n\nend of trees"))

    monkeypatch.setattr("harness.solvers.search.policy.write_bytes", write_and_lose)
    policy.save(folder)
    with pytest.raises(SettingsError):
        load_policy(folder)


@pytest.mark.long
def test_without_a_share_the_scores_are_those_of_the_patterns(trained):
    policy = load_policy(trained)
    source, all_scopes = parsed()
    repairs = repairs_of(source, all_scopes[0], all_scopes)
    total = sum(r.weight for r in repairs)
    scores = Policy(policy.ranker, policy.tokens, share=0.0, sharpness=1.0).scores(source, all_scopes[0], repairs)
    assert scores == pytest.approx([math.log(r.weight / total) for r in repairs])


@pytest.mark.long
def test_a_second_run_reads_the_examples_of_the_first(trained, projects, capsys):
    stored = {p: p.stat().st_mtime_ns for p in (trained / "examples").iterdir()}
    assert len(stored) == 4
    before = (trained / "ranker.txt").read_bytes()
    # As after a kill: one project is missing, one file is cut, and there is no policy.
    first, second = sorted(stored)[:2]
    first.unlink()
    second.write_bytes(second.read_bytes()[:100])
    (trained / "policy.json").unlink()
    arguments = ["--held-out", str(projects[3]), "--bugs", "40", "--out", str(trained), "--injector", "mutation"]
    assert main(["train", "search", *(str(p) for p in projects[:3]), *arguments, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (trained / "ranker.txt").read_bytes() == before
    assert {p for p, time in stored.items() if p.stat().st_mtime_ns != time} == {first, second}
    assert report["comparison"]["bugs"] == report["held_out"]["cost"][0]
    assert report["trees"] >= 1


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_training_leaves_no_process(trained, tmp_path, number):
    sources = [str(Path(package.__file__).parent) for package in (pytest_ssr, harness)]
    command = [sys.executable, "-m", "harness.cli", "train", "search", *sources, "--bugs", "100000"]
    # Counting them takes most of the time until workers start.
    shutil.copytree(trained / "tokens", tmp_path / "out" / "tokens")
    run = subprocess.Popen(
        [*command, "--out", str(tmp_path / "out")],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        children = Path(f"/proc/{run.pid}/task/{run.pid}/children")
        # The worker, and the process that watches shared resources.
        wait_for(lambda: len(children.read_text().split()) == 2)
        pids = [int(p) for p in children.read_text().split()]
        if number != signal.SIGTERM:
            # Python itself prints a traceback in a worker that is half started when its parent is killed.
            wait_for(lambda: ignores_interrupts(pids))
        # A terminal sends Ctrl-C to all processes.
        os.killpg(run.pid, number) if number == signal.SIGINT else run.send_signal(number)
        assert "Traceback" not in run.communicate(timeout=_WAIT_S)[1]
        assert run.returncode == (-number if number == signal.SIGKILL else 3)
        wait_for(lambda: not any(is_running(p) for p in pids))
    finally:
        run.kill()
        run.communicate()


def ignores_interrupts(pids: list[int]) -> bool:
    states = [Path(f"/proc/{pid}/status").read_text() for pid in pids]
    masks = [line.split()[1] for state in states for line in state.splitlines() if line.startswith("SigIgn:")]
    return all(int(mask, 16) & 1 << (signal.SIGINT - 1) for mask in masks)


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.long
@pytest.mark.parametrize("damage", ["missing", "other-version", "changed", "cut"])
def test_a_folder_without_a_policy_is_refused(trained, tmp_path, damage):
    folder = tmp_path / "copy"
    shutil.copytree(trained, folder)
    if damage == "missing":
        (folder / "policy.json").unlink()
    elif damage == "other-version":
        settings = json.loads((folder / "policy.json").read_text())
        (folder / "policy.json").write_text(json.dumps({**settings, "features": ["one"]}))
    elif damage == "changed":
        (folder / "ranker.txt").write_text("tree\n")
    else:
        (folder / "policy.json").write_text("{")
    with pytest.raises(SettingsError):
        load_policy(folder)


@pytest.mark.long
@pytest.mark.parametrize(
    "values",
    [
        {"share": 5},
        {"share": math.nan},
        {"share": 10**400},
        {"sharpness": 0},
        {"sharpness": math.inf},
        {"hashes": {}},
        {"hashes": {"../other": "0"}},
    ],
)
def test_a_policy_with_other_settings_is_refused(trained, tmp_path, values):
    folder = tmp_path / "copy"
    shutil.copytree(trained, folder)
    settings = json.loads((folder / "policy.json").read_text())
    (folder / "policy.json").write_text(json.dumps({**settings, **values}))
    with pytest.raises(SettingsError):
        load_policy(folder)


@pytest.mark.long
@pytest.mark.parametrize("data", [b"", b"PK", b"text"])
def test_a_damaged_token_model_is_refused(trained, tmp_path, data):
    folder = tmp_path / "copy"
    shutil.copytree(trained, folder)
    settings = json.loads((folder / "policy.json").read_text())
    settings["hashes"]["tokens.npz"] = hashlib.sha256(data).hexdigest()
    (folder / "policy.json").write_text(json.dumps(settings))
    (folder / "tokens.npz").write_bytes(data)
    with pytest.raises(SettingsError):
        load_policy(folder)


@pytest.mark.long
def test_all_scores_are_finite(trained):
    source, all_scopes = parsed()
    repairs = repairs_of(source, all_scopes[0], all_scopes)

    class Certain:
        def predict(self, rows):
            return [1e6 * (index == 0) for index in range(len(rows))]

    scores = Policy(Certain(), TokenModel()).scores(source, all_scopes[0], repairs)
    assert all(math.isfinite(score) for score in scores)


@pytest.mark.parametrize(
    "changes",
    [
        {"rows": lambda rows: rows[:, 0]},
        {"rows": lambda rows: rows[:3]},
        {"rows": lambda rows: rows * math.nan},
        {"sizes": lambda sizes: -sizes},
        {"project": lambda names: names[:1]},
        {"right": lambda right: right * 1.5},
        {"candidates": lambda counts: counts * 0},
    ],
)
def test_damaged_examples_are_refused(tmp_path, changes):
    path = tmp_path / "e.npz"
    save_examples(path, [example(1), example(2)])
    with np.load(path) as stored:
        arrays = dict(stored)
    np.savez(path, **{name: changes[name](a) if name in changes else a for name, a in arrays.items()})
    with pytest.raises(ValueError, match="damaged"):
        load_examples(path)


def test_only_the_files_of_examples_are_left(tmp_path):
    save_examples(tmp_path / "e.npz", [example(1)])
    assert [p.name for p in tmp_path.iterdir()] == ["e.npz"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["one"],
        ["none", "two"],
        ["one", "two", "--injector", "nothing"],
        ["one", "two", "--share", "2"],
        ["one", "two", "--seed", "-1"],
        ["one", "two", "--holes", "5"],
        ["one", "two", "--lesson", "grades"],
    ],
)
def test_wrong_arguments_of_training_are_reported(projects, tmp_path, monkeypatch, arguments, capsys):
    monkeypatch.chdir(tmp_path)
    for link, target in (("one", projects[0]), ("two", projects[1])):
        (tmp_path / link).symlink_to(target)
    assert main(["train", "search", *arguments]) == 2
    assert "Traceback" not in capsys.readouterr().err


def test_a_group_of_commands_is_no_command():
    for words in (["train"], ["train", "seek"], ["train", "--seed", "1"]):
        assert main(words) == 2


def test_a_policy_is_not_a_model():
    assert not is_model("search:policy=some/folder")
    with pytest.raises(SettingsError):
        PlayerFactory().solver("search:folder=some/folder")
