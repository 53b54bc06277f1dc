"""Serve the stream of events."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Header, Query, Request
from fastapi.responses import StreamingResponse

from harness.service.streams import Streams

router = APIRouter()
_MAX_ID = 2**63 - 1


@router.get("/events", tags=["events"], response_class=StreamingResponse)
async def follow_events(
    request: Request,
    after: Annotated[int | None, Query(ge=0, le=_MAX_ID, description="id of the last event that is known")] = None,
    kinds: Annotated[list[str] | None, Query(max_length=20, description="of events; all by default")] = None,
    last_event_id: Annotated[str, Header(max_length=20)] = "",
) -> StreamingResponse:
    """Send what happens, while it happens, as server-sent events named by their kind.

    A browser that connects again sends the id of the last event that it has seen, and gets what it has missed.
    """
    streams: Streams = request.app.state.streams
    streams.require_room()
    known = int(last_event_id) if last_event_id.isascii() and last_event_id.isdecimal() else after
    content = streams.follow(known if known is None else min(known, _MAX_ID), frozenset(kinds or ()))
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(content, media_type="text/event-stream", headers=headers)
