"""Compute the pages of jobs, workers and projects, and read their forms."""

from __future__ import annotations

import secrets
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from harness.models.factory import NAMED
from harness.service.dashboard.job_page import ListedJob, listed
from harness.service.dashboard.reading import Reads
from harness.service.dashboard.summaries import following, page_after
from harness.service.filters import JobFilter
from harness.service.job import JobKind, JobStatus
from harness.service.jobs import NEED_PROJECT, Setting, Value, settings_of, validated
from harness.service.projects import Project, Projects
from harness.service.rows import WorkerRow
from harness.service.tokens import Scope
from harness.service.worker_row import LOST_S
from pytest_ssr.errors import SettingsError

_NUMBERS = {int: int, float: float}
_SHOWN_S = 60 * LOST_S
"""How long a worker that has ended is listed."""
_PROJECT = "project"
_SENT_KEY = "key"
_ALWAYS_SHOWN = frozenset(("solver", "attempts"))
"""Settings of a group that are shown with those without one."""


_OF_EPISODE = {"count": "1", "higher_order": "0"}
"""Where the form of an episode begins: with one bug, and none of second order."""


@dataclass(frozen=True, slots=True)
class Field:
    """A setting in a form."""

    name: str
    label: str
    help: str
    value: str
    """What was entered, or the default."""
    choices: Sequence[str] = ()
    is_switch: bool = False
    is_number: bool = False
    is_required: bool = False
    unit: str = ""
    suggestions: Sequence[str] = ()
    """Values that are offered for a text."""
    group: str = ""
    """The title of the group that it is shown in, empty for those that are always shown."""


@dataclass(frozen=True, slots=True)
class JobForm:
    """The form that starts a job of one kind."""

    kind: JobKind
    fields: Sequence[Field]
    needs_project: bool
    project: str = ""
    """The id of the chosen one."""
    error: str = ""
    is_chosen: bool = False
    """Whether its kind was chosen, so that the form is to be seen."""
    key: str = field(default_factory=lambda: secrets.token_urlsafe(16))
    """A form that is sent twice makes one job."""

    @property
    def groups(self) -> Mapping[str, Sequence[Field]]:
        """The fields by the title of their group; those that are always shown come first."""
        groups: dict[str, list[Field]] = {"": []}
        for each in self.fields:
            groups.setdefault(each.group, []).append(each)
        return groups


@dataclass(frozen=True, slots=True)
class JobsPage:
    """The queue, the workers, and a form."""

    rows: Sequence[ListedJob]
    status: str
    statuses: Sequence[str]
    workers: Sequence[WorkerRow]
    projects: Sequence[Project]
    kinds: Sequence[str]
    form: JobForm | None
    """None for those that may not start jobs."""
    next: str = ""


@dataclass(frozen=True, slots=True)
class ProjectsPage:
    """The projects, and a form to add one."""

    rows: Sequence[Project]
    can_change: bool
    entered: Mapping[str, str]
    error: str = ""


def jobs_page(reads: Reads, projects: Projects, scope: Scope, form: JobForm, *, status: str, after: str) -> JobsPage:
    """Return the page of the queue. status: only jobs with it, empty for all."""
    known = projects.list()
    names, now = {project.id: project.name for project in known}, reads.now()
    wanted = JobFilter(status=JobStatus(status)) if status in list(JobStatus) else JobFilter()
    found = page_after(partial(reads.jobs, filters=wanted), after)
    address = f"?status={wanted.status}&" if wanted.status else "?"
    return JobsPage(
        [listed(job, names) for job in found.items],
        str(wanted.status or ""),
        list(JobStatus),
        [worker for worker in reads.workers() if now - worker.seen_at < _SHOWN_S],
        known,
        list(JobKind),
        form if scope.includes(Scope.RUN) else None,
        following(found, address),
    )


def job_form(
    kind: str,
    models: Collection[str],
    sent: Mapping[str, str] | None = None,
    error: str = "",
    *,
    of_episode: bool = False,
) -> JobForm:
    """Return the form of a kind of job.

    models: the names of the registered ones. sent: what was entered. of_episode: begin with one bug and its attempts.
    """
    chosen = JobKind(kind) if kind in list(JobKind) else JobKind.PLAY
    values = sent or {}
    fields = [_field(setting, values, models, is_new=sent is None) for setting in settings_of(chosen).values()]
    if of_episode and chosen is JobKind.PLAY:
        fields = [replace(field, value=_OF_EPISODE.get(field.name, field.value)) for field in fields]
    return JobForm(chosen, fields, chosen in NEED_PROJECT, values.get(_PROJECT, ""), error, kind == chosen)


def read_job_form(
    sent: Mapping[str, str], models: Collection[str]
) -> tuple[JobKind, dict[str, Value], str | None, str]:
    """Return the kind, the settings, the project's id and the key of a form; raises SettingsError.

    models: the names of the registered ones.
    """
    kind = sent.get("kind", "")
    if kind not in list(JobKind):
        raise SettingsError("choose a kind of job", option="kind")
    chosen = JobKind(kind)
    entered = {
        s.name: _entered(s, sent)
        for s in settings_of(chosen).values()
        if s.kind is bool or sent.get(s.name, "").strip()
    }
    project = sent.get(_PROJECT) or None
    if (project is not None) != (chosen in NEED_PROJECT):
        raise SettingsError("choose a project", option=_PROJECT)
    key = sent.get(_SENT_KEY, "")
    if not 10 <= len(key) <= 64 or not key.isascii():
        raise SettingsError("the form is incomplete; load it again")
    return chosen, validated(chosen, entered, models), project, key


def _entered(setting: Setting, sent: Mapping[str, str]) -> Value:
    text = sent.get(setting.name, "").strip()
    if setting.kind is bool:
        return bool(text)
    convert = _NUMBERS.get(setting.kind)
    try:
        return convert(text) if convert is not None else text
    except ValueError:
        raise SettingsError(f"{setting.name} should be a number", option=setting.name) from None


def _field(setting: Setting, sent: Mapping[str, str], models: Collection[str], *, is_new: bool) -> Field:
    default = "" if setting.default is None or setting.kind is bool else str(setting.default)
    return Field(
        setting.name,
        setting.name.replace("_", " "),
        setting.help,
        default if is_new else sent.get(setting.name, ""),
        _choices(setting),
        is_switch=setting.kind is bool,
        is_number=setting.kind in _NUMBERS,
        is_required=setting.leaf.is_required,
        unit=setting.unit,
        suggestions=[f"{NAMED}{name}" for name in models] if setting.takes_model else (),
        group="" if setting.name in _ALWAYS_SHOWN else setting.leaf.title.rstrip("."),
    )


def _choices(setting: Setting) -> Sequence[str]:
    """Return what can be chosen; the first is empty if the command has no default."""
    is_open = not setting.leaf.is_required and setting.default in (None, "")
    return ("", *(c for c in setting.choices if c)) if setting.choices and is_open else setting.choices
