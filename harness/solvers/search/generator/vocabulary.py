"""Number the tokens of contexts: common ones by their place in a list, others by a hash and by where they occur."""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from harness.solvers.search.generator.context import AWAY, LENGTH, Context
from harness.solvers.search.generator.holes import HoleKind

END = 0
"""The number of the token that ends the missing code; its text is empty."""
HASHED = 2048
"""Number of rows for tokens that are not common: equal tokens have equal rows."""
DISTANCES = 24
_LEFT_DISTANCES = 11


@dataclass(frozen=True, slots=True)
class Encoded:
    """A context as numbers."""

    rows: list[int]
    """The row of the embedding of each token."""
    parts: list[int]
    distances: list[int]
    outputs: list[int]
    """The number of each token among those that can be written: common ones, then those of this context."""
    hole: int
    copied: list[bytes]
    """The tokens that are not common, in the order of their numbers."""


class Vocabulary:
    """The common tokens; the first is the end."""

    def __init__(self, texts: Sequence[bytes]) -> None:
        """Number the texts. texts: without the end."""
        self.texts = [b"", *texts]
        self._numbers = {text: number for number, text in enumerate(self.texts)}

    def __len__(self) -> int:
        return len(self.texts)

    @property
    def rows(self) -> int:
        """The number of rows of the embedding."""
        return len(self.texts) + HASHED + len(HoleKind)

    def number(self, text: bytes) -> int | None:
        """Return the number of a common token."""
        return self._numbers.get(text)

    def row(self, text: bytes) -> int:
        """Return the row of the embedding of any token."""
        number = self._numbers.get(text)
        return len(self.texts) + zlib.crc32(text) % HASHED if number is None else number

    def hole_row(self, kind: HoleKind) -> int:
        """Return the row of the embedding of a hole."""
        return len(self.texts) + HASHED + kind

    def encode(self, context: Context, kind: HoleKind) -> Encoded:
        """Return a context as numbers."""
        local, outputs = dict[bytes, int](), list[int]()
        for text in context.texts:
            number = self._numbers.get(text)
            outputs.append(len(self.texts) + local.setdefault(text, len(local)) if number is None else number)
        rows = [self.row(text) for text in context.texts]
        rows[context.hole] = self.hole_row(kind)
        distances = [
            _distance(index, context.hole, part) for index, part in zip(range(LENGTH), context.parts, strict=False)
        ]
        return Encoded(rows, context.parts, distances, outputs, context.hole, list(local))


def _distance(index: int, hole: int, part: int) -> int:
    if part in AWAY:
        return DISTANCES - 1
    away = abs(index - hole)
    bucket = min(_LEFT_DISTANCES, int(1.6 * math.log2(away))) if away else 0
    return bucket if index <= hole else min(DISTANCES - 2, _LEFT_DISTANCES + 1 + bucket)


def padded(encoded: Sequence[Encoded]) -> dict[str, Any]:
    """Return contexts as arrays of one length, by name."""
    import numpy as np

    length = max(len(e.rows) for e in encoded)
    arrays = {name: np.zeros((len(encoded), length), np.int64) for name in ("rows", "parts", "distances", "outputs")}
    arrays["mask"] = np.zeros((len(encoded), length), bool)
    arrays["hole"] = np.array([e.hole for e in encoded])
    for index, item in enumerate(encoded):
        size = len(item.rows)
        for name in ("rows", "parts", "distances", "outputs"):
            arrays[name][index, :size] = getattr(item, name)
        arrays["mask"][index, :size] = True
    return arrays
