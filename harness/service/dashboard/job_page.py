"""Compute the page of a job: what it does, what it has found, and its log."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from harness.service.dashboard.reading import Reads
from harness.service.dashboard.rendering import amount, moment
from harness.service.filters import JobFilter
from harness.service.job import Job, JobLine, JobStatus
from harness.service.projects import Projects
from harness.service.queue import JobQueue
from harness.service.rows import ArtifactRow
from harness.service.tokens import Scope
from pytest_ssr.progress import format_duration

_MOST_READ, _MOST_LINES = 2_000, 500
_MOST_BUGS = 60
_NODE = frozenset(("name", "slots", "done", "lost", "faults", "drained", "has_left"))
"""What is known of each node of a cluster."""
_VALID = "valid"


@dataclass(frozen=True, slots=True)
class ListedJob:
    """A job in a list."""

    job: Job
    project: str

    @property
    def can_cancel(self) -> bool:
        """Whether it can be cancelled."""
        return not self.job.status.has_ended and not self.job.cancel_requested


@dataclass(frozen=True, slots=True)
class StageRow:
    """A stage of a job."""

    name: str
    seconds: float
    share: float
    """Of the time of all stages."""
    is_last: bool

    @property
    def duration(self) -> str:
        """How long it took, or takes so far."""
        return format_duration(self.seconds)


@dataclass(frozen=True, slots=True)
class FoundBug:
    """A bug that a job has found."""

    id: str
    row: ArtifactRow | None
    """None if it is not stored yet."""
    said: Sequence[str]
    """What the log says about it after it was found."""


@dataclass(frozen=True, slots=True)
class JobPage:
    """A job with its settings, its log and its result."""

    listed: ListedJob
    cards: Sequence[tuple[str, object]]
    stages: Sequence[StageRow]
    bugs: Sequence[FoundBug]
    lines: Sequence[JobLine]
    """The log, the last line first; empty for readers, who may not see paths of a worker."""
    left_out: int
    summary: Sequence[tuple[str, object]]
    """The numbers and texts of its result."""
    result: str
    can_run: bool
    run: str = ""
    """The run that it has stored rounds of, or empty."""
    campaign: str = ""
    """The campaign whose changes it tries, or empty."""
    waits: str = ""
    """How long it waits after a fault, or empty."""

    @property
    def nodes(self) -> Sequence[Mapping[str, Any]]:
        """What each node of a cluster did, as the command has reported it; empty for jobs without a cluster."""
        found = self.listed.job.result.get("nodes")
        return [n for n in found if isinstance(n, dict) and n.keys() >= _NODE] if isinstance(found, list) else []

    @property
    def can_retry(self) -> bool:
        """Whether it can be put into the queue again."""
        return self.listed.job.status in (JobStatus.FAILED, JobStatus.CANCELLED)


@dataclass(slots=True)
class _Bugs:
    """The bugs in a log, in the order in which they were found."""

    said: dict[str, list[str]] = field(default_factory=dict)

    def read(self, line: JobLine) -> None:
        if line.kind == _VALID and line.artifact_id:
            self.said.setdefault(line.artifact_id, [])
        elif line.artifact_id in self.said:
            self.said[line.artifact_id].append(line.text)


def listed(job: Job, names: Mapping[str, str]) -> ListedJob:
    """Return a job with the name of its project. names: by id."""
    return ListedJob(job, names.get(job.project_id or "", "removed project" if job.project_id else ""))


def job_page(reads: Reads, queue: JobQueue, job: Job | None, projects: Projects, scope: Scope) -> JobPage | None:
    """Return the page of a job; None if it does not exist."""
    if job is None:
        return None
    shown, now = listed(job, {project.id: project.name for project in projects.list()}), reads.now()
    can_run, lines = scope.includes(Scope.RUN), queue.log.last_lines(job.id, _MOST_READ)
    bugs = _Bugs()
    for line in lines:
        # What was found before it began again is found again.
        if line.attempt == lines[-1].attempt:
            bugs.read(line)
    run, campaign = job.about.get("run", ""), job.about.get("campaign", "")
    return JobPage(
        shown,
        _cards(shown, _expected_s(reads, job), now),
        _stages(job, now),
        [FoundBug(name, reads.artifact(name), said) for name, said in list(bugs.said.items())[-_MOST_BUGS:]],
        lines[: -_MOST_LINES - 1 : -1] if can_run else [],
        max(0, len(lines) - _MOST_LINES) if can_run else 0,
        [
            (name.replace("_", " "), amount(value) if isinstance(value, float) else value)
            for name, value in job.result.items()
            if isinstance(value, str | int | float)
        ],
        json.dumps(job.result, indent=1, ensure_ascii=False) if job.result else "",
        can_run,
        run if run and reads.run(run) is not None else "",
        campaign if campaign and reads.has_campaign(campaign) else "",
        format_duration(job.not_before - now) if job.status is JobStatus.QUEUED and job.not_before > now else "",
    )


def _cards(shown: ListedJob, expected_s: float | None, now: float) -> list[tuple[str, object]]:
    job = shown.job
    cards: list[tuple[str, object]] = [("Kind", job.kind), ("Project", shown.project or "–")]
    if job.started_at is not None:
        cards.append(("Elapsed", format_duration(max(0.0, (job.ended_at or now) - job.started_at))))
    if expected_s is not None and not job.status.has_ended:
        cards.append(("Expected", format_duration(expected_s)))
    cards += [("Attempt", f"{job.attempt} of {job.max_attempts}"), ("Worker", job.worker_id[:12] or "–")]
    if job.faults:
        cards.append(("Faults of the infrastructure", job.faults))
    times = (("Submitted", job.created_at), ("Started", job.started_at), ("Ended", job.ended_at))
    return [*cards, *((title, moment(time)) for title, time in times if time is not None)]


def _expected_s(reads: Reads, job: Job) -> float | None:
    """Return the median time of the last jobs of the same kind and project with the same settings; None without any."""
    earlier = reads.jobs(filters=JobFilter(JobStatus.SUCCEEDED, job.kind, job.project_id)).items
    times = sorted(
        other.ended_at - other.started_at
        for other in earlier
        if other.settings == job.settings and other.ended_at is not None and other.started_at is not None
    )
    return times[len(times) // 2] if times else None


def _stages(job: Job, now: float) -> list[StageRow]:
    end = job.ended_at if job.ended_at is not None else now
    bounds = [*job.stages, ("", end)]
    times = [(name, max(0.0, until - since)) for (name, since), (_, until) in pairwise(bounds)]
    total = sum(seconds for _, seconds in times) or 1.0
    return [StageRow(name, s, s / total, n == len(times) - 1) for n, (name, s) in enumerate(times)]
