"""Run the units of a command over rows: those without a stored result, here or on a cluster, the longest first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Protocol, TypeVar

from harness.cli.executors import open_executor
from harness.cli.rows import OpenElsewhere, RowSettings, open_work
from harness.cli.terminal import Terminal
from harness.datasets import InstanceError
from harness.evaluation.grading import fault_of
from harness.evaluation.plan import Planner
from harness.evaluation.rows_work import RowUnits, Unit
from harness.executors.protocol import TRIES, WorkerLostError, completed, is_remote
from harness.executors.pytest_executor import run_units
from pytest_ssr.records.reasons import Reason, ReasonCode

_R = TypeVar("_R")


class UnitResults(Protocol[_R]):
    """Collects and reports the results of units."""

    @property
    def terminal(self) -> Terminal:
        """Where progress is shown."""

    def begin(self, stored: Mapping[str, _R]) -> None:
        """Add the stored results of earlier runs, by the names of their units."""

    def take(self, name: str, result: _R) -> None:
        """Record the result of a unit."""

    def receive(self, unit: Unit, result: _R) -> None:
        """Record the result of a unit from another machine."""

    def fail(self, unit: Unit, reason: Reason) -> None:
        """Record why a unit has no result."""

    def read(self, data: Mapping[str, Any]) -> _R:
        """Return a result from its JSON."""


def run_units_of(settings: RowSettings, work: RowUnits[_R], results: UnitResults[_R]) -> None:
    """Run the units without a stored result; those that cannot run are reported before the others are begun."""
    stored = {u.name: r for u in work.units if (r := work.stored(u)) is not None}
    results.begin(stored)
    missing = [u for u in work.units if u.name not in stored]
    elsewhere = is_remote(settings.evaluation.ray)
    blocked = Planner(work.grader).blocked(
        list({u.instance.id: u.instance for u in missing}.values()), elsewhere=elsewhere
    )
    work.grader.blocked = {name: reason.error for name, reason in blocked.items()}
    for unit in missing:
        if unit.instance.id in blocked:
            results.take(unit.name, work.run(unit))
    missing = [u for u in missing if u.instance.id not in blocked]
    missing.sort(key=lambda u: -work.expected_s(u))
    if missing and elsewhere:
        _run_on_cluster(settings, work, missing, results)
    elif missing:
        _run_here(settings, missing, results)


def _run_here(settings: RowSettings, units: Sequence[Unit], results: UnitResults[_R]) -> None:
    """Run units in processes of this machine; those that lose their worker are run again."""
    by_name = {unit.name: unit for unit in units}
    names = list(by_name)
    for _ in range(TRIES):
        lost: dict[str, str] = {}
        run_units(
            (partial(open_work, settings), names),
            results.take,
            lost.__setitem__,
            read=results.read,
            jobs=settings.evaluation.jobs,
            dist=settings.evaluation.dist,
        )
        if not lost:
            return
        names = list(lost)
    for name, reason in lost.items():
        results.fail(by_name[name], Reason(ReasonCode.WORKER_LOST, reason))


def _run_on_cluster(settings: RowSettings, work: RowUnits[_R], units: Sequence[Unit], results: UnitResults[_R]) -> None:
    run = settings.evaluation
    work.opened = OpenElsewhere.of(settings)
    with (
        open_executor(run.ray, run.jobs, work.grader.store, results.terminal) as executor,
        executor.units(work) as started,
    ):
        for unit, future in completed(started, units):
            try:
                results.receive(unit, future.result())
            except WorkerLostError as error:
                results.fail(unit, Reason(ReasonCode.WORKER_LOST, str(error)))
            except InstanceError as error:
                results.fail(unit, fault_of(error, unit.instance))
