"""Record what happens, in an order that readers can resume from."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from harness.database.engine import database_time
from harness.database.schema import events

_LOCK = 0x5352_4556
"""Number of the lock of PostgreSQL; any number that nothing else in the database uses."""


@dataclass(frozen=True, slots=True)
class Change:
    """Something that has happened to a stored thing."""

    kind: str
    """Such as artifact, candidate, episode, rollout, job, worker."""
    subject: str
    """The id of the thing."""
    data: Mapping[str, Any]
    """What a list of such things shows."""


@dataclass(frozen=True, slots=True)
class Event:
    """A stored change."""

    id: int
    kind: str
    subject: str
    data: Mapping[str, Any]
    created_at: float


def add_event(connection: sa.Connection, kind: str, subject: str, data: Mapping[str, Any]) -> None:
    """Add an event to the transaction.

    Events become visible in the order of their ids: PostgreSQL gives out ids before transactions end, so writers of
    events take turns until their transaction ends; else a reader could pass an id that appears later.
    """
    if connection.dialect.name == "postgresql":
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_LOCK)))
    values = {"kind": kind, "subject": subject, "data": json.dumps(dict(data)), "created_at": database_time(connection)}
    connection.execute(sa.insert(events).values(values))


def events_after(connection: sa.Connection, last: int, *, limit: int = 500) -> list[Event]:
    """Return the events after an id, in order."""
    statement = sa.select(events).where(events.c.id > last).order_by(events.c.id).limit(limit)
    return [
        Event(row.id, row.kind, row.subject, json.loads(row.data), row.created_at)
        for row in connection.execute(statement)
    ]


def last_event(connection: sa.Connection) -> int:
    """Return the id of the last event, or 0 without any."""
    return int(connection.scalar(sa.select(sa.func.max(events.c.id))) or 0)


def remove_events(connection: sa.Connection, *, before: float) -> int:
    """Remove events that are older than a time, in seconds since the epoch, but never the last; return how many."""
    statement = sa.delete(events).where(events.c.created_at < before, events.c.id < last_event(connection))
    return int(connection.execute(statement).rowcount)
