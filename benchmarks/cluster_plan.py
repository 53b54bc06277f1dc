"""Set the plans of `ssr plan` beside real runs here, then plan a million attempts on 1 to 1,000 nodes.

Run: `python benchmarks/cluster_plan.py PROJECT --python PYTHON --attempts STORE --out benchmarks/results/NAME.md`.
PROJECT is a project with a suite, PYTHON the interpreter of its tests, STORE a store of `ssr play`, whose attempts the
last table plans for.

- Real runs: `ssr inject` with one job gives durations; from these the wall time of the same run with two jobs is
  predicted and then measured, each in a fresh store, several times.
- Runs of waiting units: the loop of `ssr inject`, its threads and its store, with units that only wait, so that many
  slots fit on few cores. They also measure the loop's own time for one unit.
- Writes: results per second that PostgreSQL takes from several threads.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
sys.path.insert(0, str(ROOT / "benchmarks"))
sys.path.insert(0, str(ROOT / "tests" / "support"))

from worker_kills import postgres_database  # noqa: E402

from harness.capacity.cluster import GBIT, Cluster  # noqa: E402
from harness.capacity.durations import Measured, Unit, Work, read_durations  # noqa: E402
from harness.capacity.estimate import Planner  # noqa: E402
from harness.capacity.simulation import Simulated, simulate  # noqa: E402
from harness.database.engine import close_engines  # noqa: E402
from harness.database.records import records_of  # noqa: E402
from harness.database.sharing import share_store  # noqa: E402
from pytest_ssr.campaign.parallel import run_candidates  # noqa: E402
from pytest_ssr.records.candidate_result import CandidateResult, CandidateStatus  # noqa: E402
from pytest_ssr.storage.store import Store  # noqa: E402

MILLION = 1_000_000
NODES = (1, 10, 100, 1000)
WAITING_UNITS, WAITING_MEAN_S = 400, 0.4
WAITING_RUNS = {8: 3, 16: 5, 64: 15}
"""Slots, and how often each is run: with many slots, the longest unit that was drawn decides."""
CLUSTER = Cluster(
    slots=8,
    bandwidth=10 * GBIT,
    image_bytes=2_000_000_000,
    failures_per_day=1.0,
    replacement_s=600.0,
    stragglers=0.05,
    slowdown=3.0,
)
_SIMULATIONS = 101
_WRITERS = 8


@dataclass(frozen=True)
class RealRun:
    """One run of `ssr inject`."""

    store: Path
    wall_s: float
    processor_s: float
    others: float
    """Cores that other programs kept busy meanwhile."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("project", type=Path)
    parser.add_argument("--python", type=Path, required=True)
    parser.add_argument("--attempts", type=Path, required=True, help="a store of ssr play")
    parser.add_argument("--count", type=int, default=20, help="bugs of each real run")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        real = list(real_runs(arguments, Path(folder)))
        loop_s, waiting = waiting_runs(Path(folder))
        writes = writes_per_s(Path(folder))
    cluster = replace(CLUSTER, driver_s=loop_s, writes_per_s=writes)
    lines = [
        "# Plans of clusters beside real runs",
        "",
        f"{datetime.now(UTC):%Y-%m-%d}, Python {sys.version.split()[0]}, {os.cpu_count()} cores shared with other "
        f"work, `benchmarks/cluster_plan.py {arguments.project.name} --count {arguments.count} --repeats "
        f"{arguments.repeats}`.",
        "",
        *real,
        *waiting,
        *million(read_durations(Store(arguments.attempts), Work.ATTEMPTS), cluster),
    ]
    arguments.out.write_text("\n".join(lines) + "\n")
    print(arguments.out.read_text())
    return 0


def real_runs(arguments: argparse.Namespace, folder: Path) -> Iterator[str]:
    yield "## `ssr inject` with two jobs, predicted from one job"
    yield ""
    yield (
        "| repeat | one job, s | cores of one unit | others' cores, then | two jobs, s | closed form, s (95 %) | "
        "simulation, s | error of the simulation |"
    )
    yield "|---|---|---|---|---|---|---|---|"
    errors, measured_s, predicted_s = [], [], []
    for repeat in range(arguments.repeats):
        one = inject(arguments, folder / f"one-{repeat}", jobs=1)
        two = inject(arguments, folder / f"two-{repeat}", jobs=2)
        durations, unit_cores = calibrated(one)
        free = (os.cpu_count() or 1) - two.others
        # A node of one core whose units want their part of what was free.
        cluster = Cluster(
            slots=2,
            cores=1,
            unit_cores=min(1.0, unit_cores / free) if free > 0 else 1.0,
            driver_s=0.0,
            writes_per_s=1e6,
        )
        estimate = Planner(durations, arguments.count).estimate(cluster)
        simulated = simulated_s(durations, arguments.count, cluster)
        errors.append(simulated / two.wall_s - 1)
        measured_s.append(two.wall_s)
        predicted_s.append(simulated)
        yield (
            f"| {repeat + 1} | {one.wall_s:.1f} | {unit_cores:.2f} | {one.others:.2f}, {two.others:.2f} | "
            f"{two.wall_s:.1f} | {estimate.seconds:.1f} ({estimate.low_s:.1f} to {estimate.high_s:.1f}) | "
            f"{simulated:.1f} | {100 * errors[-1]:+.0f} % |"
        )
    yield (
        f"| median | | | | {statistics.median(measured_s):.1f} | | {statistics.median(predicted_s):.1f} | "
        f"{100 * statistics.median(errors):+.0f} % |"
    )
    yield ""


def inject(arguments: argparse.Namespace, store: Path, *, jobs: int) -> RealRun:
    """Run `ssr inject` in a fresh store."""
    command = [sys.executable, "-m", "harness.cli", "inject", str(arguments.project), "--python", str(arguments.python)]
    command += ["--store", str(store), "--count", str(arguments.count), "--jobs", str(jobs), "--json"]
    # The processor time of other sandboxes cannot be told from that of other programs.
    command += ["--sandbox", "process"]
    busy, own, begin = machine_busy_s(), children_s(), time.monotonic()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=ROOT)
    wall_s, own_s = time.monotonic() - begin, children_s() - own
    return RealRun(store, wall_s, own_s, max(0.0, machine_busy_s() - busy - own_s) / wall_s)


def calibrated(run: RealRun) -> tuple[Measured, float]:
    """Return the durations of a run with one job, and the cores that it kept busy.

    What the run took beside its units is its preparation: the start, the baseline and the end.
    """
    durations = read_durations(Store(run.store), Work.BUGS)
    preparation_s = max(0.0, run.wall_s - sum(unit.seconds for unit in durations.units))
    return replace(durations, preparation_s=preparation_s), run.processor_s / run.wall_s


def simulated_s(durations: Measured, wanted: int, cluster: Cluster) -> float:
    return statistics.median(simulate(durations, wanted, cluster, seed=n).seconds for n in range(_SIMULATIONS))


def children_s() -> float:
    """Return the processor time of all processes that have ended below this one."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def machine_busy_s() -> float:
    """Return the processor time of all programs since the machine was started."""
    user, nice, system, _idle, _wait, irq, softirq, *_ = map(int, Path("/proc/stat").read_text().split()[1:9])
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")


class Waiting:
    """Candidates that only wait, and then store a result."""

    def __init__(self, store: Store, name: str, seconds: Sequence[float]) -> None:
        self._store, self._name, self._seconds = store, name, seconds
        self.waited_s = 0.0
        self._lock = threading.Lock()

    def attempt(self, index: int) -> CandidateResult | None:
        begin = time.monotonic()
        time.sleep(self._seconds[index])
        waited = time.monotonic() - begin
        result = CandidateResult(
            index, CandidateStatus.SURVIVED, "mutation", "none", "a.py", 1, "f", "", "", seconds=waited, runs=0
        )
        self._store.put_record(f"attempts/{self._name}", f"{index:05d}", result.to_json())
        with self._lock:
            self.waited_s += waited
        return result

    def settle(self, wanted: Sequence[CandidateResult], results: Sequence[CandidateResult]) -> None:
        pass

    def end(self) -> None:
        pass


def waiting_runs(folder: Path) -> tuple[float, list[str]]:
    """Return the loop's time for one unit, and the table of runs."""
    rng, store, count = random.Random(1), Store(folder / "waiting"), WAITING_UNITS
    drawn = [rng.lognormvariate(0, 0.8) for _ in range(count)]
    scale = WAITING_MEAN_S / statistics.fmean(drawn)
    seconds = [s * scale for s in drawn]
    none_s = statistics.median(run_waiting(store, f"none-{n}", [0.0] * count, 4)[0] for n in range(3)) / count
    durations = Measured(Work.BUGS, tuple((Unit(s, True, "waited"),) for s in seconds))
    lines = [
        "## The loop of `ssr inject` with units that wait",
        "",
        f"{count} units of {WAITING_MEAN_S:g} s on average (log-normal, sigma 0.8), each with a real write; the loop "
        f"and the write take {1000 * none_s:.2f} ms for one unit that does not wait (median of 3 runs with 4 jobs). "
        f"Both draw durations with replacement; medians of all runs and of {_SIMULATIONS} simulations.",
        "",
        "| slots | runs | measured, s (range) | used | closed form, s | simulation, s (95 %) | used | error |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for jobs, repeats in WAITING_RUNS.items():
        runs = [run_waiting(store, f"{jobs}-{n}", rng.choices(seconds, k=count), jobs) for n in range(repeats)]
        wall_s, used = statistics.median(r[0] for r in runs), statistics.median(r[1] for r in runs)
        cluster = Cluster(slots=jobs, driver_s=none_s, writes_per_s=1e6)
        estimate = Planner(durations, count).estimate(cluster)
        simulations = [simulate(durations, count, cluster, seed=n) for n in range(_SIMULATIONS)]
        times = sorted(s.seconds for s in simulations)
        predicted_s = statistics.median(times)
        low_s, high_s = times[round(0.025 * (_SIMULATIONS - 1))], times[round(0.975 * (_SIMULATIONS - 1))]
        predicted_use = statistics.median(s.utilisation for s in simulations)
        spread = f"{wall_s:.2f} ({min(r[0] for r in runs):.2f} to {max(r[0] for r in runs):.2f})"
        cells = [str(jobs), str(repeats), spread, f"{100 * used:.1f} %", f"{estimate.seconds:.2f}"]
        cells += [f"{predicted_s:.2f} ({low_s:.2f} to {high_s:.2f})", f"{100 * predicted_use:.1f} %"]
        cells += [f"{100 * (predicted_s / wall_s - 1):+.1f} %"]
        lines.append(f"| {' | '.join(cells)} |")
        print(lines[-1], flush=True)
    return none_s, [*lines, ""]


def run_waiting(store: Store, name: str, seconds: Sequence[float], jobs: int) -> tuple[float, float]:
    """Return the wall time of a run, and the share of the slots' time in which units waited."""
    source, begin = Waiting(store, name, seconds), time.monotonic()
    done = run_candidates(source, len(seconds), jobs=jobs, most=len(seconds))
    wall_s = time.monotonic() - begin
    assert len(done) == len(seconds)
    return wall_s, source.waited_s / (jobs * wall_s)


def writes_per_s(folder: Path, count: int = 2000) -> float:
    """Return how many small results PostgreSQL takes per second from several threads."""
    data = json.dumps({"schema_version": 0, "text": "x" * 600}).encode()
    with postgres_database() as url:
        records = records_of(share_store(folder / "shared", database=url).root)

        def write(number: int) -> None:
            records.put({f"attempts/writes/{number:05d}.json": data})

        with ThreadPoolExecutor(_WRITERS) as pool:
            list(pool.map(write, range(100)))
            begin = time.monotonic()
            list(pool.map(write, range(count)))
            seconds = time.monotonic() - begin
        close_engines()
    return count / seconds


def million(durations: Measured, cluster: Cluster) -> Iterator[str]:
    planner = Planner(durations, MILLION)
    outcomes = ", ".join(f"{o.count} {name} (mean {o.mean_s:.1f} s)" for name, o in durations.outcomes.items())
    yield "## A million attempts"
    yield ""
    yield (
        f"From a store of `ssr play` with {len(durations.units)} attempts at {len(durations.groups)} bugs: {outcomes}; "
        f"{durations.files_per_unit:.1f} files and {durations.bytes_per_unit / 1000:.1f} kB each. A node has "
        f"{cluster.slots} slots, pulls {cluster.image_bytes / 1e9:g} GB, and fails {cluster.failures_per_day:g} times "
        f"a day, to be replaced after {cluster.replacement_s:g} s; {100 * cluster.stragglers:g} % of the nodes are "
        f"{cluster.slowdown:g} times slower; all share {cluster.bandwidth / GBIT:g} Gbit/s. The driver takes "
        f"{1000 * cluster.driver_s:.2f} ms for one unit (measured above), the store {cluster.writes_per_s:.0f} files "
        f"per second (measured: PostgreSQL on this machine, {_WRITERS} threads, without fsync)."
    )
    yield from _table(planner, cluster)
    other = replace(cluster, writes_per_s=20 * cluster.writes_per_s, driver_s=cluster.driver_s / 5)
    yield ""
    yield "The same with a store that takes 20 times as many files, and a driver that needs a fifth of the time:"
    yield from _table(planner, other)


def _table(planner: Planner, cluster: Cluster) -> Iterator[str]:
    yield ""
    yield (
        "| nodes | closed form, h (95 %) | simulation, h | attempts per hour | utilisation, both | bound, both | "
        "failures | runs lost | core-hours | network, TB | seconds and MB of the simulation |"
    )
    yield "|---|---|---|---|---|---|---|---|---|---|---|"
    for nodes in NODES:
        sized = replace(cluster, nodes=nodes)
        estimate = planner.estimate(sized)
        begin = time.monotonic()
        run: Simulated = simulate(planner.measured, planner.wanted, sized)
        took_s, memory = time.monotonic() - begin, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        assert run.finished == run.units
        hours = [
            f"{seconds / 3600:.2f}" for seconds in (estimate.seconds, estimate.low_s, estimate.high_s, run.seconds)
        ]
        cells = [f"{nodes:,}", f"{hours[0]} ({hours[1]} to {hours[2]})", hours[3], f"{run.results_per_hour:,.0f}"]
        cells += [
            f"{100 * estimate.utilisation:.0f} %, {100 * run.utilisation:.0f} %",
            f"{estimate.bound}, {run.bound}",
        ]
        cells += [f"{run.failures:,}", f"{run.lost:,}", f"{estimate.core_hours:,.0f}"]
        cells += [f"{estimate.network_bytes / 1e12:.2f}", f"{took_s:.1f}, {memory:.0f}"]
        yield f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    sys.exit(main())
