"""Draw rates with their intervals as a picture beside a page of results."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from harness.training.search.rates import Rate


def rates_picture(
    page: Path, series: Mapping[str, Sequence[tuple[float, Rate]]], *, xlabel: str, ylabel: str, title: str
) -> None:
    """Write a picture beside a page, as SVG; nothing without matplotlib.

    series: by name, the rates and where they are on the horizontal axis, which is logarithmic if all are above 0. Bars
    are 95 % intervals by bug.
    """
    if importlib.util.find_spec("matplotlib") is None:
        return
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 3.8), layout="constrained")
    axes = figure.subplots()
    places = sorted({x for points in series.values() for x, _ in points})
    for index, (name, points) in enumerate(series.items()):
        shift = 1 + 0.04 * (index - (len(series) - 1) / 2)
        xs = [x * shift for x, _ in points]
        rates = [rate.rate for _, rate in points]
        low = [rate.rate - rate.by_bug[0] for _, rate in points]
        high = [rate.by_bug[1] - rate.rate for _, rate in points]
        axes.errorbar(xs, rates, yerr=[low, high], fmt="o-", capsize=3, linewidth=1.5, markersize=4, label=name)
    if min(places) > 0:
        axes.set_xscale("log")
    axes.set_xticks(places, [f"{x:,.0f}" for x in places])
    axes.minorticks_off()
    axes.set_ylim(bottom=0)
    axes.set(xlabel=xlabel, ylabel=ylabel)
    axes.set_title(title, fontsize=10)
    axes.grid(axis="y", alpha=0.3)
    axes.legend(fontsize=9, frameon=False)
    figure.savefig(page.with_suffix(".svg"), metadata={"Date": None})
