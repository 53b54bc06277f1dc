"""Define a shard: the part of a fixed set of work that one of several machines does."""

from __future__ import annotations

import re
from dataclasses import dataclass

from pytest_ssr.errors import SettingsError

MOST = 10_000
"""No more machines than that."""
COUNT_IS_NOT_SPLIT = "{option} cannot be split: how many changes a number of bugs takes depends on results"
SUGGEST_IS_NOT_SPLIT = "cannot be split: which survivors matter most depends on the results of all shards"


@dataclass(frozen=True, slots=True, order=True)
class Shard:
    """One of several parts of a list of work; together, the parts are the whole list."""

    number: int
    """From 1."""
    of: int

    @classmethod
    def parse(cls, text: str, *, option: str) -> Shard:
        """Return the shard of `2/5`; raises SettingsError, naming the option, for anything else."""
        match = re.fullmatch(r"\s*(\d{1,5})\s*/\s*(\d{1,5})\s*", text, re.ASCII)
        shard = cls(int(match[1]), int(match[2])) if match else None
        if shard is None or not 1 <= shard.number <= shard.of <= MOST:
            raise SettingsError(f"{option} takes a shard such as 2/5, the second of five, not {text!r}")
        return shard

    @property
    def is_whole(self) -> bool:
        """Whether this is the only shard."""
        return self.of == 1

    def indices(self, total: int) -> range:
        """Return the indices of its work in a list of this length: each shard takes every nth, so none is a block."""
        return range(self.number - 1, total, self.of)

    def __str__(self) -> str:
        """Return it as people write it."""
        return f"{self.number}/{self.of}"
