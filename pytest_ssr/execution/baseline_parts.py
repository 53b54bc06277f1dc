"""Save the parts of a baseline during its measurement, so that an interrupted one continues and need not restart."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from pytest_ssr.errors import SandboxError, StoreError
from pytest_ssr.execution.coverage_map import CoverageLog
from pytest_ssr.execution.suite import CHANNEL, FOLDER, REACH, Peeking, read_channel
from pytest_ssr.interrupts import background, pause
from pytest_ssr.records.decoding import decode, pack, unpack
from pytest_ssr.records.test_run import SuiteRun
from pytest_ssr.sandbox.protocol import MIB, ExecResult, Sandbox

_EVERY_S = 10.0
_MOST_BYTES = 256 * MIB


class Records(Protocol):
    """Storage for parts."""

    def get(self) -> Mapping[str, Any] | None:
        """Return the stored data, or None."""

    def put(self, data: Mapping[str, Any]) -> None:
        """Store data in place of the previous data."""


class Parts:
    """The runs that make up a baseline so far, as the reporter and the probe wrote them."""

    def __init__(self, records: Records) -> None:
        self._records = records
        self._earlier = _read(records.get())

    def earlier(self) -> list[tuple[SuiteRun, CoverageLog]]:
        """Return the finished tests of each run, and what they reached."""
        return [_parse(channel, log) for channel, log in self._earlier]

    def clear(self) -> None:
        """Discard all parts, so that everything is measured again."""
        self._earlier = []
        self._records.put({"parts": []})

    @contextlib.contextmanager
    def saving_from(self, sandbox: Sandbox) -> Iterator[None]:
        """Save every few seconds what a run in a sandbox has written, if its files can be read meanwhile."""
        if not isinstance(sandbox, Peeking):
            yield
            return
        with background(lambda: self._save_periodically(sandbox), name="parts"):
            yield

    def _save_periodically(self, sandbox: Peeking) -> None:
        folder = f"{getattr(sandbox, 'scratch', '')}/{FOLDER}"
        while True:
            pause(_EVERY_S)
            with contextlib.suppress(FileNotFoundError, SandboxError):
                # The channel first: a test's reach is in the log before its outcome is in the channel, or soon after.
                channel = sandbox.peek(f"{folder}/{CHANNEL}", max_bytes=_MOST_BYTES)
                log = sandbox.peek(f"{folder}/{REACH}", max_bytes=_MOST_BYTES)
                parts = [*self._earlier, (channel, log)]
                self._records.put({"parts": [[pack(c, level=1), pack(r, level=1)] for c, r in parts]})


@dataclass(frozen=True, slots=True)
class _StoredParts:
    """The parts as they are stored."""

    parts: list[tuple[str, str]]
    """The packed channel and log of each run."""


def _read(data: Mapping[str, Any] | None) -> list[tuple[bytes, bytes]]:
    try:
        stored = decode(_StoredParts, data)
        return [(unpack(_StoredParts, channel), unpack(_StoredParts, log)) for channel, log in stored.parts]
    except StoreError:
        return []


def _parse(channel: bytes, log: bytes) -> tuple[SuiteRun, CoverageLog]:
    run = read_channel(channel, ExecResult(None, b"", b"", 1e9, None))
    results = dict(run.results)
    if results:
        # The log may not yet hold everything that the last test reached.
        results.popitem()
    return SuiteRun(
        run.status,
        results=results,
        collected=run.collected,
        parameters=run.parameters,
        doctests=run.doctests,
        before_selection=run.before_selection,
        by_position=run.by_position,
        by_collectors=run.by_collectors,
    ), CoverageLog.parse(log)
