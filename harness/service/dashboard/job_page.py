"""Compute the page of a job: what it does, what it has found, and its log."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any
from urllib.parse import quote

from markupsafe import Markup

from harness.service.api import PREFIX
from harness.service.dashboard.reading import Reads
from harness.service.dashboard.rendering import amount, moment
from harness.service.filters import EpisodeFilter, JobFilter
from harness.service.job import Job, JobKind, JobLine, JobStatus
from harness.service.projects import Projects
from harness.service.queue import JobQueue
from harness.service.rows import ArtifactRow, EpisodeRow, StoredFile
from harness.service.tokens import Scope
from pytest_ssr.progress import format_duration

_MOST_READ, _MOST_LINES = 2_000, 500
_MOST_BUGS = 60
_NODE = frozenset(("name", "slots", "done", "lost", "faults", "drained", "has_left"))
"""What is known of each node of a cluster."""
_VALID = "valid"
_MOST_FILES = 100
_REMARKS = {
    JobKind.PLAY: "no valid bug",
    JobKind.INJECT: "no valid bug",
    JobKind.VALIDATE: "not valid",
    JobKind.SOLVE: "not resolved",
}
"""What the exit code 1 of a job's command means."""


@dataclass(frozen=True, slots=True)
class ListedJob:
    """A job in a list."""

    job: Job
    project: str

    @property
    def remark(self) -> str:
        """What a command that has done its work did not reach; empty if it reached everything."""
        job = self.job
        if job.status is not JobStatus.SUCCEEDED or not job.result.get("exit_code"):
            return ""
        if job.kind is JobKind.INJECT and "fail_under" in job.settings:
            return "the score is too low"
        if job.kind is JobKind.INJECT and job.result.get("valid"):
            return "fewer valid bugs than wanted"
        if job.kind is JobKind.PLAY and job.settings.get("rounds", 1) != 1:
            return "not every round has a valid bug"
        return _REMARKS.get(job.kind, "a negative result")

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
class ExportedFile:
    """A file that a job has exported."""

    name: str
    size: int
    address: str


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
    episodes: Sequence[EpisodeRow] = ()
    """The last ones of its run."""
    files: Sequence[ExportedFile] = ()
    more_files: int = 0
    """Files that are not shown."""
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
    files = reads.files(f"exports/{job.id}") if job.kind is JobKind.EXPORT else ()
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
        reads.episodes(filters=EpisodeFilter(run=run)).items if run else (),
        [_exported(job, file) for file in files[:_MOST_FILES]],
        len(files[_MOST_FILES:]),
        format_duration(job.not_before - now) if job.status is JobStatus.QUEUED and job.not_before > now else "",
    )


def _exported(job: Job, file: StoredFile) -> ExportedFile:
    return ExportedFile(file.name, file.size, f"{PREFIX}/exports/{job.id}/{quote(file.name)}")


def _elapsed(seconds: float, *, goes_on: bool) -> str | Markup:
    """Return a duration; one that goes on is counted on by the page's script."""
    text = format_duration(seconds)
    return Markup('<span data-elapsed="{:.1f}">{}</span>').format(seconds, text) if goes_on else text


def _cards(shown: ListedJob, expected_s: float | None, now: float) -> list[tuple[str, object]]:
    job = shown.job
    cards: list[tuple[str, object]] = [("Kind", job.kind), ("Project", shown.project or "–")]
    if job.started_at is not None:
        seconds = max(0.0, (job.ended_at or now) - job.started_at)
        cards.append(("Elapsed", _elapsed(seconds, goes_on=job.status is JobStatus.RUNNING)))
    if expected_s is not None and not job.status.has_ended:
        cards.append(("Expected", format_duration(expected_s)))
    cards += [("Try", f"{job.attempt} of {job.max_attempts}"), ("Worker", job.worker_id[:12] or "–")]
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
