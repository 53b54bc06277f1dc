"""Draw the results of training as pictures. Only this module of the package imports matplotlib."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from harness.training.search.loop import LoopReport


def selfplay_plot(report: LoopReport, folder: Path) -> Path | None:
    """Write a picture of a self-play run, solve rates by round; return its path, or None without matplotlib."""
    if importlib.util.find_spec("matplotlib") is None:
        return None
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.6), layout="constrained")
    held_out, drawn = figure.subplots(1, 2, sharey=True)
    rounds = [r.round for r in report.rounds]
    for index, before in enumerate(report.patterns):
        rates = [r.held_out[index] for r in report.rounds]
        (line,) = held_out.plot(rounds, [r.rate for r in rates], "o-", label=f"{before.budget} candidates")
        low, high = ([r.by_bug[i] for r in rates] for i in (0, 1))
        held_out.fill_between(rounds, low, high, color=line.get_color(), alpha=0.15, linewidth=0)
        held_out.axhline(before.rate, color=line.get_color(), linestyle=":", linewidth=1)
    held_out.set_title(f"{report.bugs} held-out bugs (dotted: patterns alone)", fontsize=10)
    held_out.set_ylabel("solve rate, 95 % by bug")
    played = [r for r in report.rounds if r.solve_rate is not None]
    drawn.plot([r.round for r in played], [r.solve_rate for r in played], "o-", label="bugs of the round")
    if played:
        drawn.axhline(played[0].target, color="black", linestyle="--", linewidth=1, label="highest reward")
    drawn.set_title("bugs that the curriculum draws", fontsize=10)
    for axes in (held_out, drawn):
        axes.set_xlabel("round")
        axes.set_ylim(0, 1)
        axes.set_xticks(rounds)
        if axes.get_legend_handles_labels()[1]:
            axes.legend(fontsize=8)
    path = folder / "report.png"
    figure.savefig(path, dpi=150)
    return path


_CURVES = {
    "loss": ("loss",),
    "reward": ("reward", "reward/solver", "reward/injector"),
    "length": ("completions/mean_length",),
    "solve rate": ("solve_rate", "valid_rate"),
}
"""The metrics of each picture."""


def training_plot(lines: Sequence[Mapping[str, Any]], folder: Path) -> Path | None:
    """Write a picture of a training's metrics by update; return its path, or None without matplotlib or metrics.

    lines: the lines of its file of metrics.
    """
    curves = {
        title: {name: [(line["step"], line[name]) for line in lines if line.get(name) is not None] for name in names}
        for title, names in _CURVES.items()
    }
    shown = {title: named for title, named in curves.items() if any(named.values())}
    if not shown or importlib.util.find_spec("matplotlib") is None:
        return None
    path = folder / "report.png"
    _training_figure(shown).savefig(path, dpi=150)
    return path


def _training_figure(shown: Mapping[str, Mapping[str, Sequence[tuple[int, float]]]]) -> Figure:
    """Return the curves of each picture, by the name of the metric."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    figure = Figure(figsize=(4.5 * len(shown), 3.6), layout="constrained")
    for axes, (title, named) in zip(figure.subplots(1, len(shown), squeeze=False)[0], shown.items(), strict=True):
        for name, points in named.items():
            if points:
                # With one role its reward is that of all, and a wide, pale line is seen under another one.
                wide = {"linewidth": 5, "alpha": 0.35} if name == "reward" else {}
                axes.plot(*zip(*points, strict=True), marker="o" if len(points) == 1 else "", label=name, **wide)
        axes.set_title(title, fontsize=10)
        axes.set_xlabel("update")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        if sum(map(bool, named.values())) > 1:
            axes.legend(fontsize=8)
    return figure
