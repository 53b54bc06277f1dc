"""Compute the solvers' rows: what they resolve, at what cost, and how reliable the figures are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from harness.leaderboard.frames import MEASURES, Cells
from harness.leaderboard.records import Entry
from harness.leaderboard.settings import RankSettings, day_of, matching
from harness.leaderboard.statistics.estimates import Array, Estimate, amount, pass_at_k, proportion, wanted_ks
from harness.records.task_choice import TaskChoice

Row = dict[str, Any]


def solver_rows(cells: Cells, attempts: Sequence[Entry], settings: RankSettings) -> list[Row]:
    """Return a row for each solver, the best first, as plain values; estimates are mappings or None."""
    of: dict[str, list[Entry]] = {name: [] for name in cells.solvers}
    for attempt in attempts:
        of[attempt.solver].append(attempt)
    ks = settings.ks or wanted_ks(int(cells.graded.max(initial=0)))
    days = created_days(attempts, settings)
    rows = [_row(n, cells, of[name], ks, days, settings) for n, name in enumerate(cells.solvers)]
    # Solvers without any grade come last.
    rows.sort(key=lambda r: (-r["resolve_rate"]["value"] if r["resolve_rate"] else 1.0, r["solver"]))
    return [{"rank": n, **row} for n, row in enumerate(rows, 1)]


def created_days(attempts: Sequence[Entry], settings: RankSettings) -> Mapping[str, str]:
    """Return the day on which each task was made; tasks without a known day are omitted."""
    days = {a.task: day for a in attempts if (day := day_of(a.created_at))}
    return {**days, **{task: day for task, text in settings.created.items() if (day := day_of(text))}}


def released_day(solver: str, settings: RankSettings) -> str:
    """Return the release day of a solver's model; empty if none is given."""
    return next((day for name, day in settings.released.items() if matching(name, [solver])), "")


def plain(estimate: Estimate | None) -> Row | None:
    """Return an estimate as plain data."""
    return None if estimate is None else asdict(estimate)


def _row(
    n: int,
    cells: Cells,
    attempts: Sequence[Entry],
    ks: Sequence[int],
    days: Mapping[str, str],
    settings: RankSettings,
) -> Row:
    resolved, graded, missing = cells.resolved[:, n], cells.graded[:, n], cells.missing[:, n]
    total, solved = float((graded + missing).sum()), float(resolved.sum())
    priced = [a.cost_usd for a in attempts if a.cost_usd >= 0]
    cost = sum(priced) if priced else None
    return {
        "solver": cells.solvers[n],
        "runs": sorted({a.run for a in attempts}),
        "tasks": int((graded + missing > 0).sum()),
        "of_tasks": len(cells.tasks),
        "attempts": int(total),
        "graded": int(graded.sum()),
        "resolved": int(solved),
        "missing": int(missing.sum()),
        "resolve_rate": plain(_rate(cells, n, np.ones(len(cells.tasks), dtype=np.bool_))),
        "bound_low": solved / total,
        "bound_high": (solved + float(missing.sum())) / total,
        "pass_at": {str(k): plain(pass_at_k(resolved, graded, cells.repos, k)) for k in ks},
        **{m: plain(amount(cells.sums[m][:, n], cells.counts[m][:, n], cells.repos)) for m in MEASURES},
        "total_cost_usd": cost,
        "cost_per_resolved_usd": cost / solved if cost is not None and solved and len(priced) == total else None,
        "unpriced_calls": sum(a.unpriced for a in attempts),
        "estimated_calls": sum(a.estimated for a in attempts),
        "flagged": sum(a.flagged for a in attempts),
        "unsure": sum(a.unsure for a in attempts),
        "forged": sum(a.forged for a in attempts),
        "only": int(((resolved > 0) & ((cells.resolved > 0).sum(axis=1) == 1)).sum()),
        "contamination": _contamination(cells, n, days, released_day(cells.solvers[n], settings)),
        **({"audit": _passing(cells, n, settings.choice)} if settings.choice is not None else {}),
    }


def _passing(cells: Cells, n: int, choice: TaskChoice) -> Row:
    """Return the figures of a solver at the tasks that pass an audit."""
    passes = np.array([choice.problem(task) is None for task in cells.tasks], dtype=np.bool_)
    graded, resolved, missing = cells.graded[:, n], cells.resolved[:, n], cells.missing[:, n]
    return {
        "tasks": int((passes & (graded + missing > 0)).sum()),
        "graded": int(graded[passes].sum()),
        "resolved": int(resolved[passes].sum()),
        "missing": int(missing[passes].sum()),
        "passing": plain(_rate(cells, n, passes)),
    }


def _rate(cells: Cells, n: int, is_chosen: np.ndarray) -> Estimate | None:
    """Return resolved over graded attempts of a solver at some tasks. is_chosen: a mask of shape (tasks,)."""
    is_used = is_chosen & (cells.graded[:, n] > 0)
    graded: Array = cells.graded[is_used, n]
    return proportion(cells.resolved[is_used, n] / graded, graded, cells.repos[is_used])


def _contamination(cells: Cells, n: int, days: Mapping[str, str], released: str) -> Row | None:
    """Return the rates at tasks before and since the model's day; None if that of the model or all tasks is unknown."""
    task_days = [days.get(t, "") for t in cells.tasks]
    if not released or not any(task_days):
        return None
    before = np.array([bool(day) and day < released for day in task_days])
    since = np.array([bool(day) and day >= released for day in task_days])
    met = cells.graded[:, n] + cells.missing[:, n] > 0
    return {
        "released": released,
        "tasks_before": int((before & met).sum()),
        "tasks_since": int((since & met).sum()),
        "tasks_undated": int((~before & ~since & met).sum()),
        "before": plain(_rate(cells, n, before)),
        "since": plain(_rate(cells, n, since)),
    }
