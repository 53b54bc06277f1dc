"""Model Python code as a sequence of tokens: counts of trigrams, of many projects and of one file.

Code is repetitive, most of all within a file (Hindle et al., ICSE 2012; Tu et al., FSE 2014), so a bug is often less
likely than the code around it, and the code that repairs it is more likely.
"""

from __future__ import annotations

import functools
import keyword
import math
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

_TOKEN = re.compile(
    rb"(?P<skip>[ \t\f]+|\\\n|\#[^\n]*)"
    rb"|(?P<text>[rbufRBUF]{0,2}(?:\"\"\".*?\"\"\"|'''.*?'''|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'))"
    rb"|(?P<name>[A-Za-z_\x80-\xff][\w\x80-\xff]*)"
    rb"|(?P<number>\.?\d[\w.]*)"
    rb"|(?P<line>\n)"
    rb"|(?P<sign>\*\*=?|//=?|>>=?|<<=?|->|:=|[-+*/%&|^=<>!@]=|.)",
    re.DOTALL,
)
_KEYWORDS = frozenset(k.encode() for k in keyword.kwlist)
_COMMON_NAME = 30
BUCKETS = 1 << 20
"""Most counts of a model."""
_WEIGHTS = (0.6, 0.3, 0.0999)
"""Shares of the trigram, the bigram and the single token; the rest is for tokens that were never seen."""
_UNSEEN = 1e-4


class Kind(IntEnum):
    """The kinds of tokens."""

    NAME = 0
    KEYWORD = 1
    NUMBER = 2
    TEXT = 3
    SIGN = 4
    LINE = 5


_KINDS = {"name": Kind.NAME, "number": Kind.NUMBER, "text": Kind.TEXT, "sign": Kind.SIGN, "line": Kind.LINE}


class Token(NamedTuple):
    """One token of a piece of code."""

    text: bytes
    kind: Kind
    start: int
    """Offset of its first byte."""


def tokens_of(code: bytes, offset: int = 0) -> list[Token]:
    """Return the tokens of code that may be incomplete, without comments and blank space; a line's end is a token.

    offset: of the code's first byte in its file.
    """
    tokens = list[Token]()
    for match in _TOKEN.finditer(code):
        name = match.lastgroup or ""
        if name == "skip":
            continue
        text = match[0]
        kind = Kind.KEYWORD if name == "name" and text in _KEYWORDS else _KINDS[name]
        if kind is Kind.LINE and (not tokens or tokens[-1].kind is Kind.LINE):
            continue
        tokens.append(Token(text, kind, offset + match.start()))
    return tokens


@dataclass(slots=True)
class TokenModel:
    """Probabilities of tokens after two others, interpolated from trigrams, bigrams and single tokens.

    The counts are kept by a hash of the tokens, so that a model has a bounded size.
    """

    counts: Counter[int] = field(default_factory=Counter)
    """Maps the hash of one to three tokens to their number of occurrences."""
    total: int = 0
    """The number of all tokens."""

    def add(self, tokens: Sequence[Token]) -> None:
        """Count the tokens of one file."""
        first = second = b""
        for token in tokens:
            text = token.text
            for key in (_key(text), _key(second, text), _key(first, second, text)):
                self.counts[key] += 1
            # The denominators: how often something follows one token, and two.
            self.counts[_key(second, b"\0")] += 1
            self.counts[_key(first, second, b"\0")] += 1
            self.total += 1
            first, second = second, text

    def log_probability(self, first: bytes, second: bytes, text: bytes) -> float:
        """Return the natural logarithm of the probability of a token after two others."""
        counts = self.counts
        probability = _UNSEEN * _WEIGHTS[2]
        for weight, numerator, denominator in (
            (_WEIGHTS[0], _key(first, second, text), counts.get(_key(first, second, b"\0"), 0)),
            (_WEIGHTS[1], _key(second, text), counts.get(_key(second, b"\0"), 0)),
            (_WEIGHTS[2], _key(text), self.total),
        ):
            if denominator:
                probability += weight * counts.get(numerator, 0) / denominator
        return math.log(probability)


def log_probabilities(
    log_probability: Callable[[bytes, bytes, bytes], float], before: Sequence[bytes], texts: Iterable[bytes]
) -> list[float]:
    """Return the logarithms for a sequence of tokens. before: the two tokens in front of it, if there are two.

    log_probability: a model's method, maybe one that keeps its results.
    """
    first, second = ([b"", b"", *before])[-2:]
    result = []
    for text in texts:
        result.append(log_probability(first, second, text))
        first, second = second, text
    return result


@functools.lru_cache(maxsize=1 << 18)
def _key(*texts: bytes) -> int:
    return zlib.crc32(b"\x01".join(texts)) % BUCKETS
