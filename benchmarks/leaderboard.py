"""Measure the time and memory that a leaderboard of 1,000 and 10,000 results takes, and how both grow.

Run: `python benchmarks/leaderboard.py --out benchmarks/results/NAME.md [--results 1000 10000] [--rounds 3]`.
The results are synthetic: solvers of differing ability on tasks of differing difficulty, drawn from a seed, one in a
hundred without a grade; they measure the command, not any solver. Each measurement runs `ssr leaderboard` as a user
does, with every output format (page, CSV, Markdown, plots for papers, JSON), in a separate process; memory is its
maximum resident set size. There are two series: with more tasks, and with more attempts per task.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from harness.records.attempt import Attempt, Status
from pytest_ssr.records.reasons import Reason, ReasonCode

SOLVERS, REPOS = 20, 12

REASONS = {
    Status.RESOLVED: Reason(ReasonCode.RESOLVED),
    Status.UNRESOLVED: Reason(ReasonCode.TESTS_FAIL, "1 of 2 tests of FAIL_TO_PASS"),
    Status.INFRA: Reason(ReasonCode.SANDBOX_FAILED),
}


def write_run(folder: Path, tasks: int, attempts: int, *, seed: int = 0) -> Path:
    """Write a run of all solvers on `tasks` tasks, with `attempts` attempts each."""
    rng = random.Random(seed)
    difficulty = [rng.gauss(0, 1.5) for _ in range(tasks)]
    folder.mkdir(parents=True)
    with (folder / "results.jsonl").open("w") as file:
        for solver in range(SOLVERS):
            for task in range(tasks):
                solves = 1 / (1 + math.exp(difficulty[task] - solver * 0.2 + 2))
                for attempt in range(attempts):
                    status = Status.RESOLVED if rng.random() < solves else Status.UNRESOLVED
                    status = Status.INFRA if rng.random() < 0.01 else status
                    outcome = Attempt(
                        f"org{task % REPOS}__project-{task}",
                        f"synthetic-{solver:02d}",
                        REASONS[status],
                        attempt=attempt,
                        repo=f"org{task % REPOS}/project",
                        resolved=None if status is Status.INFRA else status is Status.RESOLVED,
                        tests=None if status is Status.INFRA else status is Status.RESOLVED,
                        patch_sha256="0" * 64,
                        fail_to_pass={f"tests/test_{n}.py::test_{n}": "passed" for n in range(2)},
                        pass_to_pass={f"tests/test_{n}.py::test_other_{n}": "passed" for n in range(10)},
                        id=f"{solver:04d}{task:08d}{attempt:04d}",
                        seconds=rng.expovariate(0.01),
                        steps=rng.randrange(5, 90),
                        tokens=rng.randrange(10_000, 500_000),
                        cost_usd=rng.expovariate(2),
                    )
                    file.write(json.dumps(outcome.to_json()) + "\n")
    return folder


def measured(run: Path, out: Path) -> tuple[float, float, float]:
    """Return wall seconds, CPU seconds and peak MiB of one leaderboard in all output formats."""
    command = [sys.executable, "-m", "harness.cli", "leaderboard", str(run), "--json", "--html", str(out / "b.html")]
    command += ["--csv", str(out / "b.csv"), "--markdown", str(out / "b.md"), "--plots", str(out / "plots")]
    begin = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {process.returncode}")
    return time.perf_counter() - begin, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def rows(counts: Sequence[int], rounds: int, *, more: str) -> list[list[str]]:
    table: list[list[str]] = []
    first: tuple[int, float] | None = None
    for count in counts:
        each = count // SOLVERS
        tasks, attempts = (each, 1) if more == "tasks" else (50, max(1, each // 50))
        with tempfile.TemporaryDirectory() as name:
            run = write_run(Path(name) / "run", tasks, attempts)
            samples = [measured(run, Path(name)) for _ in range(rounds)]
            page = (Path(name) / "b.html").stat().st_size
        wall, cpu = (statistics.median(t[n] for t in samples) for n in (0, 1))
        ratio = f"{(count / first[0]):.0f} / {cpu / first[1]:.1f}" if first else "-"
        first = first or (count, cpu)
        figures = [f"{wall:.1f}", f"{cpu:.1f}", f"{max(t[2] for t in samples):.0f}", f"{page / 1024:.0f}", ratio]
        table.append([str(SOLVERS * tasks * attempts), str(tasks), str(attempts), *figures])
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=int, nargs="*", default=[1000, 10_000])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    head = ["results", "tasks", "attempts", "wall s", "CPU s", "peak MiB", "page KiB", "results / CPU, times the first"]
    text = [
        "# What a leaderboard takes",
        "",
        f"{datetime.now(UTC):%Y-%m-%d}, Python {platform.python_version()}, `benchmarks/leaderboard.py`, "
        f"{SOLVERS} solvers, {REPOS} repositories, all forms written, median of {arguments.rounds}. "
        "The results are synthetic.",
        "",
    ]
    for more in ("tasks", "attempts"):
        text += [f"## More {more}", ""]
        text += [f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head))]
        for row in rows(arguments.results, arguments.rounds, more=more):
            text.append(f"| {' | '.join(row)} |")
            print(text[-1], flush=True)
        text.append("")
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        arguments.out.write_text("\n".join(text))


if __name__ == "__main__":
    main()
