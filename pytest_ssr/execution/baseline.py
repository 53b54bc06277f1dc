"""What a project's own tests do on the original, and which statements each of them reaches; measured once and kept.

One run records both. Tests that fail in it run once more without the recording, so that what it disturbs is not taken
for a failure. A second run with another hash seed and the order turned round, `verify`, goes on beside the first
candidates: tests that do not pass in it are set aside by name, and what a change can touch is known for certain only
with it. No candidate counts as survived, and none as valid, before it has ended.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any

from pytest_ssr.errors import ProjectError
from pytest_ssr.execution.baseline_parts import Parts
from pytest_ssr.execution.probe_log import ProbeLog
from pytest_ssr.execution.reach import Reach
from pytest_ssr.execution.selection import Selection
from pytest_ssr.execution.warm import Warm
from pytest_ssr.execution.workbench import FACTOR, Workbench
from pytest_ssr.outcomes import CaseResult, Outcome, RunStatus, SuiteRun, some
from pytest_ssr.surface import is_code

SCHEMA_VERSION = 4
FIRST_SEEDS: tuple[int, int | None] = (0, None)
SECOND_SEEDS: tuple[int, int | None] = (1, 1)
"""Hash seed and order seed of the two runs."""
_MOST_DISTURBED = 0.2
_FLICKERS = "flickers with the order of tests or the hash seed"


@dataclass(frozen=True)
class Baseline:
    """The tests of one tree in one environment."""

    collected: tuple[str, ...]
    """Every node id, in pytest's order."""
    stable: frozenset[str]
    """Ids that pass."""
    set_aside: Mapping[str, str]
    """Id to why it does not count."""
    durations: Mapping[str, float]
    """Id to seconds."""
    parameters: Mapping[str, tuple[tuple[str, int], ...]]
    """Id to the indices of its parameter sets."""
    sources: tuple[str, ...]
    """Files of the tree that the tests import."""
    addopts: tuple[str, ...]
    """The project's own pytest options that are kept, after those of `root_options`."""
    seconds: float
    """Wall time of one run of the whole suite."""
    longest_setup_s: float
    """Seconds of the longest setup of a test: it may be one for others, too."""
    note: str = ""
    """What the user should know: files that cannot be collected."""
    python: str = field(default="")
    """The version of the interpreter."""
    reach: Reach | None = None
    """Which statements each test reaches; None if that could not be recorded."""
    modules: tuple[str, ...] = ()
    """What the tests import from outside of the tree, in order."""
    doctests: frozenset[str] = frozenset()
    """Ids of examples in text."""
    disturbed: frozenset[str] = frozenset()
    """Ids that pass only without the recording."""

    @cached_property
    def files(self) -> tuple[str, ...]:
        """The files that hold tests, in order of collection; not those of code that hold doctests alone."""
        return tuple(dict.fromkeys(i.split("::", 1)[0] for i in self.collected if i not in self.doctests_in_code))

    @cached_property
    def doctests_in_code(self) -> frozenset[str]:
        """The doctests of the code itself: they show bugs, and cannot be taken out, as the code is not test code."""
        return frozenset(i for i in self.doctests if is_code(i.split("::", 1)[0]))

    @cached_property
    def test_paths(self) -> tuple[str, ...]:
        """Every file that something was collected from, in order of collection."""
        return tuple(dict.fromkeys(i.split("::", 1)[0] for i in self.collected))

    @property
    def overhead_s(self) -> float:
        """Seconds of a whole run that no test takes: imports and collection."""
        return max(0.0, self.seconds - sum(self.durations.values()))

    def seconds_of_files(self, files: Collection[str]) -> float:
        """Return the seconds that a process takes for the tests of some files."""
        tests = sum(seconds for i, seconds in self.durations.items() if i.split("::", 1)[0] in files)
        return self.overhead_s + self.longest_setup_s + tests

    def on_files(self, files: Sequence[str], set_aside: Collection[str] = ()) -> SuiteRun | None:
        """Return what the whole run shows of these files; None if one of them has no test.

        set_aside: further tests that do not count as passing.
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
        return SuiteRun(RunStatus.COMPLETED, results=results, collected=wanted, seconds=seconds, exit_code=0)

    def to_json(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        plain = asdict(replace(self, reach=None))
        reach = self.reach.to_json() if self.reach is not None else None
        own = {"stable": sorted(self.stable), "disturbed": sorted(self.disturbed), "reach": reach}
        own["doctests"] = sorted(self.doctests)
        return {"schema_version": SCHEMA_VERSION, **plain, **own}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Baseline | None:
        """Read plain data back; None for another schema version or what is not whole: it is measured anew."""
        if data.get("schema_version") != SCHEMA_VERSION:
            return None
        try:
            return cls(
                collected=tuple(data["collected"]),
                stable=frozenset(data["stable"]),
                set_aside=dict(data["set_aside"]),
                durations=dict(data["durations"]),
                parameters={i: tuple((a, n) for a, n in p) for i, p in data["parameters"].items()},
                sources=tuple(data["sources"]),
                addopts=tuple(data["addopts"]),
                seconds=data["seconds"],
                longest_setup_s=data["longest_setup_s"],
                note=data["note"],
                python=data["python"],
                reach=Reach.from_json(data["reach"]) if data["reach"] is not None else None,
                modules=tuple(data["modules"]),
                doctests=frozenset(data["doctests"]),
                disturbed=frozenset(data["disturbed"]),
            )
        except (AttributeError, KeyError, TypeError, ValueError, zlib.error):
            return None


@dataclass(frozen=True)
class Verification:
    """What the second run of a baseline shows."""

    set_aside: Mapping[str, str]
    """Ids that pass in the first run and not in this one, to why they do not count."""
    reach: Reach | None
    """Which statements each test reaches in either order; None as for the baseline."""

    def to_json(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        reach = self.reach.to_json() if self.reach is not None else None
        return {"schema_version": SCHEMA_VERSION, "set_aside": dict(self.set_aside), "reach": reach}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Verification | None:
        """Read plain data back; None if it is of another schema version or not whole."""
        if data.get("schema_version") != SCHEMA_VERSION:
            return None
        try:
            reach = Reach.from_json(data["reach"]) if data["reach"] is not None else None
            return cls(dict(data["set_aside"]), reach)
        except (AttributeError, KeyError, TypeError, ValueError, zlib.error):
            return None


def measure_baseline(bench: Workbench, tests: Sequence[str] = (), parts: Parts | None = None) -> Baseline:
    """Run the project's suite, or these tests of it, once, and record what each test reaches.

    parts: keeps what was measured so far; what an earlier run was cut off in is not measured again. Raises ProjectError
    if there is nothing to build on.
    """
    earlier = parts.earlier() if parts is not None else []
    done = frozenset(i for run, _ in earlier for i in run.results)
    selection = None
    if done:
        collected = earlier[0][0].before_selection or earlier[0][0].collected
        selection = Selection([i for i in collected if i not in done], reports_collected=True)
    run, log = bench.probe(bench.snapshot.code_paths(), tests, *FIRST_SEEDS, selection=selection, parts=parts)
    if not done:
        return measured(run, log, bench, tests, collected=run.collected)
    if run.fault or frozenset(run.before_selection) != frozenset(collected):
        assert parts is not None
        parts.forget()
        return measure_baseline(bench, tests)
    return measured(_with_earlier_parts(earlier, run), log, bench, tests, collected=run.before_selection, logs=earlier)


def _with_earlier_parts(earlier: Sequence[tuple[SuiteRun, ProbeLog]], last: SuiteRun) -> SuiteRun:
    """Return one run in place of its parts."""
    runs = [run for run, _ in earlier] + [last]
    return replace(
        last,
        results={i: r for run in runs for i, r in run.results.items()},
        parameters={i: p for run in runs for i, p in run.parameters.items()},
        doctests=frozenset().union(*(run.doctests for run in runs)),
        seconds=sum(r.duration_s for run in runs for r in run.results.values())
        + max(0.0, last.seconds - sum(r.duration_s for r in last.results.values())),
    )


def measured(
    run: SuiteRun,
    log: ProbeLog,
    bench: Workbench,
    tests: Sequence[str],
    *,
    collected: Sequence[str],
    logs: Sequence[tuple[SuiteRun, ProbeLog]] = (),
) -> Baseline:
    """Return the baseline that a recorded run shows; raises ProjectError if there is nothing to build on.

    collected: every test of the tree. logs: the parts of the run before the last.
    """
    run, disturbed = _without_disturbance(run, bench, tests, FIRST_SEEDS)
    _require_use(run, bench)
    collected = collected if frozenset(collected) >= frozenset(run.collected) else run.collected
    stable = run.passing
    set_aside = {
        name: str(run.results[name].outcome) if name in run.results else "did not run"
        for name in run.collected
        if name not in stable
    }
    if not stable:
        raise ProjectError(
            f"none of the {len(run.collected)} tests passes in the sandbox (it has no network): "
            f"{_first_reason(run)}; make `{bench.interpreter.executable} -m pytest` pass first"
        )
    parts = [*(part for _, part in logs), log]
    reach = Reach.measured(collected, parts) if log.is_complete else None
    if reach is not None:
        reach.add_always(disturbed)
    return Baseline(
        collected=tuple(collected),
        stable=stable,
        set_aside=set_aside,
        durations={i: r.duration_s for i, r in run.results.items()},
        parameters=run.parameters,
        sources=run.sources,
        addopts=(*bench.root, *run.addopts),
        seconds=run.seconds,
        longest_setup_s=max(r.setup_s for r in run.results.values()),
        note=run.reason,
        python=bench.interpreter.version,
        reach=reach,
        modules=run.modules,
        doctests=run.doctests,
        disturbed=disturbed,
    )


def verify(bench: Workbench, baseline: Baseline, tests: Sequence[str] = ()) -> Verification:
    """Run the suite of a baseline with another hash seed and the order turned round."""
    run, log = bench.probe(bench.snapshot.code_paths(), tests, *SECOND_SEEDS)
    return verified(run, log, bench, tests, baseline)


def verified(
    run: SuiteRun,
    log: ProbeLog,
    bench: Workbench,
    tests: Sequence[str],
    baseline: Baseline,
    *,
    only: Callable[[str], bool] = lambda _: True,
    join: Callable[[Reach], Reach] = lambda reach: reach,
) -> Verification:
    """Return what a second recorded run shows; raises ProjectError if the tests do not run in another order.

    only: returns whether a test was run. join: returns the reach of all tests, given that of the tests that were run.
    """
    run, disturbed = _without_disturbance(run, bench, tests, SECOND_SEEDS, known=baseline.set_aside)
    if run.fault:
        raise ProjectError(f"the tests do not run in another order: such a run ended with {run.fault}")
    lost = (i for i in baseline.stable - run.passing if only(i))
    set_aside = dict.fromkeys(sorted(lost), _FLICKERS)
    reach = baseline.reach if log.is_complete else None
    if reach is not None:
        second = Reach.measured(baseline.collected, [log])
        second.add_always(disturbed)
        reach = reach.confirmed_by(join(second))
    return Verification(set_aside, reach)


def _without_disturbance(
    run: SuiteRun,
    bench: Workbench,
    tests: Sequence[str],
    seeds: tuple[int, int | None],
    *,
    known: Collection[str] = (),
) -> tuple[SuiteRun, frozenset[str]]:
    """Return a run as it is without the recording, and the tests that pass only so.

    The tests that failed are run again, but for those that are known to fail. If the recording may have broken more
    than tests, the whole run is made again.
    """
    hash_seed, order_seed = seeds
    failed = frozenset(i for i, r in run.results.items() if r.outcome in (Outcome.FAILED, Outcome.ERROR)) - set(known)
    broken = run.fault or not run.collected or run.status is RunStatus.COLLECTION_ERROR
    if run.status is RunStatus.TIMED_OUT or not (failed or broken):
        return run, frozenset()
    if broken or len(failed) > _MOST_DISTURBED * len(run.collected):
        plain = bench.fresh(bench.original, tests, hash_seed=hash_seed, order_seed=order_seed)
        return plain, plain.passing - run.passing
    alone = bench.fresh(bench.original, tests, selection=Selection(failed), hash_seed=hash_seed, order_seed=order_seed)
    if not alone.passing & failed:
        return run, frozenset()
    # They may also depend on the tests that ran before them, which a recording does not change.
    plain = bench.fresh(bench.original, tests, hash_seed=hash_seed, order_seed=order_seed)
    disturbed = plain.passing & failed
    return replace(run, results={**run.results, **{i: plain.results[i] for i in disturbed}}), disturbed


def warm_processes(bench: Workbench, baseline: Baseline, tests: Sequence[str] = ()) -> Warm:
    """Return servers on the tree of a baseline."""
    return Warm(
        bench.snapshot,
        bench.provider,
        bench.interpreter,
        bench.limits,
        baseline.modules,
        tests,
        60 + FACTOR * baseline.seconds,
        options=bench.root,
    )


def _require_use(run: SuiteRun, bench: Workbench) -> None:
    """Tell apart why a first run is of no use, and say what to do about it."""
    python = bench.interpreter.executable
    if run.status is RunStatus.TIMED_OUT:
        limit = bench.settings.time_limit_s
        raise ProjectError(
            f"the test suite hangs: {run.reason}; deselect that test, or allow more than "
            f"--ssr-time-limit {limit:g} (ssr: --time-limit)"
        )
    if run.fault:
        raise ProjectError(f"the test suite does not run to its end: {run.fault}; try `{python} -m pytest`")
    if run.foreign:
        raise ProjectError(
            f"the tests import {some(run.foreign)} instead of the project's own files; "
            f"install the project with `{python} -m pip install -e .`"
        )
    if not run.collected:
        why = f": {run.reason}" if run.status is RunStatus.COLLECTION_ERROR else ""
        raise ProjectError(f"pytest finds no test in {bench.snapshot.origin}{why}; try `{python} -m pytest`")


def _first_reason(run: SuiteRun) -> str:
    bad = [i for i, r in run.results.items() if r.outcome in (Outcome.FAILED, Outcome.ERROR)]
    return f"{run.reason or 'the first to fail is ' + bad[0]}" if bad or run.reason else "all are skipped"
