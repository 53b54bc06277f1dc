"""Run jobs of the queue, each in processes of its own, until the worker is told to end.

One thread does everything in turns of a fraction of a second: it claims jobs, renews their leases, relays their
progress and records their results. A turn is never interrupted, so that no claim is forgotten.
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.database.records import DatabaseRecords
from harness.records.job_reports import JobReport, Stage
from harness.service.job_process import JobProcess, remove_left_over
from harness.service.jobs import EXPORT, Plan, plan_of
from harness.service.projects import Projects
from harness.service.queue import (
    LEASE_S,
    Claim,
    Job,
    JobErrorCode,
    JobQueue,
    JobStatus,
    Lease,
    Outcome,
    Progress,
)
from harness.service.registered_models import RegisteredModels
from harness.service.worker_row import WorkerRow, WorkerStatus
from harness.settings.service import MODEL_KEYS
from pytest_ssr.errors import SsrError, StoreError
from pytest_ssr.escaping import escaped_line
from pytest_ssr.interrupts import pause, uninterrupted
from pytest_ssr.storage.free_space import is_full
from pytest_ssr.storage.store import Store

POLL_S = 0.2
_CLAIM_S = 0.5
_HEARTBEAT_S = 5.0
_RENEW_S = 1.0
"""How often leases are renewed, which is also when a worker learns that a job is to be cancelled."""
_UNSURE = 0.9
"""The share of a lease after which a job that could not be renewed is ended."""
_RETRY_S = 2.0
"""How long the database is left alone after it could not be used."""
_GRACE_S = 10.0
"""How long a job may take to end after it was asked to."""
_MAX_VALUE_CHARS = 16_384
"""A longer value of a job's result is left to the store, which has all results."""
_MAX_RESULT_CHARS = 65_536
_NOT_SHOWN = frozenset(("store", "error", "kind"))
"""Values of a command's output that a job shows otherwise, or that are about its machine."""
_WITH_RESULT = (0, 1)
"""Exit codes of a command that has done its work; 1 stands for a negative result."""
_USAGE = 2
_CODES = {
    "SandboxError": JobErrorCode.SANDBOX,
    "SandboxMissingError": JobErrorCode.SANDBOX,
    "SandboxUnavailableError": JobErrorCode.SANDBOX,
    "UnreachableError": JobErrorCode.SANDBOX,
    "UnresponsiveError": JobErrorCode.SANDBOX,
    "ProjectError": JobErrorCode.PROJECT,
    "ArtifactError": JobErrorCode.PROJECT,
    "SettingsError": JobErrorCode.SETTINGS,
    "ModelError": JobErrorCode.MODEL,
    "ModelUnavailableError": JobErrorCode.MODEL,
    "ServersAwayError": JobErrorCode.MODEL,
    "MissingKeyError": JobErrorCode.MODEL,
    "KeyNotAllowedError": JobErrorCode.MODEL,
    "BudgetSpentError": JobErrorCode.MODEL,
    "StoreError": JobErrorCode.STORE,
    "StoreWriteError": JobErrorCode.STORE,
    "DiskFullError": JobErrorCode.STORE,
}
"""By the name of the error that a command of `ssr` reports."""

_FAULTS = frozenset(
    (
        *("SandboxError", "SandboxUnavailableError", "UnresponsiveError", "StoreError", "StoreWriteError"),
        *("DiskFullError", "ModelUnavailableError", "ServersAwayError", "UnreachableError"),
    )
)
"""Errors that are faults of the infrastructure, after which a job begins again later.

They have addresses and folders of the infrastructure, except those of models, whose names stand for them.
"""
_SHOWN = {
    JobErrorCode.STORE: "the database or the files of the store could not be used; the worker's log has the cause",
    JobErrorCode.SANDBOX: "the sandbox broke, or cannot be used on the worker; its log has the cause",
}
"""What a job says after them: readers learn no address and no folder of the infrastructure."""
_MOST_STAGES = 200
Planner = Callable[[Job], Plan]


class _Running:
    """A job that this worker has."""

    def __init__(self, claim: Claim, held_at: float, sandboxes: Counter[str]) -> None:
        """held_at: when the lease was last known to be held. sandboxes: gets the counts of the job at its end."""
        self.claim, self.held_at, self._sandboxes = claim, held_at, sandboxes
        self.process: JobProcess | None = None
        self.outcome: Outcome | None = None
        self.kill_at: float | None = None
        self.status = ""
        """What the job is doing, as it has reported last."""
        self._lines: list[JobReport] = []
        self._about: dict[str, str] = {}
        self._stages: list[tuple[str, float]] = []
        self._has_news = False

    def read(self, *, is_over: bool = False) -> None:
        """Read what the job has reported. is_over: its commands have ended."""
        if self.process is None:
            return
        if not self._stages:
            self._stages.append((Stage.FETCH if self.process.is_fetching else Stage.MEASURE, time.time()))
        for report in self.process.reports(is_over=is_over):
            if report.private:
                _log(f"job {self.claim.job.id}: {report.private}")
                continue
            self._has_news = True
            self.status = report.status or self.status
            ids = {"run": report.run, "campaign": report.campaign}
            self._about |= {name: value for name, value in ids.items() if value}
            if report.line:
                self._lines.append(report)
            if report.stage is not None and report.stage != self._stages[-1][0]:
                self._stages.append((report.stage, time.time()))

    def news(self) -> Progress | None:
        """Return what was read and not yet returned; None without news."""
        if not self._has_news:
            return None
        return Progress(self.status, self._lines, self._about, self._stages[-_MOST_STAGES:])

    def told(self) -> None:
        """Forget the news, which the queue has now."""
        self._lines, self._has_news = [], False

    def end(self) -> None:
        """End its processes and remove their files."""
        if self.process is not None:
            self.process.kill()
            self._sandboxes.update(self.process.sandboxes())
            self.process.remove()
            self.process = None


class Worker:
    """A worker: several jobs at once, in one process."""

    def __init__(
        self,
        store: Store,
        records: DatabaseRecords,
        *,
        jobs_at_once: int = 1,
        sandbox: str = "auto",
        model_keys: Sequence[str] = MODEL_KEYS,
        lease_s: float = LEASE_S,
        planner: Planner | None = None,
    ) -> None:
        """records: the database of the store. model_keys: patterns of the variables whose keys registered models may
        use. planner: returns the commands of a job; those of `ssr` by default.
        """
        self._store, self._records, self._jobs_at_once = store, records, jobs_at_once
        self._queue = JobQueue(records.engine, lease_s=lease_s)
        self._projects = Projects(records.engine)
        self._row = WorkerRow(records.engine, sandbox)
        self._planner, self._model_keys = planner or self._plan, model_keys
        self._running: list[_Running] = []
        self._claim_at = self._heartbeat_at = self._use_database_at = 0.0

    @property
    def id(self) -> str:
        """The id of this worker."""
        return self._row.id

    def run(self) -> None:
        """Run jobs until SIGINT or SIGTERM; jobs that cannot end soon after it return to the queue."""
        remove_left_over()
        try:
            while True:
                with uninterrupted():
                    self.turn()
                pause(POLL_S)
        except KeyboardInterrupt:
            pass
        finally:
            with uninterrupted():
                self.shut_down()

    def turn(self) -> None:
        """Do everything that is due."""
        now = time.monotonic()
        for running in list(self._running):
            self._follow(running, now)
        if now < self._use_database_at:
            return
        try:
            for running in list(self._running):
                self._report(running, now)
            if now >= self._heartbeat_at:
                self._show()
                self._row.report_lost()
                self._heartbeat_at = now + _HEARTBEAT_S
            self._fill(now)
        except StoreError as error:
            _log(f"{error}; the worker tries again")
            self._use_database_at = time.monotonic() + _RETRY_S

    def shut_down(self) -> None:
        """Interrupt the jobs, and record the results of those that end with one; the others return to the queue."""
        for running in self._running:
            if running.process is not None and running.outcome is None:
                running.process.interrupt()
        deadline = time.monotonic() + _GRACE_S
        while time.monotonic() < deadline and any(r.process and r.process.poll() is None for r in self._running):
            time.sleep(POLL_S / 4)
        try:
            for running in self._running:
                self._hand_back(running)
            self._row.show(WorkerStatus.STOPPED)
        except StoreError as error:
            _log(f"{error}; the jobs of this worker return to the queue when their leases end")
        finally:
            for running in self._running:
                running.end()

    def _hand_back(self, running: _Running) -> None:
        process = running.process
        if process is not None and running.outcome is None and not process.is_fetching:
            code = process.poll()
            if code in _WITH_RESULT:
                outcome = self._outcome(running, process, code)
                # What an interrupt has broken runs again.
                running.outcome = outcome if outcome.status is JobStatus.SUCCEEDED else None
        running.end()
        if running.outcome is not None:
            self._end(running, running.outcome)
        else:
            self._queue.release(running.claim)

    def _follow(self, running: _Running, now: float) -> None:
        """Look after a job's process; this needs no database, and so also goes on without it."""
        if running.process is None or running.outcome is not None:
            return
        try:
            code = running.process.poll()
        except OSError as error:
            running.outcome = _broken(error)
            running.end()
            return
        if code is not None:
            running.outcome = self._outcome(running, running.process, code)
            running.end()
        elif running.kill_at is not None and now >= running.kill_at:
            running.process.kill()
        elif now - running.held_at > _UNSURE * self._queue.lease_s:
            # Another worker may begin it soon.
            _log(f"the lease of the job {running.claim.job.id} could not be renewed in time; it is ended here")
            self._drop(running)

    def _report(self, running: _Running, now: float) -> None:
        """Tell the database about a job."""
        if running not in self._running:
            return
        if running.outcome is not None:
            self._end(running, running.outcome)
            self._drop(running)
            self._show()
            return
        if now - running.held_at >= min(_RENEW_S, self._queue.lease_s / 3):
            self._renew(running, now)

    def _end(self, running: _Running, outcome: Outcome) -> None:
        """Tell the queue how a job has ended."""
        self._tell(running)
        if outcome.is_fault:
            self._queue.put_back(running.claim, outcome)
        elif self._queue.finish(running.claim, outcome):
            self._row.jobs_done += 1

    def _renew(self, running: _Running, now: float) -> None:
        """Renew the lease, learn whether the job is to be cancelled, and record a new stage."""
        assert running.process is not None
        lease = self._queue.renew(running.claim)
        if lease is Lease.LOST:
            _log(f"the job {running.claim.job.id} was given to another worker")
            self._drop(running)
            return
        running.held_at = now
        if lease is Lease.CANCELLED:
            if running.kill_at is None:
                running.process.interrupt()
                running.kill_at = now + _GRACE_S
            return
        running.read()
        self._tell(running)

    def _tell(self, running: _Running) -> None:
        """Record what a job has reported."""
        news = running.news()
        if news is not None:
            self._queue.report(running.claim, news)
            running.told()

    def _fill(self, now: float) -> None:
        """Claim jobs while there is room."""
        if now < self._claim_at:
            return
        while len(self._running) < self._jobs_at_once:
            held_at = time.monotonic()
            claim = self._queue.claim(self._row.id)
            if claim is None:
                self._claim_at = now + _CLAIM_S
                return
            running = _Running(claim, held_at, self._row.sandboxes)
            self._running.append(running)
            self._start(running)
            self._show()

    def _start(self, running: _Running) -> None:
        try:
            running.process = JobProcess(self._planner(running.claim.job))
        except (OSError, SsrError) as error:
            running.outcome = _broken(error)

    def _plan(self, job: Job) -> Plan:
        project = self._projects.get(job.project_id) if job.project_id else None
        models = RegisteredModels(self._records.engine).all()
        return plan_of(job, project, self._store, sandbox=self._row.sandbox, models=models, model_keys=self._model_keys)

    def _outcome(self, running: _Running, process: JobProcess, code: int) -> Outcome:
        running.read(is_over=True)
        if running.kill_at is not None:
            return Outcome(status=JobStatus.CANCELLED)
        output = process.output()
        if process.is_fetching:
            # What git says about it is prose, in any language.
            if is_full(self._store.root) or is_full(process.folder):
                return _failed(
                    "DiskFullError", JobErrorCode.STORE, "the project could not be fetched: no space is left"
                )
            error = "the project could not be fetched; the job's log has the cause"
            return Outcome(status=JobStatus.FAILED, error_code=JobErrorCode.PROJECT, error=error)
        # Python also ends with 1 after an error that nothing expected, but then without an output.
        if code not in _WITH_RESULT or (code and not output):
            return _failure(code, output, self._store.root)
        try:
            self._keep(process, output, code)
        except (OSError, StoreError) as error:
            return _failed("StoreError", JobErrorCode.STORE, str(error))
        return Outcome(status=JobStatus.SUCCEEDED, result={"exit_code": code, **_summary(output)})

    def _keep(self, process: JobProcess, output: Mapping[str, Any], code: int) -> None:
        """Share what the job has made besides the results that its command stores itself."""
        plan = process.plan
        if plan.board and output:
            self._store.put_record("boards", plan.board, output)
        if plan.export and code == 0:
            folder = self._store.root / plan.export
            # An earlier attempt may have ended in the middle of this.
            shutil.rmtree(folder, ignore_errors=True)
            shutil.copytree(process.folder / EXPORT, folder)
            for path in (folder, *sorted(p for p in folder.rglob("*") if p.is_dir())):
                self._store.keep(path.relative_to(self._store.root).as_posix())

    def _drop(self, running: _Running) -> None:
        running.end()
        if running in self._running:
            self._running.remove(running)

    def _show(self) -> None:
        job_id = self._running[0].claim.job.id if self._running else ""
        self._row.show(WorkerStatus.BUSY if self._running else WorkerStatus.IDLE, job_id)


def _broken(error: OSError | SsrError) -> Outcome:
    """Return the outcome of a job that could not be started."""
    name = "StoreWriteError" if isinstance(error, OSError) else type(error).__name__
    return _failed(name, JobErrorCode.BROKEN, str(error))


def _failed(name: str, other: JobErrorCode, message: str, result: Mapping[str, Any] | None = None) -> Outcome:
    """Return the outcome of a job that has failed. name: of the error; other: the code of an unknown one."""
    code, is_fault = _CODES.get(name, other), name in _FAULTS
    if is_fault:
        _log(message)
        message, result = _SHOWN.get(code, message), None
    error = _on_one_line(message)
    return Outcome(status=JobStatus.FAILED, result=result, error_code=code, error=error, is_fault=is_fault)


def _on_one_line(message: str) -> str:
    """Return a message with its lines joined; one that ends with a colon begins a list."""
    first, *others = (escaped_line(line.strip()) for line in message.splitlines() or [""])
    listed = "; ".join(filter(None, others))
    return f"{first}{' ' if first.endswith(':') else '; '}{listed}" if listed else first


def _failure(code: int, output: Mapping[str, Any], store: Path) -> Outcome:
    if code < 0:
        error = f"signal {-code} ended the command; perhaps the machine had no memory left"
        return Outcome(status=JobStatus.FAILED, error_code=JobErrorCode.KILLED, error=error)
    fallback = JobErrorCode.SETTINGS if code == _USAGE else JobErrorCode.BROKEN
    message = output.get("error")
    error = f"the command ended with exit code {code}; the job's log has the cause"
    if isinstance(message, str):
        error = message.replace(str(store), "the store").replace(str(store.absolute()), "the store")
    return _failed(str(output.get("kind", "")), fallback, error, _summary(output))


def _summary(output: Mapping[str, Any]) -> dict[str, Any]:
    """Return the short values of a command's output, as far as there is room, without what is for its error."""
    result: dict[str, Any] = {}
    room = _MAX_RESULT_CHARS
    for name, value in output.items():
        size = len(name) + len(json.dumps(value))
        if name not in _NOT_SHOWN and size <= min(room, _MAX_VALUE_CHARS):
            result[name] = value
            room -= size
    return result


def _log(line: str) -> None:
    print(f"ssr worker: {escaped_line(line)}", file=sys.stderr, flush=True)
