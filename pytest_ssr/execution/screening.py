"""Find the tests that fail on a changed tree, in the cheapest way that is exact.

Only the tests that the change can touch are run, in a fork of a warm process if possible. This path may reject a
candidate, and may call one survived only with evidence that the changed code ran; what it would accept is confirmed by
the artifact's own script and parser in fresh sandboxes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from pytest_ssr.execution.baseline import FIRST_SEEDS, SECOND_SEEDS, Baseline, Verification
from pytest_ssr.execution.coverage_map import CoverageMap, Touched
from pytest_ssr.execution.fork_control import ForkControl
from pytest_ssr.execution.fork_server import ForkRequest, Mode, Pace, UnfitError
from pytest_ssr.execution.runner import FACTOR, FLOOR_S, Runner
from pytest_ssr.execution.selection import Selection
from pytest_ssr.execution.test_runners import PytestRunner
from pytest_ssr.project.state import CodebaseState
from pytest_ssr.records.fallback import Fallback, FallbackCode
from pytest_ssr.records.test_run import RunStatus, SetAside, SuiteRun

_SWAP_FLOOR_S = 2.0
_TEST_FLOOR_S, _SHORT_TEST_S = 2.5, 0.1
_FEW = 5
_IMPORTS = re.compile(rb"^[ \t]*(?:from[ \t]+\S+[ \t]+)?import[ \t]*(?:\([^)]*\)|[^\n]*)", re.MULTILINE)
NONE, SWAP, IMPORT, FRESH = "none", str(Mode.SWAP), str(Mode.IMPORT), "fresh"


@dataclass(frozen=True, slots=True)
class Screened:
    """Results on a changed tree of the tests that the change can touch."""

    run: SuiteRun
    """The run; without tests if the change can touch none."""
    failing: frozenset[str]
    """Tests that pass on the original and did not pass here."""
    tier: str
    """How it was run: none, swap, import or fresh."""
    selected: int
    """How many tests were run."""
    fallback: Fallback | None = None
    """Why it was not run in a fork of a warm process; None if it was."""
    unexercised: tuple[str, ...] = ()
    """Changed files without proof that the tests ran the changed code."""


@dataclass(frozen=True, slots=True)
class _Plan:
    """What to run for one candidate."""

    state: CodebaseState
    touched: Touched
    tests: frozenset[str]
    stop_after: int
    runner: Runner = field(repr=False)


class Screening:
    """Runs the tests that a change can touch."""

    def __init__(
        self,
        runner: Runner,
        baseline: Baseline,
        verification: Callable[[], Verification],
        *,
        tests: Collection[str] = (),
    ) -> None:
        """Prepare to screen candidates against a baseline.

        verification: waits for the end of the baseline's second run, and returns its results. tests: what a whole run
        passes to pytest; none: what the project's configuration names.
        """
        self._runner, self._baseline, self._verification = runner, baseline, verification
        self._tests = tuple(tests)
        self._control = ForkControl()
        self._steady: set[str] = set()
        self._modules: frozenset[str] | None = None
        self.unsteady: dict[str, SetAside] = {}
        """Tests that proved unreliable since the baseline, to the reason."""

    def run(
        self, state: CodebaseState, *, runner: Runner, stop_after: int = 0, without: frozenset[str] = frozenset()
    ) -> Screened:
        """Run the tests that a change can touch, except those in `without`, until `stop_after` have failed (0: all).

        If no test fails, the tests that reach the change in the second run of the baseline, which has another order,
        are run as well. runner: counts the runs.
        """
        touched = self._touched(self._baseline.reach, state)
        tests = self._selected(touched) - without
        screened = self._screen(_Plan(state, touched, tests, stop_after, runner))
        if screened.failing or screened.run.fault or screened.unexercised:
            return screened
        touched = self._touched(self._verification().reach, state)
        more = self._selected(touched) - tests - without
        if not more:
            return screened
        further = self._screen(_Plan(state, replace(touched, tests=more), more, stop_after, runner))
        return replace(further, selected=screened.selected + further.selected)

    def again(self, state: CodebaseState, tests: frozenset[str], *, runner: Runner) -> frozenset[str]:
        """Run tests again that failed with a change, until one of them fails; return those that do.

        runner: counts the run.
        """
        touched = self._touched(self._baseline.reach, state)
        return self._screen(_Plan(state, replace(touched, tests=tests), tests, 1, runner)).failing

    def set_aside_near(self, state: CodebaseState) -> frozenset[str]:
        """Return the tests that were set aside, and might notice the changes of a state because they run that code."""
        verification = self._verification()
        set_aside = {**self._baseline.set_aside, **verification.set_aside, **self.unsteady}
        doubtful = frozenset(test for test, reason in set_aside.items() if reason.could_notice)
        reach = verification.reach or self._baseline.reach
        return doubtful & reach.near(state) if doubtful and reach is not None else frozenset()

    def fresh(self, state: CodebaseState, *, runner: Runner) -> Screened:
        """Run the whole suite in a fresh process."""
        run, _ = runner.suite(state, self._tests, like_s=self._baseline.seconds, fresh=True)
        return self._screened(run, self._stable(), FRESH, 0, state, self._touched(self._baseline.reach, state))

    def on_files(
        self, runner: Runner, state: CodebaseState, files: Sequence[str], hash_seed: int, order_seed: int | None
    ) -> SuiteRun | None:
        """Return the results of the tests of some files, from the baseline if the state's changes cannot touch them.

        The other tests run in a fork that imports the project, unless the screening has run them. None: all tests have
        to be run.
        """
        seeds = hash_seed, order_seed
        set_aside = dict(self.unsteady)
        if seeds == SECOND_SEEDS:
            set_aside |= self._verification().set_aside
        elif seeds != FIRST_SEEDS and not state.changes:
            return None
        original = self._baseline.on_files(files, set_aside)
        if original is None or not state.changes:
            return original
        touched = self._touched(self._baseline.reach, state)
        tests = (touched.tests or frozenset()) & self._baseline.stable & set(original.collected)
        if not tests:
            return None
        run = runner.cache.screened.get(state.tree_hash) if seeds == FIRST_SEEDS else None
        if run is None:
            request = self._request(_Plan(state, touched, tests, 0, runner), Mode.IMPORT)
            try:
                run = self._run_in_fork(replace(request, hash_seed=hash_seed, order_seed=order_seed), touched, runner)
            except UnfitError:
                return None
        results = {i: r for i, r in original.results.items() if i not in tests}
        taken = len(results)
        results |= {i: r for i, r in run.results.items() if i in tests}
        return replace(run, results=results, collected=original.collected, taken=taken)

    def _stable(self) -> frozenset[str]:
        return self._baseline.stable.difference(self.unsteady)

    def _touched(self, reach: CoverageMap | None, state: CodebaseState) -> Touched:
        return reach.touched_by(state) if reach is not None else Touched(None, None)

    def _selected(self, touched: Touched) -> frozenset[str]:
        return self._stable() if touched.tests is None else touched.tests & self._stable()

    def _screen(self, plan: _Plan) -> Screened:
        if not plan.tests:
            return Screened(SuiteRun(RunStatus.COMPLETED), frozenset(), NONE, 0)
        is_pytest = isinstance(plan.runner.test_runner, PytestRunner)
        fallback = Fallback(FallbackCode.NO_SERVERS if is_pytest else FallbackCode.OTHER_RUNNER)
        for mode in (Mode.SWAP, Mode.IMPORT) if plan.runner.fork_server is not None else ():
            if mode is Mode.SWAP and plan.touched.functions is None:
                continue
            try:
                screened = self._in_forks(plan, mode)
            except UnfitError as error:
                fallback = error.fallback
                if fallback.code is FallbackCode.NEEDS_ALL_TESTS:
                    break
                continue
            if screened.failing or screened.run.fault:
                return screened
            if screened.unexercised:
                fallback = Fallback(FallbackCode.NOT_EXERCISED)
            elif mode is Mode.SWAP or plan.touched.quiet >= plan.state.changes.keys() or self._loads_as_before(plan):
                return screened
            else:
                fallback = Fallback(FallbackCode.LOADS_LESS)
        needs_all = fallback.code is FallbackCode.NEEDS_ALL_TESTS
        run = self._selected_fresh(plan, plan.tests) if not needs_all else None
        if run is None or (plan.touched.tests is not None and not _is_whole(run, plan.tests, plan.stop_after)):
            return replace(self.fresh(plan.state, runner=plan.runner), fallback=fallback)
        return replace(
            self._screened(run, plan.tests, FRESH, plan.stop_after, plan.state, plan.touched), fallback=fallback
        )

    def _loads_as_before(self, plan: _Plan) -> bool:
        """Return whether the changed tree still imports all that the original does and that such a fork has loaded."""
        if self._modules is None:
            self._modules = self._runner.modules(self._runner.original, self._tests)
        now = plan.runner.modules(plan.state, self._tests)
        return self._modules is not None and now is not None and self._modules <= now

    def _in_forks(self, plan: _Plan, mode: Mode) -> Screened:
        """Run the tests in a fork, except those that behave differently there, which run in a fresh process."""
        cold = plan.tests & self._control.unlike(mode)
        warm = plan.tests - cold
        if not warm:
            raise UnfitError(FallbackCode.TESTS_DIFFER)
        if mode is Mode.IMPORT and plan.stop_after == 1 and (few := self._likely(plan.state, warm)):
            first = self._forked(replace(plan, tests=few), mode)
            if first[0].failing and not first[1]:
                return first[0]
        screened, differing = self._forked(replace(plan, tests=warm), mode)
        cold |= differing
        enough = plan.stop_after and len(screened.failing) >= plan.stop_after
        if cold and not enough and not screened.run.fault:
            screened = self._with_cold(plan, screened, cold)
        if screened.run.results.keys() >= plan.tests:
            plan.runner.cache.screened[plan.state.tree_hash] = screened.run
        return replace(screened, selected=len(plan.tests))

    def _forked(self, plan: _Plan, mode: Mode) -> tuple[Screened, frozenset[str]]:
        """Return the results of the tests in a fork, and which of them also fail there on the unchanged tree."""
        request = self._request(plan, mode)
        run = self._run_in_fork(request, plan.touched, plan.runner)
        self._control.add_alike(request, run.passing)
        screened = self._screened(run, plan.tests, str(mode), plan.stop_after, plan.state, plan.touched)
        if run.fault:
            self._control.require_end(request, run, plan.runner)
            return screened, frozenset()
        differing = self._control.differing(request, screened.failing, plan.runner)
        return replace(screened, failing=screened.failing - differing), differing

    def _with_cold(self, plan: _Plan, screened: Screened, cold: frozenset[str]) -> Screened:
        """Add the results, in a fresh process, of the tests that are not run in forks."""
        self._require_steady(cold, plan.runner)
        cold -= self.unsteady.keys()
        if not cold:
            return screened
        run = self._selected_fresh(plan, cold)
        other = self._screened(run, cold, FRESH, plan.stop_after, plan.state, plan.touched)
        if run.fault:
            return other
        results = {i: r for i, r in screened.run.results.items() if i not in cold}
        merged = replace(screened.run, results={**results, **run.results})
        return replace(screened, run=merged, failing=(screened.failing - cold) | other.failing)

    def _require_steady(self, tests: frozenset[str], runner: Runner) -> None:
        """Set aside tests that do not pass in a separate fresh process on the unchanged tree."""
        unknown = tests - self._steady - self.unsteady.keys()
        if unknown:
            run = runner.fresh(
                runner.original, self._tests, selection=Selection(unknown), like_s=self._seconds(unknown)
            )
            self._steady |= unknown & run.passing
            self.unsteady |= dict.fromkeys(sorted(unknown - run.passing), SetAside.UNSTEADY)

    def _selected_fresh(self, plan: _Plan, tests: frozenset[str]) -> SuiteRun:
        """Run some tests in a fresh process, which collects all tests."""
        selection = Selection(tests, first_files=self._quick_files(tests), stop_after=plan.stop_after)
        return plan.runner.fresh(plan.state, self._tests, selection=selection, like_s=self._seconds(tests))

    def _run_in_fork(self, request: ForkRequest, touched: Touched, runner: Runner) -> SuiteRun:
        """Make a run in a fork; raise UnfitError if it is impossible or does not show what a whole run would."""
        selection = request.selection
        assert selection.tests is not None
        if request.mode is Mode.IMPORT and not _has_same_imports(request.state, touched.quiet):
            raise UnfitError(FallbackCode.IMPORTS_DIFFER)
        run = runner.fork(request)
        whole = _is_whole(run, selection.tests, selection.stop_after)
        if run.fault and whole:
            # A thread that waits may be released by what later tests do, or by a garbage collection in one of them.
            raise UnfitError(FallbackCode.NEEDS_ALL_TESTS, "its tests end but its process does not")
        if touched.tests is not None and not whole and not run.fault:
            raise UnfitError(FallbackCode.NEEDS_ALL_TESTS, "its early end concerns tests that were not selected")
        return run

    def _request(self, plan: _Plan, mode: Mode) -> ForkRequest:
        """Return the request for a run in a mode."""
        baseline, tests = self._baseline, plan.tests
        targets = [p for p in baseline.test_paths if any(t.startswith(f"{p}::") for t in tests)]
        overhead_s = 0.0 if mode is Mode.SWAP else baseline.overhead_s
        floor_s = _SWAP_FLOOR_S if mode is Mode.SWAP else FLOOR_S
        return ForkRequest(
            plan.state,
            selection=Selection(
                tests,
                first=self._quickest(tests) if plan.stop_after == 1 else (),
                first_files=self._quick_files(tests) if plan.stop_after != 1 else (),
                stop_after=plan.stop_after,
            ),
            targets=targets if len(targets) < len(baseline.test_paths) else self._tests,
            functions=plan.touched.functions if mode is Mode.SWAP else None,
            wall_s=min(
                self._runner.settings.time_limit_s,
                floor_s + FACTOR * (overhead_s + self._seconds(tests) - baseline.overhead_s),
            ),
            pace=self._pace(tests, overhead_s),
        )

    def _pace(self, tests: frozenset[str], overhead_s: float) -> Pace:
        """Return time limits for single tests: a small multiple of the time that they take on the original."""
        durations = self._baseline.durations
        # The first test to run pays for the setup that it shares with others.
        usual_s = _TEST_FLOOR_S + FACTOR * self._baseline.longest_setup_s
        long = {i: seconds for i in tests if (seconds := durations.get(i, 0.0)) > _SHORT_TEST_S}
        limits = {i: usual_s + FACTOR * seconds for i, seconds in long.items()}
        return Pace(start_s=FLOOR_S + FACTOR * overhead_s, test_s=usual_s, limits=limits)

    def _seconds(self, tests: Collection[str]) -> float:
        """Return the seconds that a process needs for some tests on the original."""
        baseline = self._baseline
        return baseline.overhead_s + baseline.longest_setup_s + sum(baseline.durations.get(i, 0.0) for i in tests)

    def _likely(self, state: CodebaseState, tests: frozenset[str]) -> frozenset[str]:
        """Return the few tests likeliest to fail for a change that acts at import: quick ones that reach it."""
        reach = self._baseline.reach
        near = tests & reach.near(state) if reach is not None else frozenset()
        return frozenset(self._quickest(near)[:_FEW]) if near < tests else frozenset()

    def _quickest(self, tests: frozenset[str]) -> list[str]:
        """Order tests for a run that one failure ends: first those that reach the change, then by duration."""
        reach, durations = self._baseline.reach, self._baseline.durations
        always = reach.names(reach.always) if reach is not None else frozenset()
        return sorted(tests, key=lambda name: (name in always, durations.get(name, 0.0), name))

    def _quick_files(self, tests: frozenset[str]) -> list[str]:
        """Order the files of some tests by the mean duration of a test, so that many failures are seen early."""
        seconds: dict[str, list[float]] = {}
        for name in tests:
            seconds.setdefault(name.split("::", 1)[0], []).append(self._baseline.durations.get(name, 0.0))
        mean: Mapping[str, float] = {path: sum(each) / len(each) for path, each in seconds.items()}
        return sorted(mean, key=lambda path: (mean[path], path)) if len(mean) > 1 else []

    def _screened(
        self,
        run: SuiteRun,
        tests: frozenset[str],
        tier: str,
        stop_after: int,
        state: CodebaseState,
        touched: Touched,
    ) -> Screened:
        failing = tests - run.passing
        if stop_after:
            failed = frozenset(i for i, r in run.results.items() if not r.outcome.is_pass) & tests
            failing = failed if len(failed) >= stop_after else failing
        return Screened(run, failing, tier, len(tests), unexercised=_unexercised(state, run, touched.unreached))


def _is_whole(run: SuiteRun, tests: Collection[str], stop_after: int) -> bool:
    """Return whether a run finished its tests, or reached the requested number of failures."""
    failed = sum(not r.outcome.is_pass for r in run.results.values())
    return bool(stop_after and failed >= stop_after) or run.results.keys() >= set(tests)


def _unexercised(state: CodebaseState, run: SuiteRun, unreached: Collection[str]) -> tuple[str, ...]:
    """Return the changed modules whose changed source the process of a run should have loaded but has not."""
    changed = (p for p, entry in state.changes.items() if entry is not None and p.endswith(".py"))
    return tuple(p for p in changed if p in state.snapshot.files and p not in run.exercised and p not in unreached)


def _has_same_imports(state: CodebaseState, quiet: Collection[str]) -> bool:
    """Return whether a state has the modules of the original, with the same import statements."""
    for path, entry in state.changes.items():
        if path in quiet or not path.endswith(".py"):
            continue
        old = state.snapshot.entry(path) if path in state.snapshot.files else None
        if entry is None or old is None or _IMPORTS.findall(old.data) != _IMPORTS.findall(entry.data):
            return False
    return True
