"""Check whether self-play learns to draw what pays: draw its recorded bugs again, by the mixture and by chance.

Run: `python benchmarks/mixture_replay.py STORE ... --out benchmarks/results/NAME.md [--strategy mutation] [--seeds 40]
[--first-seed 0] [--attempts 2 8 32] [--rounds 6] [--count 12] [--offered 60]`. A STORE is one of `ssr play`. Nothing is
run: each draw is among some of the recorded bugs, and a drawn bug has the result recorded when it was played. This
covers many more rounds than could be played, all over real bugs and real solve rates; but an injector can only offer
again what it once offered. The mixture learns from round to round as in `ssr play`, one table for all projects, for
each number of attempts that it may count on, which determines the solve rate that pays most. A plot is written beside
the table.
"""

from __future__ import annotations

import argparse
import json
import platform
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from statistics import fmean

import numpy as np
from scipy import stats

from harness.records.episode import Episode
from harness.records.rewards import best_solve_rate
from harness.rollouts.runner import count_resolved
from harness.selfplay.curriculum import Functions, Table, Traits
from harness.selfplay.round_store import EPISODES


@dataclass(frozen=True, slots=True)
class Bug:
    """A recorded bug."""

    traits: Traits
    valid: bool
    solved: int
    graded: int
    reward: float


class Tree:
    """A snapshot in a store."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def read(self, path: str) -> bytes:
        return (self._folder / path).read_bytes()


def recorded(store: Path, strategy: str) -> Iterator[tuple[str, Bug]]:
    """Yield the bugs of a store that have a reward, each with a key that identifies it."""
    functions: dict[str, Functions] = {}
    for path in sorted(store.glob("artifacts/*/artifact.json")):
        artifact = json.loads(path.read_text())
        functions.setdefault(artifact["repository"], Functions(Tree(store / "trees" / artifact["tree_hash"] / "tree")))  # type: ignore[arg-type]
    for path in sorted(store.glob(f"{EPISODES}/*/*.json")):
        for data in json.loads(path.read_text())["episodes"]:
            episode = Episode.from_json(data)
            if episode is None or (reward := episode.reward()) is None or strategy not in ("", episode.strategy):
                continue
            own = functions.get(episode.project)
            length = own.statements(episode.path, episode.scope) if own is not None else 0
            location = f"{episode.project}/{episode.path}"
            traits = Traits(episode.strategy, episode.operator, location, episode.lines, length)
            yield (
                f"{episode.project} {episode.change}",
                Bug(traits, episode.valid, *count_resolved(episode.rollouts), reward),
            )


def played(
    bugs: list[Bug], attempts: int, seed: int, shape: argparse.Namespace, *, learns: bool
) -> list[tuple[float, float]]:
    """Play all rounds once; return the mean solve rate and the mean reward of each."""
    rng, table, remaining, results = Random(seed), Table(attempts), list(bugs), []
    for _ in range(shape.rounds):
        draws, drawn = table.draws(rng), []
        for _ in range(shape.count):
            offered = rng.sample(remaining, min(shape.offered, len(remaining)))
            best = draws.best(list(dict.fromkeys(b.traits for b in offered))) if learns else rng.choice(offered).traits
            drawn.append(next(b for b in offered if b.traits == best))
            remaining.remove(drawn[-1])
        for bug in drawn:
            table.update(bug.traits, valid=bug.valid, solved=bug.solved, graded=bug.graded)
        solve_rates = [b.solved / b.graded for b in drawn if b.graded]
        results.append((fmean(solve_rates) if solve_rates else float("nan"), fmean([b.reward for b in drawn])))
    return results


def mean_with_interval(values: np.ndarray) -> str:
    """Return the mean over seeds with its 95 % interval."""
    low, high = stats.t.interval(0.95, len(values) - 1, np.mean(values), stats.sem(values))
    return f"{np.mean(values):.2f} ({low:.2f} to {high:.2f})"


def draw(shown: dict[int, np.ndarray], control: np.ndarray, path: Path) -> None:
    """Draw solve rates by round; all arrays are of shape (seeds, rounds, 2)."""
    import matplotlib as mpl

    mpl.use("svg")
    from matplotlib import pyplot as plt

    figure, panels = plt.subplots(1, len(shown), figsize=(3 * len(shown), 3), sharey=True, squeeze=False)
    for axes, (attempts, learnt) in zip(panels[0], shown.items(), strict=True):
        for name, values in (("learnt", learnt), ("by chance", control)):
            spread = 1.96 * stats.sem(values[:, :, 0], nan_policy="omit")
            axes.errorbar(
                range(1, values.shape[1] + 1), np.nanmean(values[:, :, 0], axis=0), spread, capsize=3, label=name
            )
        axes.axhline(best_solve_rate(attempts), color="grey", linestyle="--", label="pays most")
        axes.set(xlabel="round", title=f"{attempts} attempts", ylim=(0, 0.8))
    panels[0][0].set_ylabel("mean solve rate")
    panels[0][-1].legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stores", nargs="+", type=Path)
    parser.add_argument("--strategy", default="")
    for name, default in (("seeds", 40), ("first-seed", 0), ("rounds", 6), ("count", 12), ("offered", 60)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--attempts", type=int, nargs="+", default=[2, 8, 32])
    parser.add_argument("--out", type=Path, required=True)
    shape = parser.parse_args()
    bugs = list(dict(pair for store in shape.stores for pair in recorded(store, shape.strategy)).values())
    if len(bugs) < shape.rounds * shape.count:
        raise SystemExit(f"{len(bugs)} bugs are recorded; {shape.rounds} rounds of {shape.count} need more")
    seeds = range(shape.first_seed, shape.first_seed + shape.seeds)
    shown = {a: np.array([played(bugs, a, seed, shape, learns=True) for seed in seeds]) for a in shape.attempts}
    control = np.array([played(bugs, shape.attempts[0], seed, shape, learns=False) for seed in seeds])
    plot = shape.out.with_suffix(".svg")
    shape.out.parent.mkdir(parents=True, exist_ok=True)
    draw(shown, control, plot)
    named = [("by chance", "", control)]
    named += [(f"learnt, {a} attempts", f"{best_solve_rate(a):.3f}", values) for a, values in shown.items()]
    rows = [
        f"| {name} | {best} | {n + 1} | {mean_with_interval(values[:, n, 0])} | {mean_with_interval(values[:, n, 1])} |"
        for name, best, values in named
        for n in range(shape.rounds)
    ]
    graded = [b.solved / b.graded for b in bugs if b.graded]
    numbers = " ".join(
        f"--{n} {getattr(shape, n.replace('-', '_'))}" for n in ("seeds", "first-seed", "rounds", "count", "offered")
    )
    text = [
        "# Recorded bugs, drawn again",
        "",
        f"{datetime.now(UTC):%Y-%m-%d}, Python {platform.python_version()}, `benchmarks/mixture_replay.py {numbers}"
        f"{f' --strategy {shape.strategy}' if shape.strategy else ''}`: {len(bugs)} bugs that `ssr play` has recorded, "
        f"{sum(b.valid for b in bugs)} of them valid, with a mean solve rate of {fmean(graded):.2f}; "
        f"{np.mean([0 < r < 1 for r in graded]):.0%} are solved at times. Means over seeds, with 95 % intervals; no "
        "bug is drawn twice. Rewards are by the attempts that were made.",
        "",
        "| drawn | pays most | round | mean solve rate | injector's mean reward |",
        "| --- | --- | --- | --- | --- |",
        *rows,
        "",
        f"![solve rates by round]({plot.name})",
    ]
    shape.out.write_text("\n".join(text) + "\n")
    print("\n".join(text))


if __name__ == "__main__":
    main()
