"""Read what the service shows. Lists are paged by the key of their last item, so that every page is equally quick."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any, TypeVar

import sqlalchemy as sa

from harness.database.engine import database_time, describing, reading
from harness.database.events import Event, events_after, last_event
from harness.database.records import DatabaseRecords
from harness.database.schema import artifacts, candidates, entries, episodes, jobs, rollouts, rounds, workers
from harness.records.attempt import Attempt
from harness.service.filters import ArtifactFilter, AttemptFilter, CandidateFilter, EpisodeFilter, JobFilter
from harness.service.job import Job
from harness.service.kept import Kept
from harness.service.rows import (
    ArtifactRow,
    AttemptDetails,
    AttemptRow,
    CandidateRow,
    CheckCount,
    DifficultyBucket,
    EpisodeDetails,
    EpisodeRow,
    FunctionGap,
    ModelRow,
    Page,
    RoundRow,
    RunRow,
    StoredFile,
    WorkerRow,
)
from pytest_ssr.errors import SettingsError
from pytest_ssr.records.candidate_result import CandidateStatus
from pytest_ssr.records.check_reasons import CheckCode
from pytest_ssr.records.decoding import json_object

_MAX_LENGTH = 1_024
_MAX_INTEGER = 2**63 - 1


def encode_cursor(key: Sequence[object]) -> str:
    """Return the position after an item. key: the values that sort it."""
    return base64.urlsafe_b64encode(json.dumps(list(key)).encode()).decode().rstrip("=")


def decode_cursor(text: str, types: Sequence[type]) -> list[object]:
    """Return the values that sort the item before a position; raises SettingsError if it is not such a position."""
    values = _decoded(text) if len(text) <= _MAX_LENGTH else None
    if not isinstance(values, list) or len(values) != len(types) or not all(map(_fits, values, types)):
        raise SettingsError("`after` is not a position in this list; use the value of `next`", option="after")
    return values


def _decoded(text: str) -> object:
    try:
        padded = text.encode("ascii") + b"=" * (-len(text) % 4)
        return json.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
    except (ValueError, RecursionError):
        return None


def _fits(value: object, expected: type) -> bool:
    if type(value) is not expected:
        return False
    if isinstance(value, int):
        return abs(value) <= _MAX_INTEGER
    if isinstance(value, float):
        return math.isfinite(value)
    # PostgreSQL takes no NUL, and nothing takes a lone surrogate.
    return isinstance(value, str) and "\0" not in value and value.isprintable()


T = TypeVar("T")
DEFAULT_LIMIT, MAX_LIMIT = 50, 200
_MAX_ROUNDS = 2_000
_MAX_FUNCTIONS = 2_000
_BUCKETS = 10
_SUMMED = ("episodes", "valid", "solved", "graded", "rewards", "rewarded", "tokens", "cost_usd")
_COUNTED = (CandidateStatus.VALID, CandidateStatus.REJECTED)
NOT_OF_A_MODEL = ~candidates.c.campaign.startswith("model-")
"""Campaigns of operators; those of models (ModelCampaign) show nothing of what the tests miss."""
_BEFORE_CHECKS = frozenset(("screening", "weakening", *CheckCode))
"""Steps before the checks, and the codes of bugs that have no artifact to check."""
_JSON = ("counters",)
"""Columns that hold a JSON object as text."""
_Filter = EpisodeFilter | ArtifactFilter | AttemptFilter | CandidateFilter | JobFilter


class Queries:
    """Queries of the tables and files of a store; they wait for no writer. All methods raise StoreError.

    Lists raise SettingsError for a position that is not one of theirs.
    """

    def __init__(self, records: DatabaseRecords, *, run: str = "") -> None:
        """run: reads only what belongs to a run; by default to any."""
        self.records, self._run = records, run
        self.sums = Kept()
        self._engine = reading(records.engine)

    def runs(self, after: str = "", *, limit: int = DEFAULT_LIMIT) -> Page[RunRow]:
        """Return the runs, the last first. A run that stores a round in the meantime moves to the beginning."""
        newest = sa.func.max(rounds.c.stored_at)
        statement = _run_statement().where(*self._own(rounds))
        if after:
            last = decode_cursor(after, (float, str))
            statement = statement.having(sa.tuple_(newest, rounds.c.run) < sa.tuple_(*map(sa.literal, last)))
        statement = statement.order_by(newest.desc(), rounds.c.run.desc())
        return self._page(statement, RunRow, limit, lambda row: (row.stored_at, row.run))

    def run(self, run: str) -> RunRow | None:
        """Return a run, or None if it does not exist."""
        return self._one(_run_statement().where(rounds.c.run == run), RunRow)

    def rounds(self, run: str | None = None) -> Sequence[RoundRow]:
        """Return the last rounds, of one run or of all, in the order of time."""
        statement = _select(rounds, RoundRow).where(*self._own(rounds))
        statement = statement.order_by(rounds.c.stored_at.desc(), rounds.c.path.desc())
        if run is not None:
            statement = statement.where(rounds.c.run == run)
        return self._all(statement.limit(_MAX_ROUNDS), RoundRow)[::-1]

    def episodes(
        self, after: str = "", filters: EpisodeFilter | None = None, *, limit: int = DEFAULT_LIMIT
    ) -> Page[EpisodeRow]:
        """Return the episodes, the last first."""
        return self._numbered_page(episodes, EpisodeRow, filters, after, limit)

    def episode(self, number: int) -> EpisodeRow | None:
        """Return an episode, or None if it does not exist."""
        return self._one(_select(episodes, EpisodeRow).where(episodes.c.number == number), EpisodeRow)

    def episode_details(self, number: int) -> EpisodeDetails | None:
        """Return an episode with its record, which is read from its file; None if it does not exist."""
        row = self.episode(number)
        if row is None:
            return None
        place = sa.select(episodes.c.path, episodes.c.position).where(episodes.c.number == number)
        path, position = self._rows(place)[0]
        listed = self.record(path).get("episodes")
        record = listed[position] if isinstance(listed, list) and position < len(listed) else None
        return EpisodeDetails(
            **asdict(row), record=record if isinstance(record, dict) else {}, job_id=self._job_of_run(row.run)
        )

    def episodes_of_attempt(self, attempt: AttemptRow) -> Sequence[EpisodeRow]:
        """Return the last episodes with the bug of an attempt, or of the bug that an injector's attempt made."""
        is_its = episodes.c.injection == attempt.id
        if attempt.artifact_id:
            is_its |= episodes.c.artifact_id == attempt.artifact_id
        statement = _select(episodes, EpisodeRow).where(is_its, *self._own(episodes))
        return self._all(statement.order_by(episodes.c.number.desc()).limit(DEFAULT_LIMIT), EpisodeRow)

    def _job_of_run(self, run: str) -> str:
        # As JobQueue.report has written it.
        about = jobs.c.about.contains(f'"run": {json.dumps(run)}', autoescape=True)
        found = self._rows(sa.select(jobs.c.id).where(about).order_by(jobs.c.number.desc()).limit(1)) if run else ()
        return str(found[0].id) if found else ""

    def artifacts(
        self, after: str = "", filters: ArtifactFilter | None = None, *, limit: int = DEFAULT_LIMIT
    ) -> Page[ArtifactRow]:
        """Return the artifacts, the last first."""
        return self._timed_page(artifacts, "id", ArtifactRow, filters, after, limit)

    def artifact(self, artifact_id: str) -> ArtifactRow | None:
        """Return an artifact, or None if it does not exist."""
        return self._one(_select(artifacts, ArtifactRow).where(artifacts.c.id == artifact_id), ArtifactRow)

    def verdict_path(self, artifact_id: str) -> str | None:
        """Return where the last verdict on an artifact is; None without a verdict."""
        folder = f"verdicts/{artifact_id}"
        last = max(self.files(folder), key=lambda file: (file.stored_at, file.name), default=None)
        return f"{folder}/{last.name}" if last is not None else None

    def attempts(
        self, after: str = "", filters: AttemptFilter | None = None, *, limit: int = DEFAULT_LIMIT
    ) -> Page[AttemptRow]:
        """Return the attempts, the last first."""
        return self._timed_page(rollouts, "id", AttemptRow, filters, after, limit)

    def attempt(self, attempt_id: str) -> AttemptRow | None:
        """Return an attempt, or None if it does not exist."""
        return self._one(_select(rollouts, AttemptRow).where(rollouts.c.id == attempt_id), AttemptRow)

    def attempt_details(self, attempt_id: str) -> AttemptDetails | None:
        """Return an attempt with its record, which is read from its file; None if it does not exist."""
        row = self.attempt(attempt_id)
        if row is None:
            return None
        record = Attempt.from_json(self.record(f"rollouts/{row.id}/rollout.json"))
        return AttemptDetails(**asdict(row), record=record.to_json() if record is not None else {})

    def candidates(
        self, after: str = "", filters: CandidateFilter | None = None, *, limit: int = DEFAULT_LIMIT
    ) -> Page[CandidateRow]:
        """Return the changes that were tried, the last first."""
        return self._timed_page(candidates, "path", CandidateRow, filters, after, limit)

    def validity(self) -> Sequence[CheckCount]:
        """Return how many bugs each check rejected, and how many are valid, of those that reached a check."""
        return [row for row in self.rejections() if row.check not in _BEFORE_CHECKS]

    def rejections(self) -> Sequence[CheckCount]:
        """Return how many bugs each check or earlier step rejected, and how many are valid.

        Episodes count; only in a store without episodes, candidates do.
        """
        count = sa.func.count().label("bugs")
        # Without a check and not valid are bugs of earlier releases, which nothing is known about.
        known = episodes.c.valid | (episodes.c.check != "")
        by_episode = sa.select(episodes.c.check, count).where(known, *self._own(episodes)).group_by(episodes.c.check)
        found = self._all(by_episode, CheckCount)
        if not found:
            is_known = (candidates.c.status == CandidateStatus.VALID) | (candidates.c.check != "")
            where = (candidates.c.status.in_(_COUNTED), is_known, *self._own(candidates))
            found = self._all(
                sa.select(candidates.c.check, count).where(*where).group_by(candidates.c.check), CheckCount
            )
        return sorted(found, key=lambda row: row.check)

    def difficulty(self) -> Sequence[DifficultyBucket]:
        """Return how many graded bugs have which solve rate, in tenths; those that all attempts solve are the last."""
        # Whole numbers: the two databases round a fraction to an integer differently.
        tenth: Any = (episodes.c.solved * _BUCKETS) // episodes.c.graded
        graded = sa.select(tenth, sa.func.count()).where(episodes.c.graded > 0, *self._own(episodes))
        counts = {int(row[0]): int(row[1]) for row in self._rows(graded.group_by(tenth))}
        return [DifficultyBucket(n / _BUCKETS, counts.get(n, 0)) for n in range(_BUCKETS + 1)]

    def models(self) -> Sequence[ModelRow]:
        """Return what each solver achieved, by name."""
        resolved = sa.func.sum(sa.case((rollouts.c.resolved, 1), else_=0))
        graded = sa.func.count(rollouts.c.resolved)
        statement = (
            sa.select(
                rollouts.c.player,
                sa.func.count().label("attempts"),
                graded.label("graded"),
                resolved.label("resolved"),
                (sa.cast(resolved, sa.Float) / sa.func.nullif(graded, 0)).label("solve_rate"),
                *(_total(rollouts.c[name]) for name in ("tokens", "cost_usd", "unpriced", "seconds")),
            )
            .where(rollouts.c.role == "solver", *self._own(rollouts))
            .group_by(rollouts.c.player)
            .order_by(rollouts.c.player)
        )
        return self._all(statement, ModelRow)

    def now(self) -> float:
        """Return the time by the clock that the times of jobs and workers are of."""
        with describing(self._engine.url), self._engine.connect() as connection:
            return database_time(connection)

    def workers(self) -> Sequence[WorkerRow]:
        """Return the workers that were seen last."""
        statement = _select(workers, WorkerRow).order_by(workers.c.seen_at.desc(), workers.c.id).limit(MAX_LIMIT)
        return self._all(statement, WorkerRow)

    def jobs(self, after: str = "", filters: JobFilter | None = None, *, limit: int = DEFAULT_LIMIT) -> Page[Job]:
        """Return the jobs, the last first."""
        return self._numbered_page(jobs, Job, filters, after, limit)

    def functions(self, campaign: str | None = None) -> Sequence[FunctionGap]:
        """Return functions by the number of changes that no test noticed, most first.

        campaign: only this one; by default all, except those of models.
        """
        survived = sa.func.sum(sa.case((candidates.c.status == CandidateStatus.SURVIVED, 1), else_=0))
        tried = sa.func.count()
        wanted = NOT_OF_A_MODEL if campaign is None else candidates.c.campaign == campaign
        statement = (
            sa.select(candidates.c.file, candidates.c.scope, survived.label("survived"), tried.label("tried"))
            .where(candidates.c.file != "", wanted, *self._own(candidates))
            .group_by(candidates.c.file, candidates.c.scope)
            .order_by(survived.desc(), tried.desc(), candidates.c.file, candidates.c.scope)
        )
        return self._all(statement.limit(_MAX_FUNCTIONS), FunctionGap)

    def files(self, folder: str, *, limit: int = 1_000) -> Sequence[StoredFile]:
        """Return the files below a folder of the store, sorted by name."""
        path = entries.c.path
        # A range, which uses the index of the primary key; `/` is followed by `0`.
        statement = _file_statement(folder).where(path > f"{folder}/", path < f"{folder}0")
        return self._all(statement.order_by(path).limit(limit), StoredFile)

    def file(self, path: str) -> StoredFile | None:
        """Return what is known about a file, or None if it does not exist."""
        return self._one(_file_statement(path.rpartition("/")[0]).where(entries.c.path == path), StoredFile)

    def record(self, path: str) -> Mapping[str, Any]:
        """Return a record in JSON; empty if it does not exist or is damaged."""
        return json_object(self.records.get(path) or b"") or {}

    def last_event(self) -> int:
        """Return the id of the last event; 0 without events."""
        with describing(self._engine.url), self._engine.connect() as connection:
            return last_event(connection)

    def events_after(self, last: int, *, limit: int = 500) -> list[Event]:
        """Return the events after an id, in order."""
        with describing(self._engine.url), self._engine.connect() as connection:
            return events_after(connection, last, limit=limit)

    def _timed_page(
        self, table: sa.Table, name: str, kind: type[T], filters: _Filter | None, after: str, limit: int
    ) -> Page[T]:
        """Return a page of a table whose rows are sorted by time; name: of the column that identifies a row."""
        key = (table.c.stored_at, table.c[name])
        statement = _select(table, kind).where(*_conditions(table, filters), *self._own(table))
        if after:
            last = decode_cursor(after, (float, str))
            statement = statement.where(sa.tuple_(*key) < sa.tuple_(*map(sa.literal, last)))
        statement = statement.order_by(*(column.desc() for column in key))
        return self._page(statement, kind, limit, lambda row: (row.stored_at, getattr(row, name)))

    def _numbered_page(
        self, table: sa.Table, kind: type[T], filters: _Filter | None, after: str, limit: int
    ) -> Page[T]:
        number = table.c.number
        statement = _select(table, kind).where(*_conditions(table, filters), *self._own(table))
        if after:
            statement = statement.where(number < decode_cursor(after, (int,))[0])
        return self._page(statement.order_by(number.desc()), kind, limit, lambda row: (row.number,))

    def _own(self, table: sa.Table) -> list[sa.ColumnElement[bool]]:
        """Return the conditions of what belongs to the run; a bug that two runs found belongs to both."""
        if not self._run:
            return []
        bugs = sa.select(episodes.c.artifact_id).where(episodes.c.run == self._run, episodes.c.artifact_id != "")
        if table is artifacts:
            return [artifacts.c.id.in_(bugs)]
        if table is rollouts:
            return [rollouts.c.artifact_id.in_(bugs)]
        if table is candidates:
            found = candidates.alias()
            return [candidates.c.campaign.in_(sa.select(found.c.campaign).where(found.c.artifact_id.in_(bugs)))]
        return [table.c.run == self._run]

    def _page(
        self, statement: sa.Select[Any], kind: type[T], limit: int, key: Callable[[Any], tuple[object, ...]]
    ) -> Page[T]:
        size = max(1, min(limit, MAX_LIMIT))
        rows = self._rows(statement.limit(size + 1))
        following = encode_cursor(key(rows[size - 1])) if len(rows) > size else ""
        return Page([_made(kind, row) for row in rows[:size]], following)

    def _one(self, statement: sa.Select[Any], kind: type[T]) -> T | None:
        rows = self._rows(statement)
        return _made(kind, rows[0]) if rows else None

    def _all(self, statement: sa.Select[Any], kind: type[T]) -> list[T]:
        return [_made(kind, row) for row in self._rows(statement)]

    def _rows(self, statement: sa.Executable) -> Sequence[Any]:
        with describing(self._engine.url), self._engine.connect() as connection:
            return connection.execute(statement).all()


def _select(table: sa.Table, kind: type) -> sa.Select[Any]:
    """Return the query of what a kind of row holds: columns by their name."""
    columns = [table.c[field.name] for field in fields(kind) if field.name in table.c]
    if kind is AttemptRow:
        return sa.select(*columns, sa.exists().where(artifacts.c.id == table.c.artifact_id).label("has_artifact"))
    return sa.select(*columns)


def _run_statement() -> sa.Select[Any]:
    return sa.select(
        rounds.c.run,
        sa.func.min(rounds.c.project).label("project"),
        sa.func.count().label("rounds"),
        *(_total(rounds.c[name]) for name in _SUMMED),
        sa.func.max(rounds.c.stored_at).label("stored_at"),
    ).group_by(rounds.c.run)


def _file_statement(folder: str) -> sa.Select[Any]:
    name = sa.func.substr(entries.c.path, len(folder) + 2).label("name")
    return sa.select(name, entries.c.size, entries.c.digest, entries.c.stored_at)


def _conditions(table: sa.Table, filters: _Filter | None) -> list[sa.ColumnElement[bool]]:
    if filters is None:
        return []
    values = {field.name: getattr(filters, field.name) for field in fields(filters)}
    return [table.c[name] == value for name, value in values.items() if value is not None]


def _total(column: sa.Column[Any]) -> sa.ColumnElement[Any]:
    # PostgreSQL sums large integers to decimal numbers, which JSON does not have.
    kind: sa.types.TypeEngine[Any] = sa.Float() if isinstance(column.type, sa.Float) else sa.BigInteger()
    return sa.cast(sa.func.coalesce(sa.func.sum(column), 0), kind).label(column.name)


def _made(kind: type[T], row: Any) -> T:
    of: Callable[[Any], T] | None = getattr(kind, "of", None)
    if of is not None:
        return of(row)
    values = dict(row._mapping)
    for name in _JSON:
        if name in values:
            values[name] = json_object(values[name].encode()) or {}
    return kind(**values)
