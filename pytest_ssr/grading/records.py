"""What planted tests write of their comparisons, read back, and two states compared by it.

A comparison is right where its values are the original's, or where they are as the test asks.
"""

from __future__ import annotations

import ast
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from pytest_ssr.grading.recorder import END, EQUAL, HOLDS, NEAR, OPEN
from pytest_ssr.quiet import recorded_warnings

_NEARLY, _EXACTLY = (1e-3, 1e-6), (1e-9, 1e-12)
"""Relative and absolute tolerance."""
_MOST_LINE = 50_000
_NOTHING = ("", "", 0, "", ())
_SIZES = {EQUAL: 3, HOLDS: 1, END: 0}


class _Unread:
    """Stands for a value that cannot be written down."""

    def __repr__(self) -> str:
        return "?"


_UNREAD = _Unread()


class Key(NamedTuple):
    """One comparison of a test: a loop makes it several times."""

    case: str
    """The test's id without its name: its class and parameters."""
    number: int
    """Which assertion."""
    kind: str
    """`equal`: two values, then whether they are. `near`: what a function that asserts gets. `open`: likewise, of one
    that the tests have themselves. `holds`: whether it holds."""
    round: int
    """How often it was made before."""


class Record(NamedTuple):
    """What a comparison was of."""

    kind: str
    """As in its key."""
    values: tuple[object, ...]

    @property
    def is_read(self) -> bool:
        """Whether it compares values, and all of them could be written down."""
        return self.kind in (EQUAL, NEAR, OPEN) and not any(v is _UNREAD for v in self.values)

    @property
    def sides(self) -> tuple[object, ...]:
        """The values alone."""
        return self.values[:2] if self.kind == EQUAL else self.values

    @property
    def holds(self) -> bool:
        """Whether it tells of itself that it holds."""
        return self.kind in (EQUAL, HOLDS) and self.values[-1:] == (True,)


Test = Mapping[Key, Record]
"""What one test wrote, in order."""
Records = Mapping[str, Test]
"""By the name of the planted test."""


def read_records(lines: Iterable[str]) -> Records:
    """Return what planted tests have written; what cannot be read is left out."""
    found: dict[str, dict[Key, Record]] = {}
    rounds: Counter[tuple[str, str, int, str]] = Counter()
    with recorded_warnings():
        for line in lines:
            try:
                name, case, number, kind, texts = ast.literal_eval(line) if len(line) < _MOST_LINE else _NOTHING
                name, case, kind = str(name), str(case).replace(str(name), ""), str(kind)
                record = Record(kind, tuple(_plain(str(text)) for text in texts))
                if len(record.values) != _SIZES.get(kind, len(record.values)):
                    continue
                key = Key(case, int(number), kind, rounds[name, case, int(number), kind])
            except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError, OverflowError):
                continue
            rounds[name, case, key.number, kind] += 1
            found.setdefault(name, {})[key] = record
    return found


def _plain(text: str) -> object:
    """Return a value from its text, where it can be read back."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return _UNREAD


def as_asked(mine: Test, theirs: Test, *, at_its_word: bool = False) -> bool:
    """Tell whether a test with its own inputs compares what it asks for.

    A loop over what is computed may have other rounds, as long as each of them holds. at_its_word: believe every
    function that asserts.
    """
    if at_its_word:
        mine, theirs = _at_its_word(mine), _at_its_word(theirs)
    ended, ended_there = ({k.case for k in test if k.kind == END} for test in (mine, theirs))
    if ended == ended_there == {k.case for k in theirs}:
        keys = [k for k in {**theirs, **mine} if k.kind != END]
        both = {k: k in mine and k in theirs for k in keys}
        return all(agrees(mine, theirs, k) if both[k] else _holds(mine if k in mine else theirs, k) for k in keys)
    return mine.keys() == theirs.keys() and all(agrees(mine, theirs, key) for key in theirs)


def _at_its_word(test: Test) -> Test:
    """Return what a test asks with all that asserts taken for the tests' own."""
    return {k._replace(kind=OPEN) if k.kind == NEAR else k: r for k, r in test.items()}


def agrees(mine: Test, theirs: Test, key: Key, *, exactly: bool = False) -> bool:
    """Tell whether a comparison is right; the values that a test's helper gets need not be, where it passes both."""
    if key not in mine:
        return False
    return is_right(mine[key], theirs[key], exactly=exactly) or (
        key.kind == OPEN and _holds(mine, key) and _holds(theirs, key)
    )


def is_open(mine: Record | None, theirs: Record) -> bool:
    """Tell whether a test compares two values that both hang on the code, and do not equal each other either way."""
    if mine is None or mine.kind != EQUAL or not mine.is_read or not theirs.is_read:
        return False
    (left, right, holds), (left_there, right_there, holds_there) = mine.values, theirs.values
    return not (holds or holds_there or alike(left, left_there) or alike(right, right_there))


def _holds(test: Test, key: Key) -> bool:
    record = test.get(key._replace(kind=HOLDS) if key.kind in (NEAR, OPEN) else key)
    return record is not None and record.holds


def is_right(mine: Record, theirs: Record, *, exactly: bool = False) -> bool:
    """Compare what two states compare; exactly: what could be read there has to be read here."""
    if len(mine.values) != len(theirs.values) or (exactly and theirs.is_read and not mine.is_read):
        return False
    if mine.kind == EQUAL:
        (left, right, holds), (left_there, right_there, holds_there) = mine.values, theirs.values
        if any(v is _UNREAD for v in (left, right, left_there, right_there)):
            return holds == holds_there
        if alike(left, left_there) and alike(right, right_there):
            return True
        return alike(left, right) and alike(left_there, right_there)
    pairs = zip(mine.values, theirs.values, strict=True)
    return all(a is _UNREAD or b is _UNREAD or alike(a, b, nearly=True) for a, b in pairs)


def alike(one: object, other: object, *, nearly: bool = False) -> bool:
    """Compare values; numbers that are not whole may differ as the same sum does in another order."""
    if isinstance(one, list | tuple) and type(one) is type(other):
        assert isinstance(other, list | tuple)
        return len(one) == len(other) and all(alike(a, b, nearly=nearly) for a, b in zip(one, other, strict=True))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(alike(v, other[k], nearly=nearly) for k, v in one.items())
    if isinstance(one, int | float) and isinstance(other, int | float) and float in (type(one), type(other)):
        rel, abs_ = _NEARLY if nearly else _EXACTLY
        try:
            return one == other or math.isclose(one, other, rel_tol=rel, abs_tol=abs_)
        except OverflowError:
            return False
    return one == other


def told(test: Test) -> str:
    """Return the values of a test, for people."""
    shown = [r.values[:2] if r.kind == EQUAL else r.values for r in test.values() if r.kind != END]
    try:
        return f"{shown!r:.120}"
    except ValueError:
        return "numbers too long to be written"
