"""The columns of a leaderboard's tables: what each is called, what it holds, and how a cell of it is written."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.leaderboard.board import Board

Row = Mapping[str, Any]
NONE = "-"


@dataclass(frozen=True, slots=True)
class Column:
    """One column."""

    key: str
    title: str
    says: str
    """What it means, in one sentence."""
    text: Callable[[Row], str]
    sort: Callable[[Row], float | str | None]
    """What rows are ordered by; None: at the end."""
    numeric: bool = True


def share(value: float | None) -> str:
    """Return a share as a percentage."""
    return NONE if value is None else f"{100 * value:.1f}"


def short_amount(value: float | None) -> str:
    """Return an amount with three digits."""
    if value is None:
        return NONE
    for size, sign in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.3g}{sign}"
    return f"{value:.3g}"


def signed(value: float | None) -> str:
    """Return a number with its sign."""
    return NONE if value is None else f"{value:+.2f}"


def spanned(write: Callable[[float | None], str], low: float | None, high: float | None) -> str:
    """Return an interval."""
    return NONE if low is None or high is None else f"{write(low)} to {write(high)}"


def _name(key: str, title: str, says: str) -> Column:
    return Column(key, title, says, lambda r: str(r[key]), lambda r: str(r[key]), numeric=False)


def _count(key: str, title: str, says: str) -> Column:
    return Column(key, title, says, lambda r: str(r[key]), lambda r: float(r[key]))


def _single(key: str, title: str, says: str, write: Callable[[float | None], str]) -> Column:
    return Column(key, title, says, lambda r: write(r[key]), lambda r: r[key])


def _estimate(key: str, title: str, says: str, write: Callable[[float | None], str], *, of: str = "") -> list[Column]:
    """Return the columns of an estimate: itself, and where it may lie by task and by repository."""

    def get(row: Row, part: str) -> float | None:
        found = (row[of] or {}).get(key) if of else row.get(key)
        return found[part] if found else None

    return [
        Column(key, title, says, lambda r: write(get(r, "value")), lambda r: get(r, "value")),
        Column(
            f"{key}_by_task",
            "95 % by task",
            f"Where {title} may lie, over further tasks of these repositories.",
            lambda r: spanned(write, get(r, "low"), get(r, "high")),
            lambda r: get(r, "low"),
        ),
        Column(
            f"{key}_by_repo",
            "95 % by repo",
            f"Where {title} may lie, over further repositories.",
            lambda r: spanned(write, get(r, "repo_low"), get(r, "repo_high")),
            lambda r: get(r, "repo_low"),
        ),
    ]


def solver_columns(board: Board) -> list[Column]:
    """Return the columns of the solvers' table, without those in which nothing would stand."""
    rows = board.solvers
    found = [
        _count("rank", "#", "Place by resolve rate; equals in the order of their names."),
        _name("solver", "solver", "What made the attempts."),
        *_estimate("resolve_rate", "resolved %", "Resolved over graded attempts.", share),
        Column(
            "bounds",
            "bounds %",
            "The rate if no missing attempt were resolved, and if all were.",
            lambda r: spanned(share, r["bound_low"], r["bound_high"]),
            lambda r: r["bound_low"],
        ),
        Column("tasks", "tasks", "Tasks it was at.", lambda r: f"{r['tasks']}/{r['of_tasks']}", lambda r: r["tasks"]),
        _count("graded", "graded", "Attempts with a grade."),
        _count("missing", "missing", "Attempts without a grade, by a fault of the machine."),
    ]
    for k in rows[0]["pass_at"] if rows else ():
        if k != "1" or len(rows[0]["pass_at"]) > 1:
            found += _estimate(
                k, f"pass@{k} %", f"The chance that {k} attempts hold a resolved one.", share, of="pass_at"
            )
    for key, title, says in (
        ("cost_usd", "USD", "Mean cost of a graded attempt."),
        ("tokens", "tokens", "Mean tokens of a graded attempt, read and written."),
        ("steps", "steps", "Mean steps of a graded attempt."),
        ("seconds", "s", "Mean wall time of a graded attempt."),
    ):
        if any(r[key] for r in rows):
            found += _estimate(key, title, says, short_amount)
    if any(r["cost_per_resolved_usd"] is not None for r in rows):
        says = "Cost of all attempts over the resolved ones."
        found.append(_single("cost_per_resolved_usd", "USD/resolved", says, short_amount))
    found += [
        _count("only", "only", "Tasks that no other solver has resolved."),
        _count("flagged", "flagged", "Attempts that changed tests."),
        _count("forged", "forged", "Attempts whose tests' results were not believed."),
        _count(
            "unsure",
            "unsure",
            "Grades with tests that could not be asked blind, or that SWE-bench's rule gives otherwise.",
        ),
    ]
    if board.injectors:
        found += _estimate("ability", "ability", "In logits; 0: the mean of the reference pool.", signed)
    if any(r["contamination"] for r in rows):
        for part, when in (("before", "before"), ("since", "since")):
            says = f"Resolve rate at tasks made {when} the model's day."
            found += _estimate(part, f"{when} %", says, share, of="contamination")
        found.append(
            Column(
                "contaminated",
                "contaminated",
                "Tasks made before the model's day: it may have learned them.",
                lambda r: str(r["contamination"]["tasks_before"]) if r["contamination"] else NONE,
                lambda r: r["contamination"]["tasks_before"] if r["contamination"] else None,
            )
        )
    return found


def injector_columns(_: Board) -> list[Column]:
    """Return the columns of the injectors' table."""
    pool = "Resolved over graded attempts of the reference pool at its bugs."
    return [
        _name("injector", "injector", "What made the bugs."),
        _count("tried", "tried", "Bugs it tried to make."),
        _count("valid", "valid", "Bugs that every check has proven."),
        *_estimate("validity", "valid %", "Valid over tried.", share),
        *_estimate("solve_rate", "solved %", pool, share),
        _count("missing", "missing", "Attempts of the pool without a grade."),
        *_estimate("reward", "reward", "Mean reward of a try (arXiv 2512.18552).", signed),
        *_estimate("diversity_operators", "kinds %", "The chance that two bugs are by different operators.", share),
        *_estimate("diversity_places", "places %", "The chance that two bugs are in different places.", share),
        *_estimate(
            "difficulty", "difficulty", "In logits; a solver of this ability resolves half of its bugs.", signed
        ),
        *_estimate("tokens", "tokens", "Mean tokens of a try.", short_amount),
        *_estimate("seconds", "s", "Mean wall time of a try and its proof.", short_amount),
        _single("cost_per_valid_usd", "USD/valid", "Cost of all tries over the valid bugs.", short_amount),
    ]


def comparison_columns(_: Board) -> list[Column]:
    """Return the columns of the comparisons' table."""

    def span(low: str, high: str) -> tuple[Callable[[Row], str], Callable[[Row], float | str | None]]:
        return (lambda r: spanned(_points, r[low], r[high])), (lambda r: r[low])

    return [
        _name("first", "first", "A solver."),
        _name("second", "second", "Another."),
        _count("tasks", "tasks", "Tasks at which both have a grade."),
        _count("wins", "wins", "Tasks at which the first resolves more."),
        _count("losses", "losses", "Tasks at which the second resolves more."),
        _single("value", "difference", "Of the resolve rates over common tasks, in points.", _points),
        Column("by_task", "95 % by task", "Where it may lie.", *span("low", "high")),
        _single(
            "probability", "P(first better)", "That it is real, over further tasks of these repositories.", _chance
        ),
        Column(
            "by_repo", "95 % by repo", "Where it may lie, over further repositories.", *span("repo_low", "repo_high")
        ),
        _single("repo_probability", "P by repo", "That it is real, over further repositories.", _chance),
    ]


def _points(value: float | None) -> str:
    return NONE if value is None else f"{100 * value:+.1f}"


def _chance(value: float | None) -> str:
    if value is None:
        return NONE
    return f"{value:.3f}" if 0.001 <= value <= 0.999 else "<0.001" if value < 0.5 else ">0.999"


TABLES: Sequence[tuple[str, str, Callable[[Board], list[Column]], Callable[[Board], list[Any]]]] = (
    ("solvers", "Solvers", solver_columns, lambda b: b.solvers),
    ("injectors", "Injectors", injector_columns, lambda b: b.injectors),
    ("comparisons", "Comparisons in pairs", comparison_columns, lambda b: b.comparisons),
)


def outcome_text(outcome: Row | None) -> str:
    """Return what a solver's attempts at one task came to: resolved/graded, and a letter for what has to be known.

    `m`: missing attempts; `!`: flagged or forged; `?`: less certain; `c`: the task may have been learned.
    """
    if outcome is None:
        return ""
    marks = f"{outcome['missing']}m" if outcome["missing"] else ""
    marks += "!" if any(a["forged"] or a["flagged"] for a in outcome["attempts"]) else ""
    marks += "?" if any(a["unsure"] for a in outcome["attempts"]) else ""
    marks += "c" if outcome["contaminated"] else ""
    return f"{outcome['resolved']}/{outcome['graded']}{' ' if marks else ''}{marks}"
