"""Serve the stream of events."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Header, Query, Request
from fastapi.responses import Response, StreamingResponse

from harness.service.access import LOCAL, principal_of
from harness.service.api import PREFIX
from harness.service.streams import Streams

router = APIRouter(prefix=PREFIX)
for_pages = APIRouter(include_in_schema=False)
"""The same stream for the pages of the dashboard, whose addresses people edit: it takes every position."""
_MAX_ID = 2**63 - 1


@router.get("/events", tags=["events"], response_class=StreamingResponse)
async def follow_events(
    request: Request,
    after: Annotated[int | None, Query(ge=0, le=_MAX_ID, description="id of the last event that is known")] = None,
    kinds: Annotated[list[str] | None, Query(max_length=20, description="of events; all by default")] = None,
    last_event_id: Annotated[str, Header(max_length=20)] = "",
) -> Response:
    """Send what happens, while it happens, as server-sent events named by their kind.

    A client that connects again sends the id of the last event that it has seen, and gets what it has missed.
    """
    streams: Streams = request.app.state.streams
    known = _position(last_event_id)
    return streams.open(after if known is None else known, frozenset(kinds or ()), token_id=_token_id(request))


@for_pages.get("/events")
async def follow_events_of_pages(request: Request, after: str = "") -> Response:
    """Send all events."""
    streams: Streams = request.app.state.streams
    return streams.open(_position(request.headers.get("last-event-id", after)), token_id=_token_id(request))


def _token_id(request: Request) -> str:
    principal = principal_of(request)
    return "" if principal is LOCAL else principal.id


def _position(text: str) -> int | None:
    return min(int(text), _MAX_ID) if text.isascii() and text.isdecimal() and len(text) <= 20 else None
