"""Send events to browsers while they happen (server-sent events).

One task reads the database for all streams. A stream that cannot keep up is ended; its browser connects again with the
id of its last event (`Last-Event-ID`) and gets the rest from the database.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncIterator, Sequence

from starlette.concurrency import run_in_threadpool

from harness.database.events import Event
from harness.service.dashboard.reading import Reads
from pytest_ssr.errors import StoreError

MAX_STREAMS = 1_000
_POLL_S = 0.25
_RETRY_S = 2.0
"""Until the next attempt after the database has failed."""
_HEARTBEAT_S = 15.0
_MAX_WAITING = 32
"""Batches that wait for a slow browser; they are shared between streams."""
_Queue = asyncio.Queue[Sequence[Event] | None]


class Streams:
    """The event streams of the service."""

    def __init__(self, reads: Reads) -> None:
        self._reads = reads
        self._queues: set[_Queue] = set()
        self._last: int | None = None

    @property
    def is_full(self) -> bool:
        """Whether no more streams are accepted."""
        return len(self._queues) >= MAX_STREAMS

    async def run(self) -> None:
        """Hand out new events until the task is cancelled."""
        while True:
            try:
                if self._last is None:
                    self._last = await run_in_threadpool(self._reads.last_event)
                found = await run_in_threadpool(self._reads.events_after, self._last)
            except StoreError as error:
                logging.getLogger(__name__).error("events cannot be read: %s", error)
                await asyncio.sleep(_RETRY_S)
                continue
            if found:
                self._last = found[-1].id
                self._hand_out(found)
            await asyncio.sleep(_POLL_S)

    def close(self) -> None:
        """End all streams."""
        for queue in self._queues:
            _end(queue)

    async def follow(self, last: int | None) -> AsyncIterator[bytes]:
        """Yield events as they are sent. last: id of the last one that the browser has; None for new ones only."""
        queue: _Queue = asyncio.Queue(_MAX_WAITING + 1)
        self._queues.add(queue)
        try:
            yield b"retry: 1000\n\n"
            while last is not None and (missed := await run_in_threadpool(self._reads.events_after, last)):
                last = missed[-1].id
                yield _encoded(missed)
            while True:
                batch: Sequence[Event] | None = ()
                with contextlib.suppress(TimeoutError):
                    batch = await asyncio.wait_for(queue.get(), _HEARTBEAT_S)
                if batch is None:
                    return
                # Those that were read above can wait in the queue, too.
                batch = [event for event in batch if last is None or event.id > last]
                yield _encoded(batch) or b": no news\n\n"
        finally:
            self._queues.discard(queue)

    def _hand_out(self, batch: Sequence[Event]) -> None:
        for queue in self._queues:
            if queue.qsize() < _MAX_WAITING:
                queue.put_nowait(batch)
            else:
                _end(queue)


def _end(queue: _Queue) -> None:
    with contextlib.suppress(asyncio.QueueFull):
        queue.put_nowait(None)


def _encoded(batch: Sequence[Event]) -> bytes:
    """Return events as a browser reads them: named by their kind, the data one line of JSON."""
    lines = (
        f"id: {event.id}\nevent: {event.kind}\ndata: {json.dumps({'subject': event.subject, **event.data})}\n\n"
        for event in batch
    )
    return "".join(lines).encode()
