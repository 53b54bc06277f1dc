"""Run some rounds of self-play without a model on real projects, operators against `search`, and plot solve rates.

Run: `python benchmarks/self_play.py --out benchmarks/results/NAME.md [--rounds 3] [--count 4] [--attempts 8]
[--tries 400] [--jobs 2] [--injector mutation,removal] [--control] [project ...]`. One `ssr play` plays all projects, so
that what pays in one is tried in the others; its final output is kept unchanged, with a plot of the solve rates of each
round beside it. --control: everything is played again with `--fixed-mixture`, so that rounds learn nothing from each
other. An interrupted run continues when it is started again.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
import time
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean
from typing import Any

from projects import fetch, plain

from harness.records.rewards import best_solve_rate, clustered_interval

PROJECTS = ["itsdangerous", "toolz", "sqlparse", "boltons"]
INJECTORS = "mutation,removal,combination"


def play(argv: list[str], *, as_json: bool) -> str:
    command = [sys.executable, "-m", "harness.cli", "play", *argv, *(["--json"] if as_json else [])]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1):
        raise SystemExit(f"ssr play ended with {done.returncode}: {done.stderr}")
    return done.stdout


def rounds_of(episodes: list[dict[str, Any]]) -> list[list[str]]:
    """Return a row for each round, and one for the second half of them: how hard the bugs were, and the rewards."""
    rows = []
    numbers = sorted({e["round"] for e in episodes})
    spans = [(str(n), {n}) for n in numbers]
    late = numbers[len(numbers) // 2 :]
    if late[1:]:
        spans.append((f"{late[0]} to {late[-1]}", set(late)))
    for label, among in spans:
        bugs = [e for e in episodes if e["round"] in among and e["valid"] and e["order"] == 1 and e["rollouts"]]
        grades = [[r["resolved"] for r in e["rollouts"] if r["resolved"] is not None] for e in bugs]
        rates = [e["solve_rate"] for e in bugs if e["solve_rate"] is not None]
        between = sum(0 < r < 1 for r in rates)
        solved, attempts = sum(map(sum, grades)), sum(map(len, grades))
        low, high = clustered_interval([(sum(g), len(g)) for g in grades])
        rewards = [e["injector_reward"] for e in episodes if e["round"] in among and e["injector_reward"] is not None]
        rate = f"{solved} of {attempts}, {solved / max(1, attempts):.2f} ({low:.2f} to {high:.2f})"
        rows.append([label, str(len(bugs)), rate, f"{between} of {len(rates)}", f"{fmean(rewards):+.2f}"])
    return rows


def means_of(episodes: list[dict[str, Any]]) -> dict[int, float]:
    """Return the mean solve rate of the bugs of each round."""
    rated = [e for e in episodes if e["solve_rate"] is not None]
    return {n: fmean([e["solve_rate"] for e in rated if e["round"] == n]) for n in sorted({e["round"] for e in rated})}


def draw(episodes: list[dict[str, Any]], control: list[dict[str, Any]], best: float, path: Path) -> None:
    """Plot the solve rates of bugs by round, and the one that pays most."""
    import matplotlib as mpl

    mpl.use("svg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(6, 3.4))
    names = sorted({e["project"] for e in episodes})
    for number, name in enumerate(names):
        bugs = [e for e in episodes if e["project"] == name and e["valid"] and e["solve_rate"] is not None]
        counts = Counter((e["round"] + (number - (len(names) - 1) / 2) * 0.12, e["solve_rate"]) for e in bugs)
        # The area of a dot is the number of bugs.
        axes.scatter(*zip(*counts, strict=True), s=[22 * n for n in counts.values()], alpha=0.7, label=name)
    rounds = sorted({e["round"] for e in episodes})
    axes.plot(*zip(*means_of(episodes).items(), strict=True), color="black", label="mean")
    if control:
        axes.plot(*zip(*means_of(control).items(), strict=True), color="black", linestyle=":", label="mean, fixed")
    axes.axhline(best, color="grey", linestyle="--", label="pays most")
    axes.set(xlabel="round", ylabel="solve rate of a bug", xticks=rounds, ylim=(-0.05, 1.05))
    axes.legend(fontsize=7, loc="center left", bbox_to_anchor=(1, 0.5))
    figure.tight_layout()
    figure.savefig(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("projects", nargs="*", default=PROJECTS)
    for name, default in (("rounds", 3), ("count", 4), ("attempts", 8), ("tries", 400), ("jobs", 2), ("seed", 0)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--injector", default=INJECTORS)
    parser.add_argument("--control", action="store_true")
    parser.add_argument("--folder", type=Path, default=Path("/tmp/ssr-benchmarks"), help="folder for downloads")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    sources = [str(fetch(name, arguments.folder / name)[0]) for name in arguments.projects]
    python = plain(arguments.folder, further=["freezegun"])
    numbers = [f"--{n}={getattr(arguments, n)}" for n in ("rounds", "count", "attempts", "tries", "jobs", "seed")]
    argv = [*sources, "--store", str(arguments.folder / "self-play"), "--python", str(python), "--solver", "search"]
    argv += ["--injector", arguments.injector, "--higher-order=0", *numbers]
    begin = time.monotonic()
    episodes = json.loads(play(argv, as_json=True))["episodes"]
    fixed = [*argv, "--fixed-mixture"]
    control = json.loads(play(fixed, as_json=True))["episodes"] if arguments.control else []
    minutes = (time.monotonic() - begin) / 60
    shown = play(argv, as_json=False)
    best = best_solve_rate(arguments.attempts)
    head = ["round", "bugs", "attempts resolved (95 %)", "bugs solved at times", "injector's mean reward"]
    plot = arguments.out.with_suffix(".svg")
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    draw(episodes, control, best, plot)
    rows = [[*row, *["learnt"] * bool(control)] for row in rounds_of(episodes)]
    if control:
        head.append("operators are drawn")
        rows += [[*row, "in balance"] for row in rounds_of(control)]
    text = [
        "# Self-play without a model",
        "",
        f"{datetime.now(UTC):%Y-%m-%d}, Python {platform.python_version()}, `benchmarks/self_play.py "
        f"{' '.join(numbers)}`: {arguments.injector} against search, on {', '.join(arguments.projects)}. "
        f"{minutes:.0f} minutes in this start.",
        "",
        f"| {' | '.join(head)} |",
        "| --- |" + " --- |" * (len(head) - 1),
        *(f"| {' | '.join(row)} |" for row in rows),
        "",
        f"A solve rate of {best:.3f} pays the injector most. Intervals count attempts at one bug as alike.",
        "",
        f"![solve rates by round]({plot.name})",
        "",
        "```",
        shown[shown.index("by strategy") :].rstrip(),
        "```",
    ]
    arguments.out.write_text("\n".join(text) + "\n")
    print("\n".join(text))


if __name__ == "__main__":
    main()
