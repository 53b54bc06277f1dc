"""Draw the figures of an export for its card. Only this module of the package imports matplotlib."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from harness.publishing.figures import Figures

_MOST_BARS, _BINS = 12, 30
_COLOUR = "#2563b0"


def draw(figures: Figures, folder: Path) -> Iterator[tuple[str, str]]:
    """Write the pictures for which there is data, and yield the name and the caption of each."""
    rates = figures.posteriors()
    if rates:
        yield (
            _saved(folder, "solve-rates", lambda axes: _draw_rates(axes, figures)),
            ("Solve rates of the tasks, the hardest first: the posterior means, and 90 % intervals."),
        )
    operators = figures.counts["operator"] or figures.counts["strategy"]
    if len(operators) > 1:
        yield _saved(folder, "operators", lambda axes: _draw_bars(axes, figures)), "Rows by how their bug was made."
    if len(figures.lengths) > 1:
        yield _saved(folder, "lengths", lambda axes: _draw_lengths(axes, figures)), "Lengths of the rows."


def _draw_rates(axes: Axes, figures: Figures) -> None:
    rates = figures.posteriors()
    places = range(1, len(rates) + 1)
    axes.vlines(places, [r.low for r in rates], [r.high for r in rates], color=_COLOUR, alpha=0.35)
    axes.plot(places, [r.mean for r in rates], "o", markersize=3, color=_COLOUR)
    axes.set_ylim(0, 1)
    axes.set_xlabel("task")
    axes.set_ylabel("solve rate")


def _draw_bars(axes: Axes, figures: Figures) -> None:
    counts = (figures.counts["operator"] or figures.counts["strategy"]).most_common(_MOST_BARS)[::-1]
    axes.barh([name for name, _ in counts], [count for _, count in counts], color=_COLOUR)
    axes.set_xlabel("rows")


def _draw_lengths(axes: Axes, figures: Figures) -> None:
    axes.hist(figures.lengths, bins=_BINS, color=_COLOUR)
    axes.set_xlabel(figures.unit)
    axes.set_ylabel("rows")


def _saved(folder: Path, name: str, paint: Callable[[Axes], None]) -> str:
    figure = Figure(figsize=(6, 3.2), layout="constrained")
    paint(figure.subplots())
    folder.mkdir(exist_ok=True)
    # Without the version of matplotlib: the same figures give the same bytes.
    figure.savefig(folder / f"{name}.png", dpi=100, metadata={"Software": None})
    return f"{folder.name}/{name}.png"
