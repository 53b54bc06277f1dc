"""Count attempts in arrays by task and solver, and write rows as CSV. Only this module imports pandas."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from harness.leaderboard.escaping import for_csv
from harness.leaderboard.records import Entry
from harness.leaderboard.statistics.estimates import Array, Codes

MEASURES = ("cost_usd", "tokens", "steps", "seconds")
_COUNTS = ("resolved", "graded", "missing")


@dataclass(frozen=True, slots=True)
class Cells:
    """Counts of attempts by task and solver; arrays have the shape (tasks, solvers) unless noted."""

    tasks: list[str]
    """Sorted."""
    solvers: list[str]
    """Sorted."""
    repo_names: list[str]
    """By task; empty if unknown."""
    repos: Codes
    """The repositories as numbers, shape (tasks,)."""
    resolved: Array
    graded: Array
    missing: Array
    """Attempts without a grade."""
    sums: Mapping[str, Array]
    """By measure: its sum over the graded attempts for which it is known."""
    counts: Mapping[str, Array]
    """By measure: the number of those attempts."""

    @property
    def rates(self) -> Array:
        """Resolved over graded attempts; nan if none is graded."""
        with np.errstate(invalid="ignore"):
            return np.where(self.graded > 0, self.resolved / np.maximum(self.graded, 1), np.nan)


def cells(attempts: Sequence[Entry]) -> Cells:
    """Count attempts by task and solver."""
    frame = pd.DataFrame(
        {
            "task": [a.task for a in attempts],
            "solver": [a.solver for a in attempts],
            "repo": [a.repo for a in attempts],
            "resolved": [a.resolved is True for a in attempts],
            "graded": [a.resolved is not None for a in attempts],
            **{m: np.array([getattr(a, m) for a in attempts], dtype=np.float64) for m in MEASURES},
        }
    )
    frame["missing"] = ~frame["graded"]
    for measure in MEASURES:
        known = frame["graded"] & (frame[measure] >= 0)
        frame[f"{measure}_known"] = known
        frame[measure] = frame[measure].where(known, 0.0)
    tasks, solvers = sorted(set(frame["task"])), sorted(set(frame["solver"]))
    repo_of = frame.groupby("task")["repo"].max().reindex(tasks)
    columns = [*_COUNTS, *MEASURES, *(f"{m}_known" for m in MEASURES)]
    counted = frame.groupby(["task", "solver"])[columns].sum()

    def spread(column: str) -> Array:
        wide = counted[column].astype(np.float64).unstack("solver", fill_value=0.0)
        return np.asarray(wide.reindex(index=tasks, columns=solvers, fill_value=0.0).to_numpy(dtype=np.float64))

    return Cells(
        tasks,
        solvers,
        [str(r) for r in repo_of],
        np.unique(repo_of.to_numpy(dtype=str), return_inverse=True)[1].astype(np.int64),
        spread("resolved"),
        spread("graded"),
        spread("missing"),
        {m: spread(m) for m in MEASURES},
        {m: spread(f"{m}_known") for m in MEASURES},
    )


def to_csv(rows: Sequence[Mapping[str, object]]) -> str:
    """Return rows as CSV (RFC 4180), with strings that a spreadsheet would treat as formulas escaped."""
    columns = list(dict.fromkeys(name for row in rows for name in row))
    safe = [{name: for_csv(v) if isinstance(v, str) else v for name, v in row.items()} for row in rows]
    table = pd.DataFrame(safe, columns=columns, dtype=object)
    table.columns = pd.Index([for_csv(name) for name in columns])
    return str(table.to_csv(index=False, lineterminator="\r\n"))
