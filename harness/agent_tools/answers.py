"""Define the answers of the tools for agents: small, complete, and with the next step; text of projects is escaped.

They have no slots: the SDK of the Model Context Protocol would take a slot for the default of a field.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class RemarkAnswer:
    """One surviving change of a review."""

    id: str
    """What the other tools call it."""
    path: str
    line: int
    function: str
    text: str
    """The change in words."""
    is_reached: bool
    """Whether a test runs the changed code."""
    has_test: bool
    """Whether a test that notices it was found."""


@dataclass(frozen=True)
class ReviewAnswer:
    """What no test would notice in changed code."""

    remarks: list[RemarkAnswer]
    """The most important first."""
    more: int
    """Survivors without a remark."""
    tried: int
    """Changes whose outcome is known."""
    is_complete: bool
    """Whether all changes were tried."""
    not_tried: list[str]
    """The changed places in which no change was tried."""
    next: str
    unproven: list[str] = field(default_factory=list)
    """Ids of survivors for which no test with usual inputs was found; many of these are equivalent."""


@dataclass(frozen=True)
class SurvivorAnswer:
    """One surviving change."""

    id: str
    path: str
    line: int
    function: str
    text: str
    diff: str
    is_reached: bool
    equivalence: str
    """Why it is probably equivalent; empty if nothing suggests so."""
    accepted: str
    """The reason for which the team accepts it; empty if it does not."""
    next: str


@dataclass(frozen=True)
class SuggestionAnswer:
    """A test that notices a surviving change, or why none was found."""

    id: str
    found: bool
    folder: str
    """The folder of the project in which the test was verified."""
    file: str
    """A test file of that folder, which pytest collects; empty if none is known."""
    content: str
    """The test file; empty if none was found."""
    reason: str
    """Why none was found; empty if one was."""
    next: str


@dataclass(frozen=True)
class VerificationAnswer:
    """Whether a test file notices a surviving change."""

    id: str
    verified: bool
    verdict: str
    """verified, does-not-pass-on-the-original or does-not-fail-with-the-change."""
    folder: str
    """The folder of the project in which the test ran."""
    file: str
    """A test file of that folder, which pytest collects; empty if none is known."""
    runs: int
    """Runs of the test until this was known."""
    messages: list[str]
    """What the last run said of tests that do not pass."""
    next: str


@dataclass(frozen=True)
class AcceptanceAnswer:
    """A survivor that the team accepts."""

    id: str
    kind: str
    file: str
    """The file of the project that keeps it."""
    next: str
