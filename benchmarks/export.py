"""Measure the speed and peak memory of `ssr export` on synthetic rollouts, one format after another.

Run: `python benchmarks/export.py --out benchmarks/results/NAME.md [--counts 10000 100000] [--formats sft ...]`.
Rollouts are written once to a file of canonical records (`ssr.rollout/1`): eight attempts per task, fifty projects,
three calls each with token ids; a folder for each of them would measure the file system instead. Each export runs in a
separate process, measured by its wall time from start to end (which includes reading all records twice, once for the
index and once for the rows) and its peak resident memory, as the kernel reports it. `--jobs 1 2` measures each number
of processes; `--baseline DIR` measures another checkout, right before this one, and gives the ratio of the wall times.
`--folders N` adds an export from a store of N rollouts as `ssr play` leaves them, a folder each.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))

from rollout_parts import add_task, keep, played, record, store

ATTEMPTS, PROJECTS, CALLS = 8, 50, 3
FORMATS = ("rollouts", "sft", "sft-tokens", "bc", "dpo", "kto", "grpo", "slime-samples")


def commands(rng: random.Random) -> list[str]:
    return [f"cat {rng.choice('abcd')}.py", *(f"sed -n {rng.randrange(9)}p x.py" for _ in range(CALLS - 1))]


def records(count: int) -> Iterator[dict[str, Any]]:
    rng = random.Random(0)
    for n in range(count):
        task = n // ATTEMPTS
        rollout = played(
            f"{n:024x}",
            commands(rng),
            task=f"{task:020x}",
            attempt=n % ATTEMPTS,
            said=rng.choice(("Let us see.", "Hm.")),
        )
        resolved = rng.random() < 0.5
        task_source = {"repository": f"project-{task % PROJECTS}", "tree_hash": f"{task % PROJECTS:040x}"}
        yield dict(record(rollout, 1.0 if resolved else -1.0, task=task_source, verdict={"resolved": resolved}).data)


def write(path: Path, count: int) -> float:
    with path.open("w", encoding="utf-8") as file:
        for data in records(count):
            file.write(json.dumps(data, ensure_ascii=False) + "\n")
    return path.stat().st_size / 2**20


def write_folders(folder: Path, count: int) -> None:
    rng = random.Random(0)
    store(folder)
    for n in range(count):
        task = f"{n // ATTEMPTS:020x}"
        if not n % ATTEMPTS:
            add_task(folder, task, f"project-{n // ATTEMPTS % PROJECTS}", f"{n // ATTEMPTS % PROJECTS:040x}")
        keep(folder, f"{n:024x}", rng.random() < 0.5, commands=commands(rng), task=task, attempt=n % ATTEMPTS)


@dataclass(frozen=True)
class Measured:
    rows: int
    seconds: float
    cpu_seconds: float
    peak_mib: float
    """Of its largest process."""
    written_mib: float


def measured(source: Path, name: str, out: Path, *options: str, checkout: Path | None = None) -> Measured:
    arguments = ["export", str(source), "--format", name, "--out", str(out), "--json", *options]
    environment = {**os.environ, **({"PYTHONPATH": str(checkout)} if checkout is not None else {})}
    begin = time.perf_counter()
    with tempfile.TemporaryFile() as output:
        command = [sys.executable, "-m", "harness.cli", *arguments]
        process = subprocess.Popen(command, stdout=output, env=environment, cwd=out.parent)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        seconds = time.perf_counter() - begin
        if process.returncode:
            raise SystemExit(f"{name} ended with status {process.returncode}")
        output.seek(0)
        rows = json.loads(output.read())["rows"]
    size = out.stat().st_size / 2**20
    out.unlink()
    out.with_name(f"{out.name}.md").unlink()
    return Measured(rows, seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024, size)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--counts", type=int, nargs="*", default=[10_000, 100_000])
    parser.add_argument("--formats", nargs="*", default=FORMATS)
    parser.add_argument("--folders", type=int, default=0)
    parser.add_argument("--jobs", type=int, nargs="*", default=[1, 2])
    parser.add_argument("--baseline", type=Path)
    arguments = parser.parse_args()
    lines = [
        "# Training data: speed and memory of `ssr export`",
        "",
        f"{datetime.now(UTC):%Y-%m-%d}, `python benchmarks/export.py`; {os.cpu_count()} cores, {platform.machine()}, "
        f"Python {platform.python_version()}.",
        "",
        f"Synthetic rollouts of {CALLS} calls with token ids, {ATTEMPTS} attempts at each task, {PROJECTS} projects.",
        "Each line is a process of its own: wall time from start to end, both readings of the source in it.",
        "",
        "| source | rollouts | MiB | format | processes | rows | seconds | CPU seconds | rollouts/s | rows/s "
        "| peak MiB | MiB written | times as fast |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    print("\n".join(lines), flush=True)
    with tempfile.TemporaryDirectory() as folder:
        sources: list[tuple[str, int]] = [("records", count) for count in arguments.counts]
        if arguments.folders:
            sources.append(("folders", arguments.folders))
        for kind, count in sources:
            source = Path(folder, f"{kind}-{count}" + (".jsonl" if kind == "records" else ""))
            size = write(source, count) if kind == "records" else 0.0
            if kind == "folders":
                write_folders(source, count)
            for name in arguments.formats:
                before = None
                for jobs in (None, *arguments.jobs) if arguments.baseline else arguments.jobs:
                    options, checkout = ((), arguments.baseline) if jobs is None else (("--jobs", str(jobs)), None)
                    done = measured(source, name, Path(folder, "out.jsonl"), *options, checkout=checkout)
                    before = before or (done if jobs is None else None)
                    ratio = f"{before.seconds / done.seconds:.2f}" if before and jobs is not None else ""
                    lines.append(
                        f"| {kind} | {count} | {size:.0f} | {name} | {jobs or 'baseline'} | {done.rows} "
                        f"| {done.seconds:.1f} | {done.cpu_seconds:.1f} | {count / done.seconds:.0f} "
                        f"| {done.rows / done.seconds:.0f} | {done.peak_mib:.0f} | {done.written_mib:.0f} | {ratio} |"
                    )
                    print(lines[-1], flush=True)
            if kind == "records":
                source.unlink()
    if arguments.out:
        arguments.out.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
