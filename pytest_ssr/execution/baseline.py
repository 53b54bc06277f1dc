"""What a project's own tests do on the original, and which statement each of them reaches; measured once and kept.

Three runs: with a hash seed; with another and the order turned round; with that of all other runs. Tests that do not
pass in all of them are set aside by name, before any bug is looked at. The second and third run also record what each
test reaches; where a test does otherwise in them, a plain run with the same seeds decides.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any

from pytest_ssr.codebase import CodebaseState
from pytest_ssr.errors import ProjectError
from pytest_ssr.execution.change import ChangedFunction
from pytest_ssr.execution.reach import Reach
from pytest_ssr.execution.warm import MODES, UnfitError, Wanted, Warm
from pytest_ssr.execution.workbench import FACTOR, FLOOR_S, Workbench
from pytest_ssr.outcomes import CaseResult, Outcome, RunStatus, SuiteRun, some
from pytest_ssr.stopping import workers

SCHEMA_VERSION = 3
_FIRST_SEED = 2
_SEEDS: tuple[tuple[int, int | None], ...] = ((1, 1), (0, None))
_MOST_UNLIKE = 0.05


def is_doctest(node_id: str) -> bool:
    """Tell whether an id names a doctest: `calc.py::calc.add`; no function's name holds a dot."""
    return "." in node_id.partition("::")[2].partition("[")[0]


@dataclass(frozen=True)
class Baseline:
    """The tests of one tree in one environment."""

    collected: tuple[str, ...]
    """Every node id, in pytest's order."""
    stable: frozenset[str]
    """Ids that pass every time."""
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
    """Which statements each test reaches; None where that could not be recorded."""
    modules: tuple[str, ...] = ()
    """What the tests import from outside of the tree, in order."""
    unlike: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """By mode of warm process that can be used here, the tests that do otherwise in it on the unchanged tree."""
    cold: Mapping[str, str] = field(default_factory=dict)
    """By mode of warm process that cannot be used here, why."""

    @cached_property
    def files(self) -> tuple[str, ...]:
        """The files that hold tests, in order of collection; a code file with a doctest is none."""
        return tuple(dict.fromkeys(i.split("::", 1)[0] for i in self.collected if not is_doctest(i)))

    def on_files(self, files: Sequence[str], hash_seed: int, order_seed: int | None) -> SuiteRun | None:
        """Return what the whole runs show of these files; None for seeds they were not made with."""
        wanted = tuple(i for i in self.collected if i.split("::", 1)[0] in files)
        if (hash_seed, order_seed) not in ((_FIRST_SEED, None), *_SEEDS) or len(
            {i.split("::", 1)[0] for i in wanted}
        ) < len(files):
            return None
        results = {
            i: CaseResult(Outcome.PASSED if i in self.stable else Outcome.FAILED, self.durations.get(i, 0.0))
            for i in wanted
        }
        seconds = sum(r.duration_s for r in results.values())
        return SuiteRun(RunStatus.COMPLETED, results=results, collected=wanted, seconds=seconds, exit_code=0)

    def to_json(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        plain = asdict(replace(self, reach=None))
        unlike = {mode: sorted(names) for mode, names in self.unlike.items()}
        reach = self.reach.to_json() if self.reach is not None else None
        own = {"stable": sorted(self.stable), "unlike": unlike, "reach": reach}
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
                unlike={mode: frozenset(names) for mode, names in data["unlike"].items()},
                cold=dict(data["cold"]),
            )
        except (AttributeError, KeyError, TypeError, ValueError, zlib.error):
            return None


def measure_baseline(bench: Workbench, tests: Sequence[str] = ()) -> Baseline:
    """Run the project's suite, or these tests of it, three times.

    Raises ProjectError when there is nothing to build on.
    """
    first, _ = bench.suite(bench.original, tests, hash_seed=_FIRST_SEED)
    _require_use(first, bench)
    code = [p for p in bench.snapshot.code_paths() if p in first.sources]
    with workers(len(_SEEDS)) as pool:
        probes = list(pool.map(lambda seeds: bench.probe(code, tests, *seeds), _SEEDS))
    others, always = [], frozenset[str]()
    for (hash_seed, order_seed), (run, raw) in zip(_SEEDS, probes, strict=True):
        if run.passing != first.passing or raw is None:
            plain, _ = bench.suite(bench.original, tests, hash_seed=hash_seed, order_seed=order_seed)
            always |= plain.passing - run.passing
            run = plain
        if run.fault:
            raise ProjectError(f"the tests do not run twice alike: the second run ended with {run.fault}")
        others.append(run)
    set_aside: dict[str, str] = {}
    for name in first.collected:
        passes = [name in run.passing for run in (first, *others)]
        if not any(passes):
            result = first.results.get(name)
            set_aside[name] = str(result.outcome) if result else "did not run"
        elif not all(passes):
            set_aside[name] = "flickers with the order of tests or the hash seed"
        elif is_doctest(name):
            set_aside[name] = "is a doctest, which cannot be taken out as a test can"
    stable = frozenset(first.collected) - set(set_aside)
    if not stable:
        raise ProjectError(
            f"none of the {len(first.collected)} tests passes every time in the sandbox (it has no network): "
            f"{_first_reason(first)}; make `{bench.interpreter.executable} -m pytest` pass first"
        )
    return Baseline(
        collected=first.collected,
        stable=stable,
        set_aside=set_aside,
        durations={i: r.duration_s for i, r in first.results.items()},
        parameters=first.parameters,
        sources=first.sources,
        addopts=(*bench.root, *first.addopts),
        seconds=first.seconds,
        longest_setup_s=max(r.setup_s for r in first.results.values()),
        note=first.reason,
        python=bench.interpreter.version,
        reach=_reach(first.collected, [raw for _, raw in probes], always),
        modules=first.modules,
    )


def _reach(tests: Sequence[str], raws: Sequence[Mapping[str, Any] | None], always: frozenset[str]) -> Reach | None:
    runs = [raw for raw in raws if raw is not None]
    if len(runs) < len(raws):
        return None
    reach = Reach.measured(tests, runs)
    reach.add_always(always)
    return reach


def warm_processes(bench: Workbench, baseline: Baseline, tests: Sequence[str] = ()) -> Warm:
    """Return servers on the tree of a baseline; modes that cannot be used there are refused."""
    start_s = 60 + FACTOR * baseline.seconds
    warm = Warm(
        bench.snapshot,
        bench.provider,
        bench.interpreter,
        bench.limits,
        baseline.modules,
        tests,
        start_s,
        options=bench.root,
    )
    for mode, reason in baseline.cold.items():
        warm.refuse(mode, reason)
    return warm


def tried_warm(baseline: Baseline, warm: Warm, tests: Sequence[str] = ()) -> Baseline:
    """Return the baseline with what a run of everything on the unchanged tree shows of each mode of warm process."""
    unlike, cold = {}, {}
    with workers(len(MODES)) as pool:
        tried = list(pool.map(lambda mode: _tried(mode, baseline, warm, tests), MODES))
    for mode, (others, reason) in zip(MODES, tried, strict=True):
        if reason:
            cold[mode] = reason
            warm.refuse(mode, reason)
        else:
            unlike[mode] = others
    return replace(baseline, unlike=unlike, cold=cold)


def _tried(mode: str, baseline: Baseline, warm: Warm, tests: Sequence[str]) -> tuple[frozenset[str], str]:
    """Return which stable tests do otherwise in forks of this mode, and why it cannot be used."""
    functions: dict[str, Sequence[ChangedFunction]] | None = {} if mode == "swap" else None
    wall_s = FLOOR_S + FACTOR * baseline.seconds
    try:
        run = warm.run(Wanted(CodebaseState(warm.snapshot), targets=tests, functions=functions, wall_s=wall_s))
    except UnfitError as error:
        return frozenset(), str(error)
    others = baseline.stable - run.passing
    if len(others) > _MOST_UNLIKE * len(baseline.stable):
        return others, run.fault or f"{len(others)} tests do otherwise in a fork on the unchanged tree: {some(others)}"
    return others, run.fault


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
