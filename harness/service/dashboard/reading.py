"""Read what only the pages show, besides what all parts of the service read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from harness.database.schema import artifacts, candidates, episodes, rollouts, rounds
from harness.service.queries import DEFAULT_LIMIT, NOT_OF_A_MODEL, Queries
from pytest_ssr.errors import StoreError
from pytest_ssr.records.candidate_result import CandidateStatus

Row = Any
"""A row of SQLAlchemy, whose columns are attributes that the type checker does not know."""
_MOST_DIFFS = 100
_MOST_BYTES = 4 << 20


class Reads(Queries):
    """The queries of the dashboard."""

    def totals(self) -> Row:
        """Return sums over all rounds."""
        names = ("episodes", "valid", "solved", "graded", "rewards", "rewarded", "tokens", "cost_usd")
        sums = (sa.func.coalesce(sa.func.sum(rounds.c[n]), 0).label(n) for n in names)
        return self._rows(sa.select(*sums).where(*self._own(rounds)))[0]

    def spent_outside_of_rounds(self) -> Row:
        """Return the tokens and the cost of attempts at what no round has, such as those of `ssr run`."""
        played, injected = sa.select(episodes.c.artifact_id), sa.select(episodes.c.injection)
        is_solver = rollouts.c.role == "solver"
        is_outside = sa.case((is_solver, rollouts.c.artifact_id.not_in(played)), else_=rollouts.c.id.not_in(injected))
        sums = (sa.func.coalesce(sa.func.sum(rollouts.c[n]), 0).label(n) for n in ("tokens", "cost_usd"))
        return self._rows(sa.select(*sums).where(is_outside, *self._own(rollouts)))[0]

    def counts(self) -> Mapping[str, int]:
        """Return the numbers of artifacts, attempts and candidates."""
        return {
            table.name: int(self._rows(sa.select(sa.func.count()).select_from(table).where(*self._own(table)))[0][0])
            for table in (artifacts, rollouts, candidates)
        }

    def run_ids(self, beginning: str) -> Sequence[str]:
        """Return the ids of runs, two at most, that begin with a text."""
        matches = rounds.c.run.startswith(beginning, autoescape=True)
        return [row.run for row in self._rows(sa.select(rounds.c.run).where(matches).distinct().limit(2))]

    def campaigns(self) -> Sequence[Row]:
        """Return the campaigns, the last first, each with the project of a bug that it found.

        Those of models are left out: they try no changes of functions.
        """
        statement = (
            sa.select(candidates.c.campaign, sa.func.coalesce(sa.func.max(artifacts.c.repository), "").label("project"))
            .select_from(candidates.outerjoin(artifacts, artifacts.c.id == candidates.c.artifact_id))
            .where(NOT_OF_A_MODEL, *self._own(candidates))
            .group_by(candidates.c.campaign)
            .order_by(sa.func.max(candidates.c.stored_at).desc())
        )
        return self._rows(statement.limit(DEFAULT_LIMIT))

    def shared_bugs(self, left: str, right: str) -> Sequence[Row]:
        """Return the bugs that two runs have, with the attempts of each; those that differ most in them first."""
        one, other = episodes.alias("one"), episodes.alias("other")
        change = sa.cast(other.c.solved, sa.Float) / sa.func.nullif(other.c.graded, 0)
        change -= sa.cast(one.c.solved, sa.Float) / sa.func.nullif(one.c.graded, 0)
        statement = (
            sa.select(
                one.c.artifact_id,
                one.c.operator,
                one.c.scope,
                one.c.solved.label("left_solved"),
                one.c.graded.label("left_graded"),
                other.c.solved.label("right_solved"),
                other.c.graded.label("right_graded"),
            )
            .join_from(one, other, one.c.artifact_id == other.c.artifact_id)
            .where(one.c.run == left, other.c.run == right, one.c.artifact_id != "")
            .order_by(sa.func.abs(sa.func.coalesce(change, 0.0)).desc(), one.c.artifact_id)
        )
        return self._rows(statement.limit(_MOST_DIFFS))

    def gap_counts(self, campaign: str | None = None) -> tuple[int, int]:
        """Return how many functions were changed, and how many changes survived; in one campaign or in all."""
        wanted = NOT_OF_A_MODEL if campaign is None else candidates.c.campaign == campaign
        where = [candidates.c.file != "", wanted, *self._own(candidates)]
        of_functions = sa.select(candidates.c.file, candidates.c.scope).where(*where).distinct().subquery()
        functions = self._rows(sa.select(sa.func.count()).select_from(of_functions))[0][0]
        survived = candidates.c.status == CandidateStatus.SURVIVED
        changes = self._rows(sa.select(sa.func.count()).select_from(candidates).where(survived, *where))[0][0]
        return int(functions), int(changes)

    def has_campaign(self, campaign: str) -> bool:
        """Return whether a change of a campaign is stored."""
        return bool(self._rows(sa.select(candidates.c.path).where(candidates.c.campaign == campaign).limit(1)))

    def survivors(self, campaign: str | None = None) -> Sequence[tuple[Row, Mapping[str, Any]]]:
        """Return changes that survived, each with its record."""
        statement = (
            sa.select(candidates)
            .where(candidates.c.status == CandidateStatus.SURVIVED, *self._own(candidates))
            .order_by(candidates.c.file, candidates.c.scope, candidates.c.line, candidates.c.path)
        )
        if campaign is not None:
            statement = statement.where(candidates.c.campaign == campaign)
        return [(row, self.record(row.path)) for row in self._rows(statement.limit(_MOST_DIFFS))]

    def text(self, path: str, *, most_bytes: int = _MOST_BYTES) -> str | None:
        """Return the beginning of a file as text, or None if it does not exist."""
        try:
            data = self.records.get(path)
        except StoreError:
            # The database has it and the blobs do not: `ssr store check` reports it.
            return None
        return None if data is None else data[:most_bytes].decode(errors="replace")
