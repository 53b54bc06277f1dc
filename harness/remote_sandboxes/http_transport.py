"""Carry calls to a host over HTTP, again with the same key after a lost connection."""

from __future__ import annotations

import contextlib
import os
import re
import time
from typing import Any

import httpx

from harness.models.urls import hidden, is_loopback
from harness.remote_sandboxes.calls import ErrorCode, Refusal, RemoteError
from harness.remote_sandboxes.frames import FrameKind, FrameReader
from harness.remote_sandboxes.messages import Reply, Request
from harness.remote_sandboxes.transport import RETRY_S, UnreachableError, check_stopped
from pytest_ssr.errors import SandboxError, SandboxUnavailableError, SettingsError
from pytest_ssr.interrupts import POLL_S
from pytest_ssr.records.decoding import decode_or_none, json_object
from pytest_ssr.sandbox.supervision.output_listener import OutputListener

TOKEN_VARIABLE = "SSR_SANDBOX_TOKEN"
CALLS, RECEIVED, MEDIA_TYPE = "/v1/calls", "received", "application/octet-stream"
_CONNECT_S, _WRITE_S = 5.0, 60.0
_SILENCE_S = 50 * POLL_S
"""A server sends something at least every POLL_S; after this time without, the connection counts as lost."""
_FIRST_PAUSE_S, _LAST_PAUSE_S = 0.01, 1.0
_HOST = re.compile(r"[\w.:-]+")
"""A name or an address; httpx accepts more."""
RETRIED = frozenset({429, 502, 503, 504})
"""Statuses of proxies that cannot reach the server now."""
_CONNECTIONS = httpx.Limits(max_connections=None, max_keepalive_connections=64)


class HttpTransport:
    """A connection to the sandbox server at a URL."""

    def __init__(self, url: str, *, token: str | None = None, retry_s: float = RETRY_S) -> None:
        """token: None for that of the environment. retry_s: see `call`. Raises SettingsError for an invalid URL."""
        self.name, self._retry_s = url.rstrip("/"), retry_s
        self._client = httpx.Client(**client_options(url, token, MEDIA_TYPE, _SILENCE_S))

    def call(
        self,
        request: Request,
        *,
        on_output: OutputListener | None = None,
        may_stop: bool = True,
        retry_s: float | None = None,
    ) -> Reply:
        """Make a call; see the protocol."""
        attempt = _Attempt(request, on_output, may_stop=may_stop)
        retry_s = self._retry_s if retry_s is None else retry_s
        deadline, pause_s = time.monotonic() + retry_s, _FIRST_PAUSE_S
        while True:
            check_stopped(may_stop=may_stop)
            try:
                reply = self._send(attempt)
                if reply is not None:
                    return reply
                reason = "the connection was lost"
            except httpx.HTTPError as error:
                reason = str(error) or type(error).__name__
            except RuntimeError:
                if not self._client.is_closed:
                    raise
                raise SandboxError("the connection to the sandbox server is closed") from None
            if attempt.made_progress:
                deadline, pause_s, attempt.made_progress = time.monotonic() + retry_s, _FIRST_PAUSE_S, False
            if time.monotonic() >= deadline:
                raise UnreachableError(f"the sandbox server {self.name} cannot be reached: {reason}")
            _sleep(pause_s, may_stop=may_stop)
            pause_s = min(2 * pause_s, _LAST_PAUSE_S)

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _send(self, attempt: _Attempt) -> Reply | None:
        """Return the reply, None if the response ends before it, or if a proxy cannot reach the server."""
        url, parameters = self.name + CALLS, {RECEIVED: attempt.received}
        with self._client.stream("POST", url, params=parameters, content=attempt.body) as response:
            if response.status_code in RETRIED:
                return None
            if response.status_code != 200:
                response.read()
                raise self._refusal(response)
            if response.headers.get("content-type") != MEDIA_TYPE:
                raise SandboxUnavailableError(f"{self.name} is not a sandbox server")
            return attempt.read(response)

    def _refusal(self, response: httpx.Response) -> SandboxError:
        if response.status_code == 401:
            return SandboxUnavailableError(
                f"the sandbox server {self.name} does not accept the token", remedy=f"set {TOKEN_VARIABLE}"
            )
        if response.status_code == 413:
            return RemoteError(ErrorCode.SANDBOX, "the call is larger than the sandbox server accepts")
        refusal = decode_or_none(Refusal, json_object(response.content))
        if refusal is not None and response.status_code in (400, 409):
            return RemoteError(refusal.code, refusal.message)
        text = " ".join(response.text[:300].split())
        return SandboxUnavailableError(f"{self.name} answered with status {response.status_code}: {text}")


def client_options(url: str, token: str | None, media_type: str, silence_s: float) -> dict[str, Any]:
    """Return the options of httpx for a sandbox server; raises SettingsError for an invalid URL or token.

    token: None for that of the environment. silence_s: how long the server may send nothing.
    """
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL:
        parsed = httpx.URL()
    if parsed.scheme not in ("http", "https") or parsed.userinfo or not _HOST.fullmatch(parsed.host):
        raise SettingsError(
            f"{hidden(url, {})!r} is not the address of a sandbox server; use http://HOST:PORT, and the variable "
            f"{TOKEN_VARIABLE} for its token",
            option="sandbox",
        )
    secret = os.environ.get(TOKEN_VARIABLE, "").strip() if token is None else token
    if not secret.isascii():
        raise SettingsError(f"the token in {TOKEN_VARIABLE} has characters that no token has")
    return {
        "headers": {"Content-Type": media_type} | ({"Authorization": f"Bearer {secret}"} if secret else {}),
        "timeout": httpx.Timeout(silence_s, connect=_CONNECT_S, write=_WRITE_S, pool=None),
        "limits": _CONNECTIONS,
        # Proxies cannot reach a server on this machine.
        "trust_env": not is_loopback(url),
    }


class _Attempt:
    """One call, with what has arrived of its response so far."""

    def __init__(self, request: Request, on_output: OutputListener | None, *, may_stop: bool) -> None:
        self.body, self.received, self.made_progress = request.encode(), 0, False
        self._on_output, self._may_stop = on_output, may_stop

    def read(self, response: httpx.Response) -> Reply | None:
        """Return the reply; None if the response ends before it."""
        frames, reply = FrameReader(), None
        try:
            # To the end, so that the connection can be used again.
            for data in response.iter_raw():
                check_stopped(may_stop=self._may_stop)
                for kind, content in frames.feed(data):
                    self.made_progress = True
                    if kind is FrameKind.REPLY:
                        reply = Reply.decode(content)
                    elif kind is FrameKind.OUTPUT:
                        self._receive(content)
        except httpx.HTTPError:
            if reply is None:
                raise
        return reply

    def _receive(self, output: bytes) -> None:
        self.received += 1
        if self._on_output is not None:
            self._on_output(output)


def _sleep(seconds: float, *, may_stop: bool) -> None:
    end = time.monotonic() + seconds
    while (remaining_s := end - time.monotonic()) > 0:
        check_stopped(may_stop=may_stop)
        with contextlib.suppress(InterruptedError):
            time.sleep(min(POLL_S, remaining_s))
