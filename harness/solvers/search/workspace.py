"""Hold the data that all attempts at a task share: the specified tree, the suspicion scores, candidate results.

The input is only what a solver may see: the weakened tree and the reversed weakening. The tests to repair follow from
them: those that fail with the specification and did not fail without it.
"""

from __future__ import annotations

import heapq
import math
import threading
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from operator import itemgetter
from pathlib import Path

from harness.solvers.protocol import SolverTask
from harness.solvers.search.demonstration import Demonstration
from harness.solvers.search.language import LanguageRanking, Place, Reading, ranked_again
from harness.solvers.search.localisation import Suspicion, localise
from harness.solvers.search.patterns import Repair, repairs_of
from harness.solvers.search.policy import Policy
from harness.solvers.search.project_files import ProjectFiles, files_of
from pytest_ssr.errors import ProjectError, SsrError
from pytest_ssr.execution.baseline import Baseline
from pytest_ssr.execution.bytecode import with_bytecode
from pytest_ssr.execution.coverage_map import CoverageMap
from pytest_ssr.execution.fork_server import ForkRequest, UnfitError
from pytest_ssr.execution.runner import FACTOR, FLOOR_S, Runner
from pytest_ssr.execution.selection import Selection
from pytest_ssr.execution.test_runners import PytestRunner
from pytest_ssr.injectors.equivalence import parses
from pytest_ssr.patch import FileEntry
from pytest_ssr.project.file_roles import is_code, is_test_surface
from pytest_ssr.project.shared_files import write_entry
from pytest_ssr.project.snapshot import take_snapshot
from pytest_ssr.project.state import CodebaseState
from pytest_ssr.records.test_run import RunStatus, SetAside, SuiteRun
from pytest_ssr.source.syntax_tree import ParsedSource, parse, scopes, splice
from pytest_ssr.storage.baseline_store import open_baseline
from pytest_ssr.storage.store import Store

_MAX_FILES, _MAX_FUNCTIONS = 12, 40
_MAX_GENERATED = 4
"""Number of the most suspicious functions for which repairs are generated: each takes a second or more."""
_SHARPNESS = 6
"""Exponent of the suspicion in a repair's score: of 16 bugs in real projects, 15 were in the first function."""
_MAX_TEST_BYTES = 500_000
"""Largest size of all test files together for which the whole suite is measured."""
_MAX_REPAIRS = 5000
_QUICK_TESTS = 8
_FRESH_COST = 10

ScoredRepair = tuple[float, Repair]
"""The logarithm of a repair's score, and the repair."""


@dataclass(frozen=True, slots=True)
class CandidateRun:
    """The result of running the tests on a candidate state."""

    repaired: frozenset[str]
    """The failing tests that were run and pass."""
    complete: bool
    """Whether all failing tests pass, and all others that the change can affect still pass."""
    cost: int
    """Cost in tries: a run outside of a fork of a collected session takes the time of several."""
    seconds: float = 0.0
    """Seconds of its tests, at most those of their measurement; the time limit if the run was ended by it.

    So a busy machine does not shorten an attempt, neither now nor at the measurement, and other attempts do not either.
    """


@dataclass(slots=True)
class SearchWorkspace:
    """The tree that a solver works on, with the specification applied."""

    runner: Runner
    baseline: Baseline
    reach: CoverageMap
    failing: frozenset[str]
    """The tests to repair."""
    quick_tests: tuple[str, ...]
    """The fastest of them, which every candidate runs first."""
    suspicion: Suspicion
    tests: tuple[str, ...]
    """The files of the specification."""
    weakened: CodebaseState
    """The state that a patch applies to: without the specification."""
    results: dict[str, CandidateRun] = field(default_factory=dict)
    """The results of all attempts, by the hash of the state's tree."""
    demonstrations: dict[bytes, Demonstration | None] = field(default_factory=dict)
    """How a model would make each patch that an attempt has found; None if its tools cannot."""
    lock: threading.Lock = field(default_factory=threading.Lock)
    policy: Policy | None = None
    """Ranks the repairs of a function; None for the weights of their patterns."""
    readings: dict[str, Reading] = field(default_factory=dict)
    """What a language model read to rank them, for all attempts together; by the hash of a state's tree."""
    _repairs: dict[str, list[ScoredRepair]] = field(default_factory=dict)
    """By the hash of a state's tree."""
    _in_files: dict[tuple[str, bytes], list[ScoredRepair]] = field(default_factory=dict)
    """By path and content: most states differ in one file."""
    _files: ProjectFiles | None = None

    @property
    def original(self) -> CodebaseState:
        """The buggy code with the specification."""
        return self.runner.original

    def close(self) -> None:
        """End the fork server."""
        if self.runner.fork_server is not None:
            self.runner.fork_server.close()

    def use(self, policy: Policy | None) -> None:
        """Rank repairs by another policy from now on."""
        self.policy = policy
        self.readings.clear()
        self._repairs.clear()
        self._in_files.clear()

    def repairs(self, base: CodebaseState) -> list[ScoredRepair]:
        """Return the candidate repairs of a state with the logarithms of their scores, the best first.

        They are computed once for all attempts.
        """
        name = base.tree_hash
        if name not in self._repairs:
            functions = self._suspicious_functions()
            sources = [self._parse(base, path) for path in dict.fromkeys(path for path, _ in functions)]
            scored = (pair for source in sources if source is not None for pair in self._best(source, functions))
            best = heapq.nlargest(_MAX_REPAIRS, scored, key=itemgetter(0))
            if self.policy is not None and self.policy.language is not None:
                found = [source for source in sources if source is not None]
                best, self.readings[name] = self._read_by_model(self.policy, self.policy.language, found, best)
            self._repairs[name] = best
        return self._repairs[name]

    def _read_by_model(
        self, policy: Policy, language: LanguageRanking, sources: Sequence[ParsedSource], best: Sequence[ScoredRepair]
    ) -> tuple[list[ScoredRepair], Reading]:
        """Return repairs in the order of a policy with a language model, and what it read."""
        places = {
            (source.path, (scope.node.start_point.row + 1, scope.node.end_point.row + 1)): Place(source, scope)
            for source in sources
            for scope in scopes(source)
        }
        located = [_SHARPNESS * math.log(self._suspicion_of(repair)) for _, repair in best]
        listed = [
            (score / policy.sharpness - place, places[repair.path, repair.function], repair)
            for (score, repair), place in zip(best, located, strict=True)
        ]
        logits, reading = ranked_again(language, listed, located)
        scored = [
            (policy.sharpness * (place + logit), repair)
            for place, logit, (_, repair) in zip(located, logits, best, strict=True)
        ]
        return sorted(scored, key=itemgetter(0), reverse=True), reading

    def _suspicion_of(self, repair: Repair) -> float:
        return self.suspicion.of(repair.path, repair.first, repair.last, function=repair.function)

    def _best(self, source: ParsedSource, functions: Sequence[tuple[str, str]]) -> list[ScoredRepair]:
        """Return the best repairs of a file; they are computed once for all states in which it is the same."""
        key = source.path, source.data
        if key not in self._in_files:
            scored = self._scored(source, functions)
            self._in_files[key] = heapq.nlargest(_MAX_REPAIRS, scored, key=itemgetter(0))
        return self._in_files[key]

    def _scored(self, source: ParsedSource, functions: Sequence[tuple[str, str]]) -> Iterator[ScoredRepair]:
        files = self._project_files() if self.policy is not None else None
        path, generated, all_scopes = source.path, set(functions[:_MAX_GENERATED]), scopes(source)
        for scope in (s for s in all_scopes if (path, s.qualname) in functions):
            repairs = repairs_of(source, scope, all_scopes)
            if self.policy is None:
                sharpness: float = _SHARPNESS
                logs = [math.log(r.weight) for r in repairs]
            else:
                # One list of all functions: what a function's weights add up to does not count.
                sharpness = _SHARPNESS * self.policy.sharpness
                generate = (path, scope.qualname) in generated
                repairs = self.policy.completed(source, scope, repairs, files, generate=generate)
                logs = self.policy.scores(source, scope, repairs)
            for log, repair in zip(logs, repairs, strict=True):
                if suspicion := self._suspicion_of(repair):
                    yield sharpness * math.log(suspicion) + log, repair

    def _project_files(self) -> ProjectFiles:
        """Return the files of the project that a policy may see; they are read once for all attempts."""
        with self.lock:
            if self._files is None:
                failing = {test: self.baseline.messages.get(test, "") for test in self.failing}
                self._files = files_of(self.original, failing)
            return self._files

    def suspicious_functions(self, base: CodebaseState) -> list[Place]:
        """Return the most suspicious functions of a state that can be read, the most suspicious first."""
        names = self._suspicious_functions()
        sources = {path: self._parse(base, path) for path in dict.fromkeys(path for path, _ in names)}
        return [
            Place(source, scope)
            for path, name in names
            if (source := sources[path]) is not None
            for scope in scopes(source)
            if (scope.qualname, scope.kind) == (name, "function")
        ]

    def _suspicious_functions(self) -> list[tuple[str, str]]:
        """Return (path, function) of the most suspicious functions, in order; listing others is not worth the time."""
        scored: list[tuple[float, str, str]] = []
        for path in [p for p in self.suspicion.paths() if is_code(p)][:_MAX_FILES]:
            source = self._parse(self.original, path)
            for scope in scopes(source) if source is not None else ():
                span = (scope.node.start_point.row + 1, scope.node.end_point.row + 1)
                if score := self.suspicion.of(path, *span, function=span):
                    scored.append((score, path, scope.qualname))
        scored.sort(key=lambda item: (-item[0], *item[1:]))
        return list(dict.fromkeys((path, name) for _, path, name in scored[:_MAX_FUNCTIONS]))

    def _parse(self, state: CodebaseState, path: str) -> ParsedSource | None:
        entry = state.entry(path)
        source = parse(path, entry.data) if entry is not None else None
        return source if source is not None and parses(source.data) else None

    def state(self, base: CodebaseState, repair: Repair) -> CodebaseState | None:
        """Return a state with one more repair; None if the result is not valid Python."""
        entry = base.entry(repair.path)
        assert entry is not None
        try:
            data = splice(entry.data, repair.edits)
        except ValueError:
            return None
        if not parses(data):
            return None
        return base.replace({repair.path: FileEntry(data, entry.mode)})

    def run_candidate(self, state: CodebaseState) -> CandidateRun:
        """Return the result of a state on the tests that it can affect; each state is run once for all attempts."""
        name = state.tree_hash
        with self.lock:
            result = self.results.get(name)
        if result is None:
            result = self._run_candidate(state)
            with self.lock:
                self.results[name] = result
        return result

    def _run_candidate(self, state: CodebaseState) -> CandidateRun:
        touched = self.reach.touched_by(state)
        tests = self.baseline.stable | self.failing
        if touched.tests is not None:
            tests &= touched.tests
        quick_tests = [t for t in self.quick_tests if t in tests]
        if not quick_tests:
            return CandidateRun(frozenset(), False, 1)
        for swap in (True, False):
            if swap and touched.functions is None:
                continue
            functions = touched.functions if swap else None
            cost = 1 if swap else _FRESH_COST
            try:
                run, seconds = self._run(state, frozenset(quick_tests), functions, stop=False)
                repaired = run.passing & set(quick_tests)
                if run.fault or len(repaired) < len(quick_tests):
                    return CandidateRun(repaired, False, cost, seconds)
                rest = tests - set(quick_tests)
                last, more = self._run(state, rest, functions, stop=True) if rest else (run, 0.0)
                complete = not last.fault and last.passing >= rest
                return CandidateRun(frozenset(repaired), complete and self.failing <= tests, 2 * cost, seconds + more)
            except UnfitError:
                continue
        return self._run_fresh(state, quick_tests)

    def _run_fresh(self, state: CodebaseState, quick_tests: Sequence[str]) -> CandidateRun:
        """Run a state in a new process if no fork can run it; the loss of a server does not fail a repair."""
        seconds = 0.0
        if self.runner.fork_server is None:
            # Every candidate comes here, and most of them repair nothing.
            quick = Selection(quick_tests)
            first = self.runner.fresh(state, self.tests, selection=quick, like_s=self.baseline.seconds)
            seconds = min(self.baseline.seconds, first.seconds)
            repaired = first.passing & set(quick_tests)
            if first.fault or len(repaired) < len(quick_tests):
                return CandidateRun(repaired, False, _FRESH_COST, seconds)
        run, _ = self.runner.suite(state, self.tests, like_s=self.baseline.seconds, fresh=True)
        complete = not run.fault and run.passing >= self.failing | self.baseline.stable
        seconds += min(self.baseline.seconds, run.seconds)
        return CandidateRun(run.passing & set(quick_tests), complete, 2 * _FRESH_COST, seconds)

    def _run(
        self, state: CodebaseState, tests: frozenset[str], functions: object, *, stop: bool
    ) -> tuple[SuiteRun, float]:
        baseline = self.baseline
        expected, allowed = allowance(baseline, tests, swapped=functions is not None)
        targets = [p for p in baseline.files if any(t.startswith(f"{p}::") for t in tests)]
        request = ForkRequest(
            state,
            selection=Selection(tests, first=sorted(tests & self.failing) if stop else (), stop_after=1 if stop else 0),
            targets=targets or self.tests,
            functions=functions,  # type: ignore[arg-type]
            wall_s=allowed,
        )
        run = self.runner.fork(request)
        return run, request.wall_s if run.status is RunStatus.TIMED_OUT else min(expected, run.seconds)

    def confirm(self, state: CodebaseState) -> bool:
        """Return whether all tests also pass when their whole files run in a new process."""
        run, _ = self.runner.suite(state, self.tests, like_s=self.baseline.seconds, fresh=True)
        return not run.fault and run.passing >= self.failing | self.baseline.stable


def allowance(baseline: Baseline, tests: Collection[str], *, swapped: bool) -> tuple[float, float]:
    """Return the expected seconds of tests by the baseline, and the time limit of a candidate for them.

    If functions are not swapped, the files are imported again, and the limit adds the time of a run without its tests.
    """
    expected = sum(baseline.durations.get(t, 0.0) for t in tests) + baseline.longest_setup_s
    import_s = max(0.0, baseline.seconds - sum(baseline.durations.values()))
    floor = 2.0 if swapped else FLOOR_S + FACTOR * import_s
    return expected, floor + FACTOR * expected


class UnableError(SsrError):
    """A search does not apply to a task, which other solvers may still solve; the message is the reason."""


def prepare(task: SolverTask, policy: Policy | None = None) -> SearchWorkspace:
    """Apply the specification to the tree and measure its tests. policy: ranks the repairs, if there is one.

    Raises UnableError if a search cannot use these tests; ProjectError if the tests of the original task, which ran
    when the bug was validated, do not run here either, which is an infrastructure failure.
    """
    start = take_snapshot(task.folder, task.scratch / "trees")
    weakened = CodebaseState(replace(start, origin=task.origin))
    specified_state = weakened.apply(task.specification)
    test_files = tuple(
        p for p in task.specification.paths if specified_state.entry(p) is not None and p.endswith(".py")
    )
    if not test_files:
        raise UnableError("the specification changes no Python test")
    folder = task.scratch / "specified"
    if not folder.exists():
        _write(specified_state, folder)
    store = Store(task.scratch / "store")
    snapshot = replace(take_snapshot(folder, store.trees), origin=task.origin)
    is_pytest = isinstance(task.test_runner, PytestRunner)
    snapshot = with_bytecode(
        snapshot,
        task.provider,
        task.interpreter,
        store.trees,
        test_runner=task.test_runner,
        targets=() if is_pytest else test_files,
    )
    runner = Runner(snapshot, task.provider, task.interpreter, task.settings, test_runner=task.test_runner)
    baseline, runner = _measure(runner, store, weakened, test_files)
    tests = baseline.files
    failing = _failing(runner, baseline, weakened, test_files)
    if not failing or baseline.reach is None:
        if runner.fork_server is not None:
            runner.fork_server.close()
        raise _unable(baseline)
    quick = sorted(failing, key=lambda t: (baseline.durations.get(t, 0.0), t))
    suspicion = localise(baseline.reach, failing, baseline.stable)
    return SearchWorkspace(
        runner,
        baseline,
        baseline.reach,
        failing,
        tuple(quick[:_QUICK_TESTS]),
        suspicion,
        tests,
        weakened,
        policy=policy,
    )


def _measure(runner: Runner, store: Store, weakened: CodebaseState, tests: tuple[str, ...]) -> tuple[Baseline, Runner]:
    """Measure the whole suite, or only the files of the specification if it is large; if that fails, the other.

    Passing tests of other files reduce the suspicious code, and all tests of the specification may fail. Raises
    UnableError, or ProjectError if not even the weakened tests run here.
    """
    suite = [p for p in runner.snapshot.files if is_test_surface(p) and p.endswith(".py")]
    entries = (runner.original.entry(p) for p in suite)
    small = sum(len(e.data) for e in entries if e is not None) <= _MAX_TEST_BYTES
    reason = ""
    for files in ((), tests) if small else (tests, ()):
        try:
            baseline, measured, _ = open_baseline(runner, store, files)
        except ProjectError as error:
            reason = str(error) if files else reason
        else:
            return baseline, measured
    _require_control(runner, weakened, tests, reason)
    raise UnableError(f"the tests of the specification cannot be measured: {reason}")


def _write(state: CodebaseState, folder: Path) -> None:
    for path in sorted({*state.snapshot.files, *state.changes}):
        entry = state.entry(path)
        if entry is not None:
            write_entry(folder / path, entry)


def _failing(runner: Runner, baseline: Baseline, weakened: CodebaseState, tests: tuple[str, ...]) -> frozenset[str]:
    """Return the tests that fail and did not fail with the weakened files."""
    excluded = frozenset(t for t in baseline.collected if t.partition("::")[0] in tests) - baseline.stable
    bad = frozenset(t for t in excluded if baseline.set_aside.get(t) in (SetAside.FAILED, SetAside.ERROR))
    if not bad:
        return bad
    before = _without_specification(runner, weakened, tests)
    existing = [p for p in tests if before.entry(p) is not None]
    run, _ = runner.suite(before, existing, like_s=baseline.seconds) if existing else (None, False)
    failed_before = bad & (frozenset(run.results) - run.passing) if run is not None else frozenset()
    return bad - failed_before


def _require_control(runner: Runner, weakened: CodebaseState, tests: tuple[str, ...], reason: str) -> None:
    """Raise ProjectError unless the weakened tests run here on the same code."""
    before = _without_specification(runner, weakened, tests)
    existing = [p for p in tests if before.entry(p) is not None]
    run, _ = runner.suite(before, existing, fresh=True) if existing else (None, False)
    if run is None or run.fault or run.foreign or not run.passing:
        problem = (run.fault or run.reason or "none of them passes") if run is not None else "there are none"
        raise ProjectError(f"the task's tests cannot be run here: {reason}; neither can the weakened ones: {problem}")


def _unable(baseline: Baseline) -> Exception:
    if baseline.reach is None:
        return UnableError("which statements the tests reach cannot be recorded")
    if baseline.note or baseline.set_aside:
        return UnableError("no runnable test fails that did not fail before; the search has no test to repair")
    return ProjectError("all tests of the specification pass here on the buggy code; is it another environment?")


def _without_specification(runner: Runner, weakened: CodebaseState, tests: tuple[str, ...]) -> CodebaseState:
    return CodebaseState(runner.snapshot).replace({p: weakened.entry(p) for p in tests})
