"""Draw a value for the input of a test: near its own value, or far from it."""

from __future__ import annotations

import random
import re
import string
from collections.abc import Sequence

_SEPARATORS = " \t\n,;:.-_/|=&?#"
_UNICODE = "äßéİ中😀\u00a0\u0301"
_LARGEST = 10**9
_FAR_TEXTS = 3
_REFORMATTED = 0.5
"""Share of the far strings that keep the format of a string with numbers; code often refuses all others."""
_MIXED = 0.1
_NUMBER = re.compile(r"([0-9]+)")


def other_value(value: object, rng: random.Random, pool: Sequence[str] = (), *, far: bool = False) -> object:
    """Return a different value of the same type."""
    for _ in range(10):
        result = _far(value, rng) if far else _near(value, rng, pool)
        if result != value:
            return result
    return result


def _far(value: object, rng: random.Random) -> object:
    """Return a value that is larger, longer or made of other characters than the values in a test."""
    if isinstance(value, bytes):
        return _long_text(value.decode("latin-1"), rng, string.printable).encode("latin-1", "ignore")
    if isinstance(value, str):
        if rng.random() < _REFORMATTED and (renumbered := _renumbered(value, rng)) != value:
            return renumbered
        letters = rng.choice((string.ascii_letters, string.ascii_lowercase, string.digits, _SEPARATORS, _UNICODE))
        return _long_text(value, rng, letters)
    if isinstance(value, bool):
        return not value
    assert isinstance(value, int | float)
    size = 10 ** rng.randint(2, 5) * (1 + int(min(abs(value), _LARGEST)))
    number = rng.choice((1, 1, -1)) * rng.randint(size // 10, size)
    return number if isinstance(value, int) else number + rng.random()


def _renumbered(text: str, rng: random.Random) -> str:
    """Return a string in which some of the numbers are different: a date may remain one if only its year changes."""
    parts = _NUMBER.split(text)
    indices = range(1, len(parts), 2)
    for index in rng.sample(indices, rng.randint(1, len(indices))) if indices else ():
        parts[index] = _other_number(parts[index], rng)
    return "".join(parts)


def _other_number(digits: str, rng: random.Random) -> str:
    """Return a number, half of the time with as many digits: most strings with numbers in them remain valid."""
    length = rng.choice((len(digits), rng.randint(1, 4)))
    return str(rng.randrange(10**length)).zfill(length if digits.startswith("0") else 1)


def _long_text(text: str, rng: random.Random, letters: str) -> str:
    new = "".join(rng.choices(letters, k=rng.randint(1, 12)))
    index = rng.randint(0, len(text))
    draw = rng.random()
    if draw < 0.3:
        return text * rng.randint(2, 5) + new
    if draw < 0.6:
        return text[:index] + new + text[index:]
    if draw < 0.8:
        # Keep the shape, but replace each letter.
        return "".join(_letter(c, rng) for c in text) * rng.randint(1, _FAR_TEXTS)
    return new + " " + text if draw < 0.9 else new


def _near(value: object, rng: random.Random, pool: Sequence[str]) -> object:
    if isinstance(value, bool):
        return not value
    if isinstance(value, bytes):
        text = _text(value.decode("latin-1"), rng, [p for p in pool if p.isascii()])
        return text.encode("latin-1", "ignore")
    if isinstance(value, str):
        return _text(value, rng, pool)
    if isinstance(value, float):
        return rng.choice((-value, value * 10, value / 3, value + rng.uniform(-2, 2), float(round(value) + 1)))
    assert isinstance(value, int)
    size = 10 * abs(value) + 10
    near = (value + rng.randint(1, 9), value - rng.randint(1, 9), value + rng.choice((-1, 1)))
    round_numbers = (value * 2, value * 10 ** rng.randint(1, 3))
    few: int = rng.choice((-1, 0, 1))
    return rng.choice((*near, -value, few, *round_numbers, rng.randint(0, size), rng.randint(-size, size)))


def _text(text: str, rng: random.Random, pool: Sequence[str]) -> str:
    """Return a different string, mostly of the same shape."""
    draw = rng.random()
    if draw < 0.2 and (renumbered := _renumbered(text, rng)) != text:
        return renumbered
    if text and draw < 0.5:
        indices = rng.sample(range(len(text)), min(len(text), rng.randint(1, 3)))
        # Some from the string itself: in a hexadecimal number, a letter may stand for a digit.
        letters = [c for c in text if c.isalnum() and rng.random() < _MIXED]
        new_letters = {
            n: rng.choice(letters) if letters and text[n].isalnum() else _letter(text[n], rng) for n in indices
        }
        return "".join(new_letters.get(n, c) for n, c in enumerate(text))
    start, end = sorted((rng.randint(0, len(text)), rng.randint(0, len(text))))
    if draw < 0.65:
        new: str = rng.choice((*string.ascii_letters, *string.digits, *_SEPARATORS, *_UNICODE))
        return text[:start] + new + text[start:]
    if draw < 0.75:
        return text[:start] + text[end:]
    if draw < 0.8:
        return text[:start] + text[start:end] * 2 + text[end:]
    if draw < 0.85:
        turned: str = rng.choice((text.swapcase(), text.upper(), text.lower(), text.title(), text[::-1]))
        return turned
    if draw < 0.9:
        return rng.choice((f" {text}", f"{text} ", f"{text}\n", ""))
    other = rng.choice(pool) if pool else "x"
    joined = (text[:start] + other + text[end:], text + other, other + text, other)
    return rng.choice(joined)


def _letter(letter: str, rng: random.Random) -> str:
    """Return a different letter of the same class."""
    for letters in (string.digits, string.ascii_lowercase, string.ascii_uppercase, _SEPARATORS):
        if letter in letters:
            return rng.choice(letters) if letters is not _SEPARATORS or rng.random() < 0.2 else letter
    return letter if rng.random() < 0.7 else rng.choice(string.ascii_lowercase)
