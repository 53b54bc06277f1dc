"""Define the record of a test that would notice a surviving change, or of the reason that none was found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from pytest_ssr.records.decoding import decode_or_none

_SCHEMA_VERSION = 2


class NoSuggestion(StrEnum):
    """Why there is no suggested test for a survivor."""

    NO_FUNCTION = "no-function"
    """The change is not inside a function, or not in one function only."""
    NOT_REACHED = "not-reached"
    """No test and no example calls the function."""
    NO_LITERAL_INPUTS = "no-literal-inputs"
    """No call in the tests has arguments that can be written, and no example calls the function."""
    NO_DIFFERENCE = "no-difference"
    """The original and the changed code gave the same results for all inputs."""
    ODD_INPUTS = "odd-inputs"
    """Only inputs that no person would write give another result."""
    NOT_DETERMINISTIC = "not-deterministic"
    """Results differ, but those of the original are not the same every time."""
    NOT_VERIFIED = "not-verified"
    """The test did not pass on the original and fail with the change every time."""
    OTHER_RUNNER = "other-runner"
    """The tests are not run by pytest."""
    LIMIT = "limit"
    """The time was over, or the calls used more than they may."""


@dataclass(frozen=True, slots=True)
class SuggestedTest:
    """The result of the search for a test that notices one surviving change."""

    index: int
    """The index of the survivor's result."""
    path: str
    """The file of the change."""
    line: int
    scope: str
    test: str = ""
    """The source of the test file; empty if none was found."""
    folder: str = ""
    """The folder of the tests that call the function, in which the test was verified."""
    reason: NoSuggestion | None = None
    """Why none was found; None if there is a test."""
    change: str = ""
    """What the test notices, as one line; it stands in the test as a comment."""
    same_as: int | None = None
    """The index of an earlier survivor's result that has the same test; None if the test is its own."""
    file: str = ""
    """A test file of the folder, which pytest collects: a new file needs a name that the project's settings collect."""
    oddness: int = 0
    """How unusual the inputs of the test are, and what it looks at; 0 for a test as people write it."""

    def to_json(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {"schema_version": _SCHEMA_VERSION, **asdict(self)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any] | None) -> SuggestedTest | None:
        """Read plain data back; None if it is no such record."""
        return decode_or_none(cls, data, version=_SCHEMA_VERSION) if data is not None else None
