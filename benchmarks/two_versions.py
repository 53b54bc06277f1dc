"""Measure validated bugs per core-hour of two versions of this package, on the same projects and environments.

Run: `git worktree add ../before REV`, then `python benchmarks/two_versions.py --before ../before --out NAME.md
[--count 10] [--rounds 2] [--jobs 2] [project ...]`.
The versions take turns: each makes `--count` valid artifacts of a project in a fresh store with `ssr inject`, baseline
included, both in the project's own environment. A core-hour is an hour of wall time of one job; with as many jobs as
there are cores, background work of a version counts against it.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from projects import PROJECTS, PUBLISHED, fetch

ROOT = Path(__file__).parent.parent


@dataclass(frozen=True, slots=True)
class InjectRun:
    """The artifacts and cost of one `ssr inject`."""

    valid: int
    attempts: int
    core_s: float
    """Wall time times jobs."""

    @property
    def per_core_hour(self) -> float:
        return self.valid / (self.core_s / 3600)


def inject(version: Path, project: Path, python: Path, count: int, jobs: int) -> InjectRun:
    """Run `ssr inject` of one checkout in a fresh store."""
    with tempfile.TemporaryDirectory(prefix="bench-") as store:
        command = [sys.executable, "-m", "harness.cli", "inject", str(project), "--json", "--store", store]
        command += ["--python", str(python), "--count", str(count), "--jobs", str(jobs)]
        start = time.monotonic()
        environment = {**os.environ, "PYTHONPATH": str(version)}
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=version, env=environment)
        core_s = (time.monotonic() - start) * jobs
    if done.returncode not in (0, 1):
        raise SystemExit(f"{project.name}, {version}: {done.stderr}")
    attempts = json.loads(done.stdout)["attempts"]
    return InjectRun(sum(a["status"] == "valid" for a in attempts), len(attempts), core_s)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("projects", nargs="*", default=list(PUBLISHED), metavar="project", help=", ".join(PROJECTS))
    parser.add_argument("--before", type=Path, required=True, help="a checkout of the other version")
    parser.add_argument("--count", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--folder", type=Path, default=Path("/tmp/ssr-benchmarks"), help="folder for downloads")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    versions = arguments.before.resolve(), ROOT
    rows: list[list[str]] = []
    for name in arguments.projects:
        project, python = fetch(name, arguments.folder / name)
        runs: dict[Path, list[InjectRun]] = {version: [] for version in versions}
        for number in range(arguments.rounds):
            for version in versions if number % 2 == 0 else reversed(versions):
                runs[version].append(inject(version, project, python, arguments.count, arguments.jobs))
        rows.append(row(name, *runs.values()))
        write(arguments, rows)
        print(" | ".join(rows[-1]), flush=True)


def row(name: str, before: list[InjectRun], now: list[InjectRun]) -> list[str]:
    rates = [statistics.median(run.per_core_hour for run in version) for version in (before, now)]
    cells = [
        f"{statistics.median(m.core_s for m in version):.0f} ({version[0].valid} of {version[0].attempts})"
        for version in (before, now)
    ]
    return [name, *cells, *(f"{rate:.0f}" for rate in rates), f"{rates[1] / rates[0]:.2f}"]


def write(arguments: argparse.Namespace, rows: list[list[str]]) -> None:
    revision = ["git", "-C", str(arguments.before), "rev-parse", "--short", "HEAD"]
    before = subprocess.run(revision, capture_output=True, text=True, check=True).stdout.strip()
    head = ("project", "core s before (valid of tried)", "now", "valid per core-hour before", "now", "ratio")
    table = [f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows)]
    text = [
        "# Validated bugs per core-hour, two versions side by side",
        "",
        f"{datetime.now(UTC):%Y-%m-%d}, Python {platform.python_version()}, {os.cpu_count()} cores, "
        f"`benchmarks/two_versions.py --count {arguments.count} --rounds {arguments.rounds} --jobs {arguments.jobs}`, "
        f"before: {before}. Medians of the rounds.",
        "",
        *table,
        "",
    ]
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text("\n".join(text))


if __name__ == "__main__":
    main()
