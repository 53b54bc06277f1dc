"""Measure what a project's own tests do on the original, and which statements each of them reaches.

One run records both. Tests that fail in it run once more without the recording, so that a test which the recording
disturbs is not taken for a failure. A second run with another hash seed and the order reversed, `verify`, runs beside
the first candidates: it sets aside by name the tests that do not pass in it, and makes certain which tests a change can
touch. No candidate counts as survived or as valid before it has ended.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any, TypeVar

from pytest_ssr.errors import ProjectError, StoreError
from pytest_ssr.execution.baseline_parts import Parts
from pytest_ssr.execution.coverage_map import CoverageLog, CoverageMap
from pytest_ssr.execution.fork_server import ForkServer
from pytest_ssr.execution.identities import by_position, ids_elsewhere
from pytest_ssr.execution.runner import FACTOR, Runner
from pytest_ssr.execution.selection import Selection
from pytest_ssr.execution.test_runners import PytestRunner
from pytest_ssr.project.file_roles import can_hold_tests, is_code, is_test_surface
from pytest_ssr.project.own_plugins import without_own_plugins
from pytest_ssr.records.decoding import decode
from pytest_ssr.records.test_run import CaseResult, Outcome, RunStatus, SetAside, SuiteRun, abbreviate

SCHEMA_VERSION = 5
FIRST_SEEDS: tuple[int, int | None] = (0, None)
SECOND_SEEDS: tuple[int, int | None] = (1, 1)
"""Hash seed and order seed of the two runs."""
_MOST_DISTURBED = 0.2


@dataclass(frozen=True)
class Baseline:
    """The results of the tests of one tree in one environment."""

    collected: tuple[str, ...]
    """Every node id, in pytest's order."""
    stable: frozenset[str]
    """Ids that pass."""
    set_aside: Mapping[str, SetAside]
    """Id to the reason why it does not count."""
    durations: Mapping[str, float]
    """Id to seconds."""
    parameters: Mapping[str, tuple[tuple[str, int], ...]]
    """Id to the indices of its parameter sets."""
    sources: tuple[str, ...]
    """Files of the tree that the tests import."""
    addopts: tuple[str, ...]
    """The pytest options of `root_options`, then the project's own, without dropped ones."""
    seconds: float
    """Wall time of one run of the whole suite."""
    longest_setup_s: float
    """Seconds of the longest setup of a test; other tests may share that setup."""
    note: str = ""
    """What the user should know, such as files that cannot be collected."""
    python: str = field(default="")
    """The version of the interpreter."""
    reach: CoverageMap | None = None
    """Which statements each test reaches; None if that could not be recorded."""
    modules: tuple[str, ...] = ()
    """Modules that the tests import from outside of the tree, in order."""
    doctests: frozenset[str] = frozenset()
    """Ids of doctests."""
    by_position: tuple[str, ...] = ()
    """Functions whose parameter sets have other ids in each process; the ids here name them by position."""
    by_collectors: frozenset[str] = frozenset()
    """Ids of tests that are neither functions nor doctests: collectors of the project or of plugins make them."""
    surface: tuple[str, ...] = ()
    """Files of the tree that pytest loads as plugins or as modules for tests."""
    disturbed: frozenset[str] = frozenset()
    """Ids that pass only without the recording."""
    messages: Mapping[str, str] = field(default_factory=dict)
    """Id to the first line of its failure, if a reporter gave one."""

    @cached_property
    def files(self) -> tuple[str, ...]:
        """The files that hold tests, in order of collection; not code files that hold only doctests."""
        return tuple(dict.fromkeys(i.split("::", 1)[0] for i in self.collected if i not in self.doctests_in_code))

    @cached_property
    def defining_files(self) -> tuple[str, ...]:
        """The files that may define tests: `files`, then the other modules of the test surface that they import."""
        surface = set(self.surface).union(filter(is_test_surface, self.sources))
        return (*self.files, *sorted(p for p in surface.difference(self.files) if can_hold_tests(p)))

    @cached_property
    def doctests_in_code(self) -> frozenset[str]:
        """Doctests in the code itself: they can reveal bugs but cannot be removed, as the file is not test code."""
        return frozenset(i for i in self.doctests if is_code(i.split("::", 1)[0]))

    @cached_property
    def test_paths(self) -> tuple[str, ...]:
        """Every file that something was collected from, in order of collection."""
        return tuple(dict.fromkeys(i.split("::", 1)[0] for i in self.collected))

    @property
    def overhead_s(self) -> float:
        """Seconds of a whole run outside of tests: imports and collection."""
        return max(0.0, self.seconds - sum(self.durations.values()))

    def seconds_of_files(self, files: Collection[str]) -> float:
        """Return the seconds that a process needs for the tests of some files."""
        tests = sum(seconds for i, seconds in self.durations.items() if i.split("::", 1)[0] in files)
        return self.overhead_s + self.longest_setup_s + tests

    def on_files(self, files: Sequence[str], set_aside: Collection[str] = ()) -> SuiteRun | None:
        """Return the whole run's results for these files, or None if one of them has no test.

        set_aside: more tests that do not count as passing.
        """
        wanted = tuple(i for i in self.collected if i.split("::", 1)[0] in files)
        if len({i.split("::", 1)[0] for i in wanted}) < len(files):
            return None
        passing = self.stable.difference(set_aside)
        results = {
            i: CaseResult(Outcome.PASSED if i in passing else Outcome.FAILED, self.durations.get(i, 0.0))
            for i in wanted
        }
        seconds = sum(r.duration_s for r in results.values())
        return SuiteRun(
            RunStatus.COMPLETED,
            results=results,
            collected=wanted,
            seconds=seconds,
            exit_code=0,
            surface=self.surface,
        )

    def to_json(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        plain = asdict(replace(self, reach=None))
        reach = self.reach.to_json() if self.reach is not None else None
        unordered = {"stable": sorted(self.stable), "disturbed": sorted(self.disturbed), "reach": reach}
        unordered |= {"doctests": sorted(self.doctests), "by_collectors": sorted(self.by_collectors)}
        return {"schema_version": SCHEMA_VERSION, **plain, **unordered}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Baseline | None:
        """Read plain data back; return None for another schema version or incomplete data: it is measured again."""
        return _decoded(cls, data)


@dataclass(frozen=True)
class Verification:
    """The results of the second run of a baseline."""

    set_aside: Mapping[str, SetAside]
    """Ids that pass in the first run but not in this one, to the reason why they do not count."""
    reach: CoverageMap | None
    """Which statements each test reaches in either order; None if that could not be recorded."""

    def to_json(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        reach = self.reach.to_json() if self.reach is not None else None
        return {"schema_version": SCHEMA_VERSION, "set_aside": dict(self.set_aside), "reach": reach}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Verification | None:
        """Read plain data back; return None for another schema version or incomplete data."""
        return _decoded(cls, data)


_Measured = TypeVar("_Measured", Baseline, Verification)


def _decoded(cls: type[_Measured], data: Mapping[str, Any]) -> _Measured | None:
    """Return a record with its coverage map, which is compressed in the store; None if either cannot be read."""
    try:
        packed = data["reach"]
        record = decode(cls, {**data, "reach": None}, version=SCHEMA_VERSION, is_complete=True)
        return replace(record, reach=CoverageMap.from_json(packed)) if packed is not None else record
    except (KeyError, StoreError):
        return None


def measure_baseline(runner: Runner, tests: Sequence[str] = (), parts: Parts | None = None) -> Baseline:
    """Run the project's suite, or these tests of it, once, and record what each test reaches.

    parts: saves what was measured so far; what an interrupted run has measured is not measured again. Raises
    ProjectError if the result is unusable.
    """
    earlier = parts.earlier() if parts is not None else []
    done = frozenset(i for run, _ in earlier for i in run.results)
    selection, others = None, None
    if done:
        runner = by_position(runner, earlier[0][0].by_position)
        collected = earlier[0][0].before_selection or earlier[0][0].collected
        selection = Selection([i for i in collected if i not in done], reports_collected=True)
    elif isinstance(runner.test_runner, PytestRunner):
        others = ids_elsewhere(runner, tests)
    run, log = runner.probe(
        runner.snapshot.code_paths(), tests, *FIRST_SEEDS, selection=selection, other_ids=others, parts=parts
    )
    runner = by_position(runner, run.by_position)
    if not done:
        return baseline_from_run(run, log, runner, tests, collected=run.collected)
    if run.fault or frozenset(run.before_selection) != frozenset(collected):
        assert parts is not None
        parts.clear()
        return measure_baseline(runner, tests)
    return baseline_from_run(
        _with_earlier_parts(earlier, run), log, runner, tests, collected=run.before_selection, logs=earlier
    )


def _with_earlier_parts(earlier: Sequence[tuple[SuiteRun, CoverageLog]], last: SuiteRun) -> SuiteRun:
    """Merge the parts of a run into one run."""
    runs = [run for run, _ in earlier] + [last]
    return replace(
        last,
        collected=tuple(dict.fromkeys([*(i for run, _ in earlier for i in run.results), *last.collected])),
        results={i: r for run in runs for i, r in run.results.items()},
        parameters={i: p for run in runs for i, p in run.parameters.items()},
        doctests=frozenset().union(*(run.doctests for run in runs)),
        by_collectors=frozenset().union(*(run.by_collectors for run in runs)),
        seconds=sum(r.duration_s for run in runs for r in run.results.values())
        + max(0.0, last.seconds - sum(r.duration_s for r in last.results.values())),
    )


def baseline_from_run(
    run: SuiteRun,
    log: CoverageLog,
    runner: Runner,
    tests: Sequence[str],
    *,
    collected: Sequence[str],
    logs: Sequence[tuple[SuiteRun, CoverageLog]] = (),
) -> Baseline:
    """Return the baseline from a recorded run; raise ProjectError if the run is unusable.

    collected: every test of the tree. logs: the earlier parts of the run.
    """
    run, disturbed = _without_disturbance(run, runner, tests, FIRST_SEEDS)
    _require_usable(run, runner)
    collected = collected if frozenset(collected) >= frozenset(run.collected) else run.collected
    stable = run.passing
    set_aside = {
        name: SetAside(run.results[name].outcome) if name in run.results else SetAside.NOT_RUN
        for name in run.collected
        if name not in stable
    }
    if not stable:
        raise ProjectError(
            f"none of the {len(run.collected)} tests passes in the sandbox (it has no network): "
            f"{_first_reason(run)}; make `{_command(runner)}` pass first"
        )
    parts = [*(part for _, part in logs), log]
    reach = CoverageMap.from_logs(collected, parts) if log.is_complete else None
    if reach is not None:
        reach.add_always(disturbed)
    return Baseline(
        collected=tuple(collected),
        stable=stable,
        set_aside=set_aside,
        durations={i: r.duration_s for i, r in run.results.items()},
        parameters=run.parameters,
        sources=run.sources,
        by_position=run.by_position,
        by_collectors=run.by_collectors,
        surface=without_own_plugins(runner.snapshot, run.surface),
        addopts=(*runner.pytest_options, *run.addopts),
        seconds=run.seconds,
        longest_setup_s=max(r.setup_s for r in run.results.values()),
        note=run.reason,
        python=runner.interpreter.version,
        reach=reach,
        modules=run.modules,
        doctests=run.doctests,
        disturbed=disturbed,
        messages={i: r.message for i, r in run.results.items() if i in set_aside and r.message},
    )


def verify(runner: Runner, baseline: Baseline, tests: Sequence[str] = ()) -> Verification:
    """Run the suite of a baseline with another hash seed and the order reversed."""
    run, log = runner.probe(runner.snapshot.code_paths(), tests, *SECOND_SEEDS)
    return verification_from_run(run, log, runner, tests, baseline)


def verification_from_run(
    run: SuiteRun,
    log: CoverageLog,
    runner: Runner,
    tests: Sequence[str],
    baseline: Baseline,
    *,
    only: Callable[[str], bool] = lambda _: True,
    join: Callable[[CoverageMap], CoverageMap] = lambda reach: reach,
) -> Verification:
    """Return the results of a second recorded run; raise ProjectError if the tests do not run in another order.

    only: returns whether a test was run. join: returns the reach of all tests, given that of the tests that were run.
    """
    run, disturbed = _without_disturbance(run, runner, tests, SECOND_SEEDS, failing=baseline.set_aside)
    if run.fault:
        raise ProjectError(f"the tests do not run in another order: that run ended with {run.fault}")
    lost = (i for i in baseline.stable - run.passing if only(i))
    set_aside = dict.fromkeys(sorted(lost), SetAside.FLICKERS)
    reach = baseline.reach if log.is_complete else None
    if reach is not None:
        second = CoverageMap.from_logs(baseline.collected, [log])
        second.add_always(disturbed)
        reach = reach.confirmed_by(join(second))
    return Verification(set_aside, reach)


def _without_disturbance(
    run: SuiteRun,
    runner: Runner,
    tests: Sequence[str],
    seeds: tuple[int, int | None],
    *,
    failing: Collection[str] = (),
) -> tuple[SuiteRun, frozenset[str]]:
    """Return a run as it would be without the recording, and the tests that pass only without it.

    The tests that failed are run again, except those in `failing`. If the recording may have broken more than tests,
    the whole run is repeated.
    """
    hash_seed, order_seed = seeds
    failed = frozenset(i for i, r in run.results.items() if r.outcome in (Outcome.FAILED, Outcome.ERROR)) - set(failing)
    broken = run.fault or not run.collected or run.status is RunStatus.COLLECTION_ERROR
    if run.status is RunStatus.TIMED_OUT or not (failed or broken):
        return run, frozenset()
    if broken or len(failed) > _MOST_DISTURBED * len(run.collected):
        plain = runner.fresh(runner.original, tests, hash_seed=hash_seed, order_seed=order_seed)
        return plain, plain.passing - run.passing
    alone = runner.fresh(
        runner.original, tests, selection=Selection(failed), hash_seed=hash_seed, order_seed=order_seed
    )
    if not alone.passing & failed:
        return run, frozenset()
    # They may also depend on the tests that ran before them, which a recording does not change.
    plain = runner.fresh(runner.original, tests, hash_seed=hash_seed, order_seed=order_seed)
    disturbed = plain.passing & failed
    return replace(run, results={**run.results, **{i: plain.results[i] for i in disturbed}}), disturbed


def fork_server_for(runner: Runner, baseline: Baseline, tests: Sequence[str] = ()) -> ForkServer:
    """Return a fork server for the tree of a baseline."""
    return ForkServer(
        runner.snapshot,
        runner.provider,
        runner.interpreter,
        runner.limits,
        baseline.modules,
        tests,
        60 + FACTOR * baseline.seconds,
        options=runner.pytest_options,
    )


def _require_usable(run: SuiteRun, runner: Runner) -> None:
    """Raise ProjectError if a first run is unusable, with the reason and what to do about it."""
    if run.status is RunStatus.TIMED_OUT:
        limit = runner.settings.time_limit_s
        raise ProjectError(
            f"the test suite hangs: {run.reason}; deselect that test, or allow more than "
            f"--ssr-time-limit {limit:g} (ssr: --time-limit)"
        )
    if run.fault:
        raise ProjectError(f"the test suite does not run to its end: {run.fault}; try `{_command(runner)}`")
    if run.foreign:
        raise ProjectError(
            f"the tests import {abbreviate(run.foreign)} instead of the project's own files; "
            f"install the project with `{runner.interpreter.executable} -m pip install -e .`"
        )
    if not run.collected:
        reason = f": {run.reason}" if run.status is RunStatus.COLLECTION_ERROR else ""
        name = runner.test_runner.name
        raise ProjectError(f"{name} finds no test in {runner.snapshot.origin}{reason}; try `{_command(runner)}`")


def _command(runner: Runner) -> str:
    """Return the command that runs the tests with the project's interpreter."""
    return f"{runner.interpreter.executable} {runner.test_runner.shown_command().removeprefix('python ')}"


def _first_reason(run: SuiteRun) -> str:
    if run.reason:
        return run.reason
    failed = [i for i, r in run.results.items() if r.outcome in (Outcome.FAILED, Outcome.ERROR)]
    if not failed:
        return "all are skipped"
    message = run.results[failed[0]].message
    return f"the first failure is {failed[0]}" + (f" ({message})" if message else "")
