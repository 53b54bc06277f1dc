"""Render a leaderboard as one self-contained HTML page that also works without scripts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from importlib import resources
from typing import Any
from xml.etree import ElementTree

from harness.leaderboard.board import Board
from harness.leaderboard.columns import NONE, TABLES, Column, outcome_text
from harness.leaderboard.document import document
from harness.leaderboard.escaping import for_html, short
from harness.leaderboard.plots import NARROW, WIDE, Ink, Plot, RenderedPlot, plots, render
from pytest_ssr.records.rate_interval import whole_percent

_SVG = "http://www.w3.org/2000/svg"
_XLINK = "http://www.w3.org/1999/xlink"
PAGE_INK = Ink("#010101", "#020202", "#030303", "#040404", "#050505")
"""Placeholders for the page's colours, which depend on the theme."""
_VARIABLES = {"#010101": "ink", "#020202": "faint", "#030303": "line", "#040404": "mark", "#050505": "other"}
_FONT = re.compile(r"font:\s*([\d.]+)px[^;]*")


def inline_svg(plot: Plot, width: int) -> str:
    """Return a plot as an SVG element with unique ids and titled marks. width: in points."""
    rendered = render(plot, width=width, ink=PAGE_INK)
    ElementTree.register_namespace("", _SVG)
    ElementTree.register_namespace("xlink", _XLINK)
    root = ElementTree.fromstring(rendered.data)
    for parent in list(root.iter()):
        for child in list(parent):
            if child.tag in (f"{{{_SVG}}}metadata", f"{{{_SVG}}}style"):
                parent.remove(child)
    for element in root.iter():
        _adapt(element, f"{plot.name}-{width}", rendered)
    for name in ("width", "height", "version"):
        root.attrib.pop(name, None)
    root.set("role", "img")
    root.set("aria-label", f"{plot.title}. {plot.caption}")
    return ElementTree.tostring(root, encoding="unicode")


def _adapt(element: ElementTree.Element, prefix: str, rendered: RenderedPlot) -> None:
    style = element.get("style")
    if style:
        style = re.sub(r"#(0[1-5])\1\1\b", lambda m: f"var(--{_VARIABLES[m[0]]})", style)
        element.set("style", _FONT.sub(r"font-size: \1px", style))
    element_id = element.get("id")
    if element_id:
        solver = re.match(r"solver-(\d+)", element_id)
        if solver:
            element.set("data-solver", solver[1])
        if element_id in rendered.labels:
            title = ElementTree.Element(f"{{{_SVG}}}title")
            title.text = rendered.labels[element_id]
            element.insert(0, title)
            element.set("class", "mark")
        element.set("id", f"{prefix}-{element_id}")
    for name in ("clip-path", f"{{{_XLINK}}}href"):
        value = element.get(name)
        if value:
            element.set(name, value.replace("#", f"#{prefix}-", 1))


def figure(plot: Plot, widths: tuple[int, int]) -> str:
    """Return a plot as an HTML figure with its title and caption. widths: wide screen and phone, in points."""
    wide, narrow = (inline_svg(plot, width) for width in widths)
    return (
        f'<figure class="plot" id="plot-{plot.name}"><h3>{for_html(plot.title)}</h3>'
        f'<div class="wide">{wide}</div><div class="narrow">{narrow}</div>'
        f"<figcaption>{for_html(plot.caption)}</figcaption></figure>"
    )


_MAX_TITLE = 160
"""Characters of a reason or flag in the tip of a cell, which has at most five times as many."""
_MAIN = ("resolve_rate", "passing", "ability", "validity", "solve_rate", "reward", "difficulty")
_ALWAYS_SHOWN = frozenset(f"{key}_by_task" for key in _MAIN)


def page(board: Board, *, title: str = "Leaderboard") -> str:
    """Return the page as HTML. Text from runs is escaped, and its content security policy allows no other script."""
    style, script = (resources.files("harness.leaderboard").joinpath(f"page.{e}").read_text() for e in ("css", "js"))
    body = [
        *_opening(board),
        *(part for table in TABLES for part in _table(board, *table)),
        *_plots(board),
        *_tasks(board),
    ]
    return document(title, body, styles=[style], scripts=[script])


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
    table_rows: Sequence[Mapping[str, Any]] = rows(board)
    if not table_rows:
        return
    shown_columns: list[Column] = columns(board)
    more = "all intervals" if any(map(_spare, shown_columns)) else ""
    yield f'<section id="{name}"><h2>{title}</h2>{_tools(name, more)}'
    yield f'<div class="scroll" tabindex="0" role="region" aria-label="{title}"><table class="few"><thead><tr>'
    yield "".join(_head(c) for c in shown_columns)
    yield "</tr></thead><tbody>"
    for row in table_rows:
        key = f' data-key="{row["rank"]}"' if name == "solvers" else ""
        yield f"<tr{key}>{''.join(_cell(c, row) for c in shown_columns)}</tr>"
    yield "</tbody></table></div>"
    meanings = "".join(
        f"<dt>{for_html(c.title)}</dt><dd>{for_html(c.description)}</dd>" for c in shown_columns if not _spare(c)
    )
    yield f"<details><summary>What the columns mean</summary><dl>{meanings}</dl></details></section>"


def _tools(name: str, more: str = "") -> str:
    box = f'<label><input type="checkbox" class="more"> {more}</label>' if more else ""
    return (
        f'<p class="tools" hidden><label>filter <input type="search" class="filter" aria-controls="{name}"></label>'
        f'{box}<output class="count"></output></p>'
    )


def _spare(column: Column) -> bool:
    """Return whether a column is hidden until the reader asks for all intervals."""
    return column.key.endswith(("_by_repo", "_by_task")) and column.key not in _ALWAYS_SHOWN


def _classes(column: Column) -> str:
    names = [*(["n"] if column.numeric else ["name"]), *(["spare"] if _spare(column) else [])]
    return f' class="{" ".join(names)}"'


def _head(column: Column) -> str:
    return f'<th scope="col"{_classes(column)} title="{for_html(column.description)}">{for_html(column.title)}</th>'


def _cell(column: Column, row: Mapping[str, Any]) -> str:
    value = column.sort(row)
    key = f' data-v="{value:.9g}"' if isinstance(value, int | float) else ""
    return f"<td{_classes(column)}{key}>{for_html(column.text(row))}</td>"


def _plots(board: Board) -> Iterator[str]:
    figures = [figure(plot, (WIDE, NARROW)) for plot in plots(board)]
    if figures:
        yield f'<section id="plots"><h2>Plots</h2><div class="plots">{"".join(figures)}</div></section>'


_KINDS = (
    ("", "all tasks"),
    ("none", "resolved by no solver"),
    ("every", "resolved by every solver"),
    ("some", "solvers differ"),
    ("missing", "with missing attempts"),
    ("flagged", "with flagged attempts"),
    ("unsure", "with less certain grades"),
    ("learned", "possibly learned"),
)
_AUDIT_KINDS = (("passes", "that pass the audit"), ("fails", "that do not pass the audit"))


def _tasks(board: Board) -> Iterator[str]:
    audited = "audit" in board.about
    kinds = (*_KINDS, *_AUDIT_KINDS) if audited else _KINDS
    options = "".join(f'<option value="{value}">{text}</option>' for value, text in kinds)
    chosen = f'<label>show <select class="kind">{options}</select></label>'
    yield f'<section id="tasks"><h2>Tasks</h2>{_tools("tasks").replace("<output", f"{chosen}<output")}'
    yield (
        '<p class="legend">Resolved over graded attempts. <b>m</b>: missing, after a fault of the machine; '
        "<b>!</b>: flagged; <b>?</b>: a less certain grade; <b>c</b>: the model may have learned it.</p>"
    )
    solvers = [(row["rank"], row["solver"]) for row in board.solvers]
    yield '<div class="scroll tall" tabindex="0" role="region" aria-label="Tasks"><table><thead><tr>'
    yield '<th scope="col" class="name">task</th><th scope="col" class="name">repository</th>'
    yield '<th scope="col" class="n">rate %</th>'
    if audited:
        yield '<th scope="col" class="name">audit</th><th scope="col" class="n">sharp %</th>'
    for n, solver in solvers:
        name, short_name = for_html(solver), for_html(short(solver, 18))
        yield f'<th scope="col" class="n solver" data-solver="{n}" title="{name}"><span>{n} {short_name}</span></th>'
    yield "</tr></thead><tbody>"
    for row in board.tasks:
        rate = row["rate"]
        value = "" if rate is None else f' data-v="{rate:.6g}"'
        percent = "-" if rate is None else f"{100 * rate:.0f}"
        cells = "".join(_outcome(row["outcomes"].get(s), n) for n, s in solvers)
        yield (
            f'<tr data-is="{" ".join(_is(row))}"><td class="name">{for_html(row["task"])}</td>'
            f'<td class="name">{for_html(row["repo"])}</td><td class="n"{value}>{percent}</td>'
            f"{_audit_cells(row) if audited else ''}{cells}</tr>"
        )
    yield "</tbody></table></div></section>"


def _audit_cells(row: Mapping[str, Any]) -> str:
    sharpness = row["sharpness"]
    value = "" if sharpness is None else f' data-v="{sharpness:.6g}"'
    percent = NONE if sharpness is None else str(whole_percent(sharpness))
    return f'<td class="name">{for_html(row["audit"] or "passes")}</td><td class="n"{value}>{percent}</td>'


def _is(row: Mapping[str, Any]) -> Iterator[str]:
    if "audit" in row:
        yield "fails" if row["audit"] else "passes"
    outcomes = row["outcomes"].values()
    solvers, rate = row["solvers"], row["rate"]
    if solvers:
        if rate <= 0:
            yield "none"
        else:
            yield "every" if rate >= 1 else "some"
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
    details = [
        ": ".join(short(part, _MAX_TITLE) for part in (a["status"], a["reason"], *a["flag_texts"]) if part)
        for a in outcome["attempts"]
        if a["flags"] or a["forged"] or a["status"] not in ("resolved", "unresolved")
    ]
    title = f' title="{for_html(short("; ".join(details), 5 * _MAX_TITLE))}"' if details else ""
    value = "" if rate is None else f' data-v="{rate:.4g}"'
    return f'<td class="{kind}" data-solver="{number}"{value}{title}>{for_html(outcome_text(outcome))}</td>'
