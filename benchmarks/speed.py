"""Measure validated bugs per core-hour: three ways on the same candidates, side by side in one run, one job.

Run: `python benchmarks/speed.py --out benchmarks/results/NAME.md [--candidates 30] [project ...]`.
- *naive*: the one-run rule (some test breaks, some test still passes) by a fresh process and the whole suite for each
  candidate, without a sandbox and with compiled files kept: as SWE-smith does it, without its container. Its time
  limit is that of the screening (5 s plus 5 times the baseline), and a candidate that exceeds it is not a bug.
- *one run*: the one-run rule by this package's screening: the tests a change can affect, until one of them fails, in a
  fork of a warm process in a sandbox.
- *full*: this package's full rule: screening, seven checks, controls, repeats, the artifact's own script and parser in
  fresh sandboxes.
The three take turns on each candidate, so that a busy machine is as busy for each. Ratios are of bugs per second; the
interval holds 95 % of 1,000 resamplings of the candidates. The baseline is paid once for a tree and shown separately.
"""

from __future__ import annotations

import argparse
import os
import platform
import random
import shutil
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from projects import fetch

from pytest_ssr.campaign.artifact_builder import candidate_state
from pytest_ssr.campaign.campaign import Campaign
from pytest_ssr.campaign.factory import open_campaign
from pytest_ssr.campaign.trial import Trial
from pytest_ssr.execution.runner import FACTOR, FLOOR_S
from pytest_ssr.execution.suite import guest_source, read_channel
from pytest_ssr.project.state import CodebaseState
from pytest_ssr.records.candidate_result import CandidateStatus
from pytest_ssr.sandbox.protocol import ExecResult
from pytest_ssr.settings import RuleSettings
from pytest_ssr.storage.store import Store


@dataclass
class Measured:
    """One candidate: its seconds, and whether it is a bug, in each way."""

    seconds: dict[str, float]
    valid: dict[str, bool]
    runs: int


class Naive:
    """A copy of the tree in which every candidate is written, run, and reverted."""

    def __init__(self, campaign: Campaign, python: Path, folder: Path) -> None:
        self.campaign, self.python, self.tree = campaign, python, folder / "tree"
        shutil.copytree(campaign.snapshot.directory, self.tree, symlinks=True)
        for name in ("system_calls", "channel", "reporter"):
            (folder / f"ssr_{name}.py").write_bytes(guest_source(name))
        self.folder = folder
        self.written = int(time.time())
        self.passing = self.run(campaign.runner.original)

    def run(self, state: CodebaseState) -> frozenset[str]:
        for path, entry in state.changes.items():
            self.put(path, entry.data if entry is not None else None)
        channel = self.folder / "channel"
        channel.write_bytes(b"")
        env = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST", "PYTHON"))}
        env |= {"SSR_CHANNEL": str(channel), "PYTHONPATH": f"{self.tree}/src:{self.tree}:{self.folder}"}
        limit = FLOOR_S + FACTOR * self.campaign.baseline.seconds
        options = ["-m", "pytest", "-q", "--tb=no", "--continue-on-collection-errors", "-p", "ssr_reporter"]
        try:
            done = subprocess.run(
                [str(self.python), *options], cwd=self.tree, env=env, capture_output=True, timeout=limit, check=False
            )
            code = done.returncode
        except subprocess.TimeoutExpired:
            return frozenset()
        finally:
            for path in state.changes:
                original = state.snapshot.entry(path) if path in state.snapshot.files else None
                self.put(path, original.data if original is not None else None)
        return read_channel(channel.read_bytes(), ExecResult(code, b"", b"", 0.0)).passing

    def put(self, path: str, data: bytes | None) -> None:
        """Write a file with a unique time: Python finds compiled files by the size and second of their source."""
        target = self.tree / path
        if data is None:
            target.unlink(missing_ok=True)
            return
        target.write_bytes(data)
        self.written += 1
        os.utime(target, (self.written, self.written))


def measure(name: str, folder: Path, count: int) -> tuple[list[Measured], float]:
    project, python = fetch(name, folder / name)
    work = folder / f"{name}-speed"
    shutil.rmtree(work, ignore_errors=True)
    begin = time.perf_counter()
    campaign = open_campaign(project, Store(work / "store"), settings=RuleSettings(), python=python, seed=7)
    opened_s = time.perf_counter() - begin
    naive = Naive(campaign, python, work)
    results = []
    try:
        for index in range(count):
            candidate = campaign.candidate(index)
            if candidate is None:
                break
            results.append(one(campaign, naive, index))
    finally:
        campaign.close()
    return results, opened_s


def one(campaign: Campaign, naive: Naive, index: int) -> Measured:
    candidate = campaign.candidate(index)
    assert candidate is not None
    state, stable = candidate_state(campaign.snapshot, candidate), campaign.baseline.stable
    seconds, valid = {}, {}
    begin = time.perf_counter()
    passing = naive.run(state)
    valid["naive"] = bool(naive.passing - passing) and bool(naive.passing & passing)
    seconds["naive"] = time.perf_counter() - begin
    begin = time.perf_counter()
    screened = campaign.screening.run(state, runner=campaign.runner.scoped(), stop_after=1)
    # Tests that the change cannot affect pass; if it affects all, one must have been seen to pass.
    passes = screened.selected < len(stable) or bool(screened.run.passing)
    valid["one run"] = bool(screened.failing) and passes and not screened.run.fault
    seconds["one run"] = time.perf_counter() - begin
    begin = time.perf_counter()
    attempt = Trial(campaign, index, candidate).finish()
    assert attempt is not None
    valid["full"] = attempt.status is CandidateStatus.VALID
    seconds["full"] = time.perf_counter() - begin
    return Measured(seconds, valid, attempt.runs)


def rate(results: Sequence[Measured], way: str) -> float:
    return 3600 * sum(m.valid[way] for m in results) / sum(m.seconds[way] for m in results)


def ratio(results: Sequence[Measured], way: str) -> tuple[float, float, float]:
    rng = random.Random(0)
    ratios = []
    for _ in range(1000):
        sample = rng.choices(results, k=len(results))
        base = rate(sample, "naive")
        ratios.append(rate(sample, way) / base if base else float("inf"))
    ratios.sort()
    return rate(results, way) / max(1e-9, rate(results, "naive")), ratios[25], ratios[974]


HEAD = [
    "project",
    "candidates",
    "naive: valid, per core-hour",
    "one run: valid, per core-hour",
    "full rule: valid, per core-hour",
    "one run against naive (95 %)",
    "full rule against naive (95 %)",
    "runs for a valid bug",
    "baseline s",
]


def row(name: str, results: list[Measured], opened_s: float) -> list[str]:
    def cell(way: str) -> str:
        return f"{sum(m.valid[way] for m in results)}, {rate(results, way):.0f}"

    def against(way: str) -> str:
        middle, low, high = ratio(results, way)
        return f"**{middle:.1f}** ({low:.1f} to {high:.1f})"

    valid = sum(m.valid["full"] for m in results)
    return [
        name,
        str(len(results)),
        cell("naive"),
        cell("one run"),
        cell("full"),
        against("one run"),
        against("full"),
        f"{sum(m.runs for m in results) / max(1, valid):.1f}",
        f"{opened_s:.0f}",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("projects", nargs="*", default=["toolz", "itsdangerous", "sqlparse", "boltons", "click"])
    parser.add_argument("--candidates", type=int, default=30)
    parser.add_argument("--folder", type=Path, default=Path("/tmp/ssr-benchmarks"), help="folder for downloads")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    rows = []
    for name in arguments.projects:
        rows.append(row(name, *measure(name, arguments.folder, arguments.candidates)))
        print(" | ".join(rows[-1]), flush=True)
        text = [
            "# Validated bugs per core-hour, three ways on the same candidates",
            "",
            f"{datetime.now(UTC):%Y-%m-%d}, Python {platform.python_version()}, "
            f"`benchmarks/speed.py --candidates {arguments.candidates}`, one job. Its docstring defines the ways.",
            "",
            *(f"| {' | '.join(cells)} |" for cells in (HEAD, ["---"] * len(HEAD), *rows)),
            "",
        ]
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        arguments.out.write_text("\n".join(text))


if __name__ == "__main__":
    main()
