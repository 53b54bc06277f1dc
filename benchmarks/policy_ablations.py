"""Compare ways to train the search policy, on bugs of projects that it is not trained on.

Run: `python benchmarks/policy_ablations.py SOURCE... --held-out SOURCE... --folder DIR --out RESULT.md`.
Static bugs are made in all sources once, without running a test. Each arm is trained from the same ones: from 50 to all
of them (a learning curve), without the features of token likelihood, with a third of the operators left out, and with
wrong labels. An arm's score is the share of all held-out bugs whose right candidate, by its text, is among the first
N; 95 % intervals by bug, and by project. The policies of all arms but the one without token likelihoods are written
to DIR/policies, for `search_policy.py`, which runs their candidates.

With `--play PROJECT... --play-held-out PROJECT...`, the arms of self-play are run as well (`ssr train selfplay`): what
is learned from a bug is its reverse, the grades, or both; a fixed mixture of bugs in place of the curriculum. There,
candidates are really run, after every round. Everything that is finished in DIR is not run again.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from rate_text import rate_text

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from harness.solvers.search.features import NAMES
from harness.solvers.search.policy import Policy
from harness.training.search.examples import Example, Shares
from harness.training.search.policy_fitting import ProvenExamples, StaticData, TrainingSettings, fit_policy
from harness.training.search.rates import Rate, compare
from harness.training.search.sources import SourceFolder, open_sources, unique_names, without_shared_code
from harness.training.search.training import collect

LIKELIHOODS = tuple(n for n in NAMES if n.startswith(("general_", "file_")) or n == "line_rank")
SIZES = (50, 100, 200, 400, 800, 1600, 3200)
PLAY_ARMS: Mapping[str, Sequence[str]] = {
    "both": (),
    "supervised (the reverse of each bug)": ("--lesson", "reverse"),
    "reward (grades of attempts)": ("--lesson", "grades"),
    "both, fixed mixture of bugs": ("--fixed-mixture",),
}


@dataclass(frozen=True)
class Arm:
    """One way to train, and what it gives."""

    name: str
    bugs: int
    """Bugs with a right candidate that it was trained on, those that decide when to stop included."""
    rates: Mapping[str, Sequence[Rate]]
    """For each group of held-out bugs, the rates by budget."""


def logits_of(policy: Policy, masked: Sequence[int] = ()) -> Callable[[Example], Shares]:
    def logits(example: Example) -> Shares:
        learned = policy.ranker.predict(without(example, masked).rows)
        return np.array(policy.mixed_logits(learned.tolist(), example.shares.tolist()))

    return logits


def without(example: Example, masked: Sequence[int]) -> Example:
    """Return an example with some features set to zero."""
    rows = example.rows.copy()
    rows[:, list(masked)] = 0
    return replace(example, rows=rows)


def with_wrong_labels(example: Example, rng: random.Random) -> Example:
    """Return an example whose flags are at other candidates."""
    right = example.right.copy()
    order = list(range(len(right)))
    rng.shuffle(order)
    return replace(example, right=right[order])


def drawn(examples: Mapping[Path, list[Example]], count: int, seed: int) -> dict[Path, list[Example]]:
    """Return a number of bugs with a right candidate, drawn evenly from all projects."""
    covered = [(folder, e) for folder, group in examples.items() for e in group if e.is_covered]
    random.Random(f"drawn:{seed}").shuffle(covered)
    chosen: dict[Path, list[Example]] = {}
    for folder, example in covered[:count]:
        chosen.setdefault(folder, []).append(example)
    return chosen


def static_arms(
    own: StaticData, held: Sequence[Example], seed: int, folder: Path, report: Callable[[str], None]
) -> Iterator[Arm]:
    operators = sorted({e.operator for e in held})
    left_out = frozenset(random.Random(f"operators:{seed}").sample(operators, len(operators) // 3))
    groups = {
        "all": list(held),
        "at most two changed lines": [e for e in held if e.changed_lines <= 2],
        "operators left out": [e for e in held if e.operator in left_out],
    }
    masked = [NAMES.index(n) for n in LIKELIHOODS]
    rng = random.Random(f"labels:{seed}")
    everything = sum(e.is_covered for group in own.examples.values() for e in group)

    def arm(name: str, examples: Mapping[Path, list[Example]], hidden: Sequence[int] = ()) -> Arm:
        report(f"fitting: {name}")
        policy = fit_policy(replace(own, examples=examples), ProvenExamples(), seed=seed)
        if not hidden:
            # The solver computes all features, so a policy that needs some hidden is of no use to it.
            policy.save(folder / "policies" / folder_name(name))
        rates = {g: compare(bugs, logits_of(policy, hidden), seed=seed).policy for g, bugs in groups.items() if bugs}
        return Arm(name, sum(e.is_covered for group in examples.values() for e in group), rates)

    patterns = {g: compare(bugs, lambda e: e.shares, seed=seed).patterns for g, bugs in groups.items() if bugs}
    yield Arm("the patterns' weights, nothing learned", 0, patterns)
    for size in [s for s in SIZES if s < everything]:
        yield arm(f"{size} bugs", drawn(own.examples, size, seed))
    yield arm("all bugs", own.examples)
    hidden = {f: [without(e, masked) for e in group] for f, group in own.examples.items()}
    yield arm("all bugs, without token likelihoods", hidden, masked)
    yield arm(
        f"without {len(left_out)} of {len(operators)} operators",
        {f: [e for e in group if e.operator not in left_out] for f, group in own.examples.items()},
    )
    yield arm("wrong labels", {f: [with_wrong_labels(e, rng) for e in g] for f, g in own.examples.items()})


def static_table(arms: Sequence[Arm], held: Sequence[Example]) -> Iterator[str]:
    covered = sum(e.is_covered for e in held)
    yield f"{len(held)} held-out static bugs, {covered} of them ({covered / len(held):.0%}) with a right candidate."
    for group in arms[0].rates:
        yield ""
        yield f"Share of all bugs, {group}:"
        yield ""
        budgets = [r.budget for r in arms[0].rates[group]]
        yield "| trained on | bugs with a right candidate | " + " | ".join(f"first {b}" for b in budgets) + " |"
        yield "|---" * (2 + len(budgets)) + "|"
        for arm in arms:
            yield f"| {arm.name} | {arm.bugs} | " + " | ".join(map(rate_text, arm.rates[group])) + " |"


def play(arguments: argparse.Namespace, name: str, options: Sequence[str]) -> dict[str, Any]:
    """Return the report of `ssr train selfplay` with these options; it continues in its folder."""
    folder = arguments.folder / f"play-{folder_name(name)}"
    folder.mkdir(parents=True, exist_ok=True)
    for shared in ("examples", "tokens"):
        if (arguments.folder / shared).is_dir():
            shutil.copytree(arguments.folder / shared, folder / shared, copy_function=link, dirs_exist_ok=True)
    command = [sys.executable, "-m", "harness.cli", "train", "selfplay", *map(str, arguments.play)]
    for flag, paths in (("--pretrain", arguments.sources), ("--held-out", arguments.play_held_out)):
        command += [text for path in paths for text in (flag, str(path))]
    command += ["--out", str(folder), "--seed", str(arguments.seed), "--bugs", str(arguments.bugs), *options]
    command += [text for pair in arguments.option for text in (f"--{pair.partition('=')[0]}", pair.partition("=")[2])]
    if arguments.python is not None:
        command += ["--python", str(arguments.python)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return dict(json.loads((folder / "report.json").read_text()))


def folder_name(arm: str) -> str:
    return "".join(c if c.isalnum() else "-" for c in arm)


def link(source: str, target: str) -> None:
    if not os.path.exists(target):
        os.link(source, target)


def play_table(reports: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    first = next(iter(reports.values()))
    yield f"{first['bugs']} held-out bugs, whose candidates are really run."
    yield ""
    budgets = [rate["budget"] for rate in first["patterns"]]
    yield (
        "| arm | round | proven bugs | attempts solved, drawn bugs (target) | "
        + " | ".join(f"held out, first {b}" for b in budgets)
        + " |"
    )
    yield "|---" * (4 + len(budgets)) + "|"
    yield "| the patterns' weights |  |  |  | " + " | ".join([rate_text(Rate(**r)) for r in first["patterns"]]) + " |"
    for name, report in reports.items():
        for number in report["rounds"]:
            rate = "" if number["solve_rate"] is None else f"{number['solve_rate']:.2f} ({number['target']:.2f})"
            cells = [name, number["round"], number["proven"], rate, *(rate_text(Rate(**r)) for r in number["held_out"])]
            yield f"| {' | '.join(map(str, cells))} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sources", nargs="+", type=Path, help="projects or folders of installed packages")
    parser.add_argument("--held-out", nargs="+", type=Path, required=True, help="their static bugs are not learned")
    parser.add_argument("--folder", type=Path, required=True, help="folder for all that is finished")
    parser.add_argument("--bugs", type=int, default=80, help="static bugs per project")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--play", nargs="*", type=Path, default=[], help="projects for self-play")
    parser.add_argument("--play-held-out", nargs="*", type=Path, default=[])
    parser.add_argument("--arms", nargs="*", default=list(PLAY_ARMS), choices=list(PLAY_ARMS))
    parser.add_argument("--option", nargs="*", default=[], metavar="NAME=VALUE", help="options of ssr train selfplay")
    parser.add_argument("--python", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    held_out = open_sources(arguments.held_out)
    names = {source.name for source in held_out}

    def report(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    others = [source for source in open_sources(arguments.sources) if source.name not in names]
    sources: list[SourceFolder] = without_shared_code(others, held_out, report)

    settings = TrainingSettings(bugs=arguments.bugs, seed=arguments.seed, jobs=arguments.jobs)
    data = collect([*sources, *held_out], arguments.folder, settings, watch=report, finished=lambda *_: None)
    own = replace(data, examples={s.folder: data.examples[s.folder] for s in sources})
    held = [e for s in held_out for e in data.examples[s.folder]]
    title = unique_names(held_out).values()
    lines = [
        "# Ways to train the search policy",
        "",
        f"{datetime.now(UTC):%Y-%m-%d}, Python {platform.python_version()}, `benchmarks/policy_ablations.py`, seed "
        f"{arguments.seed}: static bugs of {len(sources)} projects, at most {arguments.bugs} each; held out: "
        f"{', '.join(title)}. 95 % intervals by bug, and by project.",
        "",
        *static_table(list(static_arms(own, held, arguments.seed, arguments.folder, report)), held),
    ]
    arguments.out.write_text("\n".join(lines) + "\n")
    if arguments.play:
        reports: dict[str, Mapping[str, Any]] = {}
        for name in arguments.arms:
            reports[name] = play(arguments, name, PLAY_ARMS[name])
            table = ["", "## Self-play", "", *play_table(reports)]
            arguments.out.write_text("\n".join([*lines, *table]) + "\n")


if __name__ == "__main__":
    main()
