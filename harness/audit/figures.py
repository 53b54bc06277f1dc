"""Write the figures of cards as short texts, for terminals and pages; what is unknown looks unknown."""

from __future__ import annotations

from harness.audit.card import Card, Cause, ChangeStatus, Condition, Leak, Sharpness, TokenKind, Unsound
from pytest_ssr.records.rate_interval import interval, whole_percent

FEW = 20
"""Of fewer tries, an interval comes before the percentage, which alone would look more certain than it is."""
UNKNOWN = "unknown"
UNTRIED = "untried"

UNSOUND_WORDS = {
    Unsound.REFERENCE_FAILS: "reference",
    Unsound.EMPTY_RESOLVES: "empty",
    Unsound.UNSTEADY: "unsteady",
}
"""One word for each reason, for columns."""
UNSOUND_TEXTS = {
    Unsound.REFERENCE_FAILS: "the reference solution does not resolve it",
    Unsound.EMPTY_RESOLVES: "it is resolved without any work",
    Unsound.UNSTEADY: "a test that decides does not give the same outcome each time",
}
CONDITION_TEXTS = {
    Condition.PLAIN: "once more as it is",
    Condition.HASH_SEED: "another hash seed",
    Condition.ORDER: "another order of the tests",
    Condition.CLOCK: "a date years ahead",
    Condition.TIME_ZONE: "another time zone",
    Condition.AGAIN: "twice in the same sandbox",
}
CAUSE_TEXTS = {
    Cause.FLICKERS: "differs between equal runs",
    Cause.HASH_SEED: "depends on the hash seed",
    Cause.ORDER: "depends on the order of the tests",
    Cause.CLOCK: "depends on the date",
    Cause.TIME_ZONE: "depends on the time zone",
    Cause.LEFTOVERS: "depends on what an earlier run has left",
    Cause.NETWORK: "needs a network",
}
STATUS_TEXTS = {
    ChangeStatus.NOTICED: "noticed",
    ChangeStatus.SURVIVED: "run, and not noticed",
    ChangeStatus.NOT_REACHED: "not run by any test that decides",
    ChangeStatus.EQUIVALENT: "equivalent, or probably so",
    ChangeStatus.UNDECIDED: "undecided",
}
TOKEN_TEXTS = {TokenKind.NAME: "name", TokenKind.TEXT: "text"}
LEAK_WORDS = {
    Leak.TESTS_IN_IMAGE: "tests",
    Leak.SOLUTION_IN_IMAGE: "solution",
    Leak.GIT_HISTORY: "git history",
    Leak.CACHE: "cache",
    Leak.INSTALLED_COPY: "installed copy",
}
"""One or two words for each leak, for columns."""
LEAK_TEXTS = {
    Leak.TESTS_IN_IMAGE: "the tests are in the agent's image",
    Leak.SOLUTION_IN_IMAGE: "the solution is in the agent's image",
    Leak.GIT_HISTORY: "the git history holds the solution",
    Leak.CACHE: "a cache holds the tests or the solution",
    Leak.INSTALLED_COPY: "an installed copy holds the solution",
}


def sharp_text(sharp: Sharpness | None) -> str:
    """Return the sharpness of a task in percent, in one cell: of few changes, the interval first.

    `+` follows the counts if not all changes were tried.
    """
    if sharp is None:
        return UNTRIED
    if sharp.rate is None:
        return UNKNOWN
    rate, (low, high) = whole_percent(sharp.rate), map(whole_percent, sharp.interval)
    share = f"{low}-{high} ({rate})" if sharp.counted < FEW else f"{rate} ({low}-{high})"
    return f"{share} {sharp.noticed}/{sharp.counted}{'+' if sharp.is_cut else ''}"


def rate_text(part: int, whole: int) -> str:
    """Return a share with its 95 % interval, always in the same form."""
    if not whole:
        return UNKNOWN
    rate, (low, high) = whole_percent(part / whole), map(whole_percent, interval(part, whole))
    return f"{rate} % ({low} to {high})"


def share_text(part: int, whole: int) -> str:
    """Return a share with its 95 % interval and its counts; of few, the interval first."""
    if not whole:
        return UNKNOWN
    rate, (low, high) = whole_percent(part / whole), map(whole_percent, interval(part, whole))
    if whole < FEW:
        return f"{low} to {high} % ({rate} %), {part} of {whole}"
    return f"{rate} % ({low} to {high} %), {part} of {whole}"


def sound_text(card: Card) -> str:
    """Return whether a task is sound in one cell, with the first reason."""
    if card.sound is None:
        return UNKNOWN
    if card.is_sound:
        return "yes+" if card.sound.untried else "yes"
    first, *others = card.sound.problems
    return f"no: {UNSOUND_WORDS[first]}" + (f"+{len(others)}" if others else "")


def narrow_text(card: Card) -> str:
    """Return how many names and texts nobody could know, in one cell."""
    if card.narrow is None:
        return UNTRIED
    return str(len(card.narrow.tokens)) if card.narrow.is_known else UNKNOWN


def sealed_text(card: Card) -> str:
    """Return how many forgeries the task's own verifier accepts of those that it graded, in one cell."""
    if card.sealed is None:
        return UNTRIED
    return f"{len(card.sealed.accepted)}/{card.sealed.tried}" if card.sealed.tried else UNKNOWN


def seconds(value: float | None) -> str:
    """Return seconds with two or three digits; zero stands for what was not measured."""
    if not value:
        return UNKNOWN
    return f"{value:.2f} s" if value < 1 else f"{value:.1f} s" if value < 100 else f"{value:.0f} s"


def mib(value: float | None) -> str:
    """Return an amount of memory or files; zero stands for what was not measured."""
    return UNKNOWN if not value else f"{value:.1f} MiB" if value < 10 else f"{value:.0f} MiB"


def is_clean(card: Card) -> bool:
    """Whether everything about a task is known, and nothing was found against it."""
    sharp, narrow, sealed = card.sharp, card.narrow, card.sealed
    return (
        card.problem is None
        and card.is_sound
        and (card.sound is not None and not card.sound.untried)
        and (sharp is not None and sharp.rate == 1.0 and not sharp.is_cut)
        and (narrow is not None and narrow.is_known and not narrow.tokens)
        and (sealed is not None and bool(sealed.tried) and not sealed.accepted and not sealed.leaks)
    )


def is_faulty(card: Card) -> bool:
    """Whether a task is not sound, or its own verifier accepts a forgery."""
    return (card.is_audited and not card.is_sound) or (card.sealed is not None and bool(card.sealed.accepted))
