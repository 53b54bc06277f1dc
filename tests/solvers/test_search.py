"""The solver without a model repairs, sees only what it may, and does the same for the same seed."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from proven import FILE, TEST_ADD, Proven, make

from harness.solvers.protocol import SolverTask
from harness.solvers.search.donors import idle_names, known_everywhere
from harness.solvers.search.ground import allowance
from harness.solvers.search.localisation import ochiai
from harness.solvers.search.patterns import repairs_of
from harness.solvers.search.solver import SearchSolver
from harness.solving import Solving
from harness.tasks import open_task
from harness.trajectory import ExitReason, Journal, Trajectory
from pytest_ssr.codebase import CodebaseState
from pytest_ssr.execution.baseline import Baseline
from pytest_ssr.injectors.operators import OPERATORS
from pytest_ssr.injectors.python_source import parse, scopes, splice
from pytest_ssr.opening import open_workbench
from pytest_ssr.patch import FileEntry, Patch
from pytest_ssr.reasons import ReasonCode
from pytest_ssr.settings import RuleSettings
from pytest_ssr.snapshot import take_snapshot
from pytest_ssr.store import Store

pytestmark = pytest.mark.long


def repaired(source: str) -> set[str]:
    parsed = parse("a.py", source.encode())
    assert parsed is not None
    there = scopes(parsed)
    return {splice(parsed.data, r.edits).decode() for s in there for r in repairs_of(parsed, s, there)}


@pytest.mark.parametrize(
    ("buggy", "fixed"),
    [
        ("def f(a, b):\n    return a - b\n", "def f(a, b):\n    return a + b\n"),
        ("def f(a, b):\n    return None\n", "def f(a, b):\n    return a + b\n"),
        ("def f(a):\n    if a:\n        return 1\n    return 2\n", "def f(a):\n    if not a:\n        return 1\n    return 2\n"),
        ("def f(a, b):\n    if a < b:\n        return 1\n", "def f(a, b):\n    if a <= b:\n        return 1\n"),
        ("def f(a, b):\n    g(a)\n", "def f(a, b):\n    return g(a)\n"),
        ("def f(x, lo, hi):\n    if x < lo:\n        return lo\n    return x\n",
         "def f(x, lo, hi):\n    if x < lo:\n        return lo\n    if x > hi:\n        return hi\n    return x\n"),
        ("def f(a, b):\n    if a and c(b):\n        return a\n    if a:\n        return b\n",
         "def f(a, b):\n    if a and c(b):\n        return a\n    if a and c(b):\n        return b\n"),
        ("def f(a, b):\n    return g(a)\n\n\ndef h(a, b):\n    return g(a, key=b)\n",
         "def f(a, b):\n    return g(a, key=b)\n\n\ndef h(a, b):\n    return g(a, key=b)\n"),
        ("def read_text(a):\n    pass\n\n\ndef read_bytes(a):\n    b = a.open()\n    return b\n",
         "def read_text(a):\n    b = a.open()\n    return b\n\n\ndef read_bytes(a):\n    b = a.open()\n    return b\n"),
        ("import json\n\n\ndef loads(a):\n    return None\n\n\ndef dumps(a):\n    return json.dumps(a)\n",
         "import json\n\n\ndef loads(a):\n    return json.loads(a)\n\n\ndef dumps(a):\n    return json.dumps(a)\n"),
        ("def indent(a, n):\n    pass\n\n\ndef offset(b, m):\n    b.offset += m\n    yield b\n",
         "def indent(a, n):\n    a.indent += n\n    yield a\n\n\ndef offset(b, m):\n    b.offset += m\n    yield b\n"),
        ("def f(a, key):\n    return sorted(a)\n", "def f(a, key):\n    return sorted(a, key=key)\n"),
        ("def f(a, by):\n    return sorted(a)\n", "def f(a, by):\n    return sorted(a, key=by)\n"),
        ("def f(a):\n    return [str(x) for x in a]\n", "def f(a):\n    return [str(x).strip() for x in a]\n"),
        ("def f(a):\n    return None\n\n\ndef g(b):\n    next(b)\n    iter(b)\n",
         "def f(a):\n    return next(iter(a))\n\n\ndef g(b):\n    next(b)\n    iter(b)\n"),
        ("def f(a):\n    return None\n\n\ndef g(b):\n    print(len(b) + 1)\n",
         "def f(a):\n    return len(a) + 1\n\n\ndef g(b):\n    print(len(b) + 1)\n"),
        ("def f(e):\n    r = b''\n    return r\n\n\ndef g(e):\n    return e.payload\n",
         "def f(e):\n    r = e.payload or b''\n    return r\n\n\ndef g(e):\n    return e.payload\n"),
        ("try:\n    pass\nexcept KeyError:\n    pass\n\n\ndef f(a):\n    try:\n        return a[0]\n    except ValueError:\n        return 1\n",
         "try:\n    pass\nexcept KeyError:\n    pass\n\n\ndef f(a):\n    try:\n        return a[0]\n    except KeyError:\n        return 1\n"),
    ],
)  # fmt: skip
def test_a_bug_has_its_repair_among_the_candidates(buggy: str, fixed: str) -> None:
    assert fixed in {r.replace("\n\n    if x > hi", "\n    if x > hi") for r in repaired(buggy)}


def test_many_operators_have_their_inverse_among_the_patterns() -> None:
    undone = set()
    for operator in OPERATORS:
        for source, mutant in operator.examples:
            if source in repaired(mutant):
                undone.add(operator.name)
    assert len(undone) >= 19, sorted(undone)


def test_a_repair_that_uses_what_nothing_uses_is_likelier() -> None:
    parsed = parse("a.py", b"def f(a, b, c):\n    x = a + b\n    return g(c, c)\n")
    assert parsed is not None
    (scope,) = (s for s in scopes(parsed) if s.kind == "function")
    assert idle_names(parsed, scope) == {b"x"}
    weights = {
        splice(parsed.data, r.edits): r.weight for r in repairs_of(parsed, scope, [scope]) if r.pattern == "other-name"
    }
    used, other = (weights[parsed.data.replace(b"(c, c)", text)] for text in (b"(c, x)", b"(c, a)"))
    assert used == pytest.approx(8 * other)


def test_suspicion_is_highest_where_only_failing_tests_come() -> None:
    assert ochiai(0, 5, 2) == 0
    assert ochiai(2, 0, 2) == 1
    assert ochiai(2, 2, 2) < ochiai(2, 1, 2) < 1


def test_a_module_s_names_are_known() -> None:
    source = parse("a.py", b"import os\nfrom sys import path as p\nX = 1\n\ndef f():\n    y = 1\n")
    assert source is not None
    assert {b"os", b"p", b"X", b"f", b"len"} <= known_everywhere(source)
    assert b"y" not in known_everywhere(source)


@pytest.mark.bubblewrap
def test_it_repairs_and_the_same_seed_gives_the_same(proven: Proven) -> None:
    first = Solving(proven.bench, proven.artifact, proven.verdict, SearchSolver(), proven.store).attempts(2)
    # The one test of `add` also holds for `a | b`, which is no repair, and the grade knows that.
    assert any(r.resolved for r in first), [r.reason for r in first]
    assert all(r.resolved or r.reason.code is ReasonCode.NOT_REPAIRED for r in first), [r.reason for r in first]
    again = Solving(proven.bench, proven.artifact, proven.verdict, SearchSolver(tries=399), proven.store).attempts(2)
    assert [r.patch_sha256 for r in again] == [r.patch_sha256 for r in first]
    assert not {r.id for r in again} & {r.id for r in first}, "other settings are other attempts"
    known = Solving(proven.bench, proven.artifact, proven.verdict, SearchSolver(), proven.store).attempts(2)
    assert known == first


@pytest.mark.bubblewrap
def test_a_server_that_is_lost_fails_no_candidate(proven: Proven, tmp_path: Path) -> None:
    task, solver = open_task(proven.bench, proven.artifact, tmp_path / "task"), SearchSolver()
    ground = solver._ground(task)
    assert ground.bench.warm is not None
    for mode in ("swap", "import"):
        ground.bench.warm.refuse(mode, "servers are lost")
    fixed = ground.original.apply(proven.artifact.bug.reverse())
    tried = ground.tried(fixed)
    assert (tried.whole, set(tried.repaired)) == (True, set(ground.few))
    assert not ground.tried(ground.original).whole
    solver.release(task)


@pytest.mark.bubblewrap
def test_a_bug_in_two_places_is_undone_one_after_the_other(project: Path, proven: Proven) -> None:
    both = {"return a + b": "return a - b", "if x > high:\n        return high": "if x > high:\n        return low"}
    two = make(project, proven.store, both, {TEST_ADD: "", ", (9, 4)": ""})
    solving = Solving(two.bench, two.artifact, two.verdict, SearchSolver(tries=1500), two.store)
    try:
        assert any(solving.attempt(number).resolved for number in range(2))
    finally:
        solving.close()


@pytest.mark.bubblewrap
def test_where_all_tests_of_the_specification_fail_others_say_what_works(proven: Proven, tmp_path: Path) -> None:
    """Of a file that the weakening has left no test in."""
    project, path = tmp_path / "more", "tests/test_more.py"
    shutil.copytree(proven.project, project)
    (project / path).write_text("from calc import add\n\n\ndef test_more():\n    assert add(3, 4) == 7\n")
    bench = open_workbench(project, Store(tmp_path / "store"), settings=RuleSettings())
    task = open_task(bench, proven.artifact, tmp_path / "task")
    state = CodebaseState(bench.snapshot).apply(proven.artifact.bug).apply(proven.artifact.weaken)
    empty = state.replace({path: FileEntry(b"from calc import add\n")})
    (task.folder / path).write_bytes(b"from calc import add\n")
    done = searched(replace(task, specification=state.patch_from(empty)), SearchSolver())
    assert done.exit_reason is ExitReason.SUBMITTED, done.detail
    assert "1 tests to be repaired" in done.detail


def searched(task: SolverTask, solver: SearchSolver) -> Trajectory:
    journal = Journal(Trajectory("r", task.id, "solver", 0, "search"))
    try:
        return solver.solve(task, seed=1, journal=journal).trajectory
    finally:
        solver.release(task)


@pytest.mark.bubblewrap
def test_a_task_that_a_search_cannot_go_by_is_a_failure_of_its_own_and_said(proven: Proven, tmp_path: Path) -> None:
    task = open_task(proven.bench, proven.artifact, tmp_path / "task")
    words = replace(task, specification=Patch.parse(b""))
    done = searched(words, SearchSolver())
    assert (done.exit_reason, done.status) == (ExitReason.UNABLE, "failed")
    assert done.detail == "the specification changes no Python test"
    state = CodebaseState(proven.bench.snapshot)
    text = b"import calc\nassert calc.add(1, 2) == 3\n\n\ndef test_add():\n    pass\n"
    none = state.replace({FILE: FileEntry(text)}).patch_from(state.apply(proven.artifact.weaken))
    done = searched(replace(task, specification=none, scratch=tmp_path / "other"), SearchSolver())
    assert (done.exit_reason, done.status) == (ExitReason.UNABLE, "failed")
    assert done.detail.startswith("the tests of the specification cannot be measured: ")


@pytest.mark.bubblewrap
def test_a_machine_that_cannot_run_the_task_s_tests_gives_no_grade(proven: Proven, tmp_path: Path) -> None:
    task = open_task(proven.bench, proven.artifact, tmp_path / "task")
    done = searched(replace(task, settings=replace(task.settings, time_limit_s=0.01)), SearchSolver())
    assert (done.exit_reason, done.status) == (ExitReason.INFRA, "aborted")
    assert "the task's tests cannot be run here" in done.detail
    assert "nor the weakened ones" in done.detail
    fixed = CodebaseState(take_snapshot(task.folder, tmp_path / "trees")).apply(proven.artifact.bug.reverse())
    for path, entry in fixed.changes.items():
        assert entry is not None
        (task.folder / path).write_bytes(entry.data)
    done = searched(replace(task, scratch=tmp_path / "other"), SearchSolver())
    assert (done.exit_reason, done.status) == (ExitReason.INFRA, "aborted")
    assert done.detail == "all tests of the specification pass here on the buggy code; is it another environment?"


@pytest.mark.bubblewrap
def test_the_search_s_time_is_its_candidates_and_no_clock(proven: Proven, tmp_path: Path) -> None:
    task = open_task(proven.bench, proven.artifact, tmp_path / "task")
    done = searched(task, SearchSolver(wall_s=1e-9))
    assert (done.exit_reason, done.status) == (ExitReason.TIME_LIMIT, "truncated")
    assert done.detail.startswith("the tests of its candidates have taken 1e-09 s; ")
    quick = SearchSolver(wall_s=1e-9)
    ground = quick._ground(replace(task, scratch=tmp_path / "other"))
    nothing = dict.fromkeys(ground.baseline.durations, 0.0)
    quick._grounds[task.id] = replace(ground, baseline=replace(ground.baseline, durations=nothing, longest_setup_s=0.0))
    done = searched(task, quick)
    assert done.exit_reason is not ExitReason.TIME_LIMIT, "no candidate is charged with more than it took when measured"


@pytest.mark.bubblewrap
def test_it_is_given_neither_the_bug_nor_the_original(proven: Proven, tmp_path: Path) -> None:
    task = open_task(proven.bench, proven.artifact, tmp_path / "task")
    given = [p.read_bytes() for p in (tmp_path / "task").rglob("*") if p.is_file()]
    assert given
    assert not any(b"return a + b" in data for data in given)
    assert not any(b"bug_inject" in data for data in given)
    assert b"def test_add" in task.specification.data
    assert not hasattr(task, "artifact")


@pytest.mark.parametrize("swapped", [True, False])
def test_slow_tests_elsewhere_give_a_candidate_no_more_time(swapped):
    def known(seconds, durations):
        return Baseline(
            collected=tuple(durations),
            stable=frozenset(durations),
            set_aside={},
            durations=durations,
            parameters={},
            sources=(),
            addopts=(),
            seconds=seconds,
            longest_setup_s=0.0,
        )

    quick = allowance(known(1.5, {"a": 0.5, "b": 0.5}), ["a"], swapped=swapped)
    slow = allowance(known(61.0, {"a": 0.5, "b": 60.0}), ["a"], swapped=swapped)
    assert quick == slow
    assert slow[0] == 0.5
    assert slow[1] > allowance(known(61.0, {"a": 0.1, "b": 60.4}), ["a"], swapped=swapped)[1]
