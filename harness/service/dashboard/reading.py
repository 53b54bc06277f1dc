"""Read what pages show from the tables and the files of a store. Lists are read by key, so that any page is quick."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from harness.database.engine import describing, reading
from harness.database.events import Event, events_after, last_event
from harness.database.records import DatabaseRecords
from harness.database.schema import artifacts, candidates, episodes, rollouts, rounds
from pytest_ssr.errors import StoreError
from pytest_ssr.records.candidate_result import CandidateStatus
from pytest_ssr.records.decoding import json_object

Row = Any
"""A row of SQLAlchemy, whose columns are attributes that the type checker does not know."""
PAGE_ROWS = 50
MOST_FUNCTIONS = 400
_MOST_DIFFS = 100
_MOST_ROUNDS = 2_000
_BUCKETS = 10
_MOST_BYTES = 4 << 20
_COUNTED = (CandidateStatus.VALID, CandidateStatus.REJECTED)


@dataclass(frozen=True, slots=True)
class Batch:
    """Some rows of a list."""

    rows: Sequence[Row]
    after: str
    """What to pass to get the following ones; empty if there are no more."""


@dataclass(frozen=True, slots=True)
class EpisodeFilter:
    """Which episodes a page lists; an empty value allows all."""

    run: str = ""
    project: str = ""
    strategy: str = ""
    check: str = ""
    valid: bool | None = None

    def conditions(self) -> list[sa.ColumnElement[bool]]:
        """Return the conditions of a query."""
        equal = {"run": self.run, "project": self.project, "strategy": self.strategy, "check": self.check}
        found = [episodes.c[name] == value for name, value in equal.items() if value]
        return found if self.valid is None else [*found, episodes.c.valid == self.valid]


class Reads:
    """Queries of the dashboard; they wait for no writer."""

    def __init__(self, records: DatabaseRecords, *, run: str = "", page_rows: int = PAGE_ROWS) -> None:
        """run: reads only what belongs to a run; by default to any. page_rows: length of a batch."""
        self._records, self._run, self._page_rows = records, run, page_rows
        self._engine = reading(records.engine)

    def events_after(self, last: int) -> Sequence[Event]:
        """Return the next events after an id, in order."""
        with describing(self._engine.url), self._engine.connect() as connection:
            return events_after(connection, last)

    def last_event(self) -> int:
        """Return the id of the last event, 0 without any."""
        with describing(self._engine.url), self._engine.connect() as connection:
            return last_event(connection)

    def totals(self) -> Row:
        """Return sums over all rounds."""
        names = ("episodes", "valid", "solved", "graded", "rewards", "rewarded", "tokens", "cost_usd")
        sums = (sa.func.coalesce(sa.func.sum(rounds.c[n]), 0).label(n) for n in names)
        return self._all(sa.select(*sums).where(*self._own(rounds)))[0]

    def counts(self) -> Mapping[str, int]:
        """Return the numbers of artifacts, attempts and candidates."""
        return {
            table.name: int(self._all(sa.select(sa.func.count()).select_from(table).where(*self._own(table)))[0][0])
            for table in (artifacts, rollouts, candidates)
        }

    def rounds(self, run: str = "") -> Sequence[Row]:
        """Return the last rounds, of one run or of all, in the order of time."""
        statement = sa.select(rounds).where(*self._own(rounds)).order_by(rounds.c.stored_at.desc()).limit(_MOST_ROUNDS)
        return self._all(statement.where(rounds.c.run == run) if run else statement)[::-1]

    def difficulty(self) -> Sequence[int]:
        """Return the number of graded bugs by tenths of their solve rate; those that all solve are the last."""
        rate = sa.cast(episodes.c.solve_rate * _BUCKETS, sa.Integer)
        graded: Any = sa.select(rate, sa.func.count()).where(episodes.c.solve_rate.is_not(None), *self._own(episodes))
        counts = [0] * (_BUCKETS + 1)
        for row in self._all(graded.group_by(rate)):
            counts[min(_BUCKETS, max(0, row[0]))] += row[1]
        return counts

    def rejections(self) -> Mapping[str, int]:
        """Return the number of checked bugs by the check that rejected them; valid ones have an empty name.

        Episodes count; only in a store without episodes, candidates do.
        """
        by_episode = sa.select(episodes.c.check, sa.func.count()).where(*self._own(episodes)).group_by(episodes.c.check)
        found = {row[0]: row[1] for row in self._all(by_episode)}
        if found:
            return found
        counted = sa.select(candidates.c.check, sa.func.count()).where(candidates.c.status.in_(_COUNTED))
        return {row[0]: row[1] for row in self._all(counted.group_by(candidates.c.check))}

    def runs(self, after: str = "") -> Batch:
        """Return runs, the last first."""
        newest = sa.func.max(rounds.c.stored_at)
        names = ("episodes", "valid", "solved", "graded", "rewards", "rewarded", "tokens", "cost_usd")
        statement = (
            sa.select(
                rounds.c.run,
                sa.func.min(rounds.c.project).label("project"),
                sa.func.count().label("rounds"),
                *(sa.func.sum(rounds.c[name]).label(name) for name in names),
                newest.label("stored_at"),
            )
            .where(*self._own(rounds))
            .group_by(rounds.c.run)
            .order_by(newest.desc(), rounds.c.run.desc())
        )
        if bounds := _bounds(after):
            statement = statement.having(sa.tuple_(newest, rounds.c.run) < sa.tuple_(*map(sa.literal, bounds)))
        return self._batch(statement, lambda row: f"{row.stored_at!r}~{row.run}")

    def run_ids(self, beginning: str) -> Sequence[str]:
        """Return the ids of runs, two at most, that begin with a text."""
        matches = rounds.c.run.startswith(beginning, autoescape=True)
        return [row.run for row in self._all(sa.select(rounds.c.run).where(matches).distinct().limit(2))]

    def episodes(self, wanted: EpisodeFilter, after: str = "") -> Batch:
        """Return episodes, the last first."""
        wanted_rows = sa.select(episodes).where(*wanted.conditions(), *self._own(episodes))
        statement = wanted_rows.order_by(episodes.c.number.desc())
        if after.isdecimal() and len(after) < 19:
            statement = statement.where(episodes.c.number < int(after))
        return self._batch(statement, lambda row: str(row.number))

    def artifacts(self, after: str = "") -> Batch:
        """Return artifacts, the last first."""
        return self._by_time(artifacts, after)

    def artifact(self, artifact_id: str) -> Row | None:
        """Return an artifact's row, or None if it does not exist."""
        return self._one(sa.select(artifacts).where(artifacts.c.id == artifact_id))

    def attempts(self, after: str = "", *, artifact_id: str = "") -> Batch:
        """Return attempts, the last first, each with whether its artifact is stored."""
        return self._by_time(rollouts, after, rollouts.c.artifact_id == artifact_id if artifact_id else None)

    def attempt(self, attempt_id: str) -> Row | None:
        """Return an attempt's row, or None if it does not exist."""
        return self._one(sa.select(*_columns(rollouts)).where(rollouts.c.id == attempt_id))

    def models(self) -> Sequence[Row]:
        """Return what solvers did, by their name."""
        statement = (
            sa.select(
                rollouts.c.player,
                sa.func.count().label("attempts"),
                sa.func.count(rollouts.c.resolved).label("graded"),
                sa.func.sum(sa.case((rollouts.c.resolved, 1), else_=0)).label("resolved"),
                *(sa.func.sum(rollouts.c[name]).label(name) for name in ("tokens", "cost_usd", "seconds")),
            )
            .where(rollouts.c.role == "solver", *self._own(rollouts))
            .group_by(rollouts.c.player)
            .order_by(rollouts.c.player)
        )
        return self._all(statement)

    def campaigns(self) -> Sequence[Row]:
        """Return the campaigns, the last first, each with the project of a bug that it found."""
        statement = (
            sa.select(candidates.c.campaign, sa.func.coalesce(sa.func.max(artifacts.c.repository), "").label("project"))
            .select_from(candidates.outerjoin(artifacts, artifacts.c.id == candidates.c.artifact_id))
            .where(*self._own(candidates))
            .group_by(candidates.c.campaign)
            .order_by(sa.func.max(candidates.c.stored_at).desc())
        )
        return self._all(statement.limit(PAGE_ROWS))

    def functions(self, campaign: str = "") -> Sequence[Row]:
        """Return functions by the number of changes that survived, most first."""
        survived = sa.func.sum(sa.case((candidates.c.status == CandidateStatus.SURVIVED, 1), else_=0))
        statement = (
            sa.select(candidates.c.file, candidates.c.scope, survived.label("survived"), sa.func.count().label("tried"))
            .where(candidates.c.file != "", *self._own(candidates))
            .group_by(candidates.c.file, candidates.c.scope)
            .order_by(survived.desc(), sa.func.count().desc(), candidates.c.file, candidates.c.scope)
        )
        return self._all(
            (statement.where(candidates.c.campaign == campaign) if campaign else statement).limit(MOST_FUNCTIONS)
        )

    def survivors(self, campaign: str = "") -> Sequence[tuple[Row, Mapping[str, Any]]]:
        """Return changes that survived, each with its record."""
        statement = (
            sa.select(candidates)
            .where(candidates.c.status == CandidateStatus.SURVIVED, *self._own(candidates))
            .order_by(candidates.c.file, candidates.c.scope, candidates.c.line, candidates.c.path)
        )
        rows = self._all(
            (statement.where(candidates.c.campaign == campaign) if campaign else statement).limit(_MOST_DIFFS)
        )
        return [(row, self.record(row.path)) for row in rows]

    def verdict(self, artifact_id: str) -> Mapping[str, Any]:
        """Return the stored verdict on an artifact; empty without one."""
        paths = self._records.digests(f"verdicts/{artifact_id}")
        return self.record(max(paths)) if paths else {}

    def record(self, path: str) -> Mapping[str, Any]:
        """Return a record; empty if it does not exist or is damaged."""
        return json_object(self.file(path) or "") or {}

    def file(self, path: str) -> str | None:
        """Return the beginning of a file as text, or None if it does not exist."""
        try:
            data = self._records.get(path)
        except StoreError:
            # The database has it and the blobs do not: `ssr store check` reports it.
            return None
        return None if data is None else data[:_MOST_BYTES].decode(errors="replace")

    def _by_time(self, table: sa.Table, after: str, condition: sa.ColumnElement[bool] | None = None) -> Batch:
        rows = sa.select(*_columns(table)).where(*self._own(table))
        statement = rows.order_by(table.c.stored_at.desc(), table.c.id.desc())
        if condition is not None:
            statement = statement.where(condition)
        if bounds := _bounds(after):
            statement = statement.where(sa.tuple_(table.c.stored_at, table.c.id) < sa.tuple_(*map(sa.literal, bounds)))
        return self._batch(statement, lambda row: f"{row.stored_at!r}~{row.id}")

    def _batch(self, statement: sa.Select[Any], key: Any) -> Batch:
        rows = self._all(statement.limit(self._page_rows + 1))
        shown = rows[: self._page_rows]
        return Batch(shown, key(shown[-1]) if len(rows) > self._page_rows else "")

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

    def _one(self, statement: sa.Select[Any]) -> Row | None:
        rows = self._all(statement)
        return rows[0] if rows else None

    def _all(self, statement: sa.Select[Any]) -> Sequence[Row]:
        with describing(self._engine.url), self._engine.connect() as connection:
            return connection.execute(statement).all()


def _columns(table: sa.Table) -> list[Any]:
    if table is not rollouts:
        return [table]
    stored = sa.exists().where(artifacts.c.id == rollouts.c.artifact_id)
    return [rollouts, stored.label("has_artifact")]


def _bounds(after: str) -> tuple[float, str] | None:
    """Return the time and the id of the last row of a page, or None if `after` is not such a pair."""
    time, mark, name = after.partition("~")
    try:
        return (float(time), name) if mark else None
    except ValueError:
        return None
