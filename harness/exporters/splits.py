"""Split a dataset by project: all rows of one project are in one part, so that nothing leaks into another.

A project is identified by its name, and projects that share a tree count as one. The part depends only on the names and
the seed: rows that are added later move no project.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from pytest_ssr.errors import SettingsError

WHOLE = "train"
_UNIT = 16**13


@dataclass(frozen=True, slots=True)
class Splits:
    """The names of the parts, with the share of projects for each."""

    shares: Mapping[str, float] = field(default_factory=lambda: {WHOLE: 1.0})
    seed: int = 0
    _same: dict[str, str] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str, seed: int = 0) -> Splits:
        """Parse `train=0.9,test=0.1`; an empty string is one part, `train`. Raises SettingsError for invalid text."""
        if not text:
            return cls(seed=seed)
        shares: dict[str, float] = {}
        for item in text.split(","):
            name, _, share = item.partition("=")
            try:
                value = float(share)
            except ValueError:
                value = math.nan
            if not re.fullmatch(r"\w+", name) or not 0 < value <= 1 or name in shares:
                raise SettingsError(f"--splits {text!r} is not a split; write train=0.9,test=0.1", option="splits")
            shares[name] = value
        if abs(sum(shares.values()) - 1) > 1e-6:
            raise SettingsError(f"--splits {text!r} adds up to {sum(shares.values()):g}, not to 1", option="splits")
        return cls(shares, seed)

    @property
    def names(self) -> list[str]:
        """The names of the parts."""
        return list(self.shares)

    def learn(self, trees: Iterable[tuple[str, str]]) -> None:
        """Merge projects that share a tree. trees: pairs of a project's name and a tree."""
        first: dict[str, str] = {}
        for name, tree in trees:
            if name and tree:
                a, b = self._root(name), self._root(first.setdefault(tree, name))
                self._same[max(a, b)] = min(a, b)
                self._same[min(a, b)] = min(a, b)

    def _root(self, name: str) -> str:
        while (other := self._same.get(name, name)) != name:
            name = other
        return name

    def of(self, repository: str) -> str | None:
        """Return the part of a project; None if there are several parts and its name is empty."""
        if len(self.shares) == 1:
            return self.names[0]
        if not repository:
            return None
        digest = hashlib.sha256(f"{self.seed}\0{self._root(repository)}".encode("utf-8", "surrogatepass")).hexdigest()
        position, upper = int(digest[:13], 16) / _UNIT, 0.0
        for name, share in self.shares.items():
            upper += share
            if position < upper:
                return name
        return self.names[-1]
