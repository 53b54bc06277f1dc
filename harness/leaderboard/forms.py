"""A leaderboard as lines for a terminal, as Markdown, and as CSV."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.leaderboard.board import Board
from harness.leaderboard.columns import NONE, TABLES, Column, outcome_text
from harness.leaderboard.frames import to_csv
from harness.leaderboard.texts import for_markdown, short, shown

_WIDEST = 40
_TASKS_SHOWN = 40
_MOST_PAIRS = 20
_BARE = (
    "rank,solver,runs,tasks,of_tasks,attempts,graded,resolved,missing,resolve_rate,bound_low,bound_high,"
    "cost_usd,tokens,steps,seconds,total_cost_usd,cost_per_resolved_usd,unpriced_calls,estimated_calls,"
    "flagged,unsure,forged,only,contamination\r\n"
)
"""The header of the solvers' table without any; where something is known, more columns stand between."""
_BEGINNINGS = {
    "injectors": "injector,projects,tried",
    "comparisons": "first,second,tasks,repos,wins",
    "agreement": "first,second,kappa,tasks",
    "tasks": "task,repo,injectors,created_at",
}
_LEFT_OUT = ("_by_repo", "tokens_by_task", "steps_by_task", "seconds_by_task", "cost_usd_by_task")


def lines(board: Board) -> Iterator[tuple[str, str]]:
    """Yield what people read on a terminal, each line with its kind; most intervals stand in the files alone."""
    for name, title, columns, rows in TABLES:
        found = rows(board)
        if not found:
            continue
        yield "heading", title
        held = [c for c in columns(board) if name == "comparisons" or not _in_files_alone(c)]
        held = [c for c in held if any(c.text(r) not in (NONE, "") for r in found)]
        yield from (("", line) for line in _aligned(held, found[:_MOST_PAIRS] if name == "comparisons" else found))
        if name == "comparisons" and len(found) > _MOST_PAIRS:
            yield "", f"and {len(found) - _MOST_PAIRS} more; all of them stand in the files"
    if len(board.tasks) <= _TASKS_SHOWN:
        yield "heading", "Tasks: resolved/graded attempts (m: missing, !: flagged, ?: less certain, c: may be learned)"
        solvers = [row["solver"] for row in board.solvers]
        for row in board.tasks:
            told = ((s, outcome_text(row["outcomes"].get(s))) for s in solvers)
            yield "", shown(f"{row['task']}  " + "; ".join(f"{s} {text}" for s, text in told if text))
    else:
        yield "", f"{len(board.tasks)} tasks; every attempt at each stands in --json, --csv, --markdown and --html"
    for note in board.notes:
        yield "missed", shown(note)


def _in_files_alone(column: Column) -> bool:
    return column.key.endswith(_LEFT_OUT) or re.fullmatch(r"\d+_by_task", column.key) is not None


def _aligned(columns: Sequence[Column], rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    table = [[short(c.title, _WIDEST) for c in columns]]
    table += [[short(c.text(row), _WIDEST) for c in columns] for row in rows]
    widths = [max(len(line[n]) for line in table) for n in range(len(columns))]
    for line in table:
        cells = zip(line, widths, columns, strict=True)
        yield "  ".join(t.rjust(w) if c.numeric else t.ljust(w) for t, w, c in cells).rstrip()


def markdown(board: Board) -> str:
    """Return a leaderboard as Markdown, every task included."""
    parts = ["# Leaderboard", ""]
    parts += [f"- {for_markdown(note)}" for note in board.notes]
    for _, title, columns, rows in TABLES:
        found = rows(board)
        if found:
            held = columns(board)
            parts += ["", f"## {title}", "", *_markdown_table(held, found), ""]
            parts += [f"- **{for_markdown(c.title)}**: {for_markdown(c.says)}" for c in held if "_by_" not in c.key]
    solvers = [row["solver"] for row in board.solvers]
    parts += [
        "",
        "## Tasks",
        "",
        "Resolved over graded attempts; m: missing, !: flagged, ?: less certain, c: may have been learned.",
        "",
    ]
    parts.append(f"| {' | '.join(map(for_markdown, ['task', 'repository', *solvers]))} |")
    parts.append("|---|---|" + "---:|" * len(solvers))
    for row in board.tasks:
        told = [outcome_text(row["outcomes"].get(s)) for s in solvers]
        parts.append(f"| {' | '.join(map(for_markdown, [row['task'], row['repo'], *told]))} |")
    return "\n".join(parts) + "\n"


def _markdown_table(columns: Sequence[Column], rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    yield f"| {' | '.join(for_markdown(c.title) for c in columns)} |"
    yield f"|{'|'.join('---:' if c.numeric else '---' for c in columns)}|"
    for row in rows:
        yield f"| {' | '.join(for_markdown(c.text(row)) for c in columns)} |"


def csv_tables(data: Mapping[str, Any]) -> dict[str, str]:
    """Return the tables as CSV, by name: solvers, injectors, comparisons, agreement, and tasks with every attempt.

    data: of `Board.to_json`. Without rows, that of solvers is a header, and any other an empty text.
    """
    found = {name: data[name] for name in ("solvers", "injectors", "comparisons", "agreement")}
    found["tasks"] = list(_attempts(data["tasks"]))
    bare = {"solvers": _BARE}
    return {name: to_csv([_flat(row) for row in rows]) if rows else bare.get(name, "") for name, rows in found.items()}


def is_table(name: str, path: Path) -> bool:
    """Return whether a file is a table of this name beside that of the solvers, by the columns that it begins with."""
    beginning = _BEGINNINGS[name].encode()
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(beginning)) == beginning


def _attempts(tasks: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    for task in tasks:
        about = {name: task[name] for name in ("task", "repo", "injectors", "created_at")}
        for solver, outcome in task["outcomes"].items():
            for attempt in outcome["attempts"]:
                yield {**about, "solver": solver, "contaminated": outcome["contaminated"], **attempt}


def _flat(row: Mapping[str, Any], before: str = "") -> dict[str, object]:
    """Return a row without rows in it: an estimate's value has its name, and its other parts follow."""
    found: dict[str, object] = {}
    for name, value in row.items():
        key = f"{before}{name}" if name != "value" or not before else before.rstrip("_")
        if isinstance(value, Mapping):
            found.update(_flat(value, f"{key}_"))
        else:
            found[key] = "; ".join(map(shown, value)) if isinstance(value, list) else value
    return found
