"""Measure how cost grows with the number of candidates, tests, files and workers, and the memory per worker.

Run: `python benchmarks/growth.py --out benchmarks/results/NAME.md [--files 50 500 5000] [--tests 100 1000 5000]`.
Trees are generated: packages of small modules, each with its tests. Each is measured by `ssr inject` as a user runs
it: the first start (which measures the baseline), a second one with nothing to do, and artifacts by one worker. Workers
are compared on a project from the package index whose baseline is already stored: `--jobs 1` and `--jobs 2`, and xdist
with `-n 1` and `-n 2`, in turn; the same table shows the speed-up of two simultaneous runs that share nothing: twice
the time of one, divided by that of both. Memory is the peak proportional set size of all processes of a run.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from projects import fetch, plain

MODULE = """\
def grow{n}(values, by={n}):
    total = 0
    for value in values:
        if value > by:
            total += value - by
        else:
            total -= 1
    return total


def shape{n}(text):
    if not text:
        return "empty"
    return text.strip().title() + "{n}"
"""
TESTS = """\
import pytest

from made.part{p} import m{n}


@pytest.mark.parametrize("size", range({count}))
def test_grow{n}(size):
    assert m{n}.grow{n}([{n} + size + 1, 0]) == (size + 1) + (-1 if {n} >= 0 else 0)


def test_shape{n}():
    assert m{n}.shape{n}(" ab ") == "Ab{n}"
"""


@dataclass
class Run:
    """One run of a command."""

    wall_s: float
    peak_mib: float
    output: str


def run_command(command: Sequence[str], folder: Path) -> Run:
    """Run a command and sample the memory of all its processes."""
    begin, peak = time.perf_counter(), 0.0
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(command, cwd=folder, stdout=output, stderr=subprocess.STDOUT)
        while process.poll() is None:
            peak = max(peak, _memory_mib(process.pid))
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(0.25)
        wall = time.perf_counter() - begin
        output.seek(0)
        text = output.read()
    if process.returncode not in (0, 1):
        raise SystemExit(f"{' '.join(command)} ended with {process.returncode}: {text[-2000:]}")
    return Run(wall, peak, text)


def _memory_mib(top: int) -> float:
    parents: dict[int, int] = {}
    for name in os.listdir("/proc"):
        try:
            stat = Path(f"/proc/{name}/stat").read_bytes() if name.isdigit() else b""
        except OSError:
            continue
        if stat:
            parents[int(name)] = int(stat[stat.rindex(b")") + 2 :].split()[1])
    total, descendants = 0.0, {top}
    for pid in sorted(parents):
        if pid in descendants or parents[pid] in descendants:
            descendants.add(pid)
            try:
                lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
            except OSError:
                continue
            total += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return total / 1024


def make_tree(folder: Path, files: int, tests: int) -> Path:
    """Create a project of `files` modules (a hundred per package), enough of them with tests to have `tests` in all."""
    shutil.rmtree(folder, ignore_errors=True)
    tested = max(1, min(files, 50, tests // 2))
    for number in range(files):
        part = folder / "made" / f"part{number // 100}"
        part.mkdir(parents=True, exist_ok=True)
        (part / "__init__.py").touch()
        (part / f"m{number}.py").write_text(MODULE.format(n=number))
    (folder / "made" / "__init__.py").touch()
    (folder / "tests").mkdir()
    for number in range(tested):
        text = TESTS.format(n=number, p=number // 100, count=max(1, tests // tested - 1))
        (folder / "tests" / f"test_m{number}.py").write_text(text)
    return folder


def inject(project: Path, python: Path, store: Path, *, count: int, jobs: int = 1, seed: int = 0) -> tuple[Run, Any]:
    command = [sys.executable, "-m", "harness.cli", "inject", ".", "--json", "--store", str(store)]
    command += ["--python", str(python), "--count", str(count), "--jobs", str(jobs), "--seed", str(seed)]
    run = run_command(command, project)
    return run, json.loads(run.output[run.output.index("{") :])


def tree_row(folder: Path, files: int, tests: int) -> list[str]:
    project, python, store = make_tree(folder / "tree", files, tests), plain(folder), folder / "store"
    shutil.rmtree(store, ignore_errors=True)
    first, _ = inject(project, python, store, count=1)
    second, _ = inject(project, python, store, count=1)
    more, result = inject(project, python, store, count=20, seed=1)
    return [
        str(files),
        str(result["baseline"]["stable"]),
        f"{first.wall_s:.1f}",
        f"{second.wall_s:.2f}",
        f"{(more.wall_s - second.wall_s) / max(1, sum(a['status'] == 'valid' for a in result['attempts'])):.2f}",
        f"{more.peak_mib:.0f}",
    ]


def candidate_rows(folder: Path, name: str, counts: Sequence[int]) -> list[list[str]]:
    project, python = fetch(name, folder / name)
    store = folder / f"{name}-growth"
    shutil.rmtree(store, ignore_errors=True)
    start, _ = inject(project, python, store, count=1)
    rows, before, done = [], start.wall_s, 1
    for count in counts:
        run, result = inject(project, python, store, count=count)
        before += run.wall_s
        tried = len(result["attempts"])
        rows.append([name, str(count), str(tried), f"{before:.1f}", f"{run.wall_s / max(1, tried - done):.2f}"])
        done = tried
    return rows


def reset_store(store: Path) -> None:
    """Reset a store to its baseline: remove everything that later runs have added."""
    for folder in (store / "attempts", *store.glob("baselines/alone-*"), *store.glob("baselines/scripts-*")):
        shutil.rmtree(folder, ignore_errors=True)


def worker_rows(folder: Path, name: str, count: int, rounds: int) -> list[list[str]]:
    project, python = fetch(name, folder / name)
    store = folder / f"{name}-workers"
    shutil.rmtree(store, ignore_errors=True)
    inject(project, python, store, count=1)
    stores = [folder / f"{name}-workers-{n}" for n in (1, 2)]
    for other in stores:
        shutil.rmtree(other, ignore_errors=True)
        shutil.copytree(store, other, symlinks=True)
    ways: dict[str, list[Run]] = {}
    apart: list[float] = []
    for seed in range(1, rounds + 1):
        for jobs in (1, 2):
            reset_store(store)
            ways.setdefault(f"--jobs {jobs}", []).append(
                inject(project, python, store, count=count, jobs=jobs, seed=seed)[0]
            )
            reset_store(store)
            command = [sys.executable, "-m", "pytest", "-q", "-n", str(jobs), "--ssr-inject", "--ssr-store", str(store)]
            command += [f"--ssr-python={python}", "--ssr-count", str(count), "--ssr-seed", str(seed)]
            ways.setdefault(f"-n {jobs}", []).append(run_command(command, project))
        for other in stores:
            reset_store(other)
        with ThreadPoolExecutor(2) as pool:
            both = [pool.submit(inject, project, python, other, count=count, seed=seed) for other in stores]
        apart.append(2 * ways["--jobs 1"][-1].wall_s / max(b.result()[0].wall_s for b in both))
    ideal = f"{statistics.median(apart):.2f} ({min(apart):.2f} to {max(apart):.2f})"
    rows = []
    for way in ("--jobs", "-n"):
        one, two = ways[f"{way} 1"], ways[f"{way} 2"]
        ratios = sorted(a.wall_s / b.wall_s for a, b in zip(one, two, strict=True))
        rows.append(
            [
                name,
                str(count),
                way,
                f"{statistics.median(a.wall_s for a in one):.1f}",
                f"{statistics.median(b.wall_s for b in two):.1f}",
                f"**{statistics.median(ratios):.2f}** ({ratios[0]:.2f} to {ratios[-1]:.2f})",
                ideal,
                f"{max(a.peak_mib for a in one):.0f}",
                f"{max(b.peak_mib for b in two) / 2:.0f}",
            ]
        )
    return rows


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return [f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows)] + [""]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, nargs="*", default=[50, 500, 5000])
    parser.add_argument("--tests", type=int, nargs="*", default=[100, 1000, 5000])
    parser.add_argument("--candidates", type=int, nargs="*", default=[10, 20, 40, 80])
    parser.add_argument("--project", default="toolz")
    parser.add_argument("--counts", type=int, nargs="*", default=[24, 72], help="artifacts per run of workers")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", type=Path, default=Path("/tmp/ssr-benchmarks"), help="folder for downloads")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    text = [
        "# How cost grows",
        "",
        f"{datetime.now(UTC):%Y-%m-%d}, Python {platform.python_version()}, `benchmarks/growth.py`.",
        "",
    ]

    def add_section(title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        for row in rows:
            print(title, "|", " | ".join(row), flush=True)
        text.extend([f"## {title}", "", *table(head, rows)])
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        arguments.out.write_text("\n".join(text))

    head = ["files", "tests", "first start s", "second start s", "s for an artifact", "peak MiB"]
    add_section("Files", head, [tree_row(arguments.folder, n, 200) for n in arguments.files])
    add_section("Tests", head, [tree_row(arguments.folder, 50, n) for n in arguments.tests])
    head = ["project", "artifacts wanted", "candidates tried", "s in all", "s for each more candidate"]
    add_section("Candidates", head, candidate_rows(arguments.folder, arguments.project, arguments.candidates))
    head = ["project", "artifacts", "by", "one worker s", "two s", "speed-up"]
    head += ["two runs that share nothing", "peak MiB, one", "for each of two"]
    rows = [worker_rows(arguments.folder, arguments.project, n, arguments.rounds) for n in arguments.counts]
    add_section("Workers", head, [row for group in rows for row in group])


if __name__ == "__main__":
    main()
