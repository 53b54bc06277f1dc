"""Compare screening in a container with bubblewrap: the same candidates in turn, and the time that each takes.

Run: `python benchmarks/warm_containers.py --out benchmarks/results/NAME.md [--candidates 60] [project ...]`.
Each candidate is screened in one sandbox and then in the other; which comes first alternates. The first candidate of
each tier in a sandbox also starts a server, so it is reported separately. The ratio is the sum of seconds in the
container over that in bubblewrap, of candidates that both screened by the same tier; its interval is a bootstrap over
candidates (95 %, 4,000 resamples). Work that is done once, such as trying a test file alone, makes a few candidates
much longer and can weigh down either side; the typical ratio is the median of the ratios of single candidates, with
its interval. Candidates that no test can reach are not run, and not counted. `--container docker:IMAGE` uses the
image's own interpreter.
"""

from __future__ import annotations

import argparse
import platform
import random
import statistics
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from projects import PROJECTS, fetch

from pytest_ssr.campaign.artifact_builder import candidate_state
from pytest_ssr.campaign.campaign import Campaign
from pytest_ssr.campaign.factory import open_campaign
from pytest_ssr.execution.screening import Screened
from pytest_ssr.sandbox import load_provider
from pytest_ssr.settings import RuleSettings
from pytest_ssr.storage.store import Store

TARGET_RATIO = 1.5
_RESAMPLES = 4000


@dataclass
class Side:
    """One sandbox and what it screened."""

    name: str
    campaign: Campaign
    opened_s: float
    started: set[str] = field(default_factory=set)
    starts_s: list[float] = field(default_factory=list)

    def screen(self, index: int) -> tuple[Screened, float, bool] | None:
        """Return a candidate's result, its seconds, and whether it may have started a server, or None."""
        candidate = self.campaign.candidate(index)
        if candidate is None:
            return None
        state = candidate_state(self.campaign.snapshot, candidate)
        begin = time.perf_counter()
        screened = self.campaign.screening.run(state, runner=self.campaign.runner.scoped())
        seconds = time.perf_counter() - begin
        is_first = screened.tier not in self.started
        if is_first:
            self.started.add(screened.tier)
            self.starts_s.append(seconds)
        return screened, seconds, is_first


@dataclass(frozen=True, slots=True)
class Pair:
    """One candidate in both sandboxes."""

    tier: str
    plain_s: float
    container_s: float


@dataclass(frozen=True, slots=True)
class Comparison:
    """All candidates of a project."""

    project: str
    pairs: list[Pair]
    apart: Counter[str]
    sides: tuple[Side, Side]


def measure(name: str, folder: Path, candidates: int, container: str) -> Comparison:
    """Screen the candidates of a project in both sandboxes."""
    project, python = fetch(name, folder / name)
    sides = []
    for sandbox in ("bubblewrap", container):
        begin = time.perf_counter()
        campaign = open_campaign(
            project,
            Store(folder / f"{name}-warm-containers" / sandbox.replace("/", "_")),
            settings=RuleSettings(),
            python=None if ":" in sandbox else python,
            sandbox=sandbox,
            seed=1,
        )
        sides.append(Side(sandbox, campaign, time.perf_counter() - begin))
    plain, contained = sides
    pairs, apart = [], Counter[str]()
    try:
        for index in range(candidates):
            order = sides if index % 2 else sides[::-1]
            results = {side.name: side.screen(index) for side in order}
            one, other = results[plain.name], results[contained.name]
            if one is None or other is None:
                continue
            if one[0].failing != other[0].failing:
                apart["other failing tests"] += 1
            if one[0].tier != other[0].tier:
                apart[f"{one[0].tier} in {plain.name}, {other[0].tier} in {contained.name}"] += 1
            elif one[0].tier != "none" and not (one[2] or other[2]):
                pairs.append(Pair(one[0].tier, one[1], other[1]))
    finally:
        for side in sides:
            side.campaign.close()
    return Comparison(name, pairs, apart, (plain, contained))


def ratio_of_sums(pairs: Sequence[Pair]) -> float:
    return sum(p.container_s for p in pairs) / sum(p.plain_s for p in pairs)


def typical_ratio(pairs: Sequence[Pair]) -> float:
    return statistics.median(p.container_s / p.plain_s for p in pairs)


def with_interval(statistic: Callable[[Sequence[Pair]], float], pairs: Sequence[Pair]) -> str:
    """Return a statistic of the pairs and the ends of its interval, for the table."""
    rng = random.Random(1)
    drawn = sorted(statistic(rng.choices(pairs, k=len(pairs))) for _ in range(_RESAMPLES))
    low, high = drawn[int(0.025 * _RESAMPLES)], drawn[int(0.975 * _RESAMPLES)]
    return f"{statistic(pairs):.2f} ({low:.2f} to {high:.2f})"


def rows(comparison: Comparison) -> list[list[str]]:
    """Return a line for each tier and one for all."""
    tiers = sorted({p.tier for p in comparison.pairs})
    groups = {tier: [p for p in comparison.pairs if p.tier == tier] for tier in tiers} | {"all": comparison.pairs}
    lines = []
    for tier, pairs in groups.items():
        if not pairs:
            continue
        is_met = max(ratio_of_sums(pairs), typical_ratio(pairs)) <= TARGET_RATIO
        met = ("met" if is_met else "MISSED") if tier == "all" else ""
        plain = statistics.median(p.plain_s for p in pairs)
        contained = statistics.median(p.container_s for p in pairs)
        ratios = [with_interval(statistic, pairs) for statistic in (ratio_of_sums, typical_ratio)]
        medians = [f"{1000 * plain:.0f}", f"{1000 * contained:.0f}"]
        lines.append([comparison.project, tier, str(len(pairs)), *medians, *ratios, met])
    return lines


def notes(comparison: Comparison) -> list[str]:
    """Return what the table does not show."""
    lines = [f"{count} candidates: {difference}" for difference, count in comparison.apart.items()]
    for side in comparison.sides:
        starts = ", ".join(f"{seconds:.1f}" for seconds in side.starts_s)
        lines.append(f"{side.name}: opened in {side.opened_s:.1f} s; the first candidate of each tier: {starts} s")
        warm = side.campaign.runner.fork_server
        reasons = warm.unfit if warm is not None else {}
        lines += [f"{side.name}: {count} runs not warm: {reason}" for reason, count in reasons.items()]
    return [f"- {comparison.project}: {line}" for line in lines]


HEAD = ["project", "tier", "candidates", "bubblewrap, median ms", "container, median ms"]
HEAD += ["ratio of sums (95 %)", "typical ratio (95 %)", f"both at most {TARGET_RATIO}"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("projects", nargs="*", default=["toolz"])
    parser.add_argument("--candidates", type=int, default=60)
    parser.add_argument("--container", default="docker", help="docker, docker:IMAGE, apptainer, gvisor")
    parser.add_argument("--folder", type=Path, default=Path("/tmp/ssr-benchmarks"), help="folder for downloads")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    if unknown := set(arguments.projects) - set(PROJECTS):
        parser.error(f"unknown project: {', '.join(unknown)}; choose from {', '.join(PROJECTS)}")
    table, further = [], []
    for name in arguments.projects:
        comparison = measure(name, arguments.folder, arguments.candidates, arguments.container)
        table += rows(comparison)
        further += notes(comparison)
        text = [
            "# Screening in a container beside bubblewrap",
            "",
            f"{datetime.now(UTC):%Y-%m-%d}, Python {platform.python_version()}, `--candidates {arguments.candidates} "
            f"--container {arguments.container}`. Made by `benchmarks/warm_containers.py`.",
            "",
            *(f"| {' | '.join(cells)} |" for cells in (HEAD, ["---"] * len(HEAD), *table)),
            "",
            *further,
            "",
            f"- {arguments.container}: {load_provider(arguments.container).probe().detail}",
            "",
        ]
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        arguments.out.write_text("\n".join(text))
        print("\n".join(text), flush=True)


if __name__ == "__main__":
    main()
