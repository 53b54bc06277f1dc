"""Run workers of the service in tests: in this process turn by turn, or as real processes."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from harness.database.events import events_after
from harness.database.records import DatabaseRecords
from harness.service.jobs import Plan
from harness.service.queue import Job, JobQueue
from harness.service.worker import Worker
from pytest_ssr.storage.store import Store

LIMIT_S = 120.0
_PROCESS = """
import sys
from pathlib import Path
from harness.database.records import records_of
from harness.service.worker import Worker
from pytest_ssr.interrupts import install_signal_handlers
from pytest_ssr.storage.store import Store
root, lease_s = Path(sys.argv[1]), float(sys.argv[2])
install_signal_handlers()
Worker(Store(root), records_of(root), sandbox="process", lease_s=lease_s).run()
"""


def wait_until(condition: Callable[[], bool], *, turns: Callable[[], object] = lambda: None) -> None:
    """Wait for a condition, and do something meanwhile."""
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        turns()
        time.sleep(0.02)


def worker_of(records: DatabaseRecords, root: Path, code: str, *, lease_s: float = 30.0) -> Worker:
    """Return a worker of this process whose jobs run Python code."""

    def planned(job: Job) -> Plan:
        return Plan([sys.executable, "-c", code])

    return Worker(Store(root), records, sandbox="process", lease_s=lease_s, planner=planned)


@contextlib.contextmanager
def worker_process(root: Path, *, lease_s: float) -> Iterator[subprocess.Popen[bytes]]:
    """Run a worker in a process of its own; at the end it is killed, as by the kernel, with all that it started."""
    process = subprocess.Popen(
        [sys.executable, "-c", _PROCESS, str(root), str(lease_s)],
        env={**os.environ, "SSR_STATUS_LINES": "1"},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def job_of(queue: JobQueue, job_id: str) -> Job:
    """Return a job that exists."""
    job = queue.get(job_id)
    assert job is not None
    return job


def statuses(queue: JobQueue, job_id: str) -> list[str]:
    """Return the statuses of a job that events have shown, in order, each once in a row."""
    with queue.engine.connect() as connection:
        shown = [e.data["status"] for e in events_after(connection, 0) if e.kind == "job" and e.subject == job_id]
    return [status for n, status in enumerate(shown) if n == 0 or shown[n - 1] != status]
