"""Render a leaderboard as lines for a terminal, as Markdown, and as CSV."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.leaderboard.board import Board
from harness.leaderboard.columns import NONE, TABLES, Column, outcome_text
from harness.leaderboard.escaping import for_markdown, short, shown
from harness.leaderboard.frames import to_csv

_WIDEST = 40
_TASKS_SHOWN = 40
_MOST_PAIRS = 20
_SOLVERS_HEADER = (
    "rank,solver,runs,tasks,of_tasks,attempts,graded,resolved,missing,resolve_rate,bound_low,bound_high,"
    "cost_usd,tokens,steps,seconds,total_cost_usd,cost_per_resolved_usd,unpriced_calls,estimated_calls,"
    "flagged,unsure,forged,only,contamination\r\n"
)
"""The header of the solvers' table without rows; with rows, estimates add more columns."""
_FIRST_COLUMNS = {
    "injectors": "injector,projects,tried",
    "comparisons": "first,second,tasks,repos,wins",
    "agreement": "first,second,kappa,tasks",
    "tasks": "task,repo,injectors,created_at",
}
_OMITTED = ("_by_repo", "tokens_by_task", "steps_by_task", "seconds_by_task", "cost_usd_by_task")


def lines(board: Board) -> Iterator[tuple[str, str]]:
    """Yield the kind and text of each line for a terminal; most intervals are only in the files."""
    for name, title, columns, rows in TABLES:
        table_rows = rows(board)
        if not table_rows:
            continue
        yield "heading", title
        shown_columns = [c for c in columns(board) if name == "comparisons" or not _is_only_in_files(c)]
        shown_columns = [c for c in shown_columns if any(c.text(r) not in (NONE, "") for r in table_rows)]
        yield from (
            ("", line)
            for line in _aligned(shown_columns, table_rows[:_MOST_PAIRS] if name == "comparisons" else table_rows)
        )
        if name == "comparisons" and len(table_rows) > _MOST_PAIRS:
            yield "", f"and {len(table_rows) - _MOST_PAIRS} more; the files contain all of them"
    if len(board.tasks) <= _TASKS_SHOWN:
        yield (
            "heading",
            "Tasks: resolved/graded attempts (m: missing, !: flagged, ?: less certain, c: possibly learned)",
        )
        solvers = [row["solver"] for row in board.solvers]
        for row in board.tasks:
            results = ((s, outcome_text(row["outcomes"].get(s))) for s in solvers)
            audit = f"[{row['audit']}]  " if row.get("audit") else ""
            line = "; ".join(f"{s} {text}" for s, text in results if text)
            yield "", shown(f"{row['task']}  {audit}{line}")
    else:
        yield "", f"{len(board.tasks)} tasks; --json, --csv, --markdown and --html contain every attempt"
    for note in board.notes:
        yield "missed", shown(note)


def _is_only_in_files(column: Column) -> bool:
    return column.key.endswith(_OMITTED) or re.fullmatch(r"\d+_by_task", column.key) is not None


def _aligned(columns: Sequence[Column], rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    table = [[short(c.title, _WIDEST) for c in columns]]
    table += [[short(c.text(row), _WIDEST) for c in columns] for row in rows]
    widths = [max(len(line[n]) for line in table) for n in range(len(columns))]
    for line in table:
        cells = zip(line, widths, columns, strict=True)
        yield "  ".join(t.rjust(w) if c.numeric else t.ljust(w) for t, w, c in cells).rstrip()


def markdown(board: Board) -> str:
    """Return a leaderboard as Markdown, including every task."""
    parts = ["# Leaderboard", ""]
    parts += [f"- {for_markdown(note)}" for note in board.notes]
    for _, title, columns, rows in TABLES:
        table_rows = rows(board)
        if table_rows:
            shown_columns = columns(board)
            parts += ["", f"## {title}", "", *_markdown_table(shown_columns, table_rows), ""]
            parts += [
                f"- **{for_markdown(c.title)}**: {for_markdown(c.description)}"
                for c in shown_columns
                if "_by_" not in c.key
            ]
    solvers = [row["solver"] for row in board.solvers]
    parts += [
        "",
        "## Tasks",
        "",
        "Resolved over graded attempts; m: missing, !: flagged, ?: less certain, c: possibly learned.",
        "",
    ]
    parts.append(f"| {' | '.join(map(for_markdown, ['task', 'repository', *solvers]))} |")
    parts.append("|---|---|" + "---:|" * len(solvers))
    for row in board.tasks:
        results = [outcome_text(row["outcomes"].get(s)) for s in solvers]
        parts.append(f"| {' | '.join(map(for_markdown, [row['task'], row['repo'], *results]))} |")
    return "\n".join(parts) + "\n"


def _markdown_table(columns: Sequence[Column], rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    yield f"| {' | '.join(for_markdown(c.title) for c in columns)} |"
    yield f"|{'|'.join('---:' if c.numeric else '---' for c in columns)}|"
    for row in rows:
        yield f"| {' | '.join(for_markdown(c.text(row)) for c in columns)} |"


def csv_tables(data: Mapping[str, Any]) -> dict[str, str]:
    """Return the tables as CSV, by name: solvers, injectors, comparisons, agreement, and tasks with every attempt.

    data: from `Board.to_json`. Without rows, the solvers' table is a header, and any other an empty string.
    """
    tables = {name: data[name] for name in ("solvers", "injectors", "comparisons", "agreement")}
    tables["tasks"] = list(_attempts(data["tasks"]))
    empty_tables = {"solvers": _SOLVERS_HEADER}
    return {
        name: to_csv([_flat(row) for row in rows]) if rows else empty_tables.get(name, "")
        for name, rows in tables.items()
    }


def is_table(name: str, path: Path) -> bool:
    """Return whether a file is a table of this name as `csv_tables` writes it, judging by its first columns."""
    beginning = _FIRST_COLUMNS[name].encode()
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(beginning)) == beginning


def _attempts(tasks: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    for task in tasks:
        names = ("task", "repo", "injectors", "created_at", "audit", "sharpness")
        about = {name: task[name] for name in names if name in task}
        for solver, outcome in task["outcomes"].items():
            for attempt in outcome["attempts"]:
                yield {**about, "solver": solver, "contaminated": outcome["contaminated"], **attempt}


def _flat(row: Mapping[str, Any], prefix: str = "") -> dict[str, object]:
    """Return a row without nested rows: an estimate's value gets its name, its other parts `NAME_PART`."""
    flat: dict[str, object] = {}
    for name, value in row.items():
        key = f"{prefix}{name}" if name != "value" or not prefix else prefix.rstrip("_")
        if isinstance(value, Mapping):
            flat.update(_flat(value, f"{key}_"))
        else:
            flat[key] = "; ".join(map(shown, value)) if isinstance(value, list) else value
    return flat
