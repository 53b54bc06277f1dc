"""What all attempts at a task share: the tree with its specification, where the fault may lie, what was tried.

Only what a solver may see goes in: the weakened tree and the reversed weakening. Which tests are to be repaired
follows from them: those that fail with the specification and did not fail before it was there.
"""

from __future__ import annotations

import heapq
import math
import threading
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from harness.solvers.protocol import SolverTask
from harness.solvers.search.localisation import Suspicion, localise
from harness.solvers.search.patterns import Repair, repairs_of
from pytest_ssr.baselines import baseline_of
from pytest_ssr.codebase import CodebaseState
from pytest_ssr.errors import ProjectError
from pytest_ssr.execution.baseline import Baseline
from pytest_ssr.execution.bytecode import with_bytecode
from pytest_ssr.execution.reach import Reach
from pytest_ssr.execution.selection import Selection
from pytest_ssr.execution.warm import UnfitError, Wanted, Warm
from pytest_ssr.execution.workbench import FACTOR, FLOOR_S, Workbench
from pytest_ssr.injectors.equivalence import parses
from pytest_ssr.injectors.python_source import ParsedSource, parse, scopes, splice
from pytest_ssr.outcomes import RunStatus, SuiteRun
from pytest_ssr.patch import FileEntry
from pytest_ssr.snapshot import take_snapshot, write_entry
from pytest_ssr.store import Store
from pytest_ssr.surface import is_code, is_test_surface

_MOST_FILES, _MOST_PLACES = 12, 40
_SHARPNESS = 6
"""Power of the suspicion in a repair's score: of 16 bugs in real projects all but one lay in the first function."""
_MOST_BYTES = 500_000
"""Of all files of tests, where the whole suite is measured."""
_MOST_REPAIRS = 5000
_FEW = 8
_DEAR = 10


@dataclass(frozen=True, slots=True)
class Tried:
    """What a state was found to do."""

    repaired: frozenset[str]
    """Of the failing tests that were run, those that pass."""
    whole: bool
    """All failing tests pass, and all others that the change can touch pass as before."""
    cost: int
    """In tries: one that is not made in a fork of a collected session takes the time of several."""
    seconds: float = 0.0
    """What its tests took, at most what they took when measured; of a run that was ended, what it was allowed.

    So neither a machine that is busy now nor one that was then ends an attempt, and nor does what others have tried.
    """


@dataclass(slots=True)
class Ground:
    """The tree a solver works on, with the specification applied."""

    bench: Workbench
    baseline: Baseline
    reach: Reach
    failing: frozenset[str]
    """The tests to be repaired."""
    few: tuple[str, ...]
    """A quick few of them, which every candidate is tried on first."""
    suspicion: Suspicion
    tests: tuple[str, ...]
    """The files of the specification."""
    weakened: CodebaseState
    """The state that a patch is made for: without the specification."""
    known: dict[str, Tried] = field(default_factory=dict)
    """By the hash of a state's tree, what was found; the same for every attempt."""
    lock: threading.Lock = field(default_factory=threading.Lock)
    _repairs: dict[str, list[tuple[float, Repair]]] = field(default_factory=dict)

    @property
    def original(self) -> CodebaseState:
        """The buggy code with its specification."""
        return self.bench.original

    def close(self) -> None:
        """End the warm processes."""
        if self.bench.warm is not None:
            self.bench.warm.close()

    def repairs(self, base: CodebaseState) -> list[tuple[float, Repair]]:
        """Return the candidate repairs of a state with their scores, the best first; listed once for all attempts."""
        name = base.tree_hash
        if name not in self._repairs:
            self._repairs[name] = heapq.nlargest(_MOST_REPAIRS, self._scored(base), key=lambda pair: pair[0])
        return self._repairs[name]

    def _scored(self, base: CodebaseState) -> Iterator[tuple[float, Repair]]:
        for path, names in self._places().items():
            source = self._parsed(base, path)
            if source is None:
                continue
            there = scopes(source)
            for scope in (s for s in there if s.qualname in names):
                for repair in repairs_of(source, scope, there):
                    score = self.suspicion.of(path, repair.first, repair.last, function=repair.function)
                    if score:
                        yield score**_SHARPNESS * repair.weight, repair

    def _places(self) -> dict[str, frozenset[str]]:
        """Return the most suspicious functions by their files: what others offer is not worth the time to list it."""
        found: list[tuple[float, str, str]] = []
        for path in [p for p in self.suspicion.paths() if is_code(p)][:_MOST_FILES]:
            source = self._parsed(self.original, path)
            for scope in scopes(source) if source is not None else ():
                span = (scope.node.start_point.row + 1, scope.node.end_point.row + 1)
                if score := self.suspicion.of(path, *span, function=span):
                    found.append((score, path, scope.qualname))
        found.sort(key=lambda place: (-place[0], *place[1:]))
        best = found[:_MOST_PLACES]
        return {path: frozenset(n for _, p, n in best if p == path) for path in dict.fromkeys(p for _, p, _ in best)}

    def _parsed(self, state: CodebaseState, path: str) -> ParsedSource | None:
        entry = state.entry(path)
        source = parse(path, entry.data) if entry is not None else None
        return source if source is not None and parses(source.data) else None

    def state(self, base: CodebaseState, repair: Repair) -> CodebaseState | None:
        """Return a state with one more repair; None where that is no Python."""
        entry = base.entry(repair.path)
        assert entry is not None
        try:
            data = splice(entry.data, repair.edits)
        except ValueError:
            return None
        if not parses(data):
            return None
        return base.replace({repair.path: FileEntry(data, entry.mode)})

    def tried(self, state: CodebaseState) -> Tried:
        """Return what a state does on the tests it can touch; made once, whoever asks."""
        name = state.tree_hash
        with self.lock:
            known = self.known.get(name)
        if known is None:
            known = self._try(state)
            with self.lock:
                self.known[name] = known
        return known

    def _try(self, state: CodebaseState) -> Tried:
        touched = self.reach.touched_by(state)
        tests = self.baseline.stable | self.failing
        if touched.tests is not None:
            tests &= touched.tests
        few = [t for t in self.few if t in tests]
        if not few:
            return Tried(frozenset(), False, 1)
        for swap in (True, False):
            if swap and touched.functions is None:
                continue
            functions = touched.functions if swap else None
            cost = 1 if swap else _DEAR
            try:
                run, seconds = self._run(state, frozenset(few), functions, stop=False)
                repaired = run.passing & set(few)
                if run.fault or len(repaired) < len(few):
                    return Tried(repaired, False, cost, seconds)
                rest = tests - set(few)
                last, more = self._run(state, rest, functions, stop=True) if rest else (run, 0.0)
                whole = not last.fault and last.passing >= rest
                return Tried(frozenset(repaired), whole and self.failing <= tests, 2 * cost, seconds + more)
            except UnfitError:
                continue
        return self._tried_fresh(state, few)

    def _tried_fresh(self, state: CodebaseState, few: Sequence[str]) -> Tried:
        """Try a state that no fork can try: a server that is lost says nothing about a repair."""
        run, _ = self.bench.suite(state, self.tests, like_s=self.baseline.seconds, fresh=True)
        whole = not run.fault and run.passing >= self.failing | self.baseline.stable
        return Tried(run.passing & set(few), whole, 2 * _DEAR, min(self.baseline.seconds, run.seconds))

    def _run(
        self, state: CodebaseState, tests: frozenset[str], functions: object, *, stop: bool
    ) -> tuple[SuiteRun, float]:
        baseline = self.baseline
        expected, allowed = allowance(baseline, tests, swapped=functions is not None)
        targets = [p for p in baseline.files if any(t.startswith(f"{p}::") for t in tests)]
        wanted = Wanted(
            state,
            selection=Selection(tests, first=sorted(tests & self.failing) if stop else (), stop_after=1 if stop else 0),
            targets=targets or self.tests,
            functions=functions,  # type: ignore[arg-type]
            wall_s=allowed,
        )
        run = self.bench.fork(wanted)
        return run, wanted.wall_s if run.status is RunStatus.TIMED_OUT else min(expected, run.seconds)

    def confirmed(self, state: CodebaseState) -> bool:
        """Tell whether whole files in a fresh process agree that all is repaired."""
        run, _ = self.bench.suite(state, self.tests, like_s=self.baseline.seconds, fresh=True)
        return not run.fault and run.passing >= self.failing | self.baseline.stable


def allowance(baseline: Baseline, tests: Collection[str], *, swapped: bool) -> tuple[float, float]:
    """Return the seconds that tests take by the baseline, and those that a candidate is let run them.

    Where functions are not swapped the files are read anew: that takes what of a whole run is not its tests.
    """
    expected = sum(baseline.durations.get(t, 0.0) for t in tests) + baseline.longest_setup_s
    reading = max(0.0, baseline.seconds - sum(baseline.durations.values()))
    floor = 2.0 if swapped else FLOOR_S + FACTOR * reading
    return expected, floor + FACTOR * expected


class UnableError(Exception):
    """Says why a search has nothing to go by in a task that others may solve."""


def survey(task: SolverTask) -> Ground:
    """Lay the specification over the tree and measure its tests.

    Raises UnableError where these tests are none that a search can go by; ProjectError where the tests of the tree as
    it was given, which ran when the bug was proven, do not run here either: then it is this machine's fault.
    """
    start = take_snapshot(task.folder, task.scratch / "trees")
    weakened = CodebaseState(replace(start, origin=task.origin))
    wanted = weakened.apply(task.specification)
    specified = tuple(p for p in task.specification.paths if wanted.entry(p) is not None and p.endswith(".py"))
    if not specified:
        raise UnableError("the specification changes no Python test")
    folder = task.scratch / "specified"
    if not folder.exists():
        _write(wanted, folder)
    store = Store(task.scratch / "store")
    snapshot = replace(take_snapshot(folder, store.trees), origin=task.origin)
    snapshot = with_bytecode(snapshot, task.provider, task.interpreter, store.trees)
    bench = Workbench(snapshot, task.provider, task.interpreter, task.settings)
    baseline, bench.warm = _measured(bench, store, weakened, specified)
    tests = baseline.files
    failing = _failing(bench, baseline, weakened, specified)
    if not failing or baseline.reach is None:
        bench.warm.close()
        raise _nothing_to_go_by(baseline)
    quick = sorted(failing, key=lambda t: (baseline.durations.get(t, 0.0), t))
    suspicion = localise(baseline.reach, failing, baseline.stable)
    return Ground(bench, baseline, baseline.reach, failing, tuple(quick[:_FEW]), suspicion, tests, weakened)


def _measured(bench: Workbench, store: Store, weakened: CodebaseState, tests: tuple[str, ...]) -> tuple[Baseline, Warm]:
    """Measure the whole suite, or where that is large only the files of the specification; where one fails, the other.

    Tests of other files say what works: the more of them, the fewer places are suspicious. All tests of the
    specification may fail, as the bug has it. Raises UnableError, or ProjectError where not even the weakened tests
    run here.
    """
    suite = [p for p in bench.snapshot.files if is_test_surface(p) and p.endswith(".py")]
    entries = (bench.original.entry(p) for p in suite)
    small = sum(len(e.data) for e in entries if e is not None) <= _MOST_BYTES
    why = ""
    for wanted in ((), tests) if small else (tests, ()):
        try:
            baseline, warm, _ = baseline_of(bench, store, wanted)
        except ProjectError as error:
            why = str(error) if wanted else why
        else:
            return baseline, warm
    _require_control(bench, weakened, tests, why)
    raise UnableError(f"the tests of the specification cannot be measured: {why}")


def _write(state: CodebaseState, folder: Path) -> None:
    for path in sorted({*state.snapshot.files, *state.changes}):
        entry = state.entry(path)
        if entry is not None:
            write_entry(folder / path, entry)


def _failing(bench: Workbench, baseline: Baseline, weakened: CodebaseState, tests: tuple[str, ...]) -> frozenset[str]:
    """Return the tests that fail and did not fail under the weakened files."""
    aside = frozenset(t for t in baseline.collected if t.partition("::")[0] in tests) - baseline.stable
    bad = frozenset(t for t in aside if baseline.set_aside.get(t) in ("failed", "error"))
    if not bad:
        return bad
    before = _without_specification(bench, weakened, tests)
    there = [p for p in tests if before.entry(p) is not None]
    run, _ = bench.suite(before, there, like_s=baseline.seconds) if there else (None, False)
    still = bad & (frozenset(run.results) - run.passing) if run is not None else frozenset()
    return bad - still


def _require_control(bench: Workbench, weakened: CodebaseState, tests: tuple[str, ...], why: str) -> None:
    """Raise ProjectError unless the weakened tests run here on the same code."""
    before = _without_specification(bench, weakened, tests)
    there = [p for p in tests if before.entry(p) is not None]
    run, _ = bench.suite(before, there, fresh=True) if there else (None, False)
    if run is None or run.fault or run.foreign or not run.passing:
        said = (run.fault or run.reason or "none of them passes") if run is not None else "there are none"
        raise ProjectError(f"the task's tests cannot be run here: {why}; nor the weakened ones: {said}")


def _nothing_to_go_by(baseline: Baseline) -> Exception:
    if baseline.reach is None:
        return UnableError("which statements the tests reach cannot be recorded")
    if baseline.note or baseline.set_aside:
        return UnableError("no test that can be run fails that did not fail before; there is nothing to repair by")
    return ProjectError("all tests of the specification pass here on the buggy code; is it another environment?")


def _without_specification(bench: Workbench, weakened: CodebaseState, tests: tuple[str, ...]) -> CodebaseState:
    return CodebaseState(bench.snapshot).replace({p: weakened.entry(p) for p in tests})


def noise(chance: object) -> float:
    """Return a draw of Gumbel's distribution: adding it to the logarithms of scores draws in proportion to them."""
    draw = max(1e-12, chance.random())  # type: ignore[attr-defined]
    return -math.log(-math.log(draw) + 1e-300)
