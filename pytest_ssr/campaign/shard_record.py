"""Keep in a store what a shard was to do and what became of it, beside its results: `ssr merge` joins them by it."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Any

from pytest_ssr.campaign.campaign import Campaign
from pytest_ssr.campaign.ending import Cut
from pytest_ssr.campaign.facts import CampaignFacts, facts_of
from pytest_ssr.injectors.git_history import last_commit
from pytest_ssr.records.candidate_result import Goal, is_tried
from pytest_ssr.records.decoding import decode_or_none
from pytest_ssr.records.shard import MOST, Shard
from pytest_ssr.storage.store import Store

SHARDS = "shards"
"""The folder of the store with a record of each shard."""
PLAN = ("of", "changes", "planned", "is_all", "wanted", "fail_under")
"""The fields, besides those of the key, that are the same for all shards of one piece of work."""
_SCHEMA_VERSION = 1


class ShardKind(StrEnum):
    """What is split."""

    INJECT = "inject"
    VALIDATE = "validate"


class ShardEnding(StrEnum):
    """How a shard ended."""

    RUNNING = "running"
    """It runs, or was killed."""
    DONE = "done"
    TIME = "time"
    INTERRUPTED = "interrupted"


ENDINGS = {
    Cut.NOTHING: ShardEnding.DONE,
    Cut.TIME: ShardEnding.TIME,
    Cut.INTERRUPT: ShardEnding.INTERRUPTED,
}


@dataclass(frozen=True, slots=True)
class ShardRecord:
    """What a shard was to do, and what became of it."""

    kind: ShardKind
    key: str
    """The key of the campaign, which is the same for all shards, or of what is validated."""
    number: int
    of: int
    changes: int
    """The number of candidates that was asked for, for all shards; of artifacts, their number."""
    planned: int
    """How many of them there are, for all shards."""
    is_all: bool
    """Whether the project has no further candidates."""
    ending: ShardEnding
    tried: int
    """How many of the shard's changes are proven to have run, so that it is known how the tests react to them."""
    started_at: float
    """In seconds since the epoch."""
    conditions: Mapping[str, str]
    """What the results depend on."""
    commit: str = ""
    """The commit that was checked out, for people; empty outside of a repository."""
    wanted: int = 0
    """The value of --count, which a report has."""
    fail_under: float | None = None
    """The limit of the gate, if there is one."""
    facts: CampaignFacts | None = None
    """What reports show besides the results; None for a validation."""

    @property
    def shard(self) -> Shard:
        """Which one it is."""
        return Shard(self.number, self.of)

    @property
    def plan(self) -> tuple[object, ...]:
        """What is the same for all shards of one piece of work."""
        return (self.kind, self.key, *(getattr(self, name) for name in PLAN))

    @property
    def indices(self) -> range:
        """The indices of its results."""
        return self.shard.indices(self.planned)

    @property
    def is_sound(self) -> bool:
        """Whether the numbers can be those of a shard, and what a merge needs is there."""
        is_whole = self.kind is ShardKind.VALIDATE or (self.facts is not None and "files" in self.conditions)
        return is_whole and 1 <= self.number <= self.of <= MOST and 0 <= self.planned <= self.changes

    def to_json(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {"schema_version": _SCHEMA_VERSION, **asdict(self)}


def put_shard(store: Store, record: ShardRecord) -> None:
    """Write the record of a shard, replacing that of an earlier run of it."""
    store.put_record(f"{SHARDS}/{record.key}", f"{record.number:05d}-of-{record.of:05d}", record.to_json())


def stored_shards(store: Store) -> list[ShardRecord]:
    """Return the records of all shards in a store."""
    found = []
    for path in store.fetch(SHARDS):
        data = store.record(f"{SHARDS}/{path.parent.name}", path.stem) if path.suffix == ".json" else None
        record = decode_or_none(ShardRecord, data, version=_SCHEMA_VERSION) if data is not None else None
        # A stored record is not trusted to name another folder.
        if record is not None and record.key == path.parent.name and record.is_sound:
            found.append(record)
    return found


class InjectionShard:
    """A shard of a campaign that runs."""

    def __init__(self, campaign: Campaign, shard: Shard, goal: Goal, fail_under: float | None) -> None:
        """Find out which of the candidates exist, and record that the shard runs.

        goal: its `changes` are the candidates of all shards.
        """
        self._campaign = campaign
        planned = campaign.count(goal.changes)
        self.goal = replace(goal, indices=shard.indices(planned))
        """The goal, with the candidates of this shard that exist."""
        self._record = ShardRecord(
            kind=ShardKind.INJECT,
            key=campaign.key,
            number=shard.number,
            of=shard.of,
            changes=goal.changes,
            planned=planned,
            is_all=campaign.candidate(goal.changes) is None,
            ending=ShardEnding.RUNNING,
            tried=0,
            started_at=time.time(),
            conditions=campaign.conditions,
            commit=last_commit(campaign.snapshot.origin),
            wanted=goal.count,
            fail_under=fail_under,
            facts=facts_of(campaign),
        )
        put_shard(campaign.store, self._record)

    @property
    def planned(self) -> int:
        """How many candidates all shards have."""
        return self._record.planned

    def end(self, cut: Cut) -> None:
        """Record how the shard ended. cut: what ended it before its last candidate, if anything did."""
        results = [self._campaign.stored(index) for index in self._record.indices]
        tried = sum(result is not None and is_tried(result) for result in results)
        record = replace(self._record, ending=ENDINGS[cut], tried=tried, facts=facts_of(self._campaign))
        put_shard(self._campaign.store, record)


def latest(records: Sequence[ShardRecord]) -> list[ShardRecord]:
    """Return the shards of the work that was started last: a store that was kept has earlier ones, too."""
    if not records:
        return []
    last = max(records, key=lambda record: record.started_at)
    return [record for record in records if record.plan == last.plan]
