"""Judge how unusual a value is that was made from another one: of several inputs, a test should have a plain one."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence

from pytest_ssr.suggestions.literals import Literal

_PLAIN_LENGTH, _PLAIN_NUMBER = 20, 1000
_SYNTAX = frozenset("%{}\\^$|*?[]()<>\n\r\t\0")
"""Characters that make a text a pattern or a template."""
_SORTED = 3
"""Items that are in order for a reason; two are so by chance half of the time."""
_REPEATED = re.compile(r"([^\w\s])\1")


def oddness_of(value: Literal, original: Literal) -> int:
    """Return 0 for a value as people write it, and more for others, such as a text that two words were glued to.

    original: the value of a test or an example from which it was made.
    """
    if isinstance(value, str):
        return _oddness_of_text(value, original if isinstance(original, str) else "")
    if isinstance(value, bytes):
        return int(not value) + int(len(value) > _PLAIN_LENGTH)
    if isinstance(value, float):
        return int(abs(value) > _PLAIN_NUMBER) + int(len(repr(value)) > len(repr(original)) + 2)
    if type(value) is int and isinstance(original, int):
        # A year of one digit is as odd as a large number.
        is_large = abs(value) > max(_PLAIN_NUMBER, 10 * abs(original))
        return int(is_large or (abs(original) >= _PLAIN_NUMBER and 0 < 10 * abs(value) < abs(original)))
    if isinstance(value, list | tuple | set | dict):
        was_sorted = isinstance(original, list | tuple) and len(original) >= _SORTED and _is_sorted(original)
        return _oddness_of_items(value) + int(was_sorted and isinstance(value, list | tuple) and not _is_sorted(value))
    return 0


def _is_sorted(items: Sequence[Literal]) -> bool:
    """Return whether items that can be compared are in ascending order, as functions of sorted input demand."""
    try:
        return all(first <= second for first, second in itertools.pairwise(items))  # type: ignore[operator]
    except TypeError:
        return False


def _oddness_of_text(value: str, original: str) -> int:
    odd = int(not value) + int(value != value.strip()) + 2 * int(not value.isascii() and original.isascii())
    odd += int("  " in value and "  " not in original) + int(len(value) > max(_PLAIN_LENGTH, 2 * len(original)))
    odd += int(len(value) > 1 and not _SYNTAX.isdisjoint(set(value) - set(original)))
    # The beginning of a date is another date; its end is not.
    odd += int(len(value) > 1 and value in original and not original.startswith(value))
    odd += int(bool(_REPEATED.search(value)) and not _REPEATED.search(original))
    # If the day of a date has more digits, it is not a date.
    digits, others = ([len(number) for number in re.findall(r"\d+", text)] for text in (value, original))
    odd += int(digits != others and len(digits) == len(others) > 1)
    # A lone mark in the place of a word; another mark in the place of a mark is plain.
    odd += int(bool(value) and not re.search(r"\w", value) and bool(re.search(r"\w", original)))
    odd += int(len(value) > 2 and value == original[::-1])
    # Something was put in or added; a single character may be a sign or a digit.
    return odd + int(bool(original) and len(value) > len(original) + 1)


def _oddness_of_items(value: list[Literal] | tuple[Literal, ...] | set[Literal] | dict[Literal, Literal]) -> int:
    items = [*value, *value.values()] if isinstance(value, dict) else list(value)
    kinds = {type(item) for item in items}
    return int(len(kinds) > 1 and not isinstance(value, tuple | dict)) + int(any(item == "" for item in items))
