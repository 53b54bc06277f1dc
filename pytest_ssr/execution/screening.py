"""Which tests fail on a changed tree, found the cheapest way that is exact.

Only the tests that the change can touch are run, in a fork of a warm process where that is possible. This path may
reject a candidate; what it would accept is confirmed by the artifact's own script and parser in fresh sandboxes.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from pytest_ssr.codebase import CodebaseState
from pytest_ssr.execution.baseline import Baseline
from pytest_ssr.execution.reach import Touched
from pytest_ssr.execution.warm import UnfitError, Wanted
from pytest_ssr.execution.workbench import FACTOR, FLOOR_S, Workbench
from pytest_ssr.outcomes import RunStatus, SuiteRun

_SWAP_FLOOR_S = 2.0
_FEW = 5
_IMPORTS = re.compile(rb"^[ \t]*(?:from[ \t]+\S+[ \t]+)?import[ \t]*(?:\([^)]*\)|[^\n]*)", re.MULTILINE)
NONE, SWAP, IMPORT, FRESH = "none", "swap", "import", "fresh"


@dataclass(frozen=True, slots=True)
class Screened:
    """What the tests that a change can touch do on it."""

    run: SuiteRun
    """The run; no test where none can be touched."""
    failing: frozenset[str]
    """Tests that pass every time on the original and did not pass here."""
    tier: str
    """How it was run: none, swap, import or fresh."""
    selected: int
    """How many tests were run."""
    fallback: str = ""
    """Why it was not run in a fork of a warm process."""


class _NoEndError(UnfitError):
    """In no fork would it be otherwise."""


class Alone(Protocol):
    """Keeps which tests of a file do otherwise when it is collected on its own."""

    def get(self, path: str) -> frozenset[str] | None:
        """Return them; None where it was not tried."""

    def put(self, path: str, tests: frozenset[str], *, certain: bool) -> None:
        """Keep them; not certain: a further try could find others."""


class Screening:
    """Runs the tests that a change can touch."""

    def __init__(self, bench: Workbench, baseline: Baseline, alone: Alone, *, tests: Collection[str] = ()) -> None:
        """tests: what a whole run gives to pytest; none: what the project's configuration says."""
        self._bench, self._baseline, self._alone, self._tests = bench, baseline, alone, tuple(tests)
        self._measuring: dict[str, threading.Lock] = {}

    def run(self, state: CodebaseState, *, bench: Workbench, stop_after: int = 0) -> Screened:
        """Run them; with `stop_after` only until so many have failed.

        bench: which counts the run.
        """
        baseline = self._baseline
        touched = baseline.reach.touched_by(state) if baseline.reach is not None else Touched(None, None)
        tests = baseline.stable if touched.tests is None else touched.tests & baseline.stable
        if not tests:
            return Screened(SuiteRun(RunStatus.COMPLETED), frozenset(), NONE, 0)
        fallback = "there are no warm processes"
        for mode in (SWAP, IMPORT) if bench.warm is not None else ():
            if mode == SWAP and touched.functions is None:
                continue
            try:
                if mode == IMPORT and stop_after == 1 and (few := self._likely(state, tests)):
                    found = self._forked(state, touched, few, mode, stop_after, bench)
                    if found.failing:
                        return found
                found = self._forked(state, touched, tests, mode, stop_after, bench)
                if found.run.results.keys() >= tests:
                    bench.screened[state.tree_hash] = found.run
                return found
            except UnfitError as error:
                fallback = str(error)
                if isinstance(error, _NoEndError):
                    break
        return replace(self.fresh(state, bench=bench), fallback=fallback)

    def _forked(
        self,
        state: CodebaseState,
        touched: Touched,
        tests: frozenset[str],
        mode: str,
        stop_after: int,
        bench: Workbench,
    ) -> Screened:
        wanted = self._wanted(state, touched, tests, mode, stop_after=stop_after)
        return self._screened(self._made(wanted, touched, bench), tests, mode, stop_after)

    def _made(self, wanted: Wanted, touched: Touched, bench: Workbench) -> SuiteRun:
        """Make a run in a fork; raises UnfitError where that cannot be, or does not tell what a whole run would."""
        assert wanted.tests is not None
        self._require_like(wanted, touched, bench)
        run = bench.fork(wanted)
        failed = sum(not r.outcome.is_pass for r in run.results.values())
        stopped = bool(wanted.stop_after) and failed >= wanted.stop_after
        whole = stopped or run.results.keys() >= set(wanted.tests)
        if run.fault and whole:
            # A thread that waits may be let go by what later tests do, or by a garbage collection in one of them.
            raise _NoEndError("its tests come to their end and its process does not")
        if touched.tests is not None and not whole and not run.fault:
            raise UnfitError("what ended it concerns tests that were not selected")
        return run

    def _likely(self, state: CodebaseState, tests: frozenset[str]) -> frozenset[str]:
        """Return the few tests that are likeliest to fail by a change that acts at import: quick, and they reach it."""
        reach = self._baseline.reach
        near = tests & reach.near(state) if reach is not None else frozenset()
        return frozenset(self._quickest(near)[:_FEW]) if near < tests else frozenset()

    def fresh(self, state: CodebaseState, *, bench: Workbench) -> Screened:
        """Run the whole suite in a fresh process."""
        run, _ = bench.suite(state, self._tests, like_s=self._baseline.seconds, fresh=True)
        return self._screened(run, self._baseline.stable, FRESH, 0)

    def on_files(
        self, bench: Workbench, state: CodebaseState, files: Sequence[str], hash_seed: int, order_seed: int | None
    ) -> SuiteRun | None:
        """Return what the tests of some files do, those that the state's changes cannot touch as in the baseline.

        None: all have to be run. The others run in a fork that imports the project, unless the screening has run them.
        """
        known = self._baseline.on_files(files, hash_seed, order_seed)
        if known is None or not state.changes:
            return known
        if self._baseline.reach is None:
            return None
        touched = self._baseline.reach.touched_by(state)
        tests = (touched.tests or frozenset()) & self._baseline.stable & set(known.collected)
        if not tests:
            return None
        run = bench.screened.get(state.tree_hash) if (hash_seed, order_seed) == (0, None) else None
        if run is None:
            wanted = self._wanted(state, touched, tests, IMPORT, hash_seed=hash_seed, order_seed=order_seed)
            try:
                run = self._made(wanted, touched, bench)
            except UnfitError:
                return None
        results = {i: r for i, r in known.results.items() if i not in tests}
        taken = len(results)
        results |= {i: r for i, r in run.results.items() if i in tests}
        return replace(run, results=results, collected=known.collected, taken=taken)

    def _require_like(self, wanted: Wanted, touched: Touched, bench: Workbench) -> None:
        """Raise UnfitError where a wanted test does otherwise in such a fork, with nothing changed.

        A file is also tried on its own: its tests may need what the import of another one does.
        """
        assert wanted.tests is not None
        if wanted.mode == IMPORT and not _imports_alike(wanted.state, touched.quiet):
            raise UnfitError("it imports other modules than those that are loaded")
        others = frozenset(wanted.tests) & self._baseline.unlike.get(wanted.mode, frozenset())
        if others:
            raise UnfitError("it concerns tests that do otherwise in forks")
        for path in wanted.targets if wanted.mode == IMPORT else ():
            with self._measuring.setdefault(path, threading.Lock()):
                unlike = self._alone.get(path)
                if unlike is None:
                    unlike = self._unlike_alone(path, bench)
            if unlike & frozenset(wanted.tests):
                raise UnfitError(f"it concerns tests that do otherwise when {path} is collected alone")

    def _unlike_alone(self, path: str, bench: Workbench) -> frozenset[str]:
        tests = frozenset(t for t in self._baseline.stable if t.startswith(f"{path}::"))
        wanted = self._wanted(bench.original, Touched(tests, None), tests, IMPORT)
        assert bench.warm is not None
        run = bench.warm.run(wanted)
        self._alone.put(path, tests - run.passing, certain=not run.fault)
        return tests - run.passing

    def _wanted(
        self,
        state: CodebaseState,
        touched: Touched,
        tests: frozenset[str],
        mode: str,
        *,
        stop_after: int = 0,
        hash_seed: int = 0,
        order_seed: int | None = None,
    ) -> Wanted:
        """Return the run to be made in a mode."""
        baseline = self._baseline
        # The first of several tests pays for the setup they share.
        expected = sum(baseline.durations.get(name, 0.0) for name in tests) + baseline.longest_setup_s
        targets = [p for p in baseline.files if any(t.startswith(f"{p}::") for t in tests)]
        if mode == SWAP:
            floor = _SWAP_FLOOR_S
        else:
            floor = FLOOR_S
            expected += max(0.0, baseline.seconds - sum(baseline.durations.values()))
        return Wanted(
            state,
            tests=tests,
            first=self._quickest(tests) if stop_after == 1 else (),
            targets=targets if len(targets) < len(baseline.files) else self._tests,
            functions=touched.functions if mode == SWAP else None,
            hash_seed=hash_seed,
            order_seed=order_seed,
            stop_after=stop_after,
            wall_s=min(self._bench.settings.time_limit_s, floor + FACTOR * expected),
        )

    def _quickest(self, tests: frozenset[str]) -> list[str]:
        """Order tests for a run that one failure ends: those that reach the change, and of these the quickest."""
        reach, durations = self._baseline.reach, self._baseline.durations
        always = reach.names(reach.always) if reach is not None else frozenset()
        return sorted(tests, key=lambda name: (name in always, durations.get(name, 0.0), name))

    def _screened(self, run: SuiteRun, tests: frozenset[str], tier: str, stop_after: int) -> Screened:
        if stop_after:
            failed = frozenset(i for i, r in run.results.items() if not r.outcome.is_pass)
            if len(failed & tests) >= stop_after:
                return Screened(run, failed & tests, tier, len(tests))
        return Screened(run, tests - run.passing, tier, len(tests))


def _imports_alike(state: CodebaseState, quiet: Collection[str]) -> bool:
    """Tell whether a state has the modules of the original, which import at import what they import there."""
    for path, entry in state.changes.items():
        if path in quiet or not path.endswith(".py"):
            continue
        old = state.snapshot.entry(path) if path in state.snapshot.files else None
        if entry is None or old is None or _IMPORTS.findall(old.data) != _IMPORTS.findall(entry.data):
            return False
    return True
