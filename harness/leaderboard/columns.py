"""Define the columns of a leaderboard's tables: their titles, descriptions, values and formats."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.leaderboard.board import Board

Row = Mapping[str, Any]
NONE = "-"


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table."""

    key: str
    title: str
    description: str
    """Its meaning, in one sentence."""
    text: Callable[[Row], str]
    sort: Callable[[Row], float | str | None]
    """Return the sort key of a row; rows with None come last."""
    numeric: bool = True


def share(value: float | None) -> str:
    """Return a share as a percentage with one decimal."""
    return NONE if value is None else f"{100 * value:.1f}"


def short_amount(value: float | None) -> str:
    """Return an amount with three significant digits and a unit prefix."""
    if value is None:
        return NONE
    for size, sign in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.3g}{sign}"
    return f"{value:.3g}"


def signed(value: float | None) -> str:
    """Return a number with its sign and two decimals."""
    return NONE if value is None else f"{value:+.2f}"


def spanned(write: Callable[[float | None], str], low: float | None, high: float | None) -> str:
    """Return an interval as `low to high`."""
    return NONE if low is None or high is None else f"{write(low)} to {write(high)}"


def _name(key: str, title: str, description: str) -> Column:
    return Column(key, title, description, lambda r: str(r[key]), lambda r: str(r[key]), numeric=False)


def _count(key: str, title: str, description: str) -> Column:
    return Column(key, title, description, lambda r: str(r[key]), lambda r: float(r[key]))


def _single(key: str, title: str, description: str, write: Callable[[float | None], str]) -> Column:
    return Column(key, title, description, lambda r: write(r[key]), lambda r: r[key])


def _estimate(
    key: str, title: str, description: str, write: Callable[[float | None], str], *, of: str = ""
) -> list[Column]:
    """Return the columns of an estimate: its value, and its intervals by task and by repository."""

    def get(row: Row, part: str) -> float | None:
        estimate = (row[of] or {}).get(key) if of else row.get(key)
        return estimate[part] if estimate else None

    def shown(row: Row) -> str:
        tasks = get(row, "tasks")
        # Rates over other tasks cannot be compared: pass@2 may be below pass@1.
        is_of_fewer = bool(of) and tasks is not None and tasks < row["tasks"]
        return f"{write(get(row, 'value'))} ({tasks:.0f} tasks)" if is_of_fewer else write(get(row, "value"))

    return [
        Column(key, title, description, shown, lambda r: get(r, "value")),
        Column(
            f"{key}_by_task",
            "95 % by task",
            f"95 % interval of {title}, over further tasks of these repositories.",
            lambda r: spanned(write, get(r, "low"), get(r, "high")),
            lambda r: get(r, "low"),
        ),
        Column(
            f"{key}_by_repo",
            "95 % by repo",
            f"95 % interval of {title}, over further repositories.",
            lambda r: spanned(write, get(r, "repo_low"), get(r, "repo_high")),
            lambda r: get(r, "repo_low"),
        ),
    ]


def solver_columns(board: Board) -> list[Column]:
    """Return the columns of the solvers' table, without optional ones that would be empty."""
    rows = board.solvers
    columns = [
        _count("rank", "#", "Rank by resolve rate; ties are in the order of names."),
        _name("solver", "solver", "The solver that made the attempts."),
        *_estimate("resolve_rate", "resolved %", "Resolved over graded attempts.", share),
        *_passing_columns(rows),
        Column(
            "bounds",
            "bounds %",
            "The rate if none of the missing attempts were resolved, and if all were.",
            lambda r: spanned(share, r["bound_low"], r["bound_high"]),
            lambda r: r["bound_low"],
        ),
        Column(
            "tasks",
            "tasks",
            "Tasks it attempted, of all tasks.",
            lambda r: f"{r['tasks']}/{r['of_tasks']}",
            lambda r: r["tasks"],
        ),
        _count("graded", "graded", "Attempts with a grade."),
        _count("missing", "missing", "Attempts without a grade, because of a fault of the machine."),
    ]
    for k in rows[0]["pass_at"] if rows else ():
        if k != "1" or len(rows[0]["pass_at"]) > 1:
            columns += _estimate(
                k,
                f"pass@{k} %",
                f"The probability that {k} attempts include a resolved one, over the tasks with {k} graded ones.",
                share,
                of="pass_at",
            )
    for key, title, description in (
        ("cost_usd", "USD", "Mean cost of a graded attempt."),
        ("tokens", "tokens", "Mean input and output tokens of a graded attempt."),
        ("steps", "steps", "Mean steps of a graded attempt."),
        ("seconds", "s", "Mean wall time of a graded attempt."),
    ):
        if any(r[key] for r in rows):
            columns += _estimate(key, title, description, short_amount)
    if any(r["cost_per_resolved_usd"] is not None for r in rows):
        description = "Cost of all attempts over the number of resolved ones."
        columns.append(_single("cost_per_resolved_usd", "USD/resolved", description, short_amount))
    columns += [
        _count("only", "only", "Tasks that no other solver resolved."),
        _count("flagged", "flagged", "Attempts that changed tests."),
        _count("forged", "forged", "Attempts with forged test results."),
        _count(
            "unsure",
            "unsure",
            "Grades with tests that could not be run blind or were set aside, or that differ under SWE-bench's rule.",
        ),
    ]
    if board.injectors:
        columns += _estimate("ability", "ability", "In logits; 0 is the mean of the reference pool.", signed)
    if any(r["contamination"] for r in rows):
        for part, period in (("before", "before"), ("since", "since")):
            description = f"Resolve rate at tasks made {period} the release day of the model."
            columns += _estimate(part, f"{period} %", description, share, of="contamination")
        columns.append(
            Column(
                "contaminated",
                "contaminated",
                "Tasks made before the release day of the model, which may have learned them.",
                lambda r: str(r["contamination"]["tasks_before"]) if r["contamination"] else NONE,
                lambda r: r["contamination"]["tasks_before"] if r["contamination"] else None,
            )
        )
    return columns


def _passing_columns(rows: Sequence[Row]) -> list[Column]:
    """Return the columns of the rates at tasks that pass an audit; none without an audit."""
    if not rows or "audit" not in rows[0]:
        return []
    description = "Resolved over graded attempts, at the tasks that pass the audit alone."
    return _estimate("passing", "passing %", description, share, of="audit")


def injector_columns(_: Board) -> list[Column]:
    """Return the columns of the injectors' table."""
    pool = "Resolved over graded attempts of the reference pool at its bugs."
    return [
        _name("injector", "injector", "The injector that made the bugs."),
        _count("tried", "tried", "Bugs it tried to make."),
        _count("valid", "valid", "Bugs that passed every check."),
        *_estimate("validity", "valid %", "Valid over tried.", share),
        *_estimate("solve_rate", "solved %", pool, share),
        _count("missing", "missing", "Attempts of the pool without a grade."),
        *_estimate("reward", "reward", "Mean reward of a try (arXiv 2512.18552).", signed),
        *_estimate(
            "diversity_operators", "kinds %", "The probability that two bugs are by different operators.", share
        ),
        *_estimate("diversity_places", "places %", "The probability that two bugs are in different places.", share),
        *_estimate(
            "difficulty", "difficulty", "In logits; a solver with this ability resolves half of its bugs.", signed
        ),
        *_estimate("tokens", "tokens", "Mean tokens of a try.", short_amount),
        *_estimate("seconds", "s", "Mean wall time of a try and its checks.", short_amount),
        _single("cost_per_valid_usd", "USD/valid", "Cost of all tries over the number of valid bugs.", short_amount),
    ]


def comparison_columns(_: Board) -> list[Column]:
    """Return the columns of the comparisons' table."""

    def span(low: str, high: str) -> tuple[Callable[[Row], str], Callable[[Row], float | str | None]]:
        return (lambda r: spanned(_points, r[low], r[high])), (lambda r: r[low])

    return [
        _name("first", "first", "The first solver."),
        _name("second", "second", "The second solver."),
        _count("tasks", "tasks", "Tasks for which both have a grade."),
        _count("wins", "wins", "Tasks of which the first resolves more attempts."),
        _count("losses", "losses", "Tasks of which the second resolves more attempts."),
        _single(
            "value", "difference", "Difference of the resolve rates over common tasks, in percentage points.", _points
        ),
        Column(
            "by_task",
            "95 % by task",
            "95 % interval of the difference, over further tasks of these repositories.",
            *span("low", "high"),
        ),
        _single(
            "probability",
            "P(first better)",
            "Probability that the first is better, over further tasks of these repositories.",
            _probability,
        ),
        Column(
            "by_repo",
            "95 % by repo",
            "95 % interval of the difference, over further repositories.",
            *span("repo_low", "repo_high"),
        ),
        _single(
            "repo_probability",
            "P by repo",
            "Probability that the first is better, over further repositories.",
            _probability,
        ),
    ]


def _points(value: float | None) -> str:
    return NONE if value is None else f"{100 * value:+.1f}"


def _probability(value: float | None) -> str:
    if value is None:
        return NONE
    if 0.001 <= value <= 0.999:
        return f"{value:.3f}"
    return "<0.001" if value < 0.5 else ">0.999"


TABLES: Sequence[tuple[str, str, Callable[[Board], list[Column]], Callable[[Board], list[Any]]]] = (
    ("solvers", "Solvers", solver_columns, lambda b: b.solvers),
    ("injectors", "Injectors", injector_columns, lambda b: b.injectors),
    ("comparisons", "Comparisons in pairs", comparison_columns, lambda b: b.comparisons),
)


def outcome_text(outcome: Row | None) -> str:
    """Return a solver's result at one task: resolved/graded, and marks.

    `m`: missing attempts; `!`: flagged or forged; `?`: less certain; `c`: the model may have learned the task.
    """
    if outcome is None:
        return ""
    marks = f"{outcome['missing']}m" if outcome["missing"] else ""
    marks += "!" if any(a["forged"] or a["flagged"] for a in outcome["attempts"]) else ""
    marks += "?" if any(a["unsure"] for a in outcome["attempts"]) else ""
    marks += "c" if outcome["contaminated"] else ""
    return f"{outcome['resolved']}/{outcome['graded']}{' ' if marks else ''}{marks}"
