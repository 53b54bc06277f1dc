"""Count what an export holds: rows, projects, operators, difficulty and lengths."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from statistics import fmean, quantiles
from typing import Any

from harness.records.posterior import Posterior, posterior

_NESTED = ("task", "metadata", "extra", "extra_info", "instance")
"""The columns in which formats keep the origin of a row."""
_NAMES = {
    "task": ("artifact_id", "task_id", "instance_id", "label"),
    "project": ("repository", "project", "repo"),
    "licence": ("license", "licence"),
    "strategy": ("strategy",),
    "operator": ("operator",),
}
"""The columns of each figure, the first that is there counts."""
_TOKENS = ("input_ids", "tokens")


@dataclass(slots=True)
class Figures:
    """The figures of an export."""

    rows: Counter[str] = field(default_factory=Counter)
    """By part."""
    counts: dict[str, Counter[str]] = field(default_factory=lambda: {name: Counter() for name in _NAMES})
    """Rows by task, project, licence, strategy and operator."""
    attempts: dict[str, tuple[int, int]] = field(default_factory=dict)
    """By task, the solved and the graded attempts; of several models, those of the one with the most."""
    lengths: list[int] = field(default_factory=list)
    """Of each row, or of each task's instruction."""
    unit: str = "characters"

    def posteriors(self) -> list[Posterior]:
        """Return the posteriors of the solve rates of all tasks with a graded attempt, the hardest first."""
        return sorted(posterior(solved, graded) for solved, graded in self.attempts.values())


def figures_of(rows: Iterable[tuple[str, Mapping[str, Any]]]) -> Figures:
    """Return the figures of rows, which come with their parts."""
    figures = Figures()
    for part, row in rows:
        figures.rows[part] += 1
        facts = _facts(row)
        for name, columns in _NAMES.items():
            value = next((facts[column] for column in columns if facts.get(column)), None)
            if isinstance(value, str):
                figures.counts[name][value] += 1
                if name == "task":
                    _count_attempts(figures, value, facts)
        tokens = next((row[name] for name in _TOKENS if isinstance(row.get(name), list)), None)
        if tokens is not None:
            figures.unit = "tokens"
        text = row.get("instruction")
        figures.lengths.append(len(tokens or text or json.dumps(row, ensure_ascii=False, default=str)))
    return figures


def _facts(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns of a row, with those of its nested columns."""
    facts: dict[str, Any] = {}
    for name in _NESTED:
        if isinstance(inner := row.get(name), Mapping):
            facts |= _facts(inner)
    return facts | {name: value for name, value in row.items() if not isinstance(value, Mapping)}


def _count_attempts(figures: Figures, task: str, facts: Mapping[str, Any]) -> None:
    graded = facts.get("graded", facts.get("graded_attempts"))
    rate, mean = facts.get("solve_rate"), facts.get("solve_rate_posterior_mean")
    if not isinstance(graded, int) or graded <= figures.attempts.get(task, (0, 0))[1]:
        return
    if isinstance(rate, int | float):
        figures.attempts[task] = (round(rate * graded), graded)
    elif isinstance(mean, int | float):
        figures.attempts[task] = (round(mean * (graded + 2)) - 1, graded)


def table_of(figures: Figures) -> Iterator[tuple[str, str]]:
    """Yield the figures that people read, each with its name."""
    yield "rows", _listed(figures.rows)
    for name, title in (("project", "projects"), ("task", "tasks")):
        if figures.counts[name]:
            yield title, f"{len(figures.counts[name])}"
    for name, title in (
        ("licence", "rows by licence"),
        ("strategy", "rows by strategy"),
        ("operator", "rows by operator"),
    ):
        if figures.counts[name]:
            yield title, _listed(figures.counts[name])
    if rates := figures.posteriors():
        middle = rates[len(rates) // 2]
        graded = sorted(graded for _, graded in figures.attempts.values())
        yield "tasks with graded attempts", f"{len(rates)}, with {graded[0]} to {graded[-1]} attempts each"
        yield "solve rate, mean over tasks", f"{fmean(rate.mean for rate in rates):.2f}"
        yield (
            "solve rate of the median task",
            f"{middle.mean:.2f} (90 % interval {middle.low:.2f} to {middle.high:.2f})",
        )
    if figures.lengths:
        cuts = quantiles(figures.lengths, n=10, method="inclusive") if len(figures.lengths) > 1 else figures.lengths * 9
        yield (
            f"length, {figures.unit}",
            f"median {cuts[4]:.0f}, 90 % below {cuts[8]:.0f}, at most {max(figures.lengths)}",
        )


def _listed(counts: Counter[str], most: int = 10) -> str:
    """Return counts as text, the largest first."""
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    shown = [f"{name} {count}" for name, count in ordered[:most]]
    if len(ordered) > most:
        shown.append(f"{len(ordered) - most} more")
    return ", ".join(shown)
