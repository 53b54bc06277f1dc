"""Read what the service shows. Lists are paged by the key of their last item, so that every page is equally quick."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Any, TypeVar

import sqlalchemy as sa

from harness.database.blobs import Blobs
from harness.database.engine import describing, reading
from harness.database.events import Event, events_after, last_event
from harness.database.records import DatabaseRecords
from harness.database.schema import artifacts, candidates, entries, episodes, jobs, rollouts, rounds, workers
from harness.service.cursors import decode_cursor, encode_cursor
from harness.service.filters import ArtifactFilter, CandidateFilter, EpisodeFilter, JobFilter, RolloutFilter
from harness.service.rows import (
    ArtifactRow,
    CandidateRow,
    CheckCount,
    DifficultyBucket,
    EpisodeRow,
    FunctionGap,
    JobRow,
    ModelRow,
    Page,
    RatePoint,
    RolloutRow,
    RoundRow,
    RunRow,
    StoredFile,
    WorkerRow,
)
from pytest_ssr.records.candidate_result import CandidateStatus

T = TypeVar("T")
DEFAULT_LIMIT, MAX_LIMIT = 50, 200
_MAX_ROUNDS = 2_000
_MAX_FUNCTIONS = 2_000
_BUCKETS = 10
_SUMMED = ("episodes", "valid", "solved", "graded", "ungraded", "rewards", "rewarded", "tokens", "cost_usd")


_Filter = EpisodeFilter | ArtifactFilter | RolloutFilter | CandidateFilter | JobFilter


class Queries:
    """Queries of the tables and files of a store; they wait for no writer. All methods raise StoreError."""

    def __init__(self, engine: sa.Engine, blobs: Blobs) -> None:
        self._engine = reading(engine)
        self.records = DatabaseRecords(engine, blobs)

    def runs(self, *, after: str = "", limit: int = DEFAULT_LIMIT) -> Page[RunRow]:
        """Return the runs, the last first. A run that stores a round in the meantime moves to the beginning."""
        newest = sa.func.max(rounds.c.stored_at)
        statement = _run_statement()
        if after:
            last = decode_cursor(after, (float, str))
            statement = statement.having(sa.tuple_(newest, rounds.c.run) < sa.tuple_(*map(sa.literal, last)))
        statement = statement.order_by(newest.desc(), rounds.c.run.desc())
        return self._page(statement, RunRow, limit, lambda row: (row.stored_at, row.run))

    def run(self, run: str) -> RunRow | None:
        """Return a run, or None if it does not exist."""
        return self._one(_run_statement().where(rounds.c.run == run), RunRow)

    def rounds(self, run: str) -> Sequence[RoundRow]:
        """Return the last rounds of a run, in order."""
        statement = _select(rounds, RoundRow).where(rounds.c.run == run)
        statement = statement.order_by(rounds.c.round.desc(), rounds.c.path.desc()).limit(_MAX_ROUNDS)
        return self._all(statement, RoundRow)[::-1]

    def episodes(
        self, filters: EpisodeFilter | None = None, *, after: str = "", limit: int = DEFAULT_LIMIT
    ) -> Page[EpisodeRow]:
        """Return the episodes, the last first."""
        statement = _select(episodes, EpisodeRow).where(*_conditions(episodes, filters))
        return self._numbered_page(statement, episodes.c.number, EpisodeRow, after, limit)

    def episode(self, number: int) -> EpisodeRow | None:
        """Return an episode, or None if it does not exist."""
        return self._one(_select(episodes, EpisodeRow).where(episodes.c.number == number), EpisodeRow)

    def artifacts(
        self, filters: ArtifactFilter | None = None, *, after: str = "", limit: int = DEFAULT_LIMIT
    ) -> Page[ArtifactRow]:
        """Return the artifacts, the last first."""
        return self._timed_page(artifacts, "id", ArtifactRow, filters, after, limit)

    def artifact(self, artifact_id: str) -> ArtifactRow | None:
        """Return an artifact, or None if it does not exist."""
        return self._one(_select(artifacts, ArtifactRow).where(artifacts.c.id == artifact_id), ArtifactRow)

    def artifact_files(self, artifact_id: str) -> Sequence[StoredFile]:
        """Return the files of an artifact; an empty list if it does not exist."""
        row = self.artifact(artifact_id)
        return self.files(f"{row.kind}/{row.id}") if row is not None else []

    def artifact_file(self, artifact_id: str, name: str) -> bytes | None:
        """Return a file of an artifact, or None if it does not exist."""
        row = self.artifact(artifact_id)
        return self.records.get(f"{row.kind}/{row.id}/{name}") if row is not None else None

    def verdict(self, artifact_id: str) -> Mapping[str, Any] | None:
        """Return the last verdict on an artifact, or None if there is none."""
        stored = self.files(f"verdicts/{artifact_id}")
        if not stored:
            return None
        last = max(stored, key=lambda file: (file.stored_at, file.name))
        return self.record(f"verdicts/{artifact_id}/{last.name}")

    def rollouts(
        self, filters: RolloutFilter | None = None, *, after: str = "", limit: int = DEFAULT_LIMIT
    ) -> Page[RolloutRow]:
        """Return the rollouts, the last first."""
        return self._timed_page(rollouts, "id", RolloutRow, filters, after, limit)

    def rollout(self, rollout_id: str) -> RolloutRow | None:
        """Return a rollout, or None if it does not exist."""
        return self._one(_select(rollouts, RolloutRow).where(rollouts.c.id == rollout_id), RolloutRow)

    def trajectory(self, rollout_id: str) -> bytes | None:
        """Return the trajectory of a rollout in JSON Lines, or None if it has none."""
        return self.records.get(f"rollouts/{rollout_id}/trajectory.jsonl")

    def candidates(
        self, filters: CandidateFilter | None = None, *, after: str = "", limit: int = DEFAULT_LIMIT
    ) -> Page[CandidateRow]:
        """Return the changes that were tried, the last first."""
        return self._timed_page(candidates, "path", CandidateRow, filters, after, limit)

    def validity_by_check(self) -> Sequence[CheckCount]:
        """Return how many episodes each check rejected, and how many are valid."""
        statement = (
            sa.select(episodes.c.check, sa.func.count().label("episodes"))
            .group_by(episodes.c.check)
            .order_by(episodes.c.check)
        )
        return self._all(statement, CheckCount)

    def solve_rate_over_time(self, run: str | None = None) -> Sequence[RatePoint]:
        """Return solve rate and reward of the last rounds, of one run or of all, in the order of time."""
        statement = sa.select(
            rounds.c.run,
            rounds.c.round,
            rounds.c.stored_at,
            _ratio(rounds.c.solved, rounds.c.graded).label("solve_rate"),
            _ratio(rounds.c.rewards, rounds.c.rewarded).label("reward"),
            rounds.c.graded,
        )
        if run is not None:
            statement = statement.where(rounds.c.run == run)
        statement = statement.order_by(rounds.c.stored_at.desc(), rounds.c.path.desc()).limit(_MAX_ROUNDS)
        return self._all(statement, RatePoint)[::-1]

    def difficulty(self) -> Sequence[DifficultyBucket]:
        """Return how many graded bugs have which solve rate, in tenths."""
        tenth = sa.cast(sa.func.floor(episodes.c.solve_rate * _BUCKETS), sa.Integer)
        statement = sa.select(tenth, sa.func.count()).where(episodes.c.solve_rate.is_not(None))
        counts = [0] * _BUCKETS
        for index, count in self._rows(statement.group_by(tenth)):
            counts[min(_BUCKETS - 1, max(0, index))] += count
        return [DifficultyBucket(n / _BUCKETS, (n + 1) / _BUCKETS, count) for n, count in enumerate(counts)]

    def models(self) -> Sequence[ModelRow]:
        """Return what each solver achieved, by name."""
        resolved = sa.func.sum(sa.case((rollouts.c.resolved, 1), else_=0))
        statement = (
            sa.select(
                rollouts.c.player,
                sa.func.count().label("attempts"),
                sa.func.count(rollouts.c.resolved).label("graded"),
                resolved.label("resolved"),
                _ratio(resolved, sa.func.count(rollouts.c.resolved)).label("solve_rate"),
                *(_total(rollouts.c[name]) for name in ("tokens", "cost_usd", "unpriced", "seconds")),
            )
            .where(rollouts.c.role == "solver")
            .group_by(rollouts.c.player)
            .order_by(rollouts.c.player)
        )
        return self._all(statement, ModelRow)

    def cost_by_model(self) -> Mapping[str, float]:
        """Return what each solver has cost, in USD; calls without a known price are not part of it."""
        return {row.player: row.cost_usd for row in self.models()}

    def workers(self) -> Sequence[WorkerRow]:
        """Return the workers that were seen last."""
        statement = _select(workers, WorkerRow).order_by(workers.c.seen_at.desc(), workers.c.id).limit(MAX_LIMIT)
        return self._all(statement, WorkerRow)

    def jobs(self, filters: JobFilter | None = None, *, after: str = "", limit: int = DEFAULT_LIMIT) -> Page[JobRow]:
        """Return the jobs, the last first."""
        statement = _select(jobs, JobRow).where(*_conditions(jobs, filters))
        return self._numbered_page(statement, jobs.c.number, JobRow, after, limit)

    def job(self, job_id: str) -> JobRow | None:
        """Return a job, or None if it does not exist."""
        return self._one(_select(jobs, JobRow).where(jobs.c.id == job_id), JobRow)

    def functions_by_survivors(self, project: str | None = None) -> Sequence[FunctionGap]:
        """Return functions by the number of changes that no test noticed, most first.

        project: of campaigns that found at least one bug in it; by default all campaigns.
        """
        survivors = sa.func.sum(sa.case((candidates.c.status == CandidateStatus.SURVIVED, 1), else_=0))
        statement = (
            sa.select(
                candidates.c.file,
                candidates.c.scope,
                survivors.label("survivors"),
                sa.func.count().label("candidates"),
            )
            .where(candidates.c.file != "")
            .group_by(candidates.c.file, candidates.c.scope)
            .order_by(survivors.desc(), candidates.c.file, candidates.c.scope)
        )
        if project is not None:
            found = sa.select(artifacts.c.id).where(artifacts.c.repository == project)
            other = candidates.alias()
            campaigns = sa.select(other.c.campaign).where(other.c.artifact_id.in_(found))
            statement = statement.where(candidates.c.campaign.in_(campaigns))
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

    def record(self, path: str) -> Mapping[str, Any] | None:
        """Return a record in JSON, or None if it does not exist or is damaged."""
        return _mapping(self.records.get(path) or b"")

    def last_event(self) -> int:
        """Return the id of the last event, 0 if there is none."""
        with describing(self._engine.url), self._engine.connect() as connection:
            return last_event(connection)

    def events_after(self, last: int, *, limit: int = 500) -> list[Event]:
        """Return the events after an id, in order."""
        with describing(self._engine.url), self._engine.connect() as connection:
            return events_after(connection, last, limit=limit)

    def ping(self) -> None:
        """Raise StoreError unless the database answers."""
        self._rows(sa.select(sa.literal(1)))

    def _timed_page(
        self, table: sa.Table, name: str, kind: type[T], filters: _Filter | None, after: str, limit: int
    ) -> Page[T]:
        """Return a page of a table whose rows are sorted by time; name: of the column that identifies a row."""
        key = (table.c.stored_at, table.c[name])
        statement = _select(table, kind).where(*_conditions(table, filters))
        if after:
            last = decode_cursor(after, (float, str))
            statement = statement.where(sa.tuple_(*key) < sa.tuple_(*map(sa.literal, last)))
        statement = statement.order_by(*(column.desc() for column in key))
        return self._page(statement, kind, limit, lambda row: (row.stored_at, getattr(row, name)))

    def _numbered_page(
        self, statement: sa.Select[Any], number: sa.Column[Any], kind: type[T], after: str, limit: int
    ) -> Page[T]:
        if after:
            statement = statement.where(number < decode_cursor(after, (int,))[0])
        return self._page(statement.order_by(number.desc()), kind, limit, lambda row: (row.number,))

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
    return sa.select(*(table.c[field.name] for field in fields(kind)))


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
    return sa.cast(sa.func.sum(column), kind).label(column.name)


def _ratio(part: sa.ColumnElement[Any], whole: sa.ColumnElement[Any]) -> sa.ColumnElement[Any]:
    return sa.cast(part, sa.Float) / sa.func.nullif(whole, 0)


def _made(kind: type[T], row: Any) -> T:
    values = dict(row._mapping)
    for name in ("settings", "counters"):
        if name in values:
            values[name] = _mapping(values[name].encode()) or {}
    if "result" in values:
        values["result"] = _mapping(values["result"].encode())
    return kind(**values)


def _mapping(data: bytes) -> Mapping[str, Any] | None:
    try:
        parsed = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return parsed if isinstance(parsed, dict) else None
