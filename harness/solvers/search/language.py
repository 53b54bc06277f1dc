"""Rank candidate repairs by what a pretrained language model says of them, too.

The model reads the buggy function once, which tells how likely the first changed token of each candidate is (a glance).
Then it reads, of the best candidates, the tokens that they change and the next ones. Eight numbers of each of them
(columns), the glance and the policy's own logit are combined by a conditional logit, which is fitted to static bugs
(`ssr train search --lm`). The number of candidates that are read follows from a budget in tokens, so that the same seed
gives the same patch on a busy machine.
"""

from __future__ import annotations

import contextlib
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
GLANCE = 0.3
"""Weight of the first changed token in the order in which candidates are read."""
_LONGEST_BYTES = 8_000
_BYTES_OF_TOKEN = 3
_LOWEST = -1e9
_MOST_WEIGHT = 1e6

Name = tuple[str, int]
"""A function: the path of its file, and its first byte."""


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


def function_tokens(place: Place) -> int:
    """Return about how many tokens a function has, by its length: a number that needs no model."""
    return (place.scope.end - place.scope.start) // _BYTES_OF_TOKEN


def repair_tokens(repair: Repair) -> int:
    """Return about how many tokens are read for a repair, by its length."""
    return AFTER + sum(len(edit.text) for edit in repair.edits) // _BYTES_OF_TOKEN


def first_within(repairs: Iterable[Repair], tokens: int) -> int:
    """Return how many of the first repairs of a list a budget of tokens is enough for, by their lengths."""
    number = 0
    for repair in repairs:
        tokens -= repair_tokens(repair)
        if tokens < 0:
            break
        number += 1
    return number


class FunctionReader:
    """What a language model says of the repairs of one function."""

    def __init__(self, scorer: Scorer, place: Place) -> None:
        """Read the function, unless it is too long or not UTF-8. Raises ModelError if the model does not answer."""
        self._start = place.source.line_start(place.scope.start)
        self._data = place.source.data[self._start : place.scope.end]
        self._text = ""
        with contextlib.suppress(UnicodeDecodeError):
            self._text = self._data.decode()
        readable = bool(self._text) and len(self._data) <= _LONGEST_BYTES
        self._reader = scorer.open(self._text) if readable else None

    @property
    def tokens(self) -> int:
        """Number of tokens that were read until now."""
        return self._reader.tokens if self._reader is not None else 0

    def glances(self, repairs: Sequence[Repair]) -> list[float]:
        """Return how likely the first changed token of each repair is; 0 if it is not known. See `Reader.glance`."""
        pairs = self._variants(repairs)
        known = [pair[0] for pair in pairs if pair is not None]
        values = dict(zip(known, self._reader.glance(known), strict=True)) if self._reader is not None else {}
        found = [values.get(pair[0]) if pair is not None else None for pair in pairs]
        return [round(value, 3) if value is not None else 0.0 for value in found]

    def columns(self, repairs: Sequence[Repair]) -> list[list[float] | None]:
        """Return the columns of each repair.

        None for a repair of a function that was not read, or with changes outside of it.
        """
        pairs = self._variants(repairs)
        variants = list(dict.fromkeys(variant for pair in pairs if pair is not None for variant in pair))
        if self._reader is None or not variants:
            return [None] * len(repairs)
        scores = dict(zip(variants, self._reader.read(variants, after=AFTER), strict=True))
        rows: list[list[float] | None] = []
        for pair in pairs:
            new, old = (scores[pair[0]], scores[pair[1]]) if pair is not None else (None, None)
            rows.append(_row(new, old) if new is not None and old is not None else None)
        return rows

    def _variants(self, repairs: Sequence[Repair]) -> list[tuple[Variant, Variant] | None]:
        return [_variants(self._data, self._text, repair, self._start) for repair in repairs]


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
    glance: float
    """The weight of the first changed token; see `FunctionReader.glances`."""
    read: float
    """Added to the logit of each candidate that was read."""
    tokens: int
    """Tokens that are read for one list of candidates."""
    scorer: Scorer = field(compare=False, repr=False)
    """The model; it is loaded when the first list is ranked."""

    def logit(self, policy: float, glance: float, row: Sequence[float] | None) -> float:
        """Return the logit of a candidate by the policy's logit, its first token, and its columns if it was read."""
        logit = self.policy * policy + self.glance * glance
        if row is None:
            return logit
        return logit + self.read + sum(w * v for w, v in zip(self.weights, row, strict=True))

    def to_json(self) -> dict[str, Any]:
        """Return what the file of a policy says of it; see `from_json`."""
        return {
            # A path or an address is nobody else's business.
            "model": SMOLLM2 if self.name == SMOLLM2 else "",
            "key": self.key,
            "columns": list(COLUMNS),
            "policy": self.policy,
            "glance": self.glance,
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
        numbers = [float(v) for v in (values["policy"], values["glance"], values["read"], *values["weights"])]
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
        policy, glance, read, *weights = numbers
        return cls(model or SMOLLM2, scorer.key, policy, tuple(weights), glance, read, tokens, scorer)


def ranked_again(
    language: LanguageRanking, listed: Sequence[tuple[float, Place, Repair]], located: Sequence[float]
) -> tuple[list[float], Reading]:
    """Return the logarithm of the probability of each candidate within its function, and what was read.

    listed: candidates with the policy's logit within the function, the best first. located: the logarithm of the
    likelihood of each one's place, which decides with the logit what is read. Raises ModelError if the model does not
    answer.
    """
    # The first call also loads the model, which is no cost of this list.
    language.scorer.open("pass")
    begin = time.thread_time()
    groups, left = _grouped(listed), language.tokens
    readers, glances = dict[Name, FunctionReader](), [0.0] * len(listed)
    for name in _functions_within(listed, language.tokens):
        indices = groups[name]
        place = listed[indices[0]][1]
        left -= function_tokens(place)
        readers[name] = FunctionReader(language.scorer, place)
        for i, value in zip(indices, readers[name].glances([listed[i][2] for i in indices]), strict=True):
            glances[i] = value
    wanted = [i for name, indices in groups.items() if name in readers for i in indices]
    order = sorted(wanted, key=lambda i: -(located[i] + listed[i][0] + GLANCE * glances[i]))
    chosen = set(order[: first_within((listed[i][2] for i in order), left)])
    logits, read = [0.0] * len(listed), 0
    for name, indices in groups.items():
        own = [i for i in indices if i in chosen]
        rows = dict(zip(own, readers[name].columns([listed[i][2] for i in own]), strict=True)) if own else {}
        read += sum(row is not None for row in rows.values())
        values = [language.logit(listed[i][0], glances[i], rows.get(i)) for i in indices]
        top = max(values)
        total = top + math.log(sum(math.exp(v - top) for v in values))
        for i, value in zip(indices, values, strict=True):
            logits[i] = max(_LOWEST, value - total)
    tokens = sum(reader.tokens for reader in readers.values())
    return logits, Reading(len(listed), read, tokens, time.thread_time() - begin)


def _functions_within(listed: Sequence[tuple[float, Place, Repair]], tokens: int) -> list[Name]:
    """Return the functions of the first candidates, as many as a budget would be enough for without glances.

    The other functions are not read: they would leave nothing for the candidates of these.
    """
    found = dict[Name, None]()
    for _, place, repair in listed:
        name = place.source.path, place.scope.start
        tokens -= repair_tokens(repair) + (function_tokens(place) if name not in found else 0)
        if tokens < 0:
            break
        found[name] = None
    return list(found)


def _grouped(listed: Sequence[tuple[float, Place, Repair]]) -> dict[Name, list[int]]:
    groups = defaultdict[Name, list[int]](list)
    for index, (_, place, _) in enumerate(listed):
        groups[place.source.path, place.scope.start].append(index)
    return groups
