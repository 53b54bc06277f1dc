"""The search solver repairs, sees only what it may, and is deterministic for a seed."""

from __future__ import annotations

import json
import math
import re
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from proven import FILE, TEST_ADD, Proven, make

from harness.records.trajectory import ExitReason, Journal, Trajectory
from harness.rollouts.runner import RolloutRunner
from harness.rollouts.task import open_task
from harness.solvers.protocol import SolverTask
from harness.solvers.search.donors import module_names, ordered_parameters, unused_names
from harness.solvers.search.generator.project_lines import ProjectLines
from harness.solvers.search.localisation import ochiai
from harness.solvers.search.patterns import Repair, repairs_of
from harness.solvers.search.policy import Policy
from harness.solvers.search.solver import CANDIDATES, SearchSolver
from harness.solvers.search.token_model import TokenModel
from harness.solvers.search.workspace import allowance
from pytest_ssr.campaign.factory import open_runner
from pytest_ssr.execution.baseline import Baseline
from pytest_ssr.injectors.operators import OPERATORS
from pytest_ssr.patch import FileEntry, Patch
from pytest_ssr.project.snapshot import take_snapshot
from pytest_ssr.project.state import CodebaseState
from pytest_ssr.records.fallback import Fallback, FallbackCode
from pytest_ssr.records.reasons import ReasonCode
from pytest_ssr.settings import RuleSettings
from pytest_ssr.source.syntax_tree import ParsedSource, parse, scopes, splice
from pytest_ssr.storage.store import Store

pytestmark = pytest.mark.long


def repaired(source: str) -> set[str]:
    parsed = parse("a.py", source.encode())
    assert parsed is not None
    all_scopes = scopes(parsed)
    return {splice(parsed.data, r.edits).decode() for s in all_scopes for r in repairs_of(parsed, s, all_scopes)}


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
        ("def f(a, key, **kw):\n    return g(a, **kw)\n", "def f(a, key, **kw):\n    return g(a, key=key, **kw)\n"),
        ("def f(a, key):\n    g(\n        a,\n    )\n", "def f(a, key):\n    g(\n        a,\n        key=key,\n    )\n"),
        ("def f(a):\n    if a:\n        pass\n    g()\n", "def f(a):\n    if a:\n        return a\n    g()\n"),
        ("def f(a, b):\n    if a:\n        g()\n", "def f(a, b):\n    if a and b is not None:\n        g()\n"),
        ("def f(a=None):\n    return g(a)\n", "def f(a=None):\n    return g(a or {})\n"),
        ("def f(a, b):\n    c = {}\n    return g(a, c)\n", "def f(a, b):\n    c = b or {}\n    return g(a, c)\n"),
        ("def f(a):\n    return 'x' + a\n\n\ndef g(b):\n    return quote(b)\n\n\ndef quote(b):\n    ...\n",
         "def f(a):\n    return 'x' + quote(a)\n\n\ndef g(b):\n    return quote(b)\n\n\ndef quote(b):\n    ...\n"),
        ('def get(u):\n    return call("", u)\n', 'def get(u):\n    return call("get", u)\n'),
        ("class A:\n    def f(self, a, *b, c, **d):\n        super()\n",
         "class A:\n    def f(self, a, *b, c, **d):\n        super().f(a, *b, c=c, **d)\n"),
        ("class A:\n    def __init__(self, a, b):\n        pass\n\n    def f(self):\n        return self.a + self._b\n",
         "class A:\n    def __init__(self, a, b):\n        self.a = a\n        self._b = b\n\n"
         "    def f(self):\n        return self.a + self._b\n"),
        ("class A:\n    def __init__(self, a):\n        self.first = a\n\n    def f(self):\n        return self.fist\n",
         "class A:\n    def __init__(self, a):\n        self.first = a\n\n    def f(self):\n        return self.first\n"),
        ("class A:\n    def __init__(self, a):\n        self.b = a\n\n    def __getitem__(self, i):\n        return None\n",
         "class A:\n    def __init__(self, a):\n        self.b = a\n\n    def __getitem__(self, i):\n        return self.b[i]\n"),
        ("class A:\n    def __init__(self):\n        pass\n\n    def f(self):\n        self.n += 1\n",
         "class A:\n    def __init__(self):\n        self.n = 0\n\n    def f(self):\n        self.n += 1\n"),
        ("def f(a, b, c):\n    if a or b:\n        g()\n", "def f(a, b, c):\n    if (a or b) and c:\n        g()\n"),
        ("def f(a, b):\n    return g(a, k=1)\n", "def f(a, b):\n    return g(a, b, k=1)\n"),
        ("def f(a):\n    return quote(a) + a\n", "def f(a):\n    return quote(a) + quote(a)\n"),
        ("class A:\n    def f(self, a):\n        pass\n\n    def g(self, b):\n        self.all.append(b)\n",
         "class A:\n    def f(self, a):\n        self.all.append(a)\n\n    def g(self, b):\n        self.all.append(b)\n"),
        ("class A:\n    def f(self):\n        return g()\n\n    def h(self):\n        return g(key=self.key)\n",
         "class A:\n    def f(self):\n        return g(key=self.key)\n\n    def h(self):\n        return g(key=self.key)\n"),
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
def test_the_candidates_contain_the_repair(buggy: str, fixed: str) -> None:
    assert fixed in {r.replace("\n\n    if x > hi", "\n    if x > hi") for r in repaired(buggy)}


def test_the_patterns_revert_many_operators() -> None:
    reverted = set()
    for operator in OPERATORS:
        for source, mutant in operator.examples:
            if source in repaired(mutant):
                reverted.add(operator.name)
    assert len(reverted) >= 19, sorted(reverted)


def test_comments_and_stars_are_no_parameters() -> None:
    source = "def f(a,  # \\d\n      /, b, *c, d=1, **e):\n    if a < 1:\n        return b\n    return a\n"
    parsed = parse("a.py", source.encode())
    assert parsed is not None
    (scope,) = (s for s in scopes(parsed) if s.kind == "function")
    assert ordered_parameters(parsed, scope) == [b"a", b"b", b"c", b"d", b"e"]
    assert repaired(source)


def test_base_classes_may_set_what_a_class_reads() -> None:
    source = "class A(B):\n    def __init__(self, c):\n        pass\n\n    def f(self):\n        return self.a\n"
    assert not any("self.a = " in repair for repair in repaired(source))
    assert any("self.a = c" in repair for repair in repaired(source.replace("(B)", "")))


def test_a_repair_that_uses_an_unused_name_is_likelier() -> None:
    parsed = parse("a.py", b"def f(a, b, c):\n    x = a + b\n    return g(c, c)\n")
    assert parsed is not None
    (scope,) = (s for s in scopes(parsed) if s.kind == "function")
    assert unused_names(parsed, scope) == {b"x"}
    weights = {
        splice(parsed.data, r.edits): r.weight for r in repairs_of(parsed, scope, [scope]) if r.pattern == "other-name"
    }
    used, other = (weights[parsed.data.replace(b"(c, c)", text)] for text in (b"(c, x)", b"(c, a)"))
    assert used == pytest.approx(8 * other)


def test_suspicion_is_highest_for_code_that_only_failing_tests_reach() -> None:
    assert ochiai(0, 5, 2) == 0
    assert ochiai(2, 0, 2) == 1
    assert ochiai(2, 2, 2) < ochiai(2, 1, 2) < 1


def test_the_names_of_a_module_are_collected() -> None:
    source = parse("a.py", b"import os\nfrom sys import path as p\nX = 1\n\ndef f():\n    y = 1\n")
    assert source is not None
    assert {b"os", b"p", b"X", b"f", b"len"} <= module_names(source)
    assert b"y" not in module_names(source)


@pytest.mark.bubblewrap
def test_it_repairs_and_the_same_seed_gives_the_same_patch(proven: Proven) -> None:
    first = RolloutRunner(proven.runner, proven.artifact, proven.verdict, SearchSolver(), proven.store).attempts(2)
    # The one test of `add` also passes with `a | b`, which is not a repair, and the grade detects it.
    assert any(r.resolved for r in first), [r.reason for r in first]
    assert all(r.resolved or r.reason.code is ReasonCode.NOT_REPAIRED for r in first), [r.reason for r in first]
    again = RolloutRunner(
        proven.runner, proven.artifact, proven.verdict, SearchSolver(tries=399), proven.store
    ).attempts(2)
    assert [r.patch_sha256 for r in again] == [r.patch_sha256 for r in first]
    assert not {r.id for r in again} & {r.id for r in first}, "other settings are other attempts"
    stored = RolloutRunner(proven.runner, proven.artifact, proven.verdict, SearchSolver(), proven.store).attempts(2)
    assert stored == first


@pytest.mark.bubblewrap
def test_each_candidate_is_kept_with_what_its_tests_said(proven: Proven, tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    (attempt,) = RolloutRunner(proven.runner, proven.artifact, proven.verdict, SearchSolver(), store).attempts(1)
    folder = store.root / "rollouts" / attempt.id
    rows = [json.loads(line) for line in (folder / CANDIDATES).read_text().splitlines()]
    assert attempt.patch_sha256
    assert [row["complete"] for row in rows] == [False] * (len(rows) - 1) + [True]
    assert {row["path"] for row in rows} == {"calc.py"}
    tests = {name for row in rows for name in (*row["passed"], *row["failed"])}
    assert tests == set(proven.verdict.fail_to_pass)
    assert rows[-1]["failed"] == []


def test_a_policy_scores_repairs_without_the_weight_of_their_function(proven: Proven, tmp_path: Path) -> None:
    class Indifferent(Policy):
        def scores(self, source: object, scope: object, repairs: Sequence[Repair]) -> list[float]:
            return [0.5] * len(repairs)

    task, solver = open_task(proven.runner, proven.artifact, tmp_path / "task"), SearchSolver()
    workspace = solver._workspace(task)
    by_weight = workspace.repairs(workspace.original)
    workspace.use(Indifferent(None, TokenModel(), sharpness=2.0))  # type: ignore[arg-type]
    by_policy = workspace.repairs(workspace.original)
    assert by_policy
    assert {r for _, r in by_policy} == {r for _, r in by_weight}
    for logs, sharpness, scored in ((by_weight, 6, lambda r: math.log(r.weight)), (by_policy, 12, lambda r: 0.5)):
        for log, repair in logs:
            suspicion = workspace.suspicion.of(repair.path, repair.first, repair.last, function=repair.function)
            assert log == pytest.approx(sharpness * math.log(suspicion) + scored(repair))
    solver.release(task)


@pytest.mark.bubblewrap
def test_repairs_of_a_file_are_listed_once_for_all_states_with_it(
    proven: Proven, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed: list[bytes] = []

    def watched(source: ParsedSource, *scopes: Any) -> list[Repair]:
        listed.append(source.data)
        return repairs_of(source, *scopes)

    monkeypatch.setattr("harness.solvers.search.workspace.repairs_of", watched)
    task, solver = open_task(proven.runner, proven.artifact, tmp_path / "task"), SearchSolver()
    workspace = solver._workspace(task)
    repairs = workspace.repairs(workspace.original)
    assert repairs
    listed.clear()
    assert workspace.repairs(workspace.original.replace({"other.py": FileEntry(b"X = 1\n")})) == repairs
    assert listed == []
    changed = workspace.state(workspace.original, repairs[0][1])
    assert changed is not None
    assert workspace.repairs(changed) != repairs
    assert set(listed) == {changed.entry(repairs[0][1].path).data}
    solver.release(task)


@pytest.mark.bubblewrap
def test_a_generator_sees_the_failing_tests_and_their_messages(proven: Proven, tmp_path: Path) -> None:
    seen = []

    class Watching:
        def with_generated(self, source: object, scope: object, repairs: object, project: ProjectLines) -> object:
            seen.append((source, scope, project))
            return repairs

    class Indifferent(Policy):
        def scores(self, source: object, scope: object, repairs: Sequence[Repair]) -> list[float]:
            return [0.5] * len(repairs)

    task, solver = open_task(proven.runner, proven.artifact, tmp_path / "task"), SearchSolver()
    workspace = solver._workspace(task)
    workspace.use(Indifferent(None, TokenModel(), generator=Watching()))  # type: ignore[arg-type]
    workspace.repairs(workspace.original)
    (project,) = {project for _, _, project in seen}
    source, scope = next((source, scope) for source, scope, _ in seen if scope.qualname == "add")
    _, tests = project.about(source.path, scope, [])
    assert b"add" in tests
    messages = " ".join(workspace.baseline.messages[test] for test in workspace.failing)
    assert messages
    assert {name.decode() for name in project.named} == set(re.findall(r"[A-Za-z_]\w*", messages))
    solver.release(task)


@pytest.mark.bubblewrap
def test_a_lost_server_fails_no_candidate(proven: Proven, tmp_path: Path) -> None:
    task, solver = open_task(proven.runner, proven.artifact, tmp_path / "task"), SearchSolver()
    workspace = solver._workspace(task)
    assert workspace.runner.fork_server is not None
    for mode in ("swap", "import"):
        workspace.runner.fork_server.refuse(mode, Fallback(FallbackCode.SERVER_LOST))
    fixed = workspace.original.apply(proven.artifact.bug.reverse())
    run = workspace.run_candidate(fixed)
    assert (run.complete, set(run.repaired)) == (True, set(workspace.quick_tests))
    assert not workspace.run_candidate(workspace.original).complete
    solver.release(task)


@pytest.mark.bubblewrap
def test_a_bug_in_two_places_is_repaired_one_after_the_other(project: Path, proven: Proven) -> None:
    both = {"return a + b": "return a - b", "if x > high:\n        return high": "if x > high:\n        return low"}
    two = make(project, proven.store, both, {TEST_ADD: "", ", (9, 4)": ""})
    solving = RolloutRunner(two.runner, two.artifact, two.verdict, SearchSolver(tries=1500), two.store)
    try:
        assert any(solving.run(number).resolved for number in range(2))
    finally:
        solving.close()


@pytest.mark.bubblewrap
def test_other_tests_are_used_if_all_tests_of_the_specification_fail(proven: Proven, tmp_path: Path) -> None:
    """With a test file in which the weakening left no test."""
    project, path = tmp_path / "more", "tests/test_more.py"
    shutil.copytree(proven.project, project)
    (project / path).write_text("from calc import add\n\n\ndef test_more():\n    assert add(3, 4) == 7\n")
    runner = open_runner(project, Store(tmp_path / "store"), settings=RuleSettings())
    task = open_task(runner, proven.artifact, tmp_path / "task")
    state = CodebaseState(runner.snapshot).apply(proven.artifact.bug).apply(proven.artifact.weaken)
    empty = state.replace({path: FileEntry(b"from calc import add\n")})
    (task.folder / path).write_bytes(b"from calc import add\n")
    done = search(replace(task, specification=state.patch_from(empty)), SearchSolver())
    assert done.exit_reason is ExitReason.SUBMITTED, done.detail
    assert "1 tests to repair" in done.detail


def search(task: SolverTask, solver: SearchSolver) -> Trajectory:
    journal = Journal(Trajectory("r", task.id, "solver", 0, "search"))
    try:
        return solver.solve(task, seed=1, journal=journal).trajectory
    finally:
        solver.release(task)


@pytest.mark.bubblewrap
def test_a_task_without_usable_tests_is_a_failure_with_a_reason(proven: Proven, tmp_path: Path) -> None:
    task = open_task(proven.runner, proven.artifact, tmp_path / "task")
    without_specification = replace(task, specification=Patch.parse(b""))
    done = search(without_specification, SearchSolver())
    assert (done.exit_reason, done.status) == (ExitReason.UNABLE, "failed")
    assert done.detail == "the specification changes no Python test"
    state = CodebaseState(proven.runner.snapshot)
    text = b"import calc\nassert calc.add(1, 2) == 3\n\n\ndef test_add():\n    pass\n"
    import_failure = state.replace({FILE: FileEntry(text)}).patch_from(state.apply(proven.artifact.weaken))
    done = search(replace(task, specification=import_failure, scratch=tmp_path / "other"), SearchSolver())
    assert (done.exit_reason, done.status) == (ExitReason.UNABLE, "failed")
    assert done.detail.startswith("the tests of the specification cannot be measured: ")


@pytest.mark.bubblewrap
def test_tests_that_cannot_run_here_give_no_grade(proven: Proven, tmp_path: Path) -> None:
    task = open_task(proven.runner, proven.artifact, tmp_path / "task")
    done = search(replace(task, settings=replace(task.settings, time_limit_s=0.01)), SearchSolver())
    assert (done.exit_reason, done.status) == (ExitReason.INFRA, "aborted")
    assert "the task's tests cannot be run here" in done.detail
    assert "neither can the weakened ones" in done.detail
    fixed = CodebaseState(take_snapshot(task.folder, tmp_path / "trees")).apply(proven.artifact.bug.reverse())
    for path, entry in fixed.changes.items():
        assert entry is not None
        (task.folder / path).write_bytes(entry.data)
    done = search(replace(task, scratch=tmp_path / "other"), SearchSolver())
    assert (done.exit_reason, done.status) == (ExitReason.INFRA, "aborted")
    assert done.detail == "all tests of the specification pass here on the buggy code; is it another environment?"


@pytest.mark.bubblewrap
def test_the_time_of_a_search_is_that_of_its_candidates(proven: Proven, tmp_path: Path) -> None:
    task = open_task(proven.runner, proven.artifact, tmp_path / "task")
    done = search(task, SearchSolver(wall_s=1e-9))
    assert (done.exit_reason, done.status) == (ExitReason.TIME_LIMIT, "truncated")
    assert done.detail.startswith("the tests of its candidates took 1e-09 s; ")
    quick = SearchSolver(wall_s=1e-9)
    workspace = quick._workspace(replace(task, scratch=tmp_path / "other"))
    no_time = dict.fromkeys(workspace.baseline.durations, 0.0)
    quick._workspaces[task.id] = replace(
        workspace, baseline=replace(workspace.baseline, durations=no_time, longest_setup_s=0.0)
    )
    done = search(task, quick)
    assert done.exit_reason is not ExitReason.TIME_LIMIT, "no candidate costs more time than its measured tests"


@pytest.mark.bubblewrap
def test_a_task_contains_neither_the_bug_nor_the_original(proven: Proven, tmp_path: Path) -> None:
    task = open_task(proven.runner, proven.artifact, tmp_path / "task")
    contents = [p.read_bytes() for p in (tmp_path / "task").rglob("*") if p.is_file()]
    assert contents
    assert not any(b"return a + b" in data for data in contents)
    assert not any(b"bug_inject" in data for data in contents)
    assert b"def test_add" in task.specification.data
    assert not hasattr(task, "artifact")


@pytest.mark.parametrize("swapped", [True, False])
def test_slow_unrelated_tests_give_a_candidate_no_more_time(swapped):
    def baseline(seconds, durations):
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

    quick = allowance(baseline(1.5, {"a": 0.5, "b": 0.5}), ["a"], swapped=swapped)
    slow = allowance(baseline(61.0, {"a": 0.5, "b": 60.0}), ["a"], swapped=swapped)
    assert quick == slow
    assert slow[0] == 0.5
    assert slow[1] > allowance(baseline(61.0, {"a": 0.1, "b": 60.4}), ["a"], swapped=swapped)[1]
