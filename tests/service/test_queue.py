"""The queue gives each job to one worker at a time, and records each end once, on SQLite and PostgreSQL."""

from __future__ import annotations

import threading
import time
from collections import Counter
from typing import Any

import pytest
import sqlalchemy as sa

from harness.database.engine import database_time
from harness.database.events import events_after
from harness.database.records import DatabaseRecords
from harness.database.schema import jobs
from harness.records.job_reports import JobReport
from harness.service import job_log
from harness.service import queue as queue_module
from harness.service.metrics import Metrics
from harness.service.queue import (
    MAX_ATTEMPTS,
    MAX_FAULTS,
    Claim,
    JobErrorCode,
    JobKind,
    JobQueue,
    JobStatus,
    Lease,
    Outcome,
    Progress,
    QueueError,
    QueueErrorCode,
)
from harness.service.tokens import Scope, Tokens
from harness.service.worker_row import WorkerRow, WorkerStatus

DONE = Outcome(status=JobStatus.SUCCEEDED, result={"valid": 3})


@pytest.fixture
def queue(records: DatabaseRecords) -> JobQueue:
    return JobQueue(records.engine)


def submitted(queue: JobQueue, **settings: Any) -> str:
    return queue.submit(JobKind.PLAY, settings).id


def claimed(queue: JobQueue, worker: str = "w") -> Claim:
    claim = queue.claim(worker)
    assert claim is not None
    return claim


def end_lease(queue: JobQueue, claim: Claim) -> None:
    """Let a lease end, as when its worker was killed."""
    with queue.engine.begin() as connection:
        connection.execute(sa.update(jobs).where(jobs.c.id == claim.job.id).values(lease_until=1.0))


def status_of(queue: JobQueue, job_id: str) -> JobStatus:
    job = queue.get(job_id)
    assert job is not None
    return job.status


def statuses(queue: JobQueue, job_id: str) -> list[str]:
    """Return the statuses of a job that events have shown, in order."""
    with queue.engine.connect() as connection:
        return [e.data["status"] for e in events_after(connection, 0) if e.kind == "job" and e.subject == job_id]


def test_a_job_runs_from_the_queue_to_its_result(queue: JobQueue) -> None:
    first, second = submitted(queue, rounds=2), submitted(queue)
    claim = claimed(queue)
    assert (claim.job.id, claim.job.settings, claim.job.attempt) == (first, {"rounds": 2}, 1)
    assert queue.report(claim, Progress("round 1\0\ud800"))
    job = queue.get(first)
    assert job is not None
    assert (job.status, job.stage, job.worker_id) == (JobStatus.RUNNING, "round 1\\0\\ud800", "w")
    assert queue.finish(claim, DONE)
    job = queue.get(first)
    assert job is not None
    assert (job.status, job.stage, job.result, job.error_code) == (JobStatus.SUCCEEDED, "", {"valid": 3}, "")
    assert job.started_at is not None
    assert job.ended_at is not None
    assert job.created_at <= job.started_at <= job.ended_at
    assert statuses(queue, first) == ["queued", "running", "running", "succeeded"]
    assert claimed(queue).job.id == second
    assert queue.claim("w") is None


def test_a_job_returns_when_its_lease_ends_and_its_first_worker_cannot_end_it(queue: JobQueue) -> None:
    job_id = submitted(queue)
    lost = claimed(queue, "lost")
    assert queue.claim("other") is None
    end_lease(queue, lost)
    second = claimed(queue, "other")
    assert (second.job.id, second.job.attempt) == (job_id, 2)
    assert queue.renew(lost) is Lease.LOST
    assert not queue.report(lost, Progress("late"))
    assert not queue.finish(lost, DONE)
    assert not queue.release(lost)
    assert status_of(queue, job_id) is JobStatus.RUNNING
    assert queue.renew(second) is Lease.HELD
    assert queue.finish(second, DONE)
    assert not queue.finish(second, DONE)
    assert statuses(queue, job_id) == ["queued", "running", "queued", "running", "succeeded"]


def test_a_worker_whose_lease_has_ended_keeps_a_job_that_nobody_else_took(queue: JobQueue) -> None:
    submitted(queue)
    claim = claimed(queue)
    end_lease(queue, claim)
    assert queue.renew(claim) is Lease.HELD
    assert queue.claim("other") is None


def test_a_fault_of_the_infrastructure_uses_up_no_attempt_and_the_job_waits(queue: JobQueue) -> None:
    job_id = submitted(queue)
    fault = Outcome(status=JobStatus.FAILED, error_code=JobErrorCode.STORE, error="away", is_fault=True)
    waits = []
    for faults in range(1, MAX_FAULTS + 1):
        assert queue.put_back(claimed(queue), fault)
        job = queue.get(job_id)
        assert job is not None
        assert (job.status, job.attempt, job.faults, job.error) == (JobStatus.QUEUED, 0, faults, "away")
        assert queue.claim("w") is None
        with queue.engine.begin() as connection:
            waits.append(job.not_before - database_time(connection))
            connection.execute(sa.update(jobs).values(not_before=1.0))
    assert waits == pytest.approx([5, 10, 20, 40, 80, 160, *[300] * (MAX_FAULTS - 6)], abs=2)
    claim = claimed(queue)
    assert claim.job.error == ""
    assert queue.put_back(claim, fault)
    job = queue.get(job_id)
    assert job is not None
    assert (job.status, job.error_code) == (JobStatus.FAILED, JobErrorCode.STORE)
    assert not queue.put_back(claim, fault)
    retried = queue.retry(job_id)
    assert retried is not None
    assert (retried.faults, retried.not_before) == (0, 0.0)


def test_what_the_jobs_of_a_token_may_spend_is_limited(queue: JobQueue) -> None:
    token, _ = Tokens(queue.engine).create("t", Scope.RUN, usd_per_day=5.0)

    def submit(budget_usd: float | None, owner: str = token.id, *, uses_models: bool = True) -> str:
        settings = {} if budget_usd is None else {"budget_usd": budget_usd}
        return queue.submit(JobKind.PLAY, settings, owner=owner, uses_models=uses_models).id

    def refused(budget_usd: float | None) -> QueueErrorCode:
        with pytest.raises(QueueError) as error:
            submit(budget_usd)
        return error.value.code

    assert refused(None) is QueueErrorCode.NO_BUDGET
    first, second = submit(3.0), submit(2.0)
    assert refused(0.01) is QueueErrorCode.QUOTA
    submit(None, uses_models=False)
    submit(100.0, owner="another")
    queue.cancel(second)
    assert refused(2.01) is QueueErrorCode.QUOTA
    third = submit(2.0)
    claim = claimed(queue)
    assert claim.job.id == first
    queue.finish(claim, Outcome(status=JobStatus.FAILED))
    with pytest.raises(QueueError) as error:
        queue.retry(first)
    assert error.value.code is QueueErrorCode.QUOTA
    queue.cancel(third)
    with queue.engine.begin() as connection:
        connection.execute(sa.update(jobs).where(jobs.c.id == first).values(created_at=1.0))
    assert queue.retry(first) is not None
    assert refused(2.01) is QueueErrorCode.QUOTA
    assert submit(2.0)


def test_a_wait_that_was_set_by_a_clock_ahead_of_ours_is_over(queue: JobQueue) -> None:
    job_id = submitted(queue)
    with queue.engine.begin() as connection:
        connection.execute(sa.update(jobs).values(not_before=database_time(connection) + 86_400))
    assert claimed(queue).job.id == job_id


def test_the_log_of_a_job_is_kept_up_to_a_limit(queue: JobQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_log, "MAX_LINES", 4)
    job_id = submitted(queue)
    claim = claimed(queue)
    first = JobReport(line="bug\0", kind="valid", artifact="a1")
    assert queue.report(claim, Progress("s", [first], {"run": "d1"}, [("inject", 1.5)]))
    job = queue.get(job_id)
    assert job is not None
    assert (job.stage, job.about, job.stages) == ("s", {"run": "d1"}, [("inject", 1.5)])
    (line,) = queue.log.lines(job_id)
    assert (line.text, line.kind, line.artifact_id, line.attempt) == ("bug\\0", "valid", "a1", 1)
    assert queue.report(claim, Progress(lines=[JobReport(line=str(n)) for n in range(9)]))
    assert queue.report(claim, Progress(lines=[JobReport(line="late")]))
    assert [kept.text for kept in queue.log.lines(job_id)][:3] == ["bug\\0", "0", "1"]
    assert len(queue.log.lines(job_id)) == 4
    assert [kept.text for kept in queue.log.lines(job_id, line.number, limit=1)] == ["0"]
    end_lease(queue, claim)
    second = claimed(queue, "other")
    assert not queue.report(claim, Progress(lines=[JobReport(line="of a lost worker")]))
    assert len(queue.log.lines(job_id)) == 4
    assert (second.job.about, second.job.stages) == ({}, [])
    # Each time that a job begins, there is room.
    assert queue.report(second, Progress(lines=[JobReport(line="second")]))
    fault = Outcome(status=JobStatus.FAILED, error_code=JobErrorCode.STORE, is_fault=True)
    assert queue.put_back(second, fault)
    with queue.engine.begin() as connection:
        connection.execute(sa.update(jobs).values(not_before=1.0))
    assert queue.report(claimed(queue), Progress(lines=[JobReport(line="third")]))
    assert [(kept.attempt, kept.text) for kept in queue.log.last_lines(job_id, 2)] == [(2, "second"), (3, "third")]
    assert len(queue.log.last_lines(job_id, 100)) == 6


def test_a_job_that_is_to_be_cancelled_is_not_put_back(queue: JobQueue) -> None:
    job_id = submitted(queue)
    claim = claimed(queue)
    queue.cancel(job_id)
    assert queue.put_back(claim, Outcome(status=JobStatus.FAILED, is_fault=True))
    assert status_of(queue, job_id) is JobStatus.CANCELLED


def test_a_job_whose_workers_are_always_lost_fails(queue: JobQueue) -> None:
    job_id = submitted(queue)
    for attempt in range(1, MAX_ATTEMPTS + 1):
        claim = claimed(queue)
        assert claim.job.attempt == attempt
        end_lease(queue, claim)
    assert queue.claim("w") is None
    job = queue.get(job_id)
    assert job is not None
    assert (job.status, job.error_code) == (JobStatus.FAILED, JobErrorCode.WORKER_LOST)


def test_a_job_that_has_lost_its_worker_does_not_hold_up_the_others(queue: JobQueue) -> None:
    first, second = submitted(queue), submitted(queue)
    end_lease(queue, claimed(queue))
    assert [claimed(queue).job.id for _ in range(2)] == [second, first]


def test_a_released_job_is_at_once_free_and_has_used_no_attempt(queue: JobQueue) -> None:
    job_id = submitted(queue)
    assert queue.release(claimed(queue))
    claim = claimed(queue, "other")
    assert (claim.job.id, claim.job.attempt) == (job_id, 1)


def test_cancelling(queue: JobQueue) -> None:
    waits, runs = submitted(queue), submitted(queue)
    assert queue.cancel(waits)
    assert status_of(queue, waits) is JobStatus.CANCELLED
    claim = claimed(queue)
    assert claim.job.id == runs
    job = queue.cancel(runs)
    assert job is not None
    assert (job.status, job.cancel_requested) == (JobStatus.RUNNING, True)
    assert queue.renew(claim) is Lease.CANCELLED
    assert queue.finish(claim, Outcome(status=JobStatus.CANCELLED))
    assert status_of(queue, runs) is JobStatus.CANCELLED
    assert queue.cancel("unknown") is None
    events = statuses(queue, runs)
    assert queue.cancel(runs) == queue.get(runs)
    assert statuses(queue, runs) == events


@pytest.mark.parametrize("lost", [True, False])
def test_a_cancelled_job_does_not_run_again(queue: JobQueue, lost: bool) -> None:
    job_id = submitted(queue)
    claim = claimed(queue)
    queue.cancel(job_id)
    if lost:
        end_lease(queue, claim)
    else:
        assert queue.release(claim)
    assert queue.claim("other") is None
    assert status_of(queue, job_id) is JobStatus.CANCELLED


def test_retrying(queue: JobQueue) -> None:
    job_id = submitted(queue)
    with pytest.raises(QueueError) as refused:
        queue.retry(job_id)
    assert refused.value.code is QueueErrorCode.NOT_ENDED
    broken = Outcome(status=JobStatus.FAILED, error_code=JobErrorCode.BROKEN, error="it broke")
    assert queue.finish(claimed(queue), broken)
    job = queue.retry(job_id)
    assert job is not None
    assert (job.status, job.error, job.error_code, job.ended_at, job.attempt) == ("queued", "", "", None, 0)
    assert queue.finish(claimed(queue), DONE)
    with pytest.raises(QueueError) as refused:
        queue.retry(job_id)
    assert refused.value.code is QueueErrorCode.SUCCEEDED
    assert queue.retry("unknown") is None


def test_a_request_that_is_sent_twice_makes_one_job(queue: JobQueue) -> None:
    first = queue.submit(JobKind.INJECT, {"count": 3}, "p", "key")
    assert queue.submit(JobKind.INJECT, {"count": 3}, "p", "key") == first
    assert queue.submit(JobKind.INJECT, {"count": 3}, "p", "key2").id != first.id
    with pytest.raises(QueueError) as refused:
        queue.submit(JobKind.INJECT, {"count": 4}, "p", "key")
    assert refused.value.code is QueueErrorCode.KEY_REUSED


def test_requests_with_one_key_at_the_same_time_make_one_job(queue: JobQueue) -> None:
    found: list[str] = []
    threads = [
        threading.Thread(target=lambda: found.append(queue.submit(JobKind.PLAY, {}, None, "key").id)) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert len(set(found)) == 1


def test_many_workers_at_once_run_each_job_once(queue: JobQueue) -> None:
    ids = {submitted(queue, seed=n) for n in range(40)}
    ended: Counter[str] = Counter()

    def work(name: str) -> None:
        while (claim := queue.claim(name)) is not None:
            assert queue.renew(claim) is Lease.HELD
            ended[claim.job.id] += queue.finish(claim, DONE)

    threads = [threading.Thread(target=work, args=(f"w{n}",)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    while (claim := queue.claim("last")) is not None:
        ended[claim.job.id] += queue.finish(claim, DONE)
    assert ended == Counter(ids)


@pytest.mark.parametrize("jump_s", [3_600.0, -3_600.0])
def test_a_clock_that_jumps_neither_loses_nor_doubles_a_job(
    queue: JobQueue, monkeypatch: pytest.MonkeyPatch, jump_s: float
) -> None:
    job_id = submitted(queue)
    claim = claimed(queue)
    real = queue_module.database_time
    monkeypatch.setattr(queue_module, "database_time", lambda connection: real(connection) + jump_s)
    other = queue.claim("other")
    if jump_s > 0:
        # The lease has ended by the clock: it is given to another, and the first learns that.
        assert other is not None
        assert queue.renew(claim) is Lease.LOST
        assert not queue.finish(claim, DONE)
        assert queue.finish(other, DONE)
    else:
        assert other is None
        assert queue.renew(claim) is Lease.HELD
        assert queue.finish(claim, DONE)
    assert statuses(queue, job_id).count("succeeded") == 1


def test_the_job_of_a_lost_worker_returns_soon_after_the_clock_jumped_back(
    queue: JobQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = submitted(queue)
    claimed(queue, "lost")
    real = queue_module.database_time
    offset_s = -3_600.0
    monkeypatch.setattr(queue_module, "database_time", lambda connection: real(connection) + offset_s)
    assert queue.claim("other") is None
    offset_s += queue.lease_s + 1
    assert claimed(queue, "other").job.id == job_id


def test_events_are_seen_in_order_while_many_are_written(queue: JobQueue) -> None:
    seen: list[int] = []
    stop = threading.Event()

    def read() -> None:
        while True:
            last = stop.is_set()
            with queue.engine.connect() as connection:
                seen.extend(e.id for e in events_after(connection, seen[-1] if seen else 0))
            if last:
                return
            time.sleep(0.01)

    reader = threading.Thread(target=read)
    reader.start()
    writers = [threading.Thread(target=lambda: [submitted(queue) for _ in range(10)]) for _ in range(5)]
    for thread in writers:
        thread.start()
    for thread in writers:
        thread.join()
    stop.set()
    reader.join()
    assert seen == sorted(seen)
    assert len(seen) == 50


@pytest.mark.parametrize("shift_s", [86_400.0, -86_400.0])
@pytest.mark.parametrize("database", ["postgresql"], indirect=True)
def test_the_clock_of_a_machine_does_not_matter_to_those_that_share_a_database(
    queue: JobQueue, records: DatabaseRecords, monkeypatch: pytest.MonkeyPatch, shift_s: float
) -> None:
    tokens = Tokens(records.engine)
    _, valid = tokens.create("valid", Scope.READ, expires_at=tokens.now() + 3_600)
    _, expired = tokens.create("expired", Scope.READ, expires_at=tokens.now() - 3_600)
    running, waiting = submitted(queue), submitted(queue, seed=2)
    claim = claimed(queue)
    WorkerRow(records.engine, "process").show(WorkerStatus.IDLE)
    real = time.time
    # From here on, this is another machine.
    monkeypatch.setattr(time, "time", lambda: real() + shift_s)
    assert claimed(queue, "other").job.id == waiting
    assert queue.claim("other") is None
    assert queue.renew(claim) is Lease.HELD
    assert tokens.check(valid) is not None
    assert tokens.check(expired) is None
    assert tokens.any_valid()
    lines = Metrics(records.engine, records.blobs.root, lambda: 0).text().decode().splitlines()
    assert 'ssr_workers{status="idle"} 1.0' in lines
    assert queue.finish(claim, DONE)
    assert status_of(queue, running) is JobStatus.SUCCEEDED
