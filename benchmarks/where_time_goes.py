"""Plot where the time goes for one validated artifact, and how far that is from the limit.

Run: `python benchmarks/where_time_goes.py --out benchmarks/results/NAME.svg [--candidates 40] [project ...]`; it needs
the extra `plots`. Candidates are tried as in a campaign, one job; only those that became artifacts are counted.
- *tests*: the tests themselves, by their durations in that run (from pytest's report), or for scripts in the baseline.
- *import and collection*: the rest of pytest's session: the project and its tests are imported, assertions rewritten.
- *start*: of Python, pytest and its plugins, in fresh processes (scripts and parsers); of a fork, in others.
- *sandbox*: creating, entering and leaving it, measured as the time of `true` in one.
- *our own code*: the rest: weakening, diffs, selection, JSON.
The limit is the time of the tests that the bug can affect, once on each state on which the rule requires a run.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import statistics
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib as mpl
from projects import PROJECTS, fetch

from pytest_ssr.campaign.campaign import Campaign
from pytest_ssr.campaign.factory import open_campaign
from pytest_ssr.campaign.trial import Trial
from pytest_ssr.execution import runner
from pytest_ssr.records.candidate_result import CandidateStatus
from pytest_ssr.sandbox.protocol import Limits
from pytest_ssr.settings import RuleSettings
from pytest_ssr.storage.store import Store

mpl.use("Agg")
from matplotlib import pyplot as plt

SHARES = ("tests", "import and collection", "start", "sandbox", "our own code")
COLOURS = ("#2a9d5c", "#3b7dd8", "#9db8dd", "#c9a227", "#8a4f9e")
_SESSION = re.compile(rb"in (\d+\.\d+)s")


class Clock:
    """Splits the time of each run, by wrapping the functions that run them."""

    def __init__(self, campaign: Campaign) -> None:
        self.shares: Counter[str] = Counter()
        self.campaign = campaign
        self.sandbox_s = statistics.median(self._sandbox_trial() for _ in range(9))
        warm = campaign.runner.fork_server
        assert warm is not None
        self._watch(runner, "run_script", self._script)
        self._watch(runner, "run_parser", self._parser)
        self._watch(warm, "run", self._fork)

    def _sandbox_trial(self) -> float:
        runner = self.campaign.runner
        begin = time.perf_counter()
        with runner.original.open(runner.provider, readable=runner.interpreter.readable) as sandbox:
            sandbox.exec(["true"], limits=Limits())
        return time.perf_counter() - begin

    def _watch(self, holder: Any, name: str, split: Callable[[float, Any], None]) -> None:
        inner = getattr(holder, name)

        def watched(*arguments: Any, **named: Any) -> Any:
            begin = time.perf_counter()
            result = inner(*arguments, **named)
            split(time.perf_counter() - begin, result)
            return result

        setattr(holder, name, watched)

    def _add(self, total: float, session: float, tests: float, sandbox: float) -> None:
        session = min(session, total)
        tests = min(tests, session)
        sandbox = min(sandbox, total - session)
        self.shares["tests"] += tests
        self.shares["import and collection"] += session - tests
        self.shares["sandbox"] += sandbox
        self.shares["start"] += total - session - sandbox

    def _script(self, total: float, done: Any) -> None:
        sessions = _SESSION.findall(done.output[-500:])
        session = float(sessions[-1]) if sessions else 0.0
        durations = self.campaign.baseline.durations
        text = done.output.decode(errors="replace")
        tests = sum(durations.get(name, 0.0) for name in re.findall(r'#ssr-result \{"id": "([^"\\]+)"', text))
        self._add(total, session, tests, self.sandbox_s)

    def _parser(self, total: float, done: Any) -> None:
        self._add(total, 0.0, 0.0, self.sandbox_s)

    def _fork(self, total: float, run: Any) -> None:
        tests = sum(result.duration_s for result in run.results.values())
        # A swapped session has been collected; a fork and its view take a few milliseconds.
        self._add(total, total, tests, 0.0)


def measure(name: str, folder: Path, count: int) -> tuple[dict[str, float], float, int]:
    """Return seconds for one artifact by share, the limit in seconds, and how many artifacts there were."""
    project, python = fetch(name, folder / name)
    work = folder / f"{name}-time"
    shutil.rmtree(work, ignore_errors=True)
    # As many jobs as cores, so that a candidate's runs follow each other and their times can be added.
    jobs = os.cpu_count() or 1
    campaign = open_campaign(project, Store(work / "store"), settings=RuleSettings(), python=python, seed=7, jobs=jobs)
    clock, total, limit, artifacts = Clock(campaign), Counter[str](), 0.0, 0
    try:
        for index in range(count):
            candidate = campaign.candidate(index)
            if candidate is None:
                break
            clock.shares.clear()
            begin = time.perf_counter()
            trial = Trial(campaign, index, candidate)
            attempt = trial.finish()
            assert attempt is not None
            seconds = time.perf_counter() - begin
            if attempt.status is CandidateStatus.VALID:
                artifacts += 1
                clock.shares["our own code"] = seconds - sum(clock.shares.values())
                total.update(clock.shares)
                once = sum(result.duration_s for result in trial.screened.run.results.values())
                # Buggy three times, weakened, original, original commented: each once.
                limit += 6 * once
    finally:
        campaign.close()
    return {share: total[share] / max(1, artifacts) for share in SHARES}, limit / max(1, artifacts), artifacts


def draw(results: dict[str, tuple[dict[str, float], float, int]], out: Path) -> None:
    figure, axes = plt.subplots(figsize=(9, 1.4 + 0.7 * len(results)), layout="constrained")
    names = [f"{name} ({artifacts})" for name, (_, _, artifacts) in results.items()]
    starts = [0.0] * len(results)
    for share, colour in zip(SHARES, COLOURS, strict=True):
        widths = [shares[share] for shares, _, _ in results.values()]
        axes.barh(names, widths, left=starts, color=colour, label=share, height=0.6)
        starts = [a + b for a, b in zip(starts, widths, strict=True)]
    for index, (end, (_, limit, _)) in enumerate(zip(starts, results.values(), strict=True)):
        axes.plot([limit, limit], [index - 0.38, index + 0.38], color="black", lw=2, label="limit" if not index else "")
        axes.text(end, index, f" {end:.1f} s, {end / max(limit, 1e-3):.0f} times the limit", va="center", fontsize=9)
    axes.set_xlim(0, max(starts) * 1.35)
    axes.invert_yaxis()
    axes.set_xlabel("seconds for one validated artifact (in brackets: how many were made)")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(loc="upper center", bbox_to_anchor=(0.45, -0.3), ncols=6, frameon=False, fontsize=9)
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out)
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("projects", nargs="*", default=["toolz", "itsdangerous", "sqlparse", "boltons", "click"])
    parser.add_argument("--candidates", type=int, default=40)
    parser.add_argument("--folder", type=Path, default=Path("/tmp/ssr-benchmarks"), help="folder for downloads")
    parser.add_argument("--out", type=Path, required=True, help="a file matplotlib can write: .svg, .png, .pdf")
    arguments = parser.parse_args()
    unknown = set(arguments.projects) - set(PROJECTS)
    if unknown:
        parser.error(f"unknown project: {', '.join(unknown)}; choose from {', '.join(PROJECTS)}")
    results = {}
    for name in arguments.projects:
        shares, limit, artifacts = measure(name, arguments.folder, arguments.candidates)
        results[name] = shares, limit, artifacts
        text = ", ".join(f"{share} {seconds:.2f} s" for share, seconds in shares.items())
        print(f"{name}: {artifacts} artifacts, each: {text}; limit {limit:.2f} s", flush=True)
        draw(results, arguments.out)


if __name__ == "__main__":
    main()
