"""Define what lists are filtered by; None allows all values."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class EpisodeFilter:
    """Which episodes to list."""

    run: str | None = None
    project: str | None = None
    strategy: str | None = None
    check: str | None = None
    artifact_id: str | None = None
    valid: bool | None = None
    round: int | None = None


@dataclass(frozen=True, slots=True)
class ArtifactFilter:
    """Which artifacts to list."""

    kind: str | None = None
    repository: str | None = None
    strategy: str | None = None


@dataclass(frozen=True, slots=True)
class AttemptFilter:
    """Which attempts to list."""

    artifact_id: str | None = None
    role: str | None = None
    player: str | None = None
    status: str | None = None
    resolved: bool | None = None


@dataclass(frozen=True, slots=True)
class CandidateFilter:
    """Which candidates to list."""

    campaign: str | None = None
    status: str | None = None
    check: str | None = None
    file: str | None = None


@dataclass(frozen=True, slots=True)
class JobFilter:
    """Which jobs to list."""

    status: str | None = None
    kind: str | None = None
    project_id: str | None = None
