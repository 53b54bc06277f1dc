"""Measure a Ray cluster of several nodes on this machine: losses, overhead, start, and the memory of the driver.

Run: `python benchmarks/cluster.py kills|overhead|memory [--nodes 4] [--out FILE]`. `kills` plays on a small project
while a node is killed every 20 seconds, and compares the records with those of the same run without a cluster.
`overhead` runs units of two seconds on the cluster and here, in turns. `memory` sends many units.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
sys.path.insert(0, str(ROOT / "tests" / "support"))

from clusters import LocalCluster  # noqa: E402

from harness.executors.protocol import Cluster, Executor, completed  # noqa: E402
from pytest_ssr.storage.store import Store  # noqa: E402

_KILL_S = 20.0
_TIMES = ("seconds", "grading_s", "solver_s", "cpu_s", "runs", "forks")
"""What differs from run to run on one machine, too: times, and how many runs a cache has saved."""
_PROJECT = {
    "pyproject.toml": '[project]\nname = "shapes"\nversion = "1"\n',
    "shapes.py": (
        "def area(width, height):\n    if width < 0 or height < 0:\n        raise ValueError(width)\n"
        "    return width * height\n\n\ndef perimeter(width, height):\n    return 2 * (width + height)\n\n\n"
        "def scaled(width, height, factor):\n    if factor == 1:\n        return width, height\n"
        "    return width * factor, height * factor\n\n\ndef largest(shapes):\n    best = None\n"
        "    for shape in shapes:\n        if best is None or area(*shape) > area(*best):\n            best = shape\n"
        "    return best\n\n\ndef total(shapes):\n    result = 0\n    for shape in shapes:\n"
        "        result += area(*shape)\n    return result\n"
    ),
    "test_shapes.py": (
        "import pytest\nfrom shapes import area, largest, perimeter, scaled, total\n\n\n"
        "def test_area():\n    assert area(2, 3) == 6\n    assert area(0, 3) == 0\n\n\n"
        "def test_negative():\n    with pytest.raises(ValueError):\n        area(-1, 2)\n"
        "    with pytest.raises(ValueError):\n        area(1, -2)\n\n\n"
        "def test_perimeter():\n    assert perimeter(2, 3) == 10\n\n\n"
        "def test_scaled():\n    assert scaled(2, 3, 1) == (2, 3)\n    assert scaled(2, 3, 2) == (4, 6)\n\n\n"
        "def test_largest():\n    assert largest([(1, 1), (2, 2)]) == (2, 2)\n    assert largest([]) is None\n\n\n"
        "def test_total():\n    assert total([(1, 1), (2, 2)]) == 5\n"
    ),
}


@dataclass(frozen=True)
class Sleep:
    """A work whose units only take time."""

    seconds: float

    def stored(self, argument: int) -> None:
        return None

    def place(self, argument: int) -> str:
        return ""

    def ahead(self, argument: int) -> None:
        return None

    def send(self, argument: int, cluster: Cluster) -> int:
        return argument

    def run(self, argument: int) -> int:
        time.sleep(self.seconds)
        return argument

    def fault(self, result: int) -> None:
        return None

    def recipe(self, cluster: Cluster) -> Any:
        return Opened(self)

    def close(self) -> None:
        pass


@dataclass(frozen=True)
class Opened:
    work: Sleep

    def __call__(self, node: Any) -> Sleep:
        return self.work


def comparable(data: Any) -> Any:
    """Return a record without times."""
    if isinstance(data, dict):
        return {k: comparable(v) for k, v in data.items() if k not in _TIMES and not k.endswith("_s")}
    return [comparable(v) for v in data] if isinstance(data, list) else data


def records(store: Path) -> dict[str, Any]:
    """Return the results in a store, without times; of rollouts, not what pytest printed."""
    found = {}
    for kind in ("artifacts", "attempts", "episodes", "rollouts", "verdicts", "wanted"):
        for path in sorted((store / kind).rglob("*")):
            if path.is_file() and path.name != "trajectory.jsonl" and not path.name.startswith("trajectory-"):
                is_json = path.suffix == ".json"
                found[str(path.relative_to(store))] = (
                    comparable(json.loads(path.read_bytes())) if is_json else path.read_bytes()
                )
    return found


def play(
    project: Path, store: Path, *options: str, meanwhile: Callable[[], None] = lambda: None
) -> tuple[float, dict[str, Any]]:
    """Play a round of self-play; return its seconds and what it prints. meanwhile: called every 20 seconds."""
    command = [
        sys.executable,
        "-m",
        "harness.cli",
        "play",
        str(project),
        "--rounds",
        "1",
        "--count",
        "10",
        "--attempts",
        "20",
    ]
    command += ["--tries", "1", "--higher-order", "0", "--seed", "3", "--store", str(store), "--json", *options]
    begin = time.monotonic()
    with tempfile.TemporaryFile("w+") as output, subprocess.Popen(command, cwd=ROOT, stdout=output) as process:
        while True:
            try:
                process.wait(_KILL_S)
                break
            except subprocess.TimeoutExpired:
                meanwhile()
        if process.returncode not in (0, 1):
            raise SystemExit(f"ssr play ended with {process.returncode}")
        output.seek(0)
        return time.monotonic() - begin, json.load(output)


def measure_kills(nodes: int, folder: Path) -> Iterator[str]:
    project = folder / "shapes"
    project.mkdir()
    for name, text in _PROJECT.items():
        (project / name).write_text(text)
    local_s, _ = play(project, folder / "local")
    killed, chosen = [], random.Random(1)
    with LocalCluster(folder, nodes) as cluster:

        def kill() -> None:
            node = chosen.choice(cluster.workers)
            cluster.kill(node)
            killed.append(node)
            cluster.add()

        remote_s, data = play(project, folder / "remote", "--ray", cluster.address, meanwhile=kill)
    ours, theirs = records(folder / "local"), records(folder / "remote")
    rollouts = [r for e in data["episodes"] for r in e["rollouts"]]
    verdicts = Counter(str(r["verdict"] if "verdict" in r else r["resolved"]) for r in rollouts)
    names = Counter((e["artifact_id"], r["attempt"]) for e in data["episodes"] for r in e["rollouts"])
    yield f"| nodes killed (SIGKILL, one every {_KILL_S:g} s) | {len(killed)} |"
    yield f"| attempts | {len(rollouts)} |"
    yield f"| attempts twice in the results | {sum(n > 1 for n in names.values())} |"
    yield f"| attempts by verdict | {', '.join(f'{k}: {v}' for k, v in sorted(verdicts.items()))} |"
    yield f"| attempts without a grade | {verdicts['None']} |"
    yield f"| records, without a cluster and with one | {len(ours)}, {len(theirs)} |"
    differing = [k for k in ours if theirs.get(k) != ours[k]]
    yield f"| records that are missing or differ | {len(differing)} {' '.join(differing[:5])} |"
    for name in differing[:5]:
        print(name, ours[name], theirs.get(name), sep="\n", file=sys.stderr)
    more = Counter(k.split("/")[0] for k in theirs.keys() - ours.keys())
    yield f"| further records: candidates that several workers tried and were not needed | {dict(more)} |"
    yield f"| seconds, without a cluster and with one | {local_s:.0f}, {remote_s:.0f} |"


@contextmanager
def ray_executor(folder: Path, cluster: LocalCluster) -> Iterator[Executor]:
    from harness.executors.ray_executor import RayExecutor

    with RayExecutor(cluster.address, Store(folder / "store")) as executor:
        yield executor


def per_unit(executor: Executor, work: Sleep, count: int) -> float:
    """Return the wall seconds of a unit, over all of them."""
    begin = time.monotonic()
    with executor.units(work) as units:
        results = [future.result() for _, future in completed(units, range(count))]
    assert sorted(results) == list(range(count))
    return (time.monotonic() - begin) / count


def measure_overhead(nodes: int, folder: Path) -> Iterator[str]:
    from harness.executors.local import LocalExecutor

    with LocalCluster(folder, nodes) as cluster:
        begin = time.monotonic()
        with ray_executor(folder, cluster) as executor:
            connected = time.monotonic() - begin
            per_unit(executor, Sleep(0), 1)
            first = time.monotonic() - begin
            while executor.slots < nodes:  # type: ignore[attr-defined]
                time.sleep(0.1)
            per_unit(executor, Sleep(0.1), 4 * nodes)
            here, there = [], []
            for _ in range(3):
                here.append(per_unit(LocalExecutor(nodes), Sleep(2), 10 * nodes))
                there.append(per_unit(executor, Sleep(2), 10 * nodes))
            short = per_unit(executor, Sleep(0), 2_000)
    yield f"| start: connected, first unit done | {connected:.1f} s, {first:.1f} s |"
    yield f"| units of 2 s on {nodes} slots, here | {median(here) * nodes:.3f} s for each on a slot |"
    yield f"| units of 2 s on {nodes} slots, on the cluster | {median(there) * nodes:.3f} s |"
    yield f"| ratio of medians of three pairs | {median(there) / median(here):.4f} |"
    yield f"| units without work, on the cluster | {short * 1e3:.2f} ms for each |"


def measure_memory(nodes: int, folder: Path, count: int) -> Iterator[str]:
    with LocalCluster(folder, nodes) as cluster, ray_executor(folder, cluster) as executor:
        done, begin = 0, time.monotonic()
        marks = {count // 100, count // 10, count // 2, count}
        with executor.units(Sleep(0)) as units:
            for done, (_, future) in enumerate(completed(units, range(count)), 1):
                future.result()
                if done in marks:
                    mib = int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 2**20
                    yield f"| after {done} units | {mib:.0f} MiB |"
        yield f"| seconds | {time.monotonic() - begin:.0f} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("kills", "overhead", "memory"))
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--units", type=int, default=100_000)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if options.what == "memory":
            lines = measure_memory(options.nodes, Path(folder), options.units)
        else:
            lines = {"kills": measure_kills, "overhead": measure_overhead}[options.what](options.nodes, Path(folder))
        text = "\n".join(
            [f"| {options.what}, {options.nodes} nodes, {os.cpu_count()} cores | |", "|---|---|", *lines, ""]
        )
    print(text)
    if options.out is not None:
        options.out.write_text(text)


if __name__ == "__main__":
    main()
