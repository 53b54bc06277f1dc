"""Rank candidate repairs by what a pretrained language model says of them, too.

The model reads the buggy function once, and for each of the first candidates of the policy's list the tokens that it
changes and the next ones. Eight numbers of each candidate (columns) and the policy's own logit are combined by a
conditional logit, which is fitted to static bugs (`ssr train search --lm`). Candidates that were not read have the
policy's logit alone. The number of those that are read follows from a budget in tokens, so that the same seed gives the
same patch on a busy machine.
"""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from harness.local_models.scoring import Scorer, Scores, Variant
from harness.local_models.weights import SMOLLM2
from harness.models.scorers import open_scorer
from harness.solvers.search.patterns import Repair
from pytest_ssr.errors import SettingsError
from pytest_ssr.source.syntax_tree import Edit, ParsedSource, Scope, splice

COLUMNS = ("ratio", "added", "removed", "following", "mean_added", "mean_removed", "length_added", "length_removed")
"""The names of the columns: log-probability of the changed function over the buggy one (`ratio`), and its parts: of the
tokens put in and taken out, of the next tokens (after a change minus before it), the means and numbers of tokens."""
AFTER = 8
"""Number of tokens after a change that are read."""
_LONGEST_BYTES = 8_000
_BYTES_OF_TOKEN = 3
_LOWEST = -1e9
_MOST_WEIGHT = 1e6


@dataclass(frozen=True, slots=True)
class Place:
    """A function in its file."""

    source: ParsedSource
    scope: Scope


@dataclass(frozen=True, slots=True)
class Reading:
    """What a language model read, for the record of an attempt."""

    candidates: int = 0
    """Candidates of the list."""
    read: int = 0
    """Those that were read."""
    tokens: int = 0
    cpu_s: float = 0.0
    """Seconds of processor time of this thread."""

    def __add__(self, other: Reading) -> Reading:
        return Reading(
            self.candidates + other.candidates,
            self.read + other.read,
            self.tokens + other.tokens,
            self.cpu_s + other.cpu_s,
        )


def estimated_tokens(repair: Repair) -> int:
    """Return about how many tokens are read for a repair, by its length: a number that needs no model."""
    return AFTER + sum(len(edit.text) for edit in repair.edits) // _BYTES_OF_TOKEN


def first_within(repairs: Iterable[tuple[Place, Repair]], tokens: int) -> int:
    """Return how many of the first repairs of a list a budget of tokens is enough for."""
    seen, number = set[tuple[str, int]](), 0
    for place, repair in repairs:
        tokens -= estimated_tokens(repair)
        name = place.source.path, place.scope.start
        if name not in seen:
            seen.add(name)
            tokens -= (place.scope.end - place.scope.start) // _BYTES_OF_TOKEN
        if tokens < 0:
            return number
        number += 1
    return number


def columns_of(scorer: Scorer, place: Place, repairs: Sequence[Repair]) -> tuple[list[list[float] | None], int]:
    """Return the columns of repairs of a function, and the number of tokens that were read.

    None stands for a repair that cannot be read: of a function that is too long or not UTF-8, or with changes outside
    of it. Raises ModelError if the model does not answer.
    """
    start = place.source.line_start(place.scope.start)
    data = place.source.data[start : place.scope.end]
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return [None] * len(repairs), 0
    if len(data) > _LONGEST_BYTES:
        return [None] * len(repairs), 0
    pairs = [_variants(data, text, repair, start) for repair in repairs]
    variants = list(dict.fromkeys(v for pair in pairs if pair is not None for v in pair))
    scored = scorer.score(text, variants, after=AFTER)
    scores = dict(zip(variants, scored.scores, strict=True))
    rows: list[list[float] | None] = []
    for pair in pairs:
        new, old = (scores[pair[0]], scores[pair[1]]) if pair is not None else (None, None)
        rows.append(_row(new, old) if new is not None and old is not None else None)
    return rows, scored.tokens


def _variants(data: bytes, text: str, repair: Repair, start: int) -> tuple[Variant, Variant] | None:
    """Return the function after a repair and before it, with the region that differs; None if it changes more."""
    edits = [Edit(e.start - start, e.end - start, e.text) for e in repair.edits]
    first, last = min(e.start for e in edits), max(e.end for e in edits)
    if first < 0 or last > len(data):
        return None
    try:
        changed = splice(data, edits).decode()
        begin = len(data[:first].decode())
        rest = len(data[last:].decode())
    except (ValueError, UnicodeDecodeError):
        return None
    return Variant(changed, begin, len(changed) - rest), Variant(text, begin, len(text) - rest)


def _row(new: Scores, old: Scores) -> list[float]:
    added, removed = sum(new.changed), sum(old.changed)
    common = min(len(new.after), len(old.after))
    following = sum(new.after[:common]) - sum(old.after[:common])
    values = (
        added - removed + following,
        added,
        removed,
        following,
        added / max(1, len(new.changed)),
        removed / max(1, len(old.changed)),
        math.log1p(len(new.changed)),
        math.log1p(len(old.changed)),
    )
    # Rounding differs between machines, and must not change what is drawn.
    return [round(value, 3) for value in values]


@dataclass(frozen=True, slots=True)
class LanguageRanking:
    """The weights of a conditional logit of the policy's logit and the columns."""

    name: str
    """What `--lm` named; see `open_scorer`."""
    key: str
    """A hash of the model that it was fitted with."""
    policy: float
    """The weight of the policy's logit of a candidate."""
    weights: tuple[float, ...]
    """Of the columns."""
    read: float
    """Added to the logit of each candidate that was read."""
    tokens: int
    """Tokens that are read for one list of candidates."""
    scorer: Scorer = field(compare=False, repr=False)
    """The model; it is loaded when the first list is ranked."""

    def logit(self, policy: float, row: Sequence[float] | None) -> float:
        """Return the logit of a candidate by the policy's logit and its columns; None if it was not read."""
        if row is None:
            return self.policy * policy
        return self.policy * policy + self.read + sum(w * v for w, v in zip(self.weights, row, strict=True))

    def to_json(self) -> dict[str, Any]:
        """Return what the file of a policy says of it; see `from_json`."""
        return {
            # A path or an address is nobody else's business.
            "model": SMOLLM2 if self.name == SMOLLM2 else "",
            "key": self.key,
            "columns": list(COLUMNS),
            "policy": self.policy,
            "weights": list(self.weights),
            "read": self.read,
            "tokens": self.tokens,
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any], model: str) -> LanguageRanking:
        """Return what a policy's file says, with the model on this machine.

        model: the one that the user names; empty for the one that the file names, which is followed only if it ships in
        a package: a policy may come from a stranger, and a server would get the user's code. Raises ValueError,
        KeyError or TypeError if the file is damaged; SettingsError if there is no such model here, or another one;
        MissingExtraError without the extra `lm`.
        """
        numbers = [float(v) for v in (values["policy"], values["read"], *values["weights"])]
        if tuple(values["columns"]) != COLUMNS or len(values["weights"]) != len(COLUMNS):
            raise ValueError("its columns are not those of this version")
        tokens = int(values["tokens"])
        if not (tokens >= 1 and all(abs(number) <= _MOST_WEIGHT for number in numbers)):
            raise ValueError("a weight of the language model's columns, or the number of tokens, is out of range")
        if not model and values["model"] != SMOLLM2:
            raise SettingsError(
                "the policy was trained with a language model of another folder or server; name it: "
                "search:policy=PATH,lm=MODEL",
                option="solver",
            )
        scorer = open_scorer(model or SMOLLM2)
        if scorer.key != values["key"]:
            raise SettingsError(
                f"the policy was trained with another language model than {model or SMOLLM2} is here", option="solver"
            )
        return cls(model or SMOLLM2, scorer.key, numbers[0], tuple(numbers[2:]), numbers[1], tokens, scorer)


def ranked_again(
    language: LanguageRanking, listed: Sequence[tuple[float, Place, Repair]]
) -> tuple[list[float], Reading]:
    """Return the logarithm of the probability of each candidate within its function, and what was read.

    listed: candidates with the policy's logit within the function, in the order in which they are read, best first.
    """
    begin = time.thread_time()
    count = first_within(((place, repair) for _, place, repair in listed), language.tokens)
    by_function: Mapping[tuple[str, int], list[int]] = _grouped(listed)
    scorer = language.scorer
    logits, read, tokens = [0.0] * len(listed), 0, 0
    for indices in by_function.values():
        chosen = [i for i in indices if i < count]
        rows: Sequence[Sequence[float] | None] = []
        if chosen:
            rows, used = columns_of(scorer, listed[chosen[0]][1], [listed[i][2] for i in chosen])
            tokens += used
            read += sum(row is not None for row in rows)
        known = dict(zip(chosen, rows, strict=True))
        values = [language.logit(listed[i][0], known.get(i)) for i in indices]
        top = max(values)
        total = top + math.log(sum(math.exp(v - top) for v in values))
        for i, value in zip(indices, values, strict=True):
            logits[i] = max(_LOWEST, value - total)
    return logits, Reading(len(listed), read, tokens, time.thread_time() - begin)


def _grouped(listed: Sequence[tuple[float, Place, Repair]]) -> dict[tuple[str, int], list[int]]:
    groups = defaultdict[tuple[str, int], list[int]](list)
    for index, (_, place, _) in enumerate(listed):
        groups[place.source.path, place.scope.start].append(index)
    return groups
