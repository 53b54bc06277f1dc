"""Measure the time to the first bug and to five bugs on different projects, in seconds and in runs of the suite.

Run: `python benchmarks/project_kinds.py --out benchmarks/results/NAME.jsonl [--projects flask,pluggy]`.
For each project the suite is run twice with a plain pytest; then `ssr inject --count 5` runs in a fresh store, once
for each number of jobs. Everything is measured from outside: a bug counts from the time when the record of its attempt
is written to the store. For peak memory, see `memory_watch.py`. Results already in the file are not measured again; the
table beside it (`NAME.md`) is rewritten after each project.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from memory_watch import MemoryWatch
from projects import PROJECTS, fetch, run_suite

ROOT = Path(__file__).parent.parent
TARGET_RUNS = 3.0
"""Runs of the suite within which the first bug must be found (median over the projects), plus TARGET_GRACE_S."""
TARGET_RUNS_WORST = 5.0
TARGET_GRACE_S = 10.0
TARGET_WARM = 0.9
_TERMINATE_S = 20.0
_MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Measured:
    """One project with one number of jobs."""

    project: str
    jobs: str
    """The value of `--jobs`, or `default` if there was none."""
    suite_s: float = 0.0
    """The median of the plain runs."""
    tests: int = 0
    first_s: float | None = None
    """Seconds to the first valid bug; None if there was none."""
    all_s: float | None = None
    """Seconds to the last of the wanted bugs."""
    wall_s: float = 0.0
    """Seconds until `ssr inject` ended."""
    statuses: dict[str, int] = field(default_factory=dict)
    tiers: dict[str, int] = field(default_factory=dict)
    fallbacks: dict[str, int] = field(default_factory=dict)
    checks: dict[str, int] = field(default_factory=dict)
    """How many candidates each step rejected."""
    disagreements: int = 0
    """Changes that were screened again because a warm process was wrong."""
    peak_mib: float = 0.0
    error: str = ""
    """Why the result is missing or incomplete."""

    @property
    def first_runs(self) -> float | None:
        """Runs of the suite to the first bug, without the seconds that the target allows in addition."""
        if self.first_s is None or not self.suite_s:
            return None
        return max(0.0, self.first_s - TARGET_GRACE_S) / self.suite_s

    @property
    def warm_share(self) -> float | None:
        """The share of changes that needed no fresh process to be screened."""
        total = sum(self.tiers.values())
        return 1 - self.tiers.get("fresh", 0) / total if total else None


@dataclass(frozen=True, slots=True)
class Injection:
    """One `ssr inject`, measured from outside."""

    begun: float
    """Start time in seconds since the epoch."""
    wall_s: float
    peak_bytes: int
    failure: str


def measure(name: str, jobs: str, folder: Path, *, count: int, limit_s: float) -> Measured:
    """Measure one project with one number of jobs; a failure is part of the result."""
    try:
        source, python = fetch(name, folder / name)
        plain = [run_suite(name, source, python) for _ in range(2)]
    except (SystemExit, OSError, subprocess.SubprocessError) as failure:
        return Measured(name, jobs, error=f"the project is not ready: {failure}")
    store = folder / name / f"kinds-store-{jobs}"
    shutil.rmtree(store, ignore_errors=True)
    command = inject_command(name, source, python, store, count=count, jobs=jobs)
    injection = watched(command, folder / name / f"kinds-{jobs}.log", limit_s)
    written, attempts = attempts_of(store)
    bugs = sorted(at - injection.begun for at, a in zip(written, attempts, strict=True) if a["status"] == "valid")
    return Measured(
        name,
        jobs,
        suite_s=round(statistics.median(run.seconds for run in plain), 2),
        tests=plain[0].tests,
        first_s=round(bugs[0], 1) if bugs else None,
        all_s=round(bugs[count - 1], 1) if len(bugs) >= count else None,
        wall_s=round(injection.wall_s, 1),
        statuses=dict(Counter(a["status"] for a in attempts)),
        tiers=dict(Counter(a.get("tier", "") for a in attempts)),
        fallbacks=dict(Counter(a["fallback"]["code"] for a in attempts if a.get("fallback"))),
        checks=dict(Counter(a["check"] for a in attempts if a["status"] == "rejected")),
        disagreements=sum(bool(a.get("disagreement")) for a in attempts),
        peak_mib=round(injection.peak_bytes / _MIB, 1),
        error=injection.failure,
    )


def watched(command: Sequence[str], log: Path, limit_s: float) -> Injection:
    """Run `ssr inject` with a time limit and watch its memory."""
    begun, failure = time.time(), ""
    with log.open("wb") as output:
        process = subprocess.Popen(command, cwd=ROOT, stdout=output, stderr=output, start_new_session=True)
        watch = MemoryWatch(process.pid)
        try:
            status = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            failure = f"not done after {limit_s:.0f} s"
        else:
            # 1: fewer bugs than wanted.
            failure = "" if status in (0, 1) else f"exit status {status}: {last_line(log)}"
        finally:
            end_group(process)
            watch.stop()
    return Injection(begun, time.time() - begun, watch.peak_bytes, failure)


def inject_command(name: str, source: Path, python: Path, store: Path, *, count: int, jobs: str) -> list[str]:
    """Return the command that injects into a project; `jobs` is a number or `default`."""
    command = [sys.executable, "-m", "harness.cli", "inject", str(source), "--store", str(store)]
    command += ["--python", str(python), "--count", str(count)]
    command += [] if jobs == "default" else ["--jobs", jobs]
    for path in PROJECTS[name].tests:
        command += ["--tests", path]
    for path in PROJECTS[name].sources:
        command += ["--source", path]
    return command


def end_group(process: subprocess.Popen[bytes]) -> None:
    """End a process and its group: terminate the process, and after a while kill the group."""
    if process.poll() is None:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_TERMINATE_S)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def attempts_of(store: Path) -> tuple[list[float], list[dict[str, Any]]]:
    """Return the time at which each attempt's record was written, and the records."""
    paths = sorted(store.glob("attempts/*/*.json"))
    return [path.stat().st_mtime for path in paths], [json.loads(path.read_text()) for path in paths]


def last_line(log: Path) -> str:
    lines = log.read_text(errors="replace").strip().splitlines()
    return lines[-1][:300] if lines else "no output"


def read_results(out: Path) -> list[Measured]:
    """Read the results so far."""
    if not out.exists():
        return []
    return [Measured(**json.loads(line)) for line in out.read_text().splitlines() if line.strip()]


HEAD = (
    "project",
    "kind",
    "jobs",
    "tests",
    "suite s",
    "first bug s (runs)",
    "five bugs s (runs)",
    "warm",
    "valid, survived, rejected, timed out, other",
    "peak MiB",
    "targets",
)


def table_row(row: Measured) -> list[str]:
    """Return one row of the table."""
    statuses = ("valid", "survived", "rejected", "timed-out")
    counts = [row.statuses.get(status, 0) for status in statuses]
    others = sum(row.statuses.values()) - sum(counts)
    warm = row.warm_share
    return [
        row.project + ("" if PROJECTS[row.project].used_before else " (new)"),
        PROJECTS[row.project].kind,
        row.jobs,
        str(row.tests),
        f"{row.suite_s:.1f}",
        in_runs(row.first_s, row.suite_s),
        in_runs(row.all_s, row.suite_s),
        "-" if warm is None else f"{warm:.0%}",
        ", ".join(map(str, [*counts, others])),
        f"{row.peak_mib:.0f}",
        targets(row),
    ]


def in_runs(seconds: float | None, suite_s: float) -> str:
    if seconds is None or not suite_s:
        return "-"
    return f"{seconds:.0f} ({seconds / suite_s:.1f})"


def targets(row: Measured) -> str:
    """Return which targets a row meets."""
    runs, warm = row.first_runs, row.warm_share
    if runs is None:
        return "no bug"
    parts = [f"{runs:.1f} runs after {TARGET_GRACE_S:.0f} s: " + grade(runs)]
    if warm is not None:
        parts.append("warm: " + ("yes" if warm >= TARGET_WARM else "**no**"))
    return "; ".join(parts)


def grade(runs: float) -> str:
    if runs <= TARGET_RUNS:
        return "yes"
    return "only as the worst" if runs <= TARGET_RUNS_WORST else "**no**"


def verdict_lines(rows: Sequence[Measured]) -> list[str]:
    """Return, for each number of jobs, whether the projects together meet the targets."""
    lines = []
    for jobs in dict.fromkeys(row.jobs for row in rows):
        own = [row for row in rows if row.jobs == jobs]
        # A project without a bug is worse than any other.
        runs = [float("inf") if row.first_runs is None else row.first_runs for row in own]
        warm = sum((row.warm_share or 0.0) >= TARGET_WARM for row in own)
        new = sum(not PROJECTS[row.project].used_before for row in own)
        lines.append(
            f"- jobs {jobs}: {len(own)} projects ({new} new); first bug, runs after {TARGET_GRACE_S:.0f} s: median "
            f"{statistics.median(runs):.1f} (target {TARGET_RUNS:.0f}), worst {max(runs):.1f} (target "
            f"{TARGET_RUNS_WORST:.0f}); at least {TARGET_WARM:.0%} of the changes warm on {warm} of {len(own)} "
            f"(target 12 of 14)"
        )
    return lines


def write_table(out: Path, rows: Sequence[Measured], arguments: argparse.Namespace) -> None:
    """Write the Markdown table beside the records."""
    fallbacks = [
        f"- {row.project}, jobs {row.jobs}: " + "; ".join(f"{n} {reason}" for reason, n in row.fallbacks.items())
        for row in rows
        if row.fallbacks
    ]
    errors = [f"- {row.project}, jobs {row.jobs}: {row.error}" for row in rows if row.error]
    wrong = [f"- {row.project}, jobs {row.jobs}: {row.disagreements}" for row in rows if row.disagreements]
    cells = [HEAD, ["---"] * len(HEAD), *map(table_row, rows)]
    text = [
        "# First bug and five bugs on projects of different kinds",
        "",
        f"{datetime.now(UTC):%Y-%m-%d}, Python {sys.version.split()[0]}, {os.cpu_count()} cores, "
        f"`benchmarks/project_kinds.py --count {arguments.count} --limit {arguments.limit:.0f}`. Each project in a "
        "fresh store; seconds since the start of `ssr inject`.",
        "",
        *verdict_lines(rows),
        "",
        *(f"| {' | '.join(row)} |" for row in cells),
        "",
        *(["Screened in fresh processes, by reason:", "", *fallbacks, ""] if fallbacks else []),
        *(["Screened again because a warm process was wrong:", "", *wrong, ""] if wrong else []),
        *(["Without a whole result:", "", *errors, ""] if errors else []),
    ]
    out.with_suffix(".md").write_text("\n".join(text))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--projects", default=",".join(PROJECTS), help="comma-separated (default: all)")
    parser.add_argument("--jobs", default="1,default", help="comma-separated numbers, or `default`")
    parser.add_argument("--count", type=int, default=5)
    parser.add_argument("--limit", type=float, default=1200.0, help="seconds for one `ssr inject` (default 1200)")
    parser.add_argument("--folder", type=Path, default=Path("/tmp/ssr-benchmarks"), help="folder for downloads")
    parser.add_argument("--out", type=Path, required=True, help="a .jsonl file; its results are not measured again")
    arguments = parser.parse_args()
    names = arguments.projects.split(",")
    unknown = set(names) - set(PROJECTS)
    if unknown:
        parser.error(f"unknown project: {', '.join(sorted(unknown))}; choose from {', '.join(PROJECTS)}")
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    rows = read_results(arguments.out)
    done = {(row.project, row.jobs) for row in rows}
    for name in names:
        for jobs in arguments.jobs.split(","):
            if (name, jobs) in done:
                continue
            row = measure(name, jobs, arguments.folder, count=arguments.count, limit_s=arguments.limit)
            rows.append(row)
            with arguments.out.open("a") as out:
                out.write(json.dumps(asdict(row)) + "\n")
            write_table(arguments.out, rows, arguments)
            print(" | ".join(table_row(row)), row.error, flush=True)
    write_table(arguments.out, rows, arguments)


if __name__ == "__main__":
    main()
