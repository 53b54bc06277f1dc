"""Run `ssr plan`: print what a run needs on clusters of several sizes."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from harness.capacity.cluster import GBIT, Bound, Cluster
from harness.capacity.durations import Measured, Work, read_durations
from harness.capacity.estimate import Estimate, Planner
from harness.cli.commands.store import require_store
from harness.cli.exit_code import ExitCode
from harness.cli.terminal import Terminal
from harness.cli.write_errors import writing
from harness.settings.capacity import PlanSettings
from harness.storage.atomic_write import write_bytes
from pytest_ssr.campaign.report import display_path
from pytest_ssr.errors import MissingExtraError, SettingsError
from pytest_ssr.progress import format_duration
from pytest_ssr.storage.store import Store

if TYPE_CHECKING:
    from harness.capacity.simulation import Simulated

_NODES = (1, 10, 100, 1000)
_RESULTS = {Work.BUGS: "valid bugs", Work.ATTEMPTS: "graded attempts", Work.ROWS: "graded predictions"}
_BOUNDS = {
    Bound.SLOTS: "slots",
    Bound.IN_FLIGHT: "units in flight",
    Bound.DRIVER: "the driver",
    Bound.STORE: "writes of the store",
    Bound.NETWORK: "network",
    Bound.PULLS: "image pulls",
    Bound.PREPARATION: "preparation",
    Bound.LONGEST_UNIT: "the longest unit",
}
_TITLES = ("nodes", "time", "95 %", "per hour", "used", "bound by", "core-hours", "node disk", "store", "network")
_IS_TEXT = frozenset({"bound by", "simulated"})


@dataclass(frozen=True, slots=True)
class _Row:
    """A cluster with what it needs."""

    estimate: Estimate
    simulated: Simulated | None


def plan(settings: PlanSettings) -> int:
    """Print the plan; return 1 if no number of nodes is done in the wanted time."""
    work, wanted = _wanted(settings)
    _require_extras(settings)
    require_store(settings.store)
    measured = read_durations(Store(settings.store), work)
    planner, cluster = Planner(measured, wanted, seed=settings.seed), _cluster(settings)
    numbers: Sequence[int] = settings.nodes or _NODES
    least = None
    if settings.within is not None:
        least = planner.nodes_within(settings.within * 3600, cluster)
        numbers = settings.nodes or (() if least is None else (least,))
    terminal = Terminal(quiet=settings.json)
    rows = [_row(planner, replace(cluster, nodes=nodes), settings, terminal) for nodes in numbers]
    if settings.plot:
        _draw(settings, rows)
    if settings.json:
        print(json.dumps(_json(settings, measured, wanted, rows, least), indent=1))
    for kind, line in _lines(settings, measured, wanted, rows, least):
        terminal.echo(line, kind)
    return ExitCode.NO if settings.within is not None and least is None else ExitCode.DONE


def _wanted(settings: PlanSettings) -> tuple[Work, int]:
    given = [(work, n) for work in Work if (n := getattr(settings, work)) is not None]
    if len(given) != 1:
        raise SettingsError("give one of --bugs, --attempts and --rows: what the run makes, and how many")
    if any(nodes < 1 for nodes in settings.nodes):
        raise SettingsError(f"--nodes must be at least 1, not {min(settings.nodes)}", option="nodes")
    return given[0]


def _require_extras(settings: PlanSettings) -> None:
    if settings.simulate and importlib.util.find_spec("simpy") is None:
        raise MissingExtraError("simpy", "plan")
    if settings.plot and importlib.util.find_spec("matplotlib") is None:
        raise MissingExtraError("matplotlib", "plots")


def _cluster(settings: PlanSettings) -> Cluster:
    given = settings.cluster
    return Cluster(
        slots=given.slots,
        cores=given.cores,
        unit_cores=given.unit_cores,
        in_flight=given.in_flight,
        driver_s=given.driver_ms / 1000,
        writes_per_s=given.writes,
        bandwidth=given.bandwidth * GBIT,
        image_bytes=given.image_bytes,
        failures_per_day=given.failures_per_day,
        replacement_s=given.replacement,
        stragglers=given.stragglers,
        slowdown=given.slowdown,
    )


def _row(planner: Planner, cluster: Cluster, settings: PlanSettings, terminal: Terminal) -> _Row:
    simulated = None
    if settings.simulate:
        from harness.capacity.simulation import simulate

        terminal.status(f"simulating {cluster.nodes} nodes")
        simulated = simulate(planner.measured, planner.wanted, cluster, seed=settings.seed)
    return _Row(planner.estimate(cluster), simulated)


def _draw(settings: PlanSettings, rows: Sequence[_Row]) -> None:
    from harness.capacity.plots import draw

    assert settings.plot is not None
    with writing(settings.plot):
        picture = draw(
            [row.estimate for row in rows],
            [row.simulated for row in rows if row.simulated is not None],
            kind=settings.plot.suffix.removeprefix("."),
        )
        write_bytes(settings.plot, picture)


def _json(
    settings: PlanSettings, measured: Measured, wanted: int, rows: Sequence[_Row], least: int | None
) -> dict[str, Any]:
    return {
        "store": str(settings.store),
        "wanted": wanted,
        "measured": measured.to_json(),
        **({"least_nodes": least} if settings.within is not None else {}),
        "clusters": [
            {
                **row.estimate.to_json(),
                "simulation": row.simulated.to_json() if row.simulated is not None else None,
            }
            for row in rows
        ],
    }


def _lines(
    settings: PlanSettings, measured: Measured, wanted: int, rows: Sequence[_Row], least: int | None
) -> Iterator[tuple[str, str]]:
    """Yield the kind and text of each line."""
    units = measured.units
    counted = sum(unit.counts for unit in units)
    yield "", f"{len(units)} measured units, {counted} of them gave {_RESULTS[measured.work]}"
    for name, outcome in measured.outcomes.items():
        yield (
            "",
            f"  {name}: {outcome.count}, median {outcome.median_s:.1f} s, mean {outcome.mean_s:.1f} s, "
            f"longest {outcome.longest_s:.1f} s",
        )
    if settings.within is not None:
        limit = format_duration(settings.within * 3600)
        found = f"{least} nodes are needed to be done in {limit}"
        yield ("heading", found) if least is not None else ("bad", f"no number of nodes is done in {limit}")
    if rows:
        yield "heading", f"{wanted:,} {_RESULTS[measured.work]}, {rows[0].estimate.units:,} units"
        for line in _aligned(rows):
            yield "", line
    if settings.plot:
        yield "", f"written: {display_path(settings.plot)}"
    if not settings.simulate and importlib.util.find_spec("simpy") is None:
        yield "", f"the closed form only; for a simulation (--simulate), {MissingExtraError('simpy', 'plan').remedy}"


def _aligned(rows: Sequence[_Row]) -> Iterator[str]:
    titles = [*_TITLES, *(["simulated"] if rows[0].simulated is not None else [])]
    table = [titles, *([*_cells(row.estimate), *_simulated_cells(row.simulated)] for row in rows)]
    widths = [max(len(line[n]) for line in table) for n in range(len(titles))]
    for line in table:
        cells = zip(titles, line, widths, strict=True)
        yield "  ".join(text.ljust(w) if title in _IS_TEXT else text.rjust(w) for title, text, w in cells).rstrip()


def _cells(estimate: Estimate) -> list[str]:
    return [
        f"{estimate.nodes:,}",
        format_duration(estimate.seconds),
        f"{format_duration(estimate.low_s)} to {format_duration(estimate.high_s)}",
        f"{estimate.results_per_hour:,.0f}",
        f"{100 * estimate.utilisation:.0f} %",
        _BOUNDS[estimate.bound],
        f"{estimate.core_hours:,.1f}",
        _size(estimate.node_disk_bytes),
        _size(estimate.store_bytes),
        _size(estimate.network_bytes),
    ]


def _simulated_cells(simulated: Simulated | None) -> list[str]:
    if simulated is None:
        return []
    used = f"{100 * simulated.utilisation:.0f} %"
    parts = [format_duration(simulated.seconds), used, _BOUNDS[simulated.bound]]
    if simulated.failures:
        parts.append(f"{simulated.failures} failures, {simulated.lost} units lost")
    return [", ".join(parts)]


def _size(size: float) -> str:
    units = ["B", "KB", "MB", "GB", "TB", "PB"]
    while size >= 1000 and len(units) > 1:
        size /= 1000
        del units[0]
    return f"{size:.1f} {units[0]}" if size < 100 and units[0] != "B" else f"{size:.0f} {units[0]}"
