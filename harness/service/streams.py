"""Send events to any number of clients while they happen; a client that comes back gets what it has missed.

One task reads new events from the database and hands them to all streams. A stream that cannot keep up is ended: its
client connects again with the id of its last event (`Last-Event-ID`) and reads the rest from the database.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from starlette.concurrency import run_in_threadpool
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from harness.database.events import Event
from harness.service.logs import logger
from harness.service.problems import ProblemCode, ProblemError
from harness.service.queries import Queries
from harness.service.tokens import Tokens
from pytest_ssr.errors import StoreError

MAX_STREAMS = 1_000
_POLL_S = 0.25
_RETRY_S = 2.0
"""Until the next attempt after the database has failed."""
_HEARTBEAT_S = 15.0
_CHECK_S = 5.0
"""How often the tokens of open streams are checked, which may have been revoked or have expired."""
_BATCH = 500
_MAX_WAITING = 32
"""Batches that wait for a slow client; they are shared between streams."""
_RECONNECT_MS = 1_000
_END = None


class Sent(NamedTuple):
    """An event as it is sent."""

    id: int
    kind: str
    data: bytes


_Batch = Sequence[Sent]


@dataclass(eq=False, slots=True)
class _Stream:
    token_id: str = ""
    waiting: asyncio.Queue[_Batch | None] = field(default_factory=lambda: asyncio.Queue(_MAX_WAITING + 1))
    has_ended: bool = False


class Streams:
    """The event streams of a process."""

    def __init__(
        self, queries: Queries, tokens: Tokens, *, max_streams: int = MAX_STREAMS, poll_s: float = _POLL_S
    ) -> None:
        """tokens: those of the clients; a stream ends soon after its token."""
        self._queries, self._tokens, self._max_streams, self._poll_s = queries, tokens, max_streams, poll_s
        self._check_at = 0.0
        self._streams: set[_Stream] = set()
        self._last = 0
        self._started = asyncio.Event()
        self._is_closed = False

    @property
    def count(self) -> int:
        """The number of open streams."""
        return len(self._streams)

    async def run(self) -> None:
        """Hand out new events until the streams are closed.

        Not until the task is cancelled: a thread that reads would go on, with a connection that nobody closes.
        """
        while not self._is_closed:
            try:
                if not self._started.is_set():
                    self._last = await run_in_threadpool(self._queries.last_event)
                    self._started.set()
                found = await run_in_threadpool(self._queries.events_after, self._last, limit=_BATCH)
                await self._end_unauthorized()
            except StoreError as error:
                logger().error("events-unreadable", error=str(error))
                await asyncio.sleep(_RETRY_S)
                continue
            if found:
                self._last = found[-1].id
                self._hand_out([encoded(event) for event in found])
            if len(found) < _BATCH:
                await asyncio.sleep(self._poll_s)

    def close(self) -> None:
        """End all streams, and accept no more."""
        self._is_closed = True
        for stream in self._streams:
            _end(stream)

    async def _end_unauthorized(self) -> None:
        """End the streams whose tokens are no longer valid."""
        now = time.monotonic()
        ids = {stream.token_id for stream in self._streams if stream.token_id}
        if now < self._check_at or not ids:
            return
        self._check_at = now + _CHECK_S
        valid = await run_in_threadpool(self._tokens.valid_among, ids)
        for stream in self._streams:
            if stream.token_id in ids - valid:
                _end(stream)

    def open(self, after: int | None, kinds: Collection[str] = (), *, token_id: str = "") -> EventResponse:
        """Return a stream as a response. after: id of the last event that the client has, None for new ones only.

        kinds: of events; all if empty. token_id: of the client's token; empty if it needs none. The stream counts from
        now on, so that no number of clients that come at once exceeds the limit. Raises ProblemError if there are too
        many, or the service ends.
        """
        if self._is_closed or len(self._streams) >= self._max_streams:
            detail = f"there are {len(self._streams)} open event streams, and no more are accepted now"
            raise ProblemError(ProblemCode.TOO_MANY_STREAMS, detail, headers={"Retry-After": "10"})
        stream = _Stream(token_id)
        self._streams.add(stream)
        return EventResponse(self._follow(stream, after, kinds), lambda: self._streams.discard(stream))

    async def _follow(self, stream: _Stream, after: int | None, kinds: Collection[str]) -> AsyncIterator[bytes]:
        """Yield events as they are sent."""
        try:
            yield b"retry: %d\n\n" % _RECONNECT_MS
            await self._started.wait()
            # Those up to here are read from the database, all others come from the queue.
            until = self._last
            last = until if after is None else await self._known(after)
            while last < until:
                found = await run_in_threadpool(self._queries.events_after, last, limit=_BATCH)
                if not found:
                    break
                last = found[-1].id
                yield _joined([encoded(event) for event in found], kinds)
            async for batch in _batches(stream):
                new = [event for event in batch if event.id > last]
                last = new[-1].id if new else last
                if data := _joined(new, kinds):
                    yield data
                elif not batch:
                    yield b": no news\n\n"
        except StoreError:
            # The client connects again, and finds out whether the database can be used.
            return

    async def _known(self, after: int) -> int:
        """Return an id, or that of the last event if no event can have it: then it is of another database."""
        if after <= self._last:
            return after
        return min(after, await run_in_threadpool(self._queries.last_event))

    def _hand_out(self, batch: _Batch) -> None:
        for stream in self._streams:
            if stream.has_ended:
                continue
            if stream.waiting.qsize() >= _MAX_WAITING:
                _end(stream)
            else:
                stream.waiting.put_nowait(batch)


def _end(stream: _Stream) -> None:
    """End a stream after what waits for it; there is always room for the end."""
    if not stream.has_ended:
        stream.has_ended = True
        stream.waiting.put_nowait(_END)


class EventResponse(StreamingResponse):
    """Sends a stream; its client may go away at any time, even before the first event is read."""

    def __init__(self, content: AsyncIterator[bytes], release: Callable[[], None]) -> None:
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        super().__init__(content, media_type="text/event-stream", headers=headers)
        self._release = release

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the events until the stream or its client ends."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._release()


async def _batches(stream: _Stream) -> AsyncIterator[_Batch]:
    """Yield batches until the stream is ended; an empty one if nothing has happened for a while."""
    while True:
        batch: _Batch | None = ()
        with contextlib.suppress(TimeoutError):
            batch = await asyncio.wait_for(stream.waiting.get(), _HEARTBEAT_S)
        if batch is _END:
            return
        yield batch


def encoded(event: Event) -> Sent:
    """Return an event as it is sent: named by its kind, its data one line of JSON."""
    content = {"id": event.id, "kind": event.kind, "subject": event.subject, "at": event.created_at}
    data = json.dumps({**content, "data": dict(event.data)})
    return Sent(event.id, event.kind, f"id: {event.id}\nevent: {event.kind}\ndata: {data}\n\n".encode())


def _joined(batch: _Batch, kinds: Collection[str]) -> bytes:
    return b"".join(event.data for event in batch if not kinds or event.kind in kinds)
