"""Compare runs of self-play round by round: how difficult the drawn bugs are, and how many held-out ones are solved.

Run: `python benchmarks/self_play_arms.py NAME=FOLDER ... --out benchmarks/results/NAME.md`. A FOLDER is one that
`ssr train selfplay` has finished; all of them measure the same held-out bugs. A plot is written beside the table.
"""

from __future__ import annotations

import argparse
import json
import platform
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from rate_text import rate_text

from harness.records.episode import Episode
from harness.rollouts.runner import count_resolved
from harness.selfplay.round_store import EPISODES
from harness.training.search.rates import Rate, rate_of


@dataclass(frozen=True, slots=True)
class Round:
    """A round of a run; round 0 is before any play."""

    number: int
    proven: int
    """The number of proven bugs that were learned from until then."""
    drawn: Rate | None
    """The share of resolved attempts at the bugs of the round; its budget is the number of these bugs."""
    held_out: tuple[Rate, ...]


@dataclass(frozen=True, slots=True)
class Arm:
    """A run of self-play."""

    bugs: int
    """The number of held-out bugs."""
    target: float
    """The solve rate with the highest reward for the injector."""
    patterns: tuple[Rate, ...]
    """The rates on held-out bugs without a policy."""
    rounds: tuple[Round, ...]
    drawn: Rate
    """The share of resolved attempts at the bugs of all rounds."""
    mixed: int
    """The number of these bugs that some attempts resolved and some did not; only they can reward the injector."""

    @classmethod
    def read(cls, folder: Path) -> Arm:
        """Read the report of a finished run, and its episodes."""
        report = json.loads((folder / "report.json").read_text())
        drawn = drawn_bugs(folder / "store")
        rounds = [
            Round(
                r["round"],
                r["proven"],
                drawn_rate(drawn[r["round"]]) if r["round"] in drawn else None,
                tuple(Rate(**rate) for rate in r["held_out"]),
            )
            for r in report["rounds"]
        ]
        patterns = tuple(Rate(**rate) for rate in report["patterns"])
        every = [bug for bugs in drawn.values() for bug in bugs]
        mixed = sum(0 < share < 1 for _, share in every)
        return cls(report["bugs"], report["rounds"][0]["target"], patterns, tuple(rounds), drawn_rate(every), mixed)


def drawn_rate(bugs: Sequence[tuple[str, float]]) -> Rate:
    """Return the mean of bugs' solve rates. bugs: the project and the solve rate of each."""
    return rate_of(len(bugs), np.array([share for _, share in bugs]), [project for project, _ in bugs], seed=0)


def drawn_bugs(store: Path) -> dict[int, list[tuple[str, float]]]:
    """Return the project and the solve rate of each attempted bug of each round. Raises ValueError for several runs."""
    runs = list((store / EPISODES).iterdir())
    if len(runs) != 1:
        raise ValueError(f"{store} has {len(runs)} runs of self-play; it must have one")
    bugs: dict[int, list[tuple[str, float]]] = {}
    for path in sorted(runs[0].glob("round-*.json")):
        number = int(path.stem.split("-")[1])
        for data in json.loads(path.read_text())["episodes"]:
            episode = Episode.from_json(data)
            if episode is None or not episode.valid or episode.order > 1:
                continue
            solved, graded = count_resolved(episode.rollouts)
            if graded:
                bugs.setdefault(number, []).append((episode.project, solved / graded))
    return bugs


def table(arms: Mapping[str, Arm]) -> Iterator[str]:
    """Yield the lines of a Markdown table of all rounds."""
    first = next(iter(arms.values()))
    yield f"{first.bugs} held-out bugs, whose candidates are really run."
    yield ""
    solved = f"attempts solved (target {first.target:.2f})"
    budgets = "".join(f" held out, first {rate.budget} |" for rate in first.patterns)
    yield f"| arm | round | bugs learned so far | bugs attempted | {solved} |{budgets}"
    yield "|---" * (5 + len(first.patterns)) + "|"
    yield "| the patterns' weights |  |  |  |  | " + " | ".join(map(rate_text, first.patterns)) + " |"
    for name, arm in arms.items():
        for r in arm.rounds:
            drawn = (str(r.drawn.budget), rate_text(r.drawn)) if r.drawn is not None else ("", "")
            cells = [name, str(r.number), str(r.proven), *drawn, *map(rate_text, r.held_out)]
            yield f"| {' | '.join(cells)} |"
    yield ""
    yield f"| arm | bugs attempted in all rounds | {solved} | solved by some attempts only |"
    yield "|---|---|---|---|"
    for name, arm in arms.items():
        yield f"| {name} | {arm.drawn.budget} | {rate_text(arm.drawn)} | {arm.mixed} |"


def draw(arms: Mapping[str, Arm], path: Path) -> None:
    """Draw the rates of all arms by round, with their intervals by bug."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "self-play"
    from matplotlib import pyplot as plt

    first = next(iter(arms.values()))
    titles = ["bugs of the round", *(f"held-out bugs, first {rate.budget}" for rate in first.patterns)]
    figure, panels = plt.subplots(1, len(titles), figsize=(3.6 * len(titles), 3.4), sharey=True, layout="constrained")
    for shift, (name, arm) in enumerate(arms.items()):
        for index, axes in enumerate(panels):
            shown = [(r.number, r.drawn if index == 0 else r.held_out[index - 1]) for r in arm.rounds]
            points = [(number, rate) for number, rate in shown if rate is not None]
            rates = [rate.rate for _, rate in points]
            low, high = ([abs(rate.by_bug[i] - rate.rate) for _, rate in points] for i in (0, 1))
            places = [number + 0.1 * shift for number, _ in points]
            axes.errorbar(places, rates, yerr=[low, high], fmt="o-", markersize=4, linewidth=1, label=name)
    for index, (axes, title) in enumerate(zip(panels, titles, strict=True)):
        level, label = (first.target, "highest reward") if index == 0 else (first.patterns[index - 1].rate, "patterns")
        axes.axhline(level, color="black", linestyle="--", linewidth=1, label=label)
        axes.set_title(title, fontsize=10)
        axes.set_xlabel("round")
        axes.set_ylim(0, 1)
        axes.legend(fontsize=8)
    panels[0].set_ylabel("solve rate, 95 % by bug")
    figure.savefig(path, metadata={"Date": None})


def named_folder(text: str) -> tuple[str, Path]:
    """Return the two parts of NAME=FOLDER."""
    name, separator, folder = text.partition("=")
    if not separator or not (Path(folder) / "report.json").is_file():
        raise argparse.ArgumentTypeError(f"{text}: not NAME=FOLDER with a finished run of ssr train selfplay")
    return name, Path(folder)


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the table and the plot."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("arms", nargs="+", type=named_folder, metavar="NAME=FOLDER")
    parser.add_argument("--out", type=Path, required=True)
    options: Any = parser.parse_args(arguments)
    arms = {name: Arm.read(folder) for name, folder in options.arms}
    picture = options.out.with_suffix(".svg")
    draw(arms, picture)
    lines = [
        "# Arms of self-play, round by round",
        "",
        f"{datetime.now(UTC):%Y-%m-%d}, Python {platform.python_version()}, `benchmarks/self_play_arms.py`. 95 % "
        "intervals by bug, and by project.",
        "",
        *table(arms),
        "",
        f"![Solve rates by round]({picture.name})",
    ]
    options.out.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
