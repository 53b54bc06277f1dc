"""A leaderboard as one page: everything is in it, nothing is fetched, and it can be read without scripts."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from importlib import resources
from typing import Any

from harness.leaderboard.board import Board
from harness.leaderboard.columns import TABLES, Column, outcome_text
from harness.leaderboard.drawings import figure
from harness.leaderboard.plots import NARROW, WIDE, plots
from harness.leaderboard.texts import for_html, short

_SAID = 160
_MAIN = ("resolve_rate", "ability", "validity", "solve_rate", "reward", "difficulty")
_KEPT = frozenset(f"{key}_by_task" for key in _MAIN)


def page(board: Board, *, title: str = "Leaderboard") -> str:
    """Return the page as HTML. All text of the runs is escaped, and the page's own policy lets no other script run."""
    style, script = (resources.files("harness.leaderboard").joinpath(f"page.{e}").read_text() for e in ("css", "js"))
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; "
        "base-uri 'none'; form-action 'none'"
    )
    parts = [
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{for_html(title)}</title><style>{style}</style></head><body>",
        f'<header><h1>{for_html(title)}</h1><button id="theme" type="button" hidden>theme: auto</button></header>',
        *_opening(board),
        *(part for table in TABLES for part in _table(board, *table)),
        *_plots(board),
        *_tasks(board),
        f"<script>{script}</script></body></html>\n",
    ]
    return "\n".join(parts)


def _opening(board: Board) -> Iterator[str]:
    about = board.about
    yield (
        f'<p class="lead">solvers: {len(board.solvers)}, tasks: {about["tasks"]}, repositories: {about["repos"]}, '
        f"attempts: {about['attempts']}"
        + (f"; injectors: {len(board.injectors)}, tries: {about['tries']}</p>" if board.injectors else "</p>")
    )
    if board.notes:
        yield f'<ul class="notes">{"".join(f"<li>{for_html(n)}</li>" for n in board.notes)}</ul>'


def _table(board: Board, name: str, title: str, columns: Any, rows: Any) -> Iterator[str]:
    found: Sequence[Mapping[str, Any]] = rows(board)
    if not found:
        return
    held: list[Column] = columns(board)
    more = "all intervals" if any(map(_spare, held)) else ""
    yield f'<section id="{name}"><h2>{title}</h2>{_tools(name, more)}'
    yield f'<div class="scroll" tabindex="0" role="region" aria-label="{title}"><table class="few"><thead><tr>'
    yield "".join(_head(c) for c in held)
    yield "</tr></thead><tbody>"
    for row in found:
        key = f' data-key="{row["rank"]}"' if name == "solvers" else ""
        yield f"<tr{key}>{''.join(_cell(c, row) for c in held)}</tr>"
    yield "</tbody></table></div>"
    words = "".join(f"<dt>{for_html(c.title)}</dt><dd>{for_html(c.says)}</dd>" for c in held if not _spare(c))
    yield f"<details><summary>What the columns mean</summary><dl>{words}</dl></details></section>"


def _tools(name: str, more: str = "") -> str:
    box = f'<label><input type="checkbox" class="more"> {more}</label>' if more else ""
    return (
        f'<p class="tools" hidden><label>filter <input type="search" class="filter" aria-controls="{name}"></label>'
        f'{box}<output class="count"></output></p>'
    )


def _spare(column: Column) -> bool:
    """Tell whether a column is one of those that are shown when asked for."""
    return column.key.endswith(("_by_repo", "_by_task")) and column.key not in _KEPT


def _classes(column: Column) -> str:
    found = [*(["n"] if column.numeric else ["name"]), *(["spare"] if _spare(column) else [])]
    return f' class="{" ".join(found)}"'


def _head(column: Column) -> str:
    return f'<th scope="col"{_classes(column)} title="{for_html(column.says)}">{for_html(column.title)}</th>'


def _cell(column: Column, row: Mapping[str, Any]) -> str:
    value = column.sort(row)
    key = f' data-v="{value:.9g}"' if isinstance(value, int | float) else ""
    return f"<td{_classes(column)}{key}>{for_html(column.text(row))}</td>"


def _plots(board: Board) -> Iterator[str]:
    found = [figure(plot, (WIDE, NARROW)) for plot in plots(board)]
    if found:
        yield f'<section id="plots"><h2>Plots</h2><div class="plots">{"".join(found)}</div></section>'


_KINDS = (
    ("", "all tasks"),
    ("none", "resolved by no solver"),
    ("every", "resolved by every solver"),
    ("some", "solvers differ"),
    ("missing", "with missing attempts"),
    ("flagged", "with flagged attempts"),
    ("unsure", "with less certain grades"),
    ("learned", "may have been learned"),
)


def _tasks(board: Board) -> Iterator[str]:
    options = "".join(f'<option value="{value}">{text}</option>' for value, text in _KINDS)
    chosen = f'<label>show <select class="kind">{options}</select></label>'
    yield f'<section id="tasks"><h2>Tasks</h2>{_tools("tasks").replace("<output", f"{chosen}<output")}'
    yield (
        '<p class="legend">Resolved over graded attempts. <b>m</b>: missing, by a fault of the machine; '
        "<b>!</b>: flagged; <b>?</b>: a grade that is less certain; <b>c</b>: may have been learned.</p>"
    )
    solvers = [(row["rank"], row["solver"]) for row in board.solvers]
    yield '<div class="scroll tall" tabindex="0" role="region" aria-label="Tasks"><table><thead><tr>'
    yield '<th scope="col" class="name">task</th><th scope="col" class="name">repository</th>'
    yield '<th scope="col" class="n">rate %</th>'
    for n, solver in solvers:
        name, told = for_html(solver), for_html(short(solver, 18))
        yield f'<th scope="col" class="n solver" data-solver="{n}" title="{name}"><span>{n} {told}</span></th>'
    yield "</tr></thead><tbody>"
    for row in board.tasks:
        rate = row["rate"]
        value = "" if rate is None else f' data-v="{rate:.6g}"'
        told = "-" if rate is None else f"{100 * rate:.0f}"
        cells = "".join(_outcome(row["outcomes"].get(s), n) for n, s in solvers)
        yield (
            f'<tr data-is="{" ".join(_is(row))}"><td class="name">{for_html(row["task"])}</td>'
            f'<td class="name">{for_html(row["repo"])}</td><td class="n"{value}>{told}</td>{cells}</tr>'
        )
    yield "</tbody></table></div></section>"


def _is(row: Mapping[str, Any]) -> Iterator[str]:
    outcomes = row["outcomes"].values()
    known, rate = row["solvers"], row["rate"]
    if known:
        yield "none" if rate <= 0 else "every" if rate >= 1 else "some"
    if any(o["missing"] for o in outcomes):
        yield "missing"
    if any(a["forged"] or a["flagged"] for o in outcomes for a in o["attempts"]):
        yield "flagged"
    if any(a["unsure"] for o in outcomes for a in o["attempts"]):
        yield "unsure"
    if any(o["contaminated"] for o in outcomes):
        yield "learned"


def _outcome(outcome: Mapping[str, Any] | None, number: int) -> str:
    if outcome is None:
        return f'<td data-solver="{number}"></td>'
    rate = outcome["resolved"] / outcome["graded"] if outcome["graded"] else None
    kind = "u" if rate is None else "r" if rate == 1 else "f" if rate == 0 else "p"
    said = [
        ": ".join(filter(None, (a["status"], a["reason"], *a["flag_texts"])))
        for a in outcome["attempts"]
        if a["flags"] or a["forged"] or a["status"] not in ("resolved", "unresolved")
    ]
    title = f' title="{for_html(short("; ".join(said), _SAID))}"' if said else ""
    value = "" if rate is None else f' data-v="{rate:.4g}"'
    return f'<td class="{kind}" data-solver="{number}"{value}{title}>{for_html(outcome_text(outcome))}</td>'
