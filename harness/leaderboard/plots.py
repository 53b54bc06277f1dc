"""Draw a leaderboard's plots, for the page and for papers. Only this module imports matplotlib."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from harness.leaderboard.board import Board
from harness.leaderboard.columns import short_amount
from harness.leaderboard.escaping import short

WIDE, NARROW = 560, 350
_MOST_AGREEING = 20
_BINS = 10
_WIDE_RANGE = 1000
_SHADE = 0.5
"""Opacity of full agreement: text on it is readable in the light and the dark theme."""
_MEASURES = (
    ("cost_usd", "USD of an attempt"),
    ("tokens", "tokens of an attempt"),
    ("seconds", "seconds of an attempt"),
)


@dataclass(frozen=True, slots=True)
class Ink:
    """The colours of a plot, in the notation of matplotlib."""

    text: str = "#1c1e21"
    faint: str = "#6b7078"
    line: str = "#d5d8dd"
    mark: str = "#2563b0"
    other: str = "#b4531a"


@dataclass(frozen=True, slots=True)
class RenderedPlot:
    """The bytes of a plot."""

    data: bytes
    labels: Mapping[str, str]
    """The description of each mark, by its id."""


@dataclass(frozen=True, slots=True)
class Plot:
    """A plot for which a leaderboard has data."""

    name: str
    title: str
    caption: str
    height: Callable[[int], int]
    """Return the height for a width, both in points."""
    draw: Callable[[Axes, Ink, int], dict[str, str]]
    """Draw onto axes with colours at a width, and return the description of each mark by its id."""


def plots(board: Board) -> Iterator[Plot]:
    """Yield the plots for which a leaderboard has data."""
    if measure := _against(board):
        key, title = measure
        rows = [r for r in board.solvers if r["resolve_rate"] and r[key]]
        yield Plot(
            "cost",
            f"Resolve rate against {title}",
            "Each mark is a solver with its rank; bars are intervals by task; the line connects the solvers that no "
            "other beats in both cost and rate.",
            lambda width: 380,
            lambda axes, ink, width: _draw_cost(axes, ink, rows, key, title),
        )
    if rates := [r["rate"] for r in board.tasks if r["rate"] is not None]:
        yield Plot(
            "difficulty",
            "Difficulty of the tasks",
            "Number of tasks by resolve rate; each solver has the same weight.",
            lambda width: 280,
            lambda axes, ink, width: _draw_difficulty(axes, ink, rates),
        )
    if any(r["kappa"] is not None for r in board.agreement):
        names = [r["solver"] for r in board.solvers][:_MOST_AGREEING]
        yield Plot(
            "agreement",
            "Agreement between solvers",
            "Cohen's kappa over common tasks: 1 is agreement at every task, 0 agreement by chance.",
            lambda width: min(width, 140 + 26 * len(names)),
            lambda axes, ink, width: _draw_agreement(axes, ink, board, names, width),
        )
    both = [(r["solver"], r["ability"], "mark") for r in board.solvers if r.get("ability")]
    both += [(r["injector"], r["difficulty"], "other") for r in board.injectors if r["difficulty"]]
    if len(both) > 1:
        yield Plot(
            "abilities",
            "Solvers and injectors on one scale",
            "Logits; a solver resolves half of the bugs of an injector with the same value, and more of those below.",
            lambda width: 80 + 24 * len(both),
            lambda axes, ink, width: _draw_abilities(axes, ink, both, width),
        )


def render(plot: Plot, *, kind: str = "svg", width: int = WIDE, ink: Ink | None = None) -> RenderedPlot:
    """Draw a plot as svg, pdf or png; the same board gives the same bytes.

    width: in points. Text stays text in svg; in pdf, fonts are embedded as outlines that journals accept (type 42).
    """
    settings = {"svg.fonttype": "none", "svg.hashsalt": plot.name, "pdf.fonttype": 42, "font.size": 11.0}
    # Without dates, so that the bytes are reproducible.
    metadata = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(kind, {})
    colours = ink or Ink()
    with mpl.rc_context(settings), warnings.catch_warnings():
        # A name may have characters that no local font has; a browser will have one.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        figure = Figure(figsize=(width / 72, plot.height(width) / 72), dpi=72, layout="constrained")
        axes = figure.add_subplot()
        _plain_axes(axes, colours)
        labels = plot.draw(axes, colours, width)
        out = io.BytesIO()
        figure.savefig(out, format=kind, metadata=metadata, transparent=kind == "svg")
    return RenderedPlot(out.getvalue(), labels)


def _plain_axes(axes: Axes, ink: Ink) -> None:
    for side, spine in axes.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_color(ink.faint)
    axes.tick_params(which="both", colors=ink.faint, labelcolor=ink.text)
    for axis in (axes.xaxis, axes.yaxis):
        axis.label.set_color(ink.text)


def _against(board: Board) -> tuple[str, str] | None:
    """Return the measure to plot solvers against: cost, else tokens, else time, if it is known and not all zero."""
    for key, title in _MEASURES:
        values = [r[key]["value"] for r in board.solvers if r[key] and r["resolve_rate"]]
        if values and any(values):
            return key, title
    return None


def _draw_cost(axes: Axes, ink: Ink, rows: Sequence[Mapping[str, Any]], key: str, title: str) -> dict[str, str]:
    points = [(r[key]["value"], 100 * r["resolve_rate"]["value"]) for r in rows]
    front = [p for p in sorted(points) if not any(q[0] <= p[0] and q[1] >= p[1] and q != p for q in points)]
    axes.plot(*zip(*front, strict=True), color=ink.line, linewidth=2, zorder=1)
    labels = {}
    for row, (x, y) in zip(rows, points, strict=True):
        rate, name = row["resolve_rate"], f"solver-{row['rank']}"
        (bar,) = axes.plot([x, x], [100 * rate["low"], 100 * rate["high"]], color=ink.mark, linewidth=1, zorder=2)
        bar.set_gid(f"{name}-bar")
        (mark,) = axes.plot([x], [y], "o", color=ink.mark, markersize=7, zorder=3)
        mark.set_gid(name)
        text = axes.annotate(str(row["rank"]), (x, y), (6, 5), textcoords="offset points", color=ink.text, zorder=4)
        text.set_gid(f"{name}-rank")
        labels[name] = f"{row['rank']}. {short(row['solver'], 60)}: {y:.1f} %, {x:.3g} {title}"
    values = [x for x, _ in points]
    if min(values) > 0 and max(values) / min(values) > 20:
        axes.set_xscale("log")
        # Few labels: those of all minor ticks would overlap on a phone.
        subs = (1.0, 2.0, 5.0) if max(values) / min(values) < _WIDE_RANGE else (1.0,)
        axes.xaxis.set_major_locator(LogLocator(subs=subs))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: short_amount(x)))
        axes.xaxis.set_minor_formatter(NullFormatter())
    else:
        axes.set_xlim(left=0)
    axes.set_ylim(-2, 102)
    axes.set_xlabel(title)
    axes.set_ylabel("resolved %")
    axes.grid(color=ink.line, linewidth=0.6)
    axes.set_axisbelow(True)
    return labels


def _draw_difficulty(axes: Axes, ink: Ink, rates: Sequence[float]) -> dict[str, str]:
    groups = [0] * (_BINS + 2)
    for rate in rates:
        if rate <= 0:
            groups[0] += 1
        elif rate >= 1:
            groups[_BINS + 1] += 1
        else:
            groups[1 + int(rate * _BINS)] += 1
    names = ["none", *(f"{10 * n}-{10 * n + 10}" for n in range(_BINS)), "all"]
    labels = {}
    for n, (name, count) in enumerate(zip(names, groups, strict=True)):
        (bar,) = axes.bar([n], [count], width=0.86, color=ink.other if n == 0 else ink.mark)
        bar.set_gid(f"bin-{n}")
        labels[f"bin-{n}"] = f"{count} tasks: {name}{' %' if '-' in name else ''}"
        if count:
            axes.annotate(str(count), (n, count), (0, 3), textcoords="offset points", ha="center", color=ink.text)
    axes.set_xticks(range(len(names)), names, rotation=45, ha="right")
    axes.set_xlabel("resolved %")
    axes.set_ylabel("tasks")
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    axes.margins(y=0.12)
    return labels


def _draw_agreement(axes: Axes, ink: Ink, board: Board, names: Sequence[str], width: int) -> dict[str, str]:
    known = {(r["first"], r["second"]): r for r in board.agreement}
    labels = {}
    for i, second in enumerate(names):
        for j, first in enumerate(names[:i]):
            row = known.get((first, second)) or known.get((second, first))
            if row is None or row["kappa"] is None:
                continue
            kappa, name = row["kappa"], f"pair-{i}-{j}"
            colour = ink.mark if kappa >= 0 else ink.other
            cell = Rectangle((j - 0.5, i - 0.5), 1, 1, facecolor=colour, edgecolor="none", alpha=_SHADE * abs(kappa))
            cell.set_gid(name)
            axes.add_patch(cell)
            labels[name] = f"{short(first, 40)} and {short(second, 40)}: kappa {kappa:.2f} over {row['tasks']} tasks"
            if width >= 36 * len(names) + 120:
                axes.text(j, i, f"{kappa:.2f}", ha="center", va="center", color=ink.text, fontsize=9)
    tick_labels = [f"{n} {short(name, 24 if width >= WIDE else 12)}" for n, name in enumerate(names, 1)]
    axes.set_xlim(-0.5, len(names) - 1.5)
    axes.set_ylim(len(names) - 0.5, 0.5)
    axes.set_xticks(range(len(names) - 1), [str(n) for n in range(1, len(names))])
    axes.set_yticks(range(1, len(names)), tick_labels[1:])
    for text in axes.get_yticklabels():
        text.set_parse_math(False)
    axes.set_xlabel(f"1 is {short(names[0], 30)}", parse_math=False)
    return labels


def _draw_abilities(axes: Axes, ink: Ink, both: Sequence[tuple[str, Any, str]], width: int) -> dict[str, str]:
    ranked = sorted(both, key=lambda e: (e[1]["value"], e[0]))
    labels = {}
    for n, (entrant, estimate, role) in enumerate(ranked):
        colour, value = getattr(ink, role), estimate["value"]
        if estimate["low"] is not None:
            axes.plot([estimate["low"], estimate["high"]], [n, n], color=colour, linewidth=1.4)
        (mark,) = axes.plot([value], [n], "o" if role == "mark" else "s", color=colour, markersize=7)
        mark.set_gid(f"entrant-{n}")
        role_name = "solver" if role == "mark" else "injector"
        labels[f"entrant-{n}"] = f"{role_name} {short(entrant, 60)}: {value:+.2f}"
    length = 28 if width >= WIDE else 14
    axes.set_yticks(range(len(ranked)), [short(e[0], length) for e in ranked])
    for text, (_, _, role) in zip(axes.get_yticklabels(), ranked, strict=True):
        text.set_parse_math(False)
        text.set_color(getattr(ink, role))
    axes.axvline(0, color=ink.line, linewidth=1, zorder=0)
    axes.set_xlabel("logits; circles: solvers, squares: injectors")
    return labels
