"""Workers run jobs to their ends, return the jobs that they cannot end, and never record an end that is not theirs."""

from __future__ import annotations

import contextlib
import json
import secrets
import sqlite3
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import sqlalchemy as sa
from model_server import serving
from plain import plain_python
from processes import command_lines
from service_jobs import job_of, statuses, wait_until, worker_of, worker_process
from shared_stores import execute
from small_artifact import ARTIFACT

from harness.database.events import events_after
from harness.database.records import DatabaseRecords, records_of
from harness.database.schema import jobs, workers
from harness.database.sharing import share_store
from harness.models.registry import Entry
from harness.records.job_reports import JobReport, Stage
from harness.service import worker as worker_module
from harness.service.jobs import Plan
from harness.service.projects import Projects
from harness.service.queue import Job, JobErrorCode, JobKind, JobQueue, JobStatus
from harness.service.registered_models import RegisteredModels
from harness.service.worker import Worker
from harness.service.worker_row import LOST_S, WorkerRow, WorkerStatus
from pytest_ssr.errors import StoreError
from pytest_ssr.project.snapshot import is_complete, take_snapshot
from pytest_ssr.storage.store import Store

SLEEPS = "import time; time.sleep(600)"
NEGATIVE = "print('{\"valid\": 0}'); exit(1)"
PRINTS = "print('{\"valid\": 3}')"
PLAY = {"count": 1, "attempts": 2, "tries": 20, "higher_order": 0}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def queue(records: DatabaseRecords) -> JobQueue:
    return JobQueue(records.engine)


def end_lease(queue: JobQueue) -> None:
    """Let all leases end."""
    with queue.engine.begin() as connection:
        connection.execute(sa.update(jobs).values(lease_until=1.0))


def is_running(queue: JobQueue, job_id: str) -> bool:
    return job_of(queue, job_id).status is JobStatus.RUNNING


def has_ended(queue: JobQueue, job_id: str) -> bool:
    return job_of(queue, job_id).status.has_ended


def started(worker: Worker, queue: JobQueue, settings: dict[str, int] | None = None) -> str:
    """Submit a job and let a worker start it."""
    job_id = queue.submit(JobKind.PLAY, settings or {}).id
    wait_until(lambda: is_running(queue, job_id), turns=worker.turn)
    return job_id


def runs_with(text: str) -> bool:
    """Return whether any process of this machine has this text in its command line."""
    return any(text.encode() in line for line in command_lines())


def add_project(records: DatabaseRecords, project: Path) -> str:
    """Add the small project, with an environment that starts fast."""
    (project / ".venv").symlink_to(plain_python().parent.parent)
    return Projects(records.engine, [project.parent]).add("calc", str(project)).id


def test_ssr_worker_plays_a_round_and_makes_a_leaderboard_and_an_export(
    records: DatabaseRecords, root: Path, queue: JobQueue, project: Path
) -> None:
    job_id = queue.submit(JobKind.PLAY, {**PLAY, "attempts": 1}, add_project(records, project)).id
    process = subprocess.Popen([sys.executable, "-m", "harness.cli", "worker", str(root), "--sandbox", "process"])
    try:
        wait_until(lambda: has_ended(queue, job_id))
        board = queue.submit(JobKind.LEADERBOARD, {}).id
        export = queue.submit(JobKind.EXPORT, {"format": "artifacts"}).id
        wait_until(lambda: has_ended(queue, export))
        process.terminate()
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.wait()
    job = job_of(queue, job_id)
    assert (job.status, job.error, job.attempt) == (JobStatus.SUCCEEDED, "", 1)
    assert job.result["exit_code"] == 0
    assert job.result["tables"]["all"][0]["valid"] == 1
    assert statuses(queue, job_id) == ["queued", "running", "succeeded"]
    with records.engine.connect() as connection:
        changes = list(events_after(connection, 0))
        row = connection.execute(sa.select(workers)).one()
    assert {"artifact", "round", "rollout"} <= {change.kind for change in changes}
    assert any(change.data["stage"] for change in changes if change.kind == "job")
    assert (row.status, row.jobs_done, row.job_id) == (WorkerStatus.STOPPED, 3, "")
    counters = json.loads(row.counters)
    assert counters["sandbox_starts"] > 5
    assert counters["sandbox_failures"] == 0
    # What jobs have made is there for all machines.
    assert [job_of(queue, job_id).error for job_id in (board, export)] == ["", ""]
    assert records.get(f"boards/{board}.json")
    exported = records.digests(f"exports/{export}")
    assert exported
    assert all(records.get(path) is not None for path in exported)


@pytest.mark.long
def test_a_worker_on_another_machine_works_on_what_the_first_has(
    tmp_path: Path, postgres_url: str, project: Path
) -> None:
    name = f"t{secrets.token_hex(6)}"
    execute(f"{postgres_url}/postgres", f"CREATE DATABASE {name}")
    addresses = {"database": f"{postgres_url}/{name}", "blobs": str(tmp_path / "blobs")}
    one = share_store(tmp_path / "one", **addresses)
    tree_hash = take_snapshot(project, one.trees).tree_hash
    one.put_artifact("a" * 20, replace(ARTIFACT, info={**ARTIFACT.info, "tree_hash": tree_hash}))
    queue = JobQueue(records_of(one.root).engine)
    job_id = queue.submit(JobKind.EXPORT, {"format": "artifacts"}).id
    options = [f"--{option}={value}" for option, value in addresses.items()]
    two = tmp_path / "two"
    with subprocess.Popen([sys.executable, "-m", "harness.cli", "worker", str(two), *options]) as process:
        try:
            wait_until(lambda: has_ended(queue, job_id))
        finally:
            process.terminate()
    assert (job_of(queue, job_id).status, job_of(queue, job_id).error) == (JobStatus.SUCCEEDED, "")
    assert is_complete(two / "trees" / tree_hash)
    assert one.fetch(f"exports/{job_id}")


def test_a_job_survives_its_workers_and_nothing_is_graded_twice(
    records: DatabaseRecords, root: Path, queue: JobQueue, project: Path
) -> None:
    job_id = queue.submit(JobKind.PLAY, PLAY, add_project(records, project)).id

    def graded() -> list[str]:
        with records.engine.connect() as connection:
            found = [e for e in events_after(connection, 0, limit=5_000) if e.kind == "rollout"]
        return [e.subject for e in found if e.data.get("resolved") is not None]

    with worker_process(root, lease_s=3.0) as first:
        wait_until(lambda: bool(job_of(queue, job_id).stage))
        first.terminate()
        assert first.wait(30) == 0
    # It is free at once, and has used no attempt.
    job = job_of(queue, job_id)
    assert (job.status, job.attempt) == (JobStatus.QUEUED, 0)
    assert not runs_with(str(root))
    with worker_process(root, lease_s=3.0) as second:
        wait_until(lambda: bool(graded()))
        second.kill()
        second.wait()
    wait_until(lambda: not runs_with(str(root)))
    assert len(graded()) < PLAY["attempts"]
    assert is_running(queue, job_id)
    with worker_process(root, lease_s=3.0):
        wait_until(lambda: has_ended(queue, job_id))
    job = job_of(queue, job_id)
    assert (job.status, job.error, job.attempt) == (JobStatus.SUCCEEDED, "", 2)
    assert statuses(queue, job_id) == ["queued", "running", "queued", "running", "queued", "running", "succeeded"]
    counts = Counter(graded())
    assert len(counts) == PLAY["attempts"]
    assert set(counts.values()) == {1}


@pytest.mark.parametrize("ignores", [False, True])
def test_cancelling_ends_the_processes_of_a_job(
    records: DatabaseRecords, root: Path, queue: JobQueue, monkeypatch: pytest.MonkeyPatch, ignores: bool
) -> None:
    monkeypatch.setattr(worker_module, "_GRACE_S", 0.5)
    deaf = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" if ignores else ""
    worker = worker_of(records, root, f"{deaf}{SLEEPS}  # {root}")
    job_id = started(worker, queue)
    wait_until(lambda: runs_with(f"# {root}"))
    queue.cancel(job_id)
    wait_until(lambda: has_ended(queue, job_id), turns=worker.turn)
    assert job_of(queue, job_id).status is JobStatus.CANCELLED
    assert not runs_with(f"# {root}")
    # The worker is free for others.
    assert is_running(queue, started(worker, queue))
    worker.shut_down()


def test_of_two_workers_with_one_job_the_first_cannot_report(
    records: DatabaseRecords, root: Path, queue: JobQueue
) -> None:
    first, second = worker_of(records, root, PRINTS), worker_of(records, root, SLEEPS)
    job_id = started(first, queue)
    time.sleep(1.0)
    end_lease(queue)
    second.turn()
    assert job_of(queue, job_id).worker_id == second.id
    # Its command has ended with a result; it is refused, and the second worker still has the job.
    for _ in range(5):
        first.turn()
    assert is_running(queue, job_id)
    second.shut_down()
    third = worker_of(records, root, PRINTS)
    wait_until(lambda: has_ended(queue, job_id), turns=third.turn)
    job = job_of(queue, job_id)
    assert (job.status, job.worker_id, job.result["valid"]) == (JobStatus.SUCCEEDED, third.id, 3)
    assert statuses(queue, job_id).count("succeeded") == 1


def test_a_worker_that_has_lost_a_job_ends_its_processes(records: DatabaseRecords, root: Path, queue: JobQueue) -> None:
    first, second = (worker_of(records, root, f"{SLEEPS}  # {n} {root}") for n in (1, 2))
    started(first, queue)
    end_lease(queue)
    second.turn()
    wait_until(lambda: not runs_with(f"# 1 {root}"), turns=first.turn)
    assert runs_with(f"# 2 {root}")
    second.shut_down()


@contextlib.contextmanager
def unreachable(records: DatabaseRecords, postgres_url: str) -> Iterator[None]:
    """End the connections to a database of PostgreSQL, and allow no others."""
    import psycopg

    name = records.engine.url.database
    with psycopg.connect(f"{postgres_url}/postgres", autocommit=True) as connection:
        connection.execute(f"ALTER DATABASE {name} WITH ALLOW_CONNECTIONS false")
        connection.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", [name])
        try:
            yield
        finally:
            connection.execute(f"ALTER DATABASE {name} WITH ALLOW_CONNECTIONS true")


@pytest.mark.parametrize("database", ["postgresql"], indirect=True)
def test_a_result_waits_for_a_database_that_cannot_be_reached(
    records: DatabaseRecords,
    root: Path,
    queue: JobQueue,
    postgres_url: str,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    ended = tmp_path / "ended"
    worker = worker_of(records, root, f"import time; time.sleep(1); open({str(ended)!r}, 'w'); {PRINTS}")
    job_id = started(worker, queue)
    with unreachable(records, postgres_url):
        wait_until(ended.exists, turns=worker.turn)
        for _ in range(3):
            worker.turn()
            time.sleep(0.2)
        with pytest.raises(StoreError):
            queue.submit(JobKind.PLAY, {})
    assert "cannot be used" in capfd.readouterr().err
    wait_until(lambda: has_ended(queue, job_id), turns=worker.turn)
    job = job_of(queue, job_id)
    assert (job.status, job.attempt, job.result["valid"]) == (JobStatus.SUCCEEDED, 1, 3)


@pytest.mark.parametrize("database", ["postgresql"], indirect=True)
def test_a_job_whose_lease_cannot_be_renewed_ends_before_another_worker_has_it(
    records: DatabaseRecords, root: Path, queue: JobQueue, postgres_url: str
) -> None:
    worker = worker_of(records, root, f"{SLEEPS}  # {root}", lease_s=2.0)
    job_id = started(worker, queue)
    wait_until(lambda: runs_with(f"# {root}"))
    with unreachable(records, postgres_url):
        wait_until(lambda: not runs_with(f"# {root}"), turns=worker.turn)
    wait_until(lambda: job_of(queue, job_id).attempt == 2, turns=worker.turn)
    worker.shut_down()
    assert job_of(queue, job_id).status is JobStatus.QUEUED


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_a_database_that_another_writer_holds_only_delays_a_worker(
    records: DatabaseRecords, root: Path, queue: JobQueue
) -> None:
    worker = worker_of(records, root, PRINTS)
    job_id = started(worker, queue)
    with sqlite3.connect(str(records.engine.url.database), isolation_level=None, check_same_thread=False) as holder:
        holder.execute("BEGIN IMMEDIATE")
        release = threading.Timer(2.0, lambda: holder.execute("COMMIT"))
        release.start()
        begin = time.monotonic()
        wait_until(lambda: has_ended(queue, job_id), turns=worker.turn)
        release.join()
    holder.close()
    assert time.monotonic() - begin > 1
    assert job_of(queue, job_id).status is JobStatus.SUCCEEDED


def test_a_worker_that_ends_records_what_is_done_and_returns_the_rest(
    records: DatabaseRecords, root: Path, queue: JobQueue, tmp_path: Path
) -> None:
    ready = tmp_path / "ready"
    signals = "import signal, sys; signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))"
    done = worker_of(records, root, f"{PRINTS}; {signals}; open({str(ready)!r}, 'w'); {SLEEPS}")
    finished = started(done, queue)
    wait_until(ready.exists)
    done.shut_down()
    job = job_of(queue, finished)
    assert (job.status, job.result["valid"]) == (JobStatus.SUCCEEDED, 3)
    other = worker_of(records, root, f"{SLEEPS}  # {root}")
    returned = started(other, queue)
    other.shut_down()
    job = job_of(queue, returned)
    assert (job.status, job.attempt) == (JobStatus.QUEUED, 0)
    assert not runs_with(f"# {root}")


@pytest.mark.parametrize(
    ("code", "error_code", "error"),
    [
        ('print(\'{"error": "no", "kind": "SettingsError"}\'); exit(2)', JobErrorCode.SETTINGS, "no"),
        ('print(\'{"error": "no", "kind": "SandboxMissingError"}\'); exit(3)', JobErrorCode.SANDBOX, "no"),
        ("import sys; print('it broke', file=sys.stderr); exit(3)", JobErrorCode.BROKEN, "exit code 3"),
        ("raise ValueError('a defect')", JobErrorCode.BROKEN, "exit code 1"),
        ("print('[' * 100_000); exit(3)", JobErrorCode.BROKEN, "exit code 3"),
        ("import os; os.kill(os.getpid(), 9)", JobErrorCode.KILLED, "signal 9"),
    ],
)
@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_the_failure_of_a_job_has_a_code_and_a_message(
    records: DatabaseRecords, root: Path, queue: JobQueue, code: str, error_code: JobErrorCode, error: str
) -> None:
    worker = worker_of(records, root, code)
    job_id = started(worker, queue)
    wait_until(lambda: has_ended(queue, job_id), turns=worker.turn)
    job = job_of(queue, job_id)
    assert (job.status, job.error_code) == (JobStatus.FAILED, error_code)
    assert error in job.error


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_a_job_waits_for_a_model_out_of_reach_and_fails_without_a_key(
    records: DatabaseRecords, root: Path, queue: JobQueue, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SSR_MODEL_KEY_TEAM", raising=False)
    with serving() as closed:
        gone = closed.url
    models, project_id = RegisteredModels(records.engine), add_project(records, project)
    models.put("gone", Entry(f"vllm:{gone}"))
    models.put("keyless", Entry(f"vllm:{gone}", key="SSR_MODEL_KEY_TEAM"))
    models.put("greedy", Entry(f"vllm:{gone}", key="AWS_SECRET_ACCESS_KEY"))
    worker = Worker(Store(root), records, sandbox="process")
    variables = {"gone": "", "keyless": "SSR_MODEL_KEY_TEAM", "greedy": "AWS_SECRET_ACCESS_KEY"}
    for name, variable in variables.items():
        settings = {"count": 1, "attempts": 1, "solver": f"model:{name}"}
        job_id = queue.submit(JobKind.PLAY, settings, project_id).id
        wait_until(lambda job_id=job_id: job_of(queue, job_id).error_code, turns=worker.turn)  # type: ignore[misc]
        job = job_of(queue, job_id)
        assert job.error_code is JobErrorCode.MODEL
        assert (job.faults, job.status) == ((1, JobStatus.QUEUED) if name == "gone" else (0, JobStatus.FAILED))
        assert f"model:{name}" in job.error
        assert [each in job.error for each in variables.values() if each] == [
            each == variable for each in variables.values() if each
        ]
        assert gone not in job.error
        assert "\\" not in job.error
        queue.cancel(job_id)


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_a_negative_result_is_a_result(records: DatabaseRecords, root: Path, queue: JobQueue) -> None:
    worker = worker_of(records, root, NEGATIVE)
    job_id = started(worker, queue)
    wait_until(lambda: has_ended(queue, job_id), turns=worker.turn)
    job = job_of(queue, job_id)
    assert (job.status, job.result) == (JobStatus.SUCCEEDED, {"exit_code": 1, "valid": 0})


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_a_project_that_was_removed_or_is_a_link_now_fails_its_job(
    records: DatabaseRecords, root: Path, queue: JobQueue, project: Path
) -> None:
    projects = Projects(records.engine, [project.parent])
    removed, link = projects.add("removed", str(project)).id, projects.add("link", str(project)).id
    projects.remove(removed)
    project.rename(project.with_name("elsewhere"))
    project.symlink_to(project.with_name("elsewhere"))
    worker = Worker(Store(root), records, sandbox="process")
    for project_id in (removed, link):
        job_id = queue.submit(JobKind.PLAY, {}, project_id).id
        wait_until(lambda job_id=job_id: has_ended(queue, job_id), turns=worker.turn)  # type: ignore[misc]
        assert job_of(queue, job_id).error_code is JobErrorCode.PROJECT


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_a_database_that_fails_while_a_job_is_started_does_not_fail_the_job(
    records: DatabaseRecords, root: Path, queue: JobQueue
) -> None:
    fails = [True]

    def planned(job: Job) -> Plan:
        if fails.pop() if fails else False:
            raise StoreError("the database cannot be used")
        return Plan([sys.executable, "-c", PRINTS])

    worker = Worker(Store(root), records, lease_s=2.0, planner=planned)
    job_id = queue.submit(JobKind.PLAY, {}).id
    wait_until(lambda: has_ended(queue, job_id), turns=worker.turn)
    job = job_of(queue, job_id)
    assert (job.status, job.attempt, job.faults, job.error) == (JobStatus.SUCCEEDED, 1, 1, "")


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
@pytest.mark.parametrize(
    ("kind", "error_code"),
    [("StoreError", JobErrorCode.STORE), ("SandboxUnavailableError", JobErrorCode.SANDBOX)],
)
def test_a_job_that_a_part_out_of_reach_has_failed_begins_again_and_shows_no_address(
    records: DatabaseRecords,
    root: Path,
    queue: JobQueue,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    kind: str,
    error_code: JobErrorCode,
) -> None:
    error = json.dumps({"error": "postgresql://user@server is away", "kind": kind})
    code = f"import os; os.path.exists({str(tmp_path / 'back')!r}) or (print({error!r}), exit(3)); {PRINTS}"
    worker = worker_of(records, root, code)
    job_id = started(worker, queue)
    wait_until(lambda: job_of(queue, job_id).faults == 1, turns=worker.turn)
    job = job_of(queue, job_id)
    assert (job.status, job.attempt, job.error_code) == (JobStatus.QUEUED, 0, error_code)
    assert "server" not in f"{job.error}{job.result}"
    assert "server is away" in capsys.readouterr().err
    (tmp_path / "back").touch()
    wait_until(lambda: has_ended(queue, job_id), turns=worker.turn)
    assert job_of(queue, job_id).status is JobStatus.SUCCEEDED


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
@pytest.mark.parametrize(
    ("full", "status", "error_code"),
    [(True, JobStatus.QUEUED, JobErrorCode.STORE), (False, JobStatus.FAILED, JobErrorCode.PROJECT)],
)
def test_a_project_that_a_full_disk_has_not_fetched_is_fetched_again(
    records: DatabaseRecords,
    root: Path,
    queue: JobQueue,
    monkeypatch: pytest.MonkeyPatch,
    full: bool,
    status: JobStatus,
    error_code: JobErrorCode,
) -> None:
    monkeypatch.setattr("harness.service.worker.is_full", lambda folder: full)
    fetch = [sys.executable, "-c", "exit(128)"]
    worker = Worker(Store(root), records, lease_s=2.0, planner=lambda job: Plan([sys.executable], before=[fetch]))
    job_id = started(worker, queue)
    wait_until(lambda: job_of(queue, job_id).error_code, turns=worker.turn)
    job = job_of(queue, job_id)
    assert (job.status, job.error_code, job.faults) == (status, error_code, int(full))


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_what_a_job_reports_is_kept(
    records: DatabaseRecords, root: Path, queue: JobQueue, capsys: pytest.CaptureFixture[str]
) -> None:
    reports = [
        JobReport(stage=Stage.INJECT),
        JobReport(status="3 of 8"),
        JobReport(line="a bug", kind="valid", artifact="a1"),
        JobReport(run="d1"),
        JobReport(private="http://server/secret"),
    ]
    forged = json.dumps({"run": "\ud800", "line": "x"})
    lines = [*(report.to_line() for report in reports), "a warning\x0b{}", '{"status": 7}', forged, "no end"]
    worker = worker_of(records, root, f"import sys; sys.stderr.write({chr(10).join(lines)!r}); {PRINTS}")
    job_id = started(worker, queue)
    wait_until(lambda: has_ended(queue, job_id), turns=worker.turn)
    job = job_of(queue, job_id)
    assert (job.status, job.about) == (JobStatus.SUCCEEDED, {"run": "d1"})
    assert [name for name, _ in job.stages] == ["measure", "inject"]
    kept = queue.log.lines(job_id)
    assert [(line.text, line.artifact_id) for line in kept] == [
        ("a bug", "a1"), ("a warning\x0b{}", ""), ('{"status": 7}', ""), (forged, ""), ("no end", "")
    ]  # fmt: skip
    assert "secret" not in f"{job}{kept}"
    assert "http://server/secret" in capsys.readouterr().err


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_a_job_that_a_fault_has_ended_is_put_back_by_a_worker_that_ends(
    records: DatabaseRecords, root: Path, queue: JobQueue
) -> None:
    error = '{"error": "away", "kind": "StoreError"}'
    worker = worker_of(records, root, f"print({error!r}); exit(3)")
    job_id = started(worker, queue)
    (running,) = worker._running
    # As in a turn that ends before the database answers.
    wait_until(lambda: running.outcome is not None, turns=lambda: worker._follow(running, time.monotonic()))
    worker.shut_down()
    job = job_of(queue, job_id)
    assert (job.status, job.faults, job.attempt) == (JobStatus.QUEUED, 1, 0)


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_readers_see_neither_the_log_nor_the_folder_of_the_store(
    records: DatabaseRecords, root: Path, queue: JobQueue
) -> None:
    result = {"error": f"{root} has no results", "kind": "SettingsError", "store": str(root), "n": 1}
    more = "{str(n): 'y' * 10_000 for n in range(50)}"
    code = (
        f"import json, sys; print('cannot read /srv/secret', file=sys.stderr); print(json.dumps({result!r} | {more}))"
    )
    code += "; exit(2)"
    worker = worker_of(records, root, code)
    job_id = started(worker, queue)
    wait_until(lambda: has_ended(queue, job_id), turns=worker.turn)
    job = job_of(queue, job_id)
    assert (job.error_code, job.result["n"]) == (JobErrorCode.SETTINGS, 1)
    assert str(root) not in f"{job}"
    assert "secret" not in f"{job}"
    assert len(json.dumps(job.result)) < 100_000
    assert [line.text for line in queue.log.lines(job_id)] == ["cannot read /srv/secret"]


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_what_a_job_prints_takes_neither_disk_nor_memory(records: DatabaseRecords, root: Path, queue: JobQueue) -> None:
    code = "import sys\nfor n in range(90): sys.stderr.write('z' * (1 << 20) + '\\n')\nimport time; time.sleep(600)"
    worker = worker_of(records, root, code)
    job_id = started(worker, queue)
    folder = worker._running[0].process.folder  # type: ignore[union-attr]
    wait_until(lambda: len(queue.log.lines(job_id)) > 0, turns=worker.turn)
    wait_until(lambda: sum(p.stat().st_size for p in folder.glob("stderr-*")) < 30 << 20, turns=worker.turn)
    worker.shut_down()
    assert not folder.exists()


def test_a_worker_that_is_not_seen_is_lost_until_it_is_seen_again(records: DatabaseRecords) -> None:
    silent, other = WorkerRow(records.engine, "auto"), WorkerRow(records.engine, "auto")
    silent.show(WorkerStatus.BUSY, "job")
    other.show(WorkerStatus.IDLE)
    with records.engine.begin() as connection:
        own = workers.c.id == silent.id
        connection.execute(sa.update(workers).where(own).values(seen_at=workers.c.seen_at - LOST_S - 1))
    other.report_lost()
    other.report_lost()
    silent.show(WorkerStatus.BUSY, "job")
    with records.engine.connect() as connection:
        shown = [e.data["status"] for e in events_after(connection, 0) if e.subject == silent.id]
    assert shown == [WorkerStatus.BUSY, WorkerStatus.LOST, WorkerStatus.BUSY]
