"""List values that differ a little from a value, or in what often matters: limits, case, lengths, ends of months."""

from __future__ import annotations

import contextlib
import datetime
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import TypeVar

from pytest_ssr.suggestions.literals import Literal, source_of

_Exact = TypeVar("_Exact", Decimal, Fraction)
_LARGE = 1e15
"""From here on, floating point numbers have no room for a half."""
_LONGEST, _MOST_DIGITS = 300, 16
_UTC = datetime.timezone.utc  # noqa: UP017 # as it is written


def values_near(value: Literal, constants: Iterable[Literal] = ()) -> Iterator[Literal]:
    """Yield values of the same type that differ from a value; those that are most likely to matter first."""
    if isinstance(value, bool):
        yield not value
    elif isinstance(value, int):
        numbers = [c for c in constants if type(c) is int]
        yield from (n + d for n in numbers for d in (0, -1, 1))
        yield from (value + 1, value - 1, 0, 1, -1, 2, -value, 10 * value)
    elif isinstance(value, float):
        limits = [float(c) for c in constants if isinstance(c, int | float) and abs(c) < _LARGE]
        yield from (n + d for n in limits for d in (0.0, -0.5, 0.5))
        yield from (value + 0.5, value - 1.0, 0.0, 1.0, -value, 10.0 * value)
    elif isinstance(value, Decimal):
        yield from _exact_near(value, Decimal, constants)
    elif isinstance(value, Fraction):
        yield from _exact_near(value, Fraction, constants)
    elif isinstance(value, str):
        numbers = [c for c in constants if type(c) is int and 0 <= c < _LARGE]
        yield from _texts_near(value, [c for c in constants if isinstance(c, str) and len(c) <= 20], numbers)
    elif isinstance(value, bytes):
        parts = [c for c in constants if isinstance(c, bytes) and len(c) <= 20]
        yield from (b"", value[:1], value[1:], value + value, value.upper(), *parts, *(value + c for c in parts))
    elif isinstance(value, list | tuple):
        yield from _sequences_near(value, constants)
    elif isinstance(value, datetime.date | datetime.time | datetime.timedelta):
        yield from _times_near(value)
    elif isinstance(value, set):
        yield set()
        yield set(sorted(value, key=source_of)[:1])
    elif isinstance(value, dict):
        yield {}
        yield dict(itertools.islice(value.items(), 1))
        for key in itertools.islice(value, 2):
            yield from ({**value, key: other} for other in itertools.islice(values_near(value[key], constants), 4))


def _exact_near(value: _Exact, make: Callable[[str], _Exact], constants: Iterable[Literal]) -> Iterator[_Exact]:
    limits = [make(str(c)) for c in constants if type(c) is int and abs(c) < _LARGE]
    yield from (n + d for n in limits for d in (0, -1, 1))
    yield from (value + make("0.5"), value - 1, make("0"), make("1"), -value, 10 * value)


def _texts_near(value: str, parts: Sequence[str], numbers: Sequence[int]) -> Iterator[str]:
    for part in parts:
        yield from (part, value + part, part + value)
        middle = len(value) // 2
        yield value[:middle] + part + value[middle:]
    if len(value) == 1:
        # A separator, which may be one that means something in a pattern.
        yield from (mark for mark in ".-_,: " if mark != value)
    yield from ("", value[:1], value[1:], value[:-1], value.upper(), value.lower(), value.title(), value.swapcase())
    yield from (f" {value}", f"{value} ", value.replace(" ", ""), f"{value} {value}", f"{value}1", value[::-1])
    yield from _other_numbers(value, numbers)
    for mark in list(dict.fromkeys(re.findall(r"[^\w\s]", value)))[:3]:
        yield from (
            value.partition(mark)[0],
            value.partition(mark)[2],
            value.replace(mark, ""),
            value.replace(mark, mark * 2),
            value.replace(mark, " "),
        )
    # A limit of the length.
    for length in [n + d for n in numbers if 1 < n <= _LONGEST for d in (0, 1)]:
        yield ((value or "a") * (length // max(1, len(value)) + 1))[:length]
    yield from (f"{value}é", f"{value}\N{GRINNING FACE}")


def _other_numbers(value: str, numbers: Sequence[int]) -> Iterator[str]:
    """Yield a text with other numbers in it: the first one, and the last one if there are several."""
    found = list(re.finditer(r"\d+(\.\d+)?", value))
    for match in found[:1] + found[1:][-1:]:
        digits = match[0]
        others = [*map(str, numbers[:4]), "0", "1", f"0{digits}", f"{digits}0", f"-{digits}", f"{digits}.2"]
        others += [f"{n}.0" for n in numbers[:2]]
        if digits.isdecimal() and len(digits) < _MOST_DIGITS:
            others += [str(int(digits) + 1), str(max(0, int(digits) - 1))]
        for other in others:
            yield value[: match.start()] + other + value[match.end() :]


def _times_near(value: datetime.date | datetime.time | datetime.timedelta) -> Iterator[Literal]:
    with contextlib.suppress(OverflowError):
        if isinstance(value, datetime.timedelta):
            second, day = datetime.timedelta(seconds=1), datetime.timedelta(days=1)
            yield from (datetime.timedelta(), -value, value + second, value - second, value + day, day, 10 * value)
            return
        if isinstance(value, datetime.time):
            yield from (value.replace(hour=0, minute=0, second=0, microsecond=0), value.replace(hour=23))
            yield from (value.replace(microsecond=1), value.replace(tzinfo=_UTC))
            return
        # The ends of months and years, and a leap day.
        yield from (value.replace(day=1), value.replace(month=12, day=31), value.replace(year=2024, month=2, day=29))
        yield value.replace(month=1, day=1)
        if isinstance(value, datetime.datetime):
            yield from (value.replace(hour=0, minute=0, second=0, microsecond=0), value.replace(microsecond=1))
            yield value.replace(tzinfo=_UTC if value.tzinfo is None else None)
        for days in (1, -1, 365, -365):
            yield value + datetime.timedelta(days=days)


def _sequences_near(value: list[Literal] | tuple[Literal, ...], constants: Iterable[Literal]) -> Iterator[Literal]:
    yield from (value[:0], value[:1], value[1:], value[::-1])
    yield value + value  # type: ignore[operator] # both are lists, or both are tuples
    for index in sorted({0, len(value) - 1}) if value else ():
        for other in itertools.islice(values_near(value[index], constants), 8):
            changed = [*value[:index], other, *value[index + 1 :]]
            yield changed if isinstance(value, list) else tuple(changed)
