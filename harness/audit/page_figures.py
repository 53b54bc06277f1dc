"""Describe tasks for a page: their figures as cells and chips, their order, and the kinds to filter them by."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from enum import StrEnum
from typing import NamedTuple

from harness.audit.card import Card, Condition
from harness.audit.figures import FEW, LEAK_WORDS, UNKNOWN, UNTRIED, is_clean, mib, narrow_text, rate_text, seconds


class State(StrEnum):
    """How a figure looks; the values are classes of elements."""

    GOOD = "good"
    BAD = "bad"
    PLAIN = "plain"
    """Neither is certain."""
    FEW = "few"
    """It rests on few tries."""
    UNKNOWN = "unknown"


class Cell(NamedTuple):
    """One figure of a task."""

    text: str
    state: State = State.UNKNOWN
    value: float | None = None
    """By which a table sorts; None if it is unknown, which comes last."""


def _sound(card: Card) -> Cell:
    sound = card.sound
    if sound is None:
        return Cell(f"{UNKNOWN}: {card.problem.code}" if card.problem is not None else UNKNOWN)
    if sound.problems:
        return Cell(f"no: {', '.join(sound.problems)}", State.BAD, 0)
    tried = len(Condition) - len(sound.untried)
    if sound.untried:
        return Cell(f"yes, {tried} of {len(Condition)} conditions", State.PLAIN, tried)
    return Cell("yes", State.GOOD, tried)


def _sharp(card: Card) -> Cell:
    sharp = card.sharp
    if sharp is None or sharp.rate is None:
        return Cell(UNTRIED if sharp is None else UNKNOWN)
    state = State.FEW if sharp.counted < FEW else State.PLAIN
    return Cell(rate_text(sharp.noticed, sharp.counted), state, sharp.interval[0])


def _unnoticed(card: Card) -> Cell:
    sharp = card.sharp
    if sharp is None or sharp.rate is None:
        return Cell(UNTRIED if sharp is None else UNKNOWN)
    survivors = len(sharp.survivors)
    proven = f", {sharp.proven} proven wrong" if sharp.proven else ""
    return Cell(f"{survivors} of {sharp.counted}{proven}", State.PLAIN, survivors)


def _narrow(card: Card) -> Cell:
    if card.narrow is None or not card.narrow.is_known:
        return Cell(narrow_text(card))
    return Cell(narrow_text(card), State.PLAIN, len(card.narrow.tokens))


def _sealed(card: Card) -> Cell:
    sealed = card.sealed
    if sealed is None or not sealed.tried:
        return Cell(UNTRIED if sealed is None else UNKNOWN)
    accepted = len(sealed.accepted)
    return Cell(f"{accepted} of {sealed.tried} forged", State.BAD if accepted else State.GOOD, accepted / sealed.tried)


def _leaks(card: Card) -> Cell:
    sealed = card.sealed
    if sealed is None:
        return Cell(UNTRIED)
    if sealed.leaks:
        return Cell(", ".join(LEAK_WORDS[leak] for leak in sealed.leaks), State.BAD, len(sealed.leaks))
    return Cell("none", State.GOOD, 0) if sealed.is_searched else Cell(UNKNOWN)


def _grade(card: Card) -> Cell:
    text = seconds(card.cost.grade_s).removesuffix(" s")
    return Cell(text, State.PLAIN, card.cost.grade_s) if card.cost.grade_s else Cell(text)


def _memory(card: Card) -> Cell:
    text = mib(card.cost.memory_mib).removesuffix(" MiB")
    return Cell(text, State.PLAIN, card.cost.memory_mib) if card.cost.memory_mib else Cell(text)


class Column(NamedTuple):
    """One figure of each task."""

    name: str
    about: str
    cell: Callable[[Card], Cell]
    is_least_first: bool = False
    """Whether the worst values, which come first, are the least ones."""
    is_chip: bool = True
    """Whether the heading of a card shows it, too."""


COLUMNS = (
    Column("sound", "Whether the reference solution resolves it, and doing nothing does not, each time.", _sound, True),
    Column("sharp", "The share of changed solutions that the tests notice, and its 95 % interval.", _sharp, True),
    Column("not noticed", "Changed solutions that the tests accept, of those that count.", _unnoticed, is_chip=False),
    Column("narrow", "Names and texts that the tests demand and nobody could know.", _narrow),
    Column("sealed", "Forgeries that the task’s own verifier accepts, of those it graded.", _sealed),
    Column("leaks", "What an agent can read: the tests or the solution.", _leaks),
    Column("seconds per grade", "Wall time of one run of the tests that decide.", _grade, is_chip=False),
    Column("memory, MiB", "The most memory of one process of that run.", _memory, is_chip=False),
)


def worst_first(cards: Iterable[Card]) -> list[Card]:
    """Return cards, the worst first: unsound tasks, forged or leaking ones, the least sharp, then unknown ones."""
    return sorted(cards, key=_place)


def _place(card: Card) -> tuple[int, bool, float]:
    sharp = _sharp(card).value
    if card.is_audited and not card.is_sound:
        group = 0
    elif card.sealed is not None and (card.sealed.accepted or card.sealed.leaks):
        group = 1
    else:
        group = 2 if card.is_audited and sharp is not None else 3
    return group, sharp is None, sharp or 0.0


KINDS = (
    ("", "all tasks"),
    ("clean", "nothing found, nothing unknown"),
    ("unsound", "not sound"),
    ("partly", "sound in some conditions only"),
    ("forgeable", "forged: accept a forgery"),
    ("leaks", "leaking: tests or solution readable"),
    ("survivors", "changed solutions not noticed"),
    ("proven", "changed solutions proven wrong"),
    ("narrow", "narrow: names nobody could know"),
    ("cut", "changed solutions cut off by time"),
    ("unaudited", "without an audit"),
)
"""What a table can be filtered by, with the words for it."""


def kinds_of(card: Card) -> Iterator[str]:
    """Yield those of the kinds that a task is of."""
    sharp, sealed = card.sharp, card.sealed
    is_of = {
        "clean": is_clean(card),
        "unsound": card.is_audited and not card.is_sound,
        "partly": card.sound is not None and card.is_sound and bool(card.sound.untried),
        "forgeable": sealed is not None and bool(sealed.accepted),
        "leaks": sealed is not None and bool(sealed.leaks),
        "survivors": sharp is not None and bool(sharp.survivors),
        "proven": sharp is not None and bool(sharp.proven),
        "narrow": card.narrow is not None and bool(card.narrow.tokens),
        "cut": sharp is not None and sharp.is_cut,
        "unaudited": not card.is_audited,
    }
    return (kind for kind, _ in KINDS if is_of.get(kind))
