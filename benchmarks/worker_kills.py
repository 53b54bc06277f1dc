"""Kill workers of the service (SIGKILL) while they run jobs, and count how often each job ends and is graded.

Run: `python benchmarks/worker_kills.py --out benchmarks/results/NAME.md [--jobs 200] [--kills 50]`.
PostgreSQL is started for it. Workers are processes, each with two jobs at once, and a killed one is started again. A
job does what grading does: it takes the lock of its content key, looks whether there is a grade, works, and stores
one. Every job is submitted twice with one idempotency key, as by a client that has lost the first answer.
"""

from __future__ import annotations

import argparse
import os
import random
import secrets
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import sqlalchemy as sa

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
sys.path.insert(0, str(ROOT / "tests" / "support"))

import postgres  # noqa: E402

from harness.database.engine import close_engines  # noqa: E402
from harness.database.events import Event, events_after  # noqa: E402
from harness.database.records import DatabaseRecords, records_of  # noqa: E402
from harness.database.schema import jobs, rollouts  # noqa: E402
from harness.database.sharing import share_store  # noqa: E402
from harness.records.attempt import Attempt  # noqa: E402
from harness.service.jobs import Plan  # noqa: E402
from harness.service.queue import Job, JobKind, JobQueue, JobStatus  # noqa: E402
from harness.service.worker import Worker  # noqa: E402
from pytest_ssr.interrupts import install_signal_handlers  # noqa: E402
from pytest_ssr.records.reasons import Reason, ReasonCode  # noqa: E402
from pytest_ssr.storage.store import Store, key_of  # noqa: E402

LEASE_S = 5.0
WORKERS = 4
_JOBS_AT_ONCE = 2
_WORK_S = 1.0
_LIMIT_S = 3_600.0
_END_S = 60.0
_SUCCEEDED, _LOST = "succeeded", "failed (worker-lost)"
_STARTS = "starts"
"""A file with a line for each time that a job has begun its work."""


@dataclass(frozen=True)
class Measured:
    """What was counted on one database."""

    database: str
    seconds: float
    kills: int
    """Workers that were killed; `busy` of them had a job."""
    busy: int
    submitted: int
    statuses: Counter[str]
    """Those of failed jobs with their codes."""
    attempts: Counter[int]
    ends: Counter[str]
    """How often each job has ended, by its id."""
    held: int
    """Jobs that somebody still holds at the end."""
    graded: Counter[str]
    """How often each content key was graded."""
    stored: int
    starts: int
    deaf: int
    """Workers that did not end by SIGTERM at the end."""

    @property
    def holds(self) -> bool:
        """Whether every job has ended once, each that succeeded was graded once, and none is held.

        A job fails only if it has lost as many workers as it may.
        """
        succeeded, lost = self.statuses[_SUCCEEDED], self.statuses[_LOST]
        counts = [Counter(self.ends.values()), Counter(self.graded.values())]
        is_complete = succeeded + lost == self.submitted == len(self.ends) and self.stored == len(self.graded)
        return (
            is_complete
            and counts == [{1: self.submitted}, {1: self.stored}]
            and self.stored >= succeeded
            and not self.held
            and not self.deaf
        )


def run_worker(root: Path) -> None:
    """Run a worker whose jobs are those of this benchmark."""
    install_signal_handlers()
    command = [sys.executable, __file__, "--as-job", str(root)]

    def planned(job: Job) -> Plan:
        return Plan([*command, str(job.settings["seed"])])

    worker = Worker(Store(root), records_of(root), jobs_at_once=_JOBS_AT_ONCE, lease_s=LEASE_S, planner=planned)
    worker.run()


def run_job(root: Path, seed: str) -> None:
    """Grade something that has not been graded, as `ssr play` does."""
    store, key = Store(root), key_of("worker kills", seed)
    with store.alone(key):
        if store.record(f"rollouts/{key}", "rollout") is None:
            with (root / _STARTS).open("a") as file:
                file.write(f"{key}\n")
            time.sleep(_WORK_S)
            reason = Reason(ReasonCode.RESOLVED, "resolved")
            rollout = Attempt("a", "sleep", reason, id=key, seed=int(seed), resolved=True, tests=True)
            store.put_record(f"rollouts/{key}", "rollout", rollout.to_json())
    print(f'{{"key": "{key}"}}')


class Workers:
    """Worker processes of which some are killed and started again."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._processes = [self._start() for _ in range(WORKERS)]

    def kill(self, rng: random.Random) -> int:
        """Kill a worker, and start another in its place; return the process id of the killed one."""
        chosen = rng.randrange(len(self._processes))
        process = self._processes[chosen]
        process.kill()
        process.wait()
        self._processes[chosen] = self._start()
        return process.pid

    def end(self) -> int:
        """End the workers as a user does; return how many had to be killed."""
        for process in self._processes:
            process.terminate()
        deaf = 0
        for process in self._processes:
            try:
                process.wait(_END_S)
            except subprocess.TimeoutExpired:
                deaf += 1
                process.kill()
                process.wait()
        return deaf

    def _start(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen([sys.executable, __file__, "--as-worker", str(self._root)])


def measure(folder: Path, database: str, arguments: argparse.Namespace) -> Measured:
    """Run the jobs on a database while workers are killed."""
    root, rng = folder / "store", random.Random(arguments.seed)
    share_store(root, database=database)
    records = records_of(root)
    queue = JobQueue(records.engine, lease_s=LEASE_S)
    for seed in range(arguments.jobs):
        first, second = (queue.submit(JobKind.PLAY, {"seed": seed}, None, f"key-{seed}") for _ in range(2))
        assert first == second
    begin = time.monotonic()
    workers, kills, busy = Workers(root), 0, 0
    try:
        while (ended := count(records, jobs.c.ended_at.is_not(None))) < arguments.jobs:
            if time.monotonic() - begin > _LIMIT_S:
                break
            # The kills are spread over the jobs, each at a random moment.
            if kills < arguments.kills and ended >= kills * (arguments.jobs - 10) // arguments.kills:
                time.sleep(rng.uniform(0, 1))
                busy += is_busy(records, workers.kill(rng))
                kills += 1
            else:
                time.sleep(0.1)
        seconds = time.monotonic() - begin
    finally:
        deaf = workers.end()
    measured = counted(records, root, seconds=seconds, kills=kills, busy=busy, submitted=arguments.jobs, deaf=deaf)
    close_engines()
    return measured


def is_busy(records: DatabaseRecords, pid: int) -> bool:
    """Return whether the worker with this process id has jobs."""
    from harness.database.schema import workers

    with records.engine.connect() as connection:
        worker_id = connection.scalar(sa.select(workers.c.id).where(workers.c.pid == pid))
    return count(records, (jobs.c.worker_id == worker_id) & (jobs.c.status == JobStatus.RUNNING)) > 0


def count(records: DatabaseRecords, condition: sa.ColumnElement[bool]) -> int:
    with records.engine.connect() as connection:
        return connection.scalar(sa.select(sa.func.count()).select_from(jobs).where(condition)) or 0


def counted(records: DatabaseRecords, root: Path, **values: float) -> Measured:
    """Count what is in the database."""
    with records.engine.connect() as connection:
        rows = connection.execute(sa.select(jobs.c.status, jobs.c.error_code, jobs.c.attempt)).all()
        stored = connection.scalar(sa.select(sa.func.count()).select_from(rollouts)) or 0
        events = list(all_events(connection))
    ends = [e.subject for e in events if e.kind == "job" and JobStatus(e.data["status"]).has_ended]
    return Measured(
        database=records.engine.dialect.name,
        statuses=Counter(f"{row.status} ({row.error_code})" if row.error_code else row.status for row in rows),
        attempts=Counter(row.attempt for row in rows),
        ends=Counter(ends),
        held=count(records, (jobs.c.lease_token != "") | (jobs.c.status == JobStatus.RUNNING)),
        graded=Counter(e.subject for e in events if e.kind == "rollout"),
        stored=stored,
        starts=len((root / _STARTS).read_text().splitlines()),
        **values,  # type: ignore[arg-type]
    )


def all_events(connection: sa.Connection) -> Iterator[Event]:
    last = 0
    while found := events_after(connection, last):
        yield from found
        last = found[-1].id


def report(measured: list[Measured], arguments: argparse.Namespace) -> str:
    """Return the page of results."""
    lines = [
        "# Workers that are killed",
        "",
        f"{datetime.now(UTC):%Y-%m-%d}, Python {sys.version.split()[0]}, {os.cpu_count()} cores, "
        f"`benchmarks/worker_kills.py --jobs {arguments.jobs} --kills {arguments.kills} --seed {arguments.seed}`. "
        f"{WORKERS} workers with {_JOBS_AT_ONCE} jobs at once and leases of {LEASE_S:g} s; every job is submitted "
        "twice with one idempotency key.",
        "",
        "| | " + " | ".join(m.database for m in measured) + " |",
        "|---|" + "---|" * len(measured),
    ]
    rows = {
        "jobs": [str(m.submitted) for m in measured],
        "workers killed (with jobs)": [f"{m.kills} ({m.busy})" for m in measured],
        "seconds": [f"{m.seconds:.0f}" for m in measured],
        "jobs by status": [shown(m.statuses) for m in measured],
        "jobs by attempts": [shown(m.attempts) for m in measured],
        "jobs that ended once": [str(Counter(m.ends.values())[1]) for m in measured],
        "jobs that ended more than once": [str(sum(n > 1 for n in m.ends.values())) for m in measured],
        "jobs still held": [str(m.held) for m in measured],
        "gradings begun": [str(m.starts) for m in measured],
        "keys graded once": [str(Counter(m.graded.values())[1]) for m in measured],
        "keys graded more than once": [str(sum(n > 1 for n in m.graded.values())) for m in measured],
        "workers that SIGTERM did not end": [str(m.deaf) for m in measured],
        "all as promised": ["yes" if m.holds else "**no**" for m in measured],
    }
    lines += [f"| {name} | " + " | ".join(values) + " |" for name, values in rows.items()]
    return "\n".join([*lines, ""])


def shown(counter: Counter[str] | Counter[int]) -> str:
    return ", ".join(f"{name}: {number}" for name, number in sorted(counter.items()))


@contextmanager
def postgres_database() -> Iterator[str]:
    """Yield the address of an empty database of a server that runs meanwhile."""
    import psycopg

    with postgres.server() as url:
        name = f"k{secrets.token_hex(6)}"
        with psycopg.connect(f"{url}/postgres", autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}")
        yield f"{url}/{name}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=200)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--database", choices=("sqlite", "postgresql"), help="only on this one")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    measured = []
    if arguments.database != "postgresql":
        with tempfile.TemporaryDirectory() as folder:
            measured.append(measure(Path(folder), "sqlite", arguments))
    if arguments.database != "sqlite":
        with tempfile.TemporaryDirectory() as folder, postgres_database() as url:
            measured.append(measure(Path(folder), url, arguments))
    arguments.out.write_text(report(measured, arguments))
    print(arguments.out.read_text())
    return 0 if all(m.holds for m in measured) else 1


if __name__ == "__main__":
    if sys.argv[1:2] == ["--as-worker"]:
        run_worker(Path(sys.argv[2]))
    elif sys.argv[1:2] == ["--as-job"]:
        run_job(Path(sys.argv[2]), sys.argv[3])
    else:
        sys.exit(main())
