"""Compute the injectors' rows, the reference pool, and the contest between solvers and injectors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from harness.leaderboard.frames import Cells
from harness.leaderboard.records import Try
from harness.leaderboard.settings import RankSettings, matching
from harness.leaderboard.solver_rows import Row, plain
from harness.leaderboard.statistics.bradley_terry import Contests, Fit, fit
from harness.leaderboard.statistics.estimates import Array, Codes, Estimate, amount, diversity, proportion
from pytest_ssr.errors import SettingsError


def injector_rows(cells: Cells, tries: Sequence[Try], pool: Sequence[str]) -> list[Row]:
    """Return a row for each injector, sorted by name. pool: the solvers that the solve rate counts."""
    of: dict[str, list[Try]] = {}
    for trial in tries:
        of.setdefault(trial.injector, []).append(trial)
    return [_row(name, cells, of[name], pool) for name in sorted(of)]


def _row(name: str, cells: Cells, tries: Sequence[Try], pool: Sequence[str]) -> Row:
    valid = [t for t in tries if t.valid]
    ones, repos = np.ones(len(tries)), _codes([t.project for t in tries])
    kinds, projects = [t.operator for t in valid], [t.project for t in valid]
    priced = all(t.cost_usd >= 0 for t in tries)
    cost = sum(t.cost_usd for t in tries)
    solve, missing, bugs = _solve_rate(cells, valid, pool)
    return {
        "injector": name,
        "projects": len(set(projects) | {t.project for t in tries}),
        "tried": len(tries),
        "valid": len(valid),
        "validity": plain(proportion(np.array([float(t.valid) for t in tries]), ones, repos)),
        "bugs_met": bugs,
        "solve_rate": plain(solve),
        "missing": missing,
        "reward": plain(_reward(tries)),
        "diversity_operators": plain(diversity(kinds, projects)),
        "diversity_places": plain(diversity([(t.project, t.path, t.scope) for t in valid], projects)),
        "tokens": plain(amount(np.array([float(t.tokens) for t in tries]), ones, repos)),
        "seconds": plain(amount(np.array([t.seconds for t in tries]), ones, repos)),
        "total_cost_usd": cost if priced else None,
        "cost_per_valid_usd": cost / len(valid) if priced and valid else None,
        "unpriced_calls": sum(t.unpriced for t in tries),
    }


def _codes(names: Sequence[str]) -> Codes:
    return np.unique(np.array(names, dtype=str), return_inverse=True)[1].astype(np.int64)


def _reward(tries: Sequence[Try]) -> Estimate | None:
    rewarded = [t for t in tries if t.rewards]
    if not rewarded:
        return None
    values: Array = np.array([t.rewards[0] for t in rewarded])
    return proportion(values, np.ones(len(rewarded)), _codes([t.project for t in rewarded]), low=-1.0, high=1.0)


def _solve_rate(cells: Cells, valid: Sequence[Try], pool: Sequence[str]) -> tuple[Estimate | None, int, int]:
    """Return the pool's solve rate at the bugs of valid tries, its missing attempts, and the number of graded bugs."""
    columns = [cells.solvers.index(s) for s in pool if s in cells.solvers]
    bugs = {bug for t in valid for bug in t.artifacts}
    rows = [n for n, task in enumerate(cells.tasks) if task in bugs]
    graded = cells.graded[np.ix_(rows, columns)].sum(axis=1)
    resolved = cells.resolved[np.ix_(rows, columns)].sum(axis=1)
    is_graded = graded > 0
    rate = proportion(resolved[is_graded] / graded[is_graded], graded[is_graded], cells.repos[rows][is_graded])
    return rate, int(cells.missing[np.ix_(rows, columns)].sum()), int(is_graded.sum())


def chosen_pool(cells: Cells, tries: Sequence[Try], settings: RankSettings) -> list[str]:
    """Return the reference pool: the frozen or named solvers, else those that met every injector, else all.

    Raises SettingsError if no solver of a frozen pool has attempted a bug.
    """
    if not tries:
        return []
    injectors_met = _injectors_met(cells, tries)
    if settings.frozen:
        frozen = [s for s in cells.solvers if s in settings.frozen and injectors_met[s]]
        if not frozen:
            raise SettingsError("no solver of the frozen pool has attempted a bug of these runs")
        return frozen
    if settings.reference:
        return [s for s in cells.solvers if any(matching(name, [s]) for name in settings.reference)]
    injectors = {t.injector for t in tries if t.valid}
    return [s for s in cells.solvers if injectors_met[s] >= injectors and injectors_met[s]] or [
        s for s in cells.solvers if injectors_met[s]
    ]


def _injectors_met(cells: Cells, tries: Sequence[Try]) -> dict[str, set[str]]:
    rows = {task: n for n, task in enumerate(cells.tasks)}
    met: dict[str, set[str]] = {s: set() for s in cells.solvers}
    for trial in tries:
        for row in (rows[bug] for bug in trial.artifacts if bug in rows):
            for n in np.flatnonzero(cells.graded[row] > 0):
                met[cells.solvers[int(n)]].add(trial.injector)
    return met


def contest(cells: Cells, tries: Sequence[Try], pool: Sequence[str], settings: RankSettings) -> tuple[Fit, list[str]]:
    """Fit abilities of solvers and difficulties of injectors; return the fit and the injectors' names in its order."""
    names = sorted({t.injector for t in tries})
    task_rows = {task: n for n, task in enumerate(cells.tasks)}
    met = sorted({(t.injector, bug) for t in tries for bug in t.artifacts if bug in task_rows})
    games: list[tuple[Any, ...]] = []
    for injector, bug in met:
        task = task_rows[bug]
        for solver in np.flatnonzero(cells.graded[task] > 0):
            counts = cells.resolved[task, solver], cells.graded[task, solver]
            games.append((int(solver), names.index(injector), task, int(cells.repos[task]), *counts))
    solvers, injectors, bugs, repos = (np.array([row[n] for row in games], dtype=np.int64) for n in range(4))
    resolved, graded = (np.array([row[n] for row in games], dtype=np.float64) for n in (4, 5))
    contests = Contests(solvers, injectors, bugs, repos, resolved, graded)
    numbers = [cells.solvers.index(s) for s in pool]
    frozen = {cells.solvers.index(s): settings.frozen[s] for s in pool if s in settings.frozen}
    return fit(contests, numbers, len(cells.solvers), len(names), frozen), names
