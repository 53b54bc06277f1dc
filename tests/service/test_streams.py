"""Event streams: nothing is lost, repeated or kept for slow clients."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from starlette.requests import ClientDisconnect
from starlette.types import Message

from harness.database.events import add_event
from harness.database.records import DatabaseRecords, records_of
from harness.database.sharing import share_store
from harness.service import streams as streams_module
from harness.service.problems import ProblemCode, ProblemError
from harness.service.queries import Queries
from harness.service.streams import Streams
from harness.service.tokens import Scope, Tokens
from pytest_ssr.errors import StoreError


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DatabaseRecords:
    monkeypatch.delenv("SSR_DATABASE", raising=False)
    return records_of(share_store(tmp_path / "s").root)


def add(store: DatabaseRecords, count: int, kind: str = "job") -> None:
    with store.engine.begin() as connection:
        for n in range(count):
            add_event(connection, kind, f"subject-{n}", {"text": "line\nbreak"})


def streams_of(store: DatabaseRecords, max_streams: int = 10) -> Streams:
    return Streams(Queries(store), Tokens(store.engine), max_streams=max_streams, poll_s=0.01)


def run(streams: Streams, body: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        task = asyncio.create_task(streams.run())
        try:
            # A stream that begins now knows which events are old.
            await streams._started.wait()
            await asyncio.wait_for(body(), 60)
        finally:
            streams.close()
            await task

    # In another thread: the browser of other tests may have a loop in this one.
    with ThreadPoolExecutor(1) as pool:
        pool.submit(asyncio.run, main()).result()


async def read_ids(streams: Streams, after: int | None, count: int, kinds: tuple[str, ...] = ()) -> list[int]:
    found: list[int] = []

    async def send(message: Message) -> None:
        lines = message.get("body", b"").decode().splitlines()
        found.extend(int(line[4:]) for line in lines if line.startswith("id: "))
        if len(found) >= count:
            raise OSError

    async def receive() -> Message:
        await asyncio.sleep(20)
        return {"type": "http.disconnect"}

    # A server of this version of ASGI reports a client that has gone by an OSError.
    with contextlib.suppress(ClientDisconnect):
        await streams.open(after, kinds)({"type": "http", "asgi": {"spec_version": "2.4"}}, receive, send)
    return found


def test_a_stream_goes_on_after_the_last_known_event(store: DatabaseRecords) -> None:
    add(store, 1_200)
    streams = streams_of(store)

    async def body() -> None:
        assert await read_ids(streams, 100, 1_100) == list(range(101, 1_201))
        assert await read_ids(streams, 0, 1_200) == list(range(1, 1_201))

    run(streams, body)


def test_events_that_happen_while_a_stream_begins_come_once(store: DatabaseRecords) -> None:
    add(store, 700)
    streams = streams_of(store)

    async def body() -> None:
        readers = [asyncio.create_task(read_ids(streams, 0, 900)) for _ in range(3)]
        for _ in range(20):
            await asyncio.to_thread(add, store, 10)
        for ids in await asyncio.gather(*readers):
            assert ids == list(range(1, 901))

    run(streams, body)


def test_only_new_events_without_a_position_and_only_of_the_kinds(store: DatabaseRecords) -> None:
    add(store, 5)
    streams = streams_of(store)

    async def body() -> None:
        reader = asyncio.create_task(read_ids(streams, None, 1, ("artifact",)))
        while not streams.count:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)
        await asyncio.to_thread(add, store, 1, "job")
        await asyncio.to_thread(add, store, 1, "artifact")
        assert await reader == [7]

    run(streams, body)


def test_a_position_of_another_database_starts_at_the_end(store: DatabaseRecords) -> None:
    add(store, 3)
    streams = streams_of(store)

    async def body() -> None:
        reader = asyncio.create_task(read_ids(streams, 1_000_000, 1))
        # Nobody sees when the stream has found out where the end is.
        while not reader.done():
            await asyncio.to_thread(add, store, 1)
            await asyncio.sleep(0.05)
        assert reader.result()[0] > 3

    run(streams, body)


def test_a_slow_client_is_ended(store: DatabaseRecords, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams_module, "_MAX_WAITING", 2)
    streams = streams_of(store)

    async def body() -> None:
        slow = aiter(streams.open(None).body_iterator)
        await anext(slow)
        pending = asyncio.ensure_future(anext(slow))
        await asyncio.sleep(0.1)
        for _ in range(6):
            await asyncio.to_thread(add, store, 1)
            await asyncio.sleep(0.1)
        await pending
        rest = [chunk async for chunk in slow]
        assert len(rest) <= 3

    run(streams, body)


def test_streams_are_bounded_when_they_are_accepted_and_end_with_the_service(store: DatabaseRecords) -> None:
    streams = streams_of(store, max_streams=2)

    async def body() -> None:
        readers = [asyncio.ensure_future(read_ids(streams, None, 1)) for _ in range(2)]
        await asyncio.sleep(0)
        # None of them has sent anything yet.
        assert streams.count == 2
        with pytest.raises(ProblemError) as raised:
            streams.open(None)
        assert raised.value.code is ProblemCode.TOO_MANY_STREAMS
        streams.close()
        assert await asyncio.gather(*readers) == [[], []]
        assert streams.count == 0

    run(streams, body)


def test_a_stream_ends_with_its_token(store: DatabaseRecords, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams_module, "_CHECK_S", 0.01)
    tokens = Tokens(store.engine)
    (kept, _), (revoked, _) = (tokens.create(name, Scope.READ) for name in ("kept", "revoked"))
    streams = streams_of(store)

    async def body() -> None:
        opened = {token: streams.open(0, token_id=token) for token in (kept.id, revoked.id, "")}
        contents = {token: aiter(response.body_iterator) for token, response in opened.items()}
        for content in contents.values():
            await anext(content)
        tokens.revoke(revoked.id)
        with pytest.raises(StopAsyncIteration):
            await anext(contents[revoked.id])
        add(store, 1)
        assert b"id: 1" in await anext(contents[kept.id])  # type: ignore[operator]
        assert b"id: 1" in await anext(contents[""])  # type: ignore[operator]

    run(streams, body)


def test_a_client_that_goes_before_the_first_event_leaves_room(store: DatabaseRecords) -> None:
    streams = streams_of(store)

    async def body() -> None:
        reader = asyncio.ensure_future(read_ids(streams, None, 1))
        await asyncio.sleep(0)
        assert streams.count == 1
        reader.cancel()
        await asyncio.wait([reader])
        assert streams.count == 0

    run(streams, body)


def test_streams_go_on_after_the_database_was_away(store: DatabaseRecords, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams_module, "_RETRY_S", 0.05)
    streams = streams_of(store)
    original, failures = Queries.events_after, iter([True] * 3)

    def failing(self: Queries, last: int, *, limit: int = 500) -> object:
        if next(failures, False):
            raise StoreError("away")
        return original(self, last, limit=limit)

    async def body() -> None:
        reader = asyncio.create_task(read_ids(streams, None, 1))
        await asyncio.sleep(0.1)
        monkeypatch.setattr(Queries, "events_after", failing)
        await asyncio.to_thread(add, store, 1)
        assert await reader == [1]

    run(streams, body)
