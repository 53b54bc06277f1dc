"""Compute what the pages of one artifact or attempt show."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from harness.records.attempt import Attempt
from harness.records.episode import Episode
from harness.service.api import PREFIX
from harness.service.dashboard.highlighting import HighlightedDiff, highlighted_code, highlighted_diff
from harness.service.dashboard.reading import Reads
from harness.service.dashboard.rendering import amount, cost, short_count
from harness.service.dashboard.summaries import Card
from harness.service.dashboard.transcript import Turn, read_transcript
from harness.service.filters import AttemptFilter, EpisodeFilter
from harness.service.rows import ArtifactRow, AttemptRow, EpisodeRow
from harness.solvers.search.solver import CANDIDATES
from pytest_ssr.errors import StoreError
from pytest_ssr.records.decoding import decode_or_none, json_object
from pytest_ssr.records.verdict import Verdict

_FILES = ("test_script.sh", "test_parser.py", "test_files.txt")
_IN_CARDS = frozenset(
    (
        *("schema_version", "id", "task", "solver", "status", "reason", "resolved", "exit_reason", "reward", "steps"),
        *("tokens", "cost_usd", "seconds", "grading_s"),
    )
)
"""Fields of an attempt's record that its page shows by other names."""
_MOST_TESTS = 1_000
_MOST_TRAJECTORY_BYTES = 64 << 20
"""Most of a long one are the numbers of the messages that each call sent."""
_MOST_NUMBER = 19
"""Digits of a number that a database holds."""


@dataclass(frozen=True, slots=True)
class ShownFile:
    """A file of an artifact."""

    name: str
    code: Markup


@dataclass(frozen=True, slots=True)
class ArtifactPage:
    """A bug, with what was found out about it."""

    row: ArtifactRow
    cards: Sequence[Card]
    bug: HighlightedDiff | None
    weakening: HighlightedDiff | None
    verdict: Verdict | None
    attempts: Sequence[AttemptRow]
    episodes: Sequence[EpisodeRow]
    tests: Sequence[str]
    files: Sequence[ShownFile]
    archive: str
    """The address of all files in one."""


@dataclass(frozen=True, slots=True)
class TriedCandidate:
    """A candidate of the solver search, with what its tests said."""

    path: str
    line: int
    pattern: str
    on_top: bool
    """Whether it was tried on top of another one, which repairs some of the tests."""
    passed: tuple[str, ...]
    """The tests to repair that pass."""
    failed: tuple[str, ...]
    """The tests to repair that were run, or would be next, and do not pass."""
    complete: bool
    """Whether all tests pass."""


@dataclass(frozen=True, slots=True)
class AttemptPage:
    """An attempt, step by step."""

    row: AttemptRow
    cards: Sequence[tuple[str, object]]
    more: Sequence[tuple[str, object]]
    """The other fields of its record."""
    turns: Sequence[Turn]
    left_out: int
    candidates: Sequence[TriedCandidate]
    """What the solver search has tried."""
    patch: HighlightedDiff | None
    episodes: Sequence[EpisodeRow]
    """Those with its bug."""


@dataclass(frozen=True, slots=True)
class EpisodePage:
    """An episode: its bug, its verdict, and the attempts at it."""

    row: EpisodeRow
    cards: Sequence[Card]
    reason: str
    """Why the bug was rejected, or why no solver ran on it; empty otherwise."""
    bug: HighlightedDiff | None
    injection: AttemptRow | None
    """The attempt of a model that made the bug."""
    attempts: Sequence[EpisodeAttempt]
    job_id: str


@dataclass(frozen=True, slots=True)
class EpisodeAttempt:
    """An attempt at the bug of an episode, as the episode has recorded it."""

    id: str
    is_stored: bool
    """Whether there is a page of it."""
    player: str
    resolved: bool | None
    reason: str
    reward: float | None
    tokens: int
    cost: str
    seconds: float


def episode_page(reads: Reads, number: str) -> EpisodePage | None:
    """Return the page of an episode, or None if it does not exist."""
    is_number = number.isascii() and number.isdecimal() and len(number) < _MOST_NUMBER
    row = reads.episode_details(int(number)) if is_number else None
    if row is None:
        return None
    episode = Episode.from_json(row.record)
    artifact = reads.artifact(row.artifact_id) if row.artifact_id else None
    folder = f"{artifact.kind}/{artifact.id}" if artifact is not None else ""
    cards = [
        ("Project", row.project),
        ("Round", str(row.round)),
        ("Strategy", f"{row.strategy}: {row.operator}" if row.operator else row.strategy),
        ("Place", f"{row.file}: {row.scope}" if row.scope else row.file or "–"),
        ("Order", str(row.order)),
        ("Failing tests", str(row.fail_to_pass)),
        ("Changed lines", str(row.lines)),
        ("Solved", f"{row.solved} of {row.graded}"),
        ("Reward of the injector", amount(row.reward)),
        ("Tokens", short_count(row.tokens)),
        ("Cost", cost(row.cost_usd, _unpriced(episode))),
        ("Seconds", amount(row.seconds)),
    ]
    return EpisodePage(
        row,
        cards,
        _reason(episode),
        _diff(reads.text(f"{folder}/bug_inject.diff")) if folder else None,
        reads.attempt(row.injection) if row.injection else None,
        [_episode_attempt(reads, rollout) for rollout in episode.rollouts] if episode is not None else [],
        row.job_id,
    )


def _reason(episode: Episode | None) -> str:
    if episode is None:
        return ""
    if episode.refused is not None:
        return episode.refused.text
    return episode.reason.text if episode.reason is not None else ""


def _unpriced(episode: Episode | None) -> int:
    return episode.unpriced + sum(rollout.unpriced for rollout in episode.rollouts) if episode is not None else 0


def _episode_attempt(reads: Reads, rollout: Attempt) -> EpisodeAttempt:
    return EpisodeAttempt(
        rollout.id,
        reads.attempt(rollout.id) is not None,
        rollout.solver,
        rollout.verdict,
        str(rollout.reason),
        rollout.reward,
        rollout.tokens,
        cost(rollout.cost_usd, rollout.unpriced),
        rollout.seconds,
    )


def artifact_page(reads: Reads, artifact_id: str) -> ArtifactPage | None:
    """Return the page of an artifact, or None if it does not exist."""
    row = reads.artifact(artifact_id)
    if row is None:
        return None
    folder = f"{row.kind}/{row.id}"
    tests = reads.record(f"{folder}/artifact.json").get("FAIL_TO_PASS")
    cards = [
        ("Project", row.repository),
        ("Strategy", f"{row.strategy}: {row.operator}" if row.operator else row.strategy),
        ("Failing tests", str(row.fail_to_pass)),
        ("Changed lines", str(row.lines)),
        ("Order", str(row.order)),
    ]
    if row.model:
        cards.append(("Model", row.model))
    contents = [(name, reads.text(f"{folder}/{name}")) for name in _FILES]
    return ArtifactPage(
        row,
        cards,
        _diff(reads.text(f"{folder}/bug_inject.diff")),
        _diff(reads.text(f"{folder}/test_weaken.diff")),
        _verdict(reads, artifact_id),
        reads.attempts(filters=AttemptFilter(artifact_id=artifact_id)).items,
        reads.episodes(filters=EpisodeFilter(artifact_id=artifact_id)).items,
        [str(test) for test in tests[:_MOST_TESTS]] if isinstance(tests, list) else [],
        [ShownFile(name, highlighted_code(text, name)) for name, text in contents if text],
        f"{PREFIX}/artifacts/{row.id}/files.tar",
    )


def attempt_page(reads: Reads, attempt_id: str) -> AttemptPage | None:
    """Return the page of an attempt, or None if it does not exist."""
    row = reads.attempt_details(attempt_id)
    if row is None:
        return None
    path = f"rollouts/{row.id}/trajectory.jsonl"
    transcript = read_transcript(reads.text(path, most_bytes=_MOST_TRAJECTORY_BYTES) or "")
    cards = [
        ("Model", row.player),
        ("Role", row.role),
        ("Status", row.status),
        ("Ended by", row.exit_reason or "–"),
        ("Reward", amount(row.reward)),
        ("Steps", str(row.steps)),
        ("Tokens", short_count(row.tokens)),
        ("Cost", cost(row.cost_usd, row.unpriced)),
        ("Seconds", amount(row.seconds)),
        ("Grading", f"{amount(row.grading_s)} s"),
    ]
    patch = reads.text(f"rollouts/{row.id}/patch.diff")
    more = [
        (name.replace("_", " "), ", ".join(map(str, value)) if isinstance(value, list) else value)
        for name, value in row.record.items()
        if name not in _IN_CARDS and isinstance(value, str | int | float | list) and value not in ("", [])
    ]
    candidates = _candidates(reads.text(f"rollouts/{row.id}/{CANDIDATES}") or "")
    if candidates:
        cards.insert(cards.index(("Steps", str(row.steps))), ("Candidates", str(len(candidates))))
    return AttemptPage(
        row,
        cards,
        more,
        transcript.turns,
        transcript.left_out,
        candidates,
        _diff(patch),
        reads.episodes_of_attempt(row),
    )


def _candidates(text: str) -> list[TriedCandidate]:
    """Return the candidates in a file; lines that cannot be read are left out."""
    found = (decode_or_none(TriedCandidate, json_object(line)) for line in text.splitlines())
    return [candidate for candidate in found if candidate is not None]


def _diff(text: str | None) -> HighlightedDiff | None:
    return highlighted_diff(text) if text else None


def _verdict(reads: Reads, artifact_id: str) -> Verdict | None:
    path = reads.verdict_path(artifact_id)
    try:
        return Verdict.from_json(reads.record(path)) if path is not None else None
    except StoreError:
        # An earlier release may have written it in another form.
        return None
