"""A baseline that is being measured, kept from time to time: a run that is cut off is continued, not made again."""

from __future__ import annotations

import base64
import contextlib
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

from pytest_ssr.errors import SandboxError
from pytest_ssr.execution.probe_log import ProbeLog
from pytest_ssr.execution.suite import CHANNEL, FOLDER, REACH, read_channel
from pytest_ssr.execution.suite_progress import Peeking
from pytest_ssr.outcomes import SuiteRun
from pytest_ssr.sandbox.protocol import MIB, ExecResult, Sandbox
from pytest_ssr.stopping import background, pause

_EVERY_S = 10.0
_MOST_BYTES = 256 * MIB


class Records(Protocol):
    """Where parts are kept."""

    def get(self) -> Mapping[str, Any] | None:
        """Return what is kept."""

    def put(self, data: Mapping[str, Any]) -> None:
        """Keep it, in place of what was kept."""


class Parts:
    """The runs that a baseline is made of so far, as the reporter and the probe have written them."""

    def __init__(self, records: Records) -> None:
        self._records = records
        self._earlier = _read(records.get())

    def earlier(self) -> list[tuple[SuiteRun, ProbeLog]]:
        """Return the tests that have come to their end and what they reached, by run."""
        return [_parsed(channel, log) for channel, log in self._earlier]

    def forget(self) -> None:
        """Measure everything again."""
        self._earlier = []
        self._records.put({"parts": []})

    @contextlib.contextmanager
    def kept_from(self, sandbox: Sandbox) -> Iterator[None]:
        """Keep from time to time what a run in a sandbox has written, if its files can be read meanwhile."""
        if not isinstance(sandbox, Peeking):
            yield
            return
        with background(lambda: self._keep(sandbox), name="parts"):
            yield

    def _keep(self, sandbox: Peeking) -> None:
        folder = f"{getattr(sandbox, 'scratch', '')}/{FOLDER}"
        while True:
            pause(_EVERY_S)
            with contextlib.suppress(FileNotFoundError, SandboxError):
                # The log first: what a test has reached is in it before its outcome is in the channel, or soon after.
                channel = sandbox.peek(f"{folder}/{CHANNEL}", max_bytes=_MOST_BYTES)
                log = sandbox.peek(f"{folder}/{REACH}", max_bytes=_MOST_BYTES)
                self._records.put({"parts": [_packed(c, r) for c, r in (*self._earlier, (channel, log))]})


def _read(data: Mapping[str, Any] | None) -> list[tuple[bytes, bytes]]:
    try:
        return [(_unpacked(channel), _unpacked(log)) for channel, log in (data or {})["parts"]]
    except (KeyError, TypeError, ValueError, zlib.error):
        return []


def _parsed(channel: bytes, log: bytes) -> tuple[SuiteRun, ProbeLog]:
    run = read_channel(channel, ExecResult(None, b"", b"", 1e9, None))
    results = dict(run.results)
    if results:
        # Of the last test it is not certain that all it reached is in the log.
        results.popitem()
    return SuiteRun(
        run.status,
        results=results,
        collected=run.collected,
        parameters=run.parameters,
        doctests=run.doctests,
        before_selection=run.before_selection,
    ), ProbeLog.parse(log)


def _packed(*parts: bytes) -> Sequence[str]:
    return [base64.b85encode(zlib.compress(part, 1)).decode() for part in parts]


def _unpacked(text: str) -> bytes:
    return zlib.decompress(base64.b85decode(text))
