"""Which tests fail on a changed tree, found the cheapest way that is exact.

Only the tests that the change can touch are run, in a fork of a warm process where that is possible. This path may
reject a candidate; what it would accept is confirmed by the artifact's own script and parser in fresh sandboxes.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from pytest_ssr.codebase import CodebaseState
from pytest_ssr.execution.baseline import Baseline
from pytest_ssr.execution.reach import Touched
from pytest_ssr.execution.warm import UnfitError, Wanted
from pytest_ssr.execution.workbench import FACTOR, FLOOR_S, Workbench
from pytest_ssr.outcomes import RunStatus, SuiteRun

_SWAP_FLOOR_S = 2.0
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


class Screening:
    """Runs the tests that a change can touch."""

    def __init__(self, bench: Workbench, baseline: Baseline, *, tests: Collection[str] = ()) -> None:
        """tests: what a whole run gives to pytest; none: what the project's configuration says."""
        self._bench, self._baseline, self._tests = bench, baseline, tuple(tests)

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
            wanted = self._wanted(state, touched, tests, mode, stop_after)
            if wanted is None:
                continue
            if tests & baseline.unlike.get(mode, frozenset()):
                fallback = "it concerns tests that do otherwise in forks"
                continue
            try:
                assert bench.warm is not None
                run = bench.warm.run(wanted)
            except UnfitError as error:
                fallback = str(error)
                continue
            bench.runs_made += 1
            bench.forks_made += 1
            return self._screened(run, tests, mode, stop_after)
        return replace(self.fresh(state, bench=bench), fallback=fallback)

    def fresh(self, state: CodebaseState, *, bench: Workbench) -> Screened:
        """Run the whole suite in a fresh process."""
        run, _ = bench.suite(state, self._tests, like_s=self._baseline.seconds, fresh=True)
        return self._screened(run, self._baseline.stable, FRESH, 0)

    def _wanted(
        self, state: CodebaseState, touched: Touched, tests: frozenset[str], mode: str, stop_after: int
    ) -> Wanted | None:
        """Return the run to be made in a mode, or None where that mode is not exact."""
        expected = sum(self._baseline.durations.get(name, 0.0) for name in tests)
        if mode == SWAP:
            if touched.functions is None:
                return None
            floor = _SWAP_FLOOR_S
        else:
            floor = FLOOR_S
            expected = max(expected, self._baseline.seconds if len(tests) == len(self._baseline.stable) else 0.0)
        return Wanted(
            state,
            tests=tests,
            targets=[p for p in self._baseline.files if any(t.startswith(f"{p}::") for t in tests)],
            functions=touched.functions if mode == SWAP else None,
            stop_after=stop_after,
            wall_s=min(self._bench.settings.time_limit_s, floor + FACTOR * expected),
        )

    def _screened(self, run: SuiteRun, tests: frozenset[str], tier: str, stop_after: int) -> Screened:
        if stop_after:
            failed = frozenset(i for i, r in run.results.items() if not r.outcome.is_pass)
            if len(failed & tests) >= stop_after:
                return Screened(run, failed & tests, tier, len(tests))
        return Screened(run, tests - run.passing, tier, len(tests))
