"""What a project's own tests do on the original, measured once and kept.

Three runs: as it is; with another hash seed and another order; with a third hash seed. Tests that do not pass in all
of them are set aside by name, before any bug is looked at.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from pytest_ssr.errors import ProjectError
from pytest_ssr.execution.workbench import Workbench
from pytest_ssr.outcomes import Outcome, RunStatus, SuiteRun, some

SCHEMA_VERSION = 1


def is_doctest(node_id: str) -> bool:
    """Tell whether an id names a doctest: `calc.py::calc.add`; no function's name holds a dot."""
    return "." in node_id.partition("::")[2].partition("[")[0]


@dataclass(frozen=True, slots=True)
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
    """The project's own pytest options that are kept."""
    seconds: float
    """Wall time of one run of the whole suite."""
    note: str = ""
    """What the user should know: files that cannot be collected."""
    python: str = field(default="")
    """The version of the interpreter."""

    @property
    def files(self) -> tuple[str, ...]:
        """The files that hold tests, in order of collection; a code file with a doctest is none."""
        return tuple(dict.fromkeys(i.split("::", 1)[0] for i in self.collected if not is_doctest(i)))

    def to_json(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {"schema_version": SCHEMA_VERSION, **asdict(self), "stable": sorted(self.stable)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Baseline | None:
        """Read plain data back; None for another schema version, so that it is measured anew."""
        if data.get("schema_version") != SCHEMA_VERSION:
            return None
        return cls(
            collected=tuple(data["collected"]),
            stable=frozenset(data["stable"]),
            set_aside=dict(data["set_aside"]),
            durations=dict(data["durations"]),
            parameters={i: tuple((a, n) for a, n in p) for i, p in data["parameters"].items()},
            sources=tuple(data["sources"]),
            addopts=tuple(data["addopts"]),
            seconds=data["seconds"],
            note=data["note"],
            python=data["python"],
        )


def measure_baseline(bench: Workbench, tests: Sequence[str] = ()) -> Baseline:
    """Run the project's suite, or these tests of it, three times.

    Raises ProjectError when there is nothing to build on.
    """
    first, _ = bench.suite(bench.original, tests)
    _require_use(first, bench)
    others = [
        bench.suite(bench.original, tests, hash_seed=1, order_seed=1)[0],
        bench.suite(bench.original, tests, hash_seed=2)[0],
    ]
    for run in others:
        if run.fault:
            raise ProjectError(f"the tests do not run twice alike: the second run ended with {run.fault}")
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
        addopts=first.addopts,
        seconds=first.seconds,
        note=first.reason,
        python=bench.interpreter.version,
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
