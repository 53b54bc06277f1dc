"""Define why a candidate was screened in a fresh process: codes for programs, with details for people."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Self


class FallbackCode(StrEnum):
    """Why a run was not made in a fork of a warm process."""

    NO_SERVERS = "no-warm-processes"
    OTHER_RUNNER = "other-test-runner"
    """Warm processes hold a session of pytest, and the tests run without pytest."""
    SANDBOX_UNSUITED = "sandbox-unsuited"
    SERVER_NOT_STARTED = "server-not-started"
    SERVER_REFUSED = "server-refused"
    """Its forks would not be exact, or could not have their own view of the tree."""
    SERVER_LOST = "server-lost"
    NOT_COLLECTED = "test-not-collected"
    FORK_REFUSED = "fork-refused"
    """For example, the changed code cannot be exchanged in a loaded module."""
    TESTS_DIFFER = "tests-differ-in-forks"
    ENDS_EARLY = "forks-end-early"
    IMPORTS_DIFFER = "imports-differ"
    NEEDS_ALL_TESTS = "needs-all-tests"
    NOT_EXERCISED = "change-not-exercised"
    LOADS_LESS = "loads-less"
    UNKNOWN = "unknown"
    """Another release recorded something else."""


_TEXTS: Mapping[FallbackCode, str] = {
    FallbackCode.NO_SERVERS: "there are no warm processes",
    FallbackCode.OTHER_RUNNER: "there are no warm processes for tests that run without pytest",
    FallbackCode.SANDBOX_UNSUITED: "the sandbox cannot keep a process between runs",
    FallbackCode.SERVER_NOT_STARTED: "the server does not start",
    FallbackCode.SERVER_REFUSED: "no fork would be exact",
    FallbackCode.SERVER_LOST: "the server was lost",
    FallbackCode.NOT_COLLECTED: "a selected test was not collected",
    FallbackCode.FORK_REFUSED: "the fork would not be exact",
    FallbackCode.TESTS_DIFFER: "it concerns tests that behave differently in forks",
    FallbackCode.ENDS_EARLY: "forks also end early on the unchanged tree",
    FallbackCode.IMPORTS_DIFFER: "it imports other modules than the loaded ones",
    FallbackCode.NEEDS_ALL_TESTS: "a run of the selected tests does not show what a run of all would",
    FallbackCode.NOT_EXERCISED: "the fork does not run the changed code",
    FallbackCode.LOADS_LESS: "it does not import all that the fork has loaded",
    FallbackCode.UNKNOWN: "unknown",
}


@dataclass(frozen=True, slots=True)
class Fallback:
    """Why a run was made in a fresh process."""

    code: FallbackCode
    detail: str = ""
    """For people only; no decision depends on it."""

    @property
    def text(self) -> str:
        """The reason as one sentence."""
        return f"{_TEXTS[self.code]}: {self.detail}" if self.detail else _TEXTS[self.code]

    def __str__(self) -> str:
        """Return the text."""
        return self.text

    def to_json(self) -> dict[str, str]:
        """Return plain data for JSON."""
        return {"code": str(self.code), "text": self.text, "detail": self.detail}

    @classmethod
    def from_json(cls, data: object) -> Self | None:
        """Read plain data back; None for None. Raises TypeError for other data.

        Earlier releases recorded a text, or an empty one: it becomes the detail of the code `unknown`.
        """
        if data is None or data == "":
            return None
        if isinstance(data, str):
            return cls(FallbackCode.UNKNOWN, data)
        try:
            code, detail = FallbackCode(data["code"]), data["detail"]  # type: ignore[index]
        except (KeyError, TypeError, ValueError):
            raise TypeError("a reason for a fresh process has no known code and detail") from None
        if not isinstance(detail, str):
            raise TypeError("the detail of a reason for a fresh process is not a string")
        return cls(code, detail)
