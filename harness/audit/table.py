"""Temporary."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from harness.audit.card import Card


def card_lines(cards: Sequence[Card]) -> Iterator[tuple[str, str]]:
    """x."""
    for c in cards:
        s = c.sharp
        yield (
            "plain",
            f"{c.task} sound={c.is_sound} {c.sound and c.sound.problems} unsteady={[(u.test.rpartition('::')[2], str(u.cause)) for u in c.sound.unsteady] if c.sound else ''} sharp={s and (s.noticed, s.counted, s.proven, s.planned, s.problem and s.problem.code)} narrow={c.narrow and [t.text for t in c.narrow.tokens]} {c.cost} problem={c.problem}",
        )


def total_lines(cards: Sequence[Card]) -> Iterator[tuple[str, str]]:
    """x."""
    yield "plain", str(len(cards))


def write_csv(path: object, cards: object) -> None:
    """x."""


def audit_page(cards: object, dataset: object) -> str:
    """x."""
    return ""
