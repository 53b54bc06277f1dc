"""Provide the result of running an artifact's script, as its parser reads it."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Self

from pytest_ssr.execution.script import PASSED
from pytest_ssr.records.test_run import Limit


@dataclass(frozen=True)
class StatusRun:
    """One run of an artifact's script, parsed by its parser."""

    statuses: Mapping[str, str] = field(default_factory=dict)
    """Test id to `passed` or `failed`."""
    output: bytes = b""
    """What the script printed."""
    parsed: bytes = b""
    """What the parser printed."""
    exit_code: int | None = None
    """The script's exit status."""
    seconds: float = 0.0
    """Wall time of the script."""
    fault: str = ""
    """Why the run proves nothing: a limit, a signal, a parser that failed."""
    limit: Limit | None = None
    """The limit that ended the script or its parser."""

    @cached_property
    def passing(self) -> frozenset[str]:
        """Ids that passed."""
        return frozenset(i for i, s in self.statuses.items() if s == PASSED)

    @property
    def contradiction(self) -> str:
        """Why exit status and parsed results cannot both be true, or an empty string."""
        failed = [i for i, s in self.statuses.items() if s != PASSED]
        if failed and self.exit_code == 0:
            return f"the script ended with status 0 though {failed[0]} failed"
        return ""

    def to_json(self) -> dict[str, Any]:
        """Return plain data for JSON; the outputs are compressed."""
        outputs = [base64.b85encode(zlib.compress(data, 6)).decode() for data in (self.output, self.parsed)]
        return {"statuses": self.statuses, "outputs": outputs, "exit_code": self.exit_code, "seconds": self.seconds}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Read plain data back; raise KeyError, ValueError, TypeError or zlib.error for other data."""
        output, parsed = (zlib.decompress(base64.b85decode(text)) for text in data["outputs"])
        return cls(dict(data["statuses"]), output, parsed, data["exit_code"], float(data["seconds"]))
