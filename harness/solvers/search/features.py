"""Describe candidate repairs by numbers that do not depend on the pattern that made them.

A ranker that knows patterns learns which operators broke its training data, and is worse than none on other bugs. So a
repair is described by what it takes out and puts in: how much, of which kinds, how likely that is by the models of
tokens, and how well it fits the code around it.
"""

from __future__ import annotations

import bisect
import functools
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from harness.solvers.search.donors import module_names
from harness.solvers.search.patterns import Repair
from harness.solvers.search.token_model import Kind, Token, TokenModel, tokens_of
from pytest_ssr.source.syntax_tree import ParsedSource, Scope

_STATEMENTS = (b"if", b"elif", b"else", b"for", b"while", b"return", b"raise", b"def", b"class", b"with", b"try",
               b"except", b"yield", b"assert", b"del")  # fmt: skip
_ARITHMETIC = frozenset((b"+", b"-", b"*", b"/", b"//", b"%", b"**", b"&", b"|", b"^", b"<<", b">>", b"@", b":"))
_AROUND = 2
_MOST_LINES = 80

NAMES = (
    *("edits", "added", "removed", "grown", "inserts", "deletes"),
    *(f"added_{kind.name.lower()}" for kind in Kind),
    *(f"removed_{kind.name.lower()}" for kind in Kind),
    *("general_change", "general_added", "general_removed", "file_change", "file_added", "file_removed"),
    *("general_surprise", "file_surprise", "line_rank"),
    *("names_of_function", "names_of_file", "names_of_line", "lonely_added", "lonely_removed"),
    *("seen_added", "seen_removed", "likeness", "likeness_change"),
    *("position", "length", "depth", "same_name_added", "negates"),
    *(f"in_{s.decode()}" for s in _STATEMENTS),
    *("in_assignment", "in_call"),
)
"""The names of the features, in order."""


@dataclass(frozen=True, slots=True)
class _Line:
    """One line of a function."""

    texts: frozenset[bytes]
    first: bytes
    is_assignment: bool
    general: float
    file: float


class ScopeFeatures:
    """Describes repairs of one scope."""

    def __init__(self, source: ParsedSource, scope: Scope, general: TokenModel) -> None:
        """Prepare to describe repairs. general: a model of the tokens of many projects."""
        self._source, self._scope, self._general = source, scope, general
        self._file, in_file = file_model(source)
        self._file_counts, self._file_names = in_file, {t for (t, kind) in in_file if kind is Kind.NAME}
        self._tokens = tokens_of(source.data[scope.start : scope.end], scope.start)
        self._starts = [t.start for t in self._tokens]
        counts = Counter(t.text for t in self._tokens if t.kind is Kind.NAME)
        self._names = counts.keys()
        known = module_names(source)
        # A name that occurs once is used without a value, or has a value that is not used.
        self._lonely = {n for n, count in counts.items() if count == 1 and n not in known}
        self._lines = self._lines_of()
        self._line_starts = [start for start, _ in self._lines]
        self._by_surprise = sorted(line.general + line.file for _, line in self._lines)
        logs = [(line.general, line.file) for _, line in self._lines] or [(0.0, 0.0)]
        self._mean = tuple(sum(values) / len(values) for values in zip(*logs, strict=True))

    def _lines_of(self) -> list[tuple[int, _Line]]:
        lines, start = list[tuple[int, _Line]](), 0
        for index, token in enumerate(self._tokens):
            is_last = index == len(self._tokens) - 1
            if token.kind is not Kind.LINE and not is_last:
                continue
            line = self._tokens[start : index + 1]
            if line and len(lines) < _MOST_LINES * 4:
                lines.append((line[0].start, self._line(start, index + 1)))
            start = index + 1
        return lines

    def _line(self, start: int, end: int) -> _Line:
        tokens = self._tokens[start:end]
        before = [t.text for t in self._tokens[max(0, start - _AROUND) : start]]
        texts = [t.text for t in tokens]
        general, own = (
            sum(values) / len(values)
            for model in (self._general, self._file)
            if (values := model.log_probabilities(before, texts))
        )
        is_assignment = any(text == b"=" or (text[-1:] == b"=" and text[:-1] in _ARITHMETIC) for text in texts)
        return _Line(frozenset(texts) - {b"\n"}, texts[0], is_assignment, general, own)

    def rows(self, repairs: Sequence[Repair]) -> list[list[float]]:
        """Return the features of repairs, a row for each."""
        return [list(self._row(repair)) for repair in repairs]

    def _row(self, repair: Repair) -> Iterator[float]:
        edit = min(repair.edits, key=lambda e: e.start)
        first = bisect.bisect_left(self._starts, edit.start)
        last = bisect.bisect_left(self._starts, max(edit.end, edit.start))
        before, after = self._tokens[max(0, first - _AROUND) : first], self._tokens[last : last + _AROUND]
        old, new = self._tokens[first:last], tokens_of(edit.text)
        old, new, before, after = _reduced(old, new, before, after)
        for other in sorted(repair.edits, key=lambda e: e.start)[1:]:
            new = new + tokens_of(other.text)
            old = old + self._tokens[bisect.bisect_left(self._starts, other.start) :
                                     bisect.bisect_left(self._starts, other.end)]  # fmt: skip
        added, removed = len(new), len(old)
        yield from (len(repair.edits), math.log1p(added), math.log1p(removed), added - removed, not removed, not added)
        for tokens in (new, old):
            kinds = Counter(t.kind for t in tokens)
            yield from (kinds[kind] for kind in Kind)
        yield from self._likelihoods(before, old, new, after)
        index = bisect.bisect_right(self._line_starts, edit.start) - 1
        line = self._lines[index][1] if 0 <= index < len(self._lines) else None
        yield from self._surprise(line)
        yield from self._familiarity(old, new, before, after, line)
        length = max(1, self._scope.end - self._scope.start)
        indent = edit.start - self._source.line_start(edit.start)
        yield from ((edit.start - self._scope.start) / length, math.log(length), indent / 4)
        removed_names = {t.text for t in old if t.kind is Kind.NAME}
        yield sum(t.text in removed_names for t in new)
        yield sum(t.text == b"not" for t in new) - sum(t.text == b"not" for t in old)
        first_text = line.first if line is not None else b""
        yield from (first_text == statement for statement in _STATEMENTS)
        yield line is not None and line.is_assignment
        yield line is not None and first_text not in _STATEMENTS and not line.is_assignment

    def _likelihoods(
        self, before: Sequence[Token], old: Sequence[Token], new: Sequence[Token], after: Sequence[Token]
    ) -> Iterator[float]:
        """Yield, for both models, how much likelier the code becomes, and the mean of what is put in and taken out."""
        around = [t.text for t in before]
        for model in (self._general, self._file):
            sums, means = [], []
            for tokens in (new, old):
                texts = [t.text for t in tokens]
                values = model.log_probabilities(around, [*texts, *(t.text for t in after)])
                sums.append(sum(values))
                means.append(sum(values[: len(texts)]) / len(texts) if texts else 0.0)
            yield from (sums[0] - sums[1], *means)

    def _surprise(self, line: _Line | None) -> Iterator[float]:
        """Yield how unlikely the changed line is, beside the others of the function."""
        if line is None or not self._by_surprise:
            yield from (0.0, 0.0, 0.5)
            return
        yield line.general - self._mean[0]
        yield line.file - self._mean[1]
        yield bisect.bisect_left(self._by_surprise, line.general + line.file) / len(self._by_surprise)

    def _familiarity(
        self,
        old: Sequence[Token],
        new: Sequence[Token],
        before: Sequence[Token],
        after: Sequence[Token],
        line: _Line | None,
    ) -> Iterator[float]:
        """Yield how much of what is put in exists nearby."""
        names = [t.text for t in new if t.kind is Kind.NAME]
        for known in (self._names, self._file_names, line.texts if line is not None else frozenset()):
            yield sum(n in known for n in names) / len(names) if names else 1.0
        yield sum(n in self._lonely for n in names)
        yield sum(t.text in self._lonely for t in old if t.kind is Kind.NAME)
        for tokens, own in ((new, 0), (old, 1)):
            seen = [max(0, self._file_counts[t.text, t.kind] - own) for t in tokens if t.kind is not Kind.LINE]
            yield math.log1p(min(seen)) if seen else 0.0
        texts = line.texts if line is not None else frozenset[bytes]()
        changed = (texts - {t.text for t in old}) | {t.text for t in new} - {b"\n"}
        nearest = [line_.texts for _, line_ in self._lines[:_MOST_LINES] if line_.texts != texts]
        now, then = (max((_jaccard(t, other) for other in nearest), default=0.0) for t in (changed, texts))
        yield from (now, now - then)


def _reduced(
    old: list[Token], new: list[Token], before: list[Token], after: list[Token]
) -> tuple[list[Token], list[Token], list[Token], list[Token]]:
    """Return two pieces of code without the tokens that both begin and end with, which belong to their surroundings."""
    start, most = 0, min(len(old), len(new))
    while start < most and old[start].text == new[start].text:
        start += 1
    end = 0
    while end < most - start and old[-1 - end].text == new[-1 - end].text:
        end += 1
    front, back = old[:start], old[len(old) - end :]
    return (
        old[start : len(old) - end],
        new[start : len(new) - end],
        [*before, *front][-_AROUND:],
        [*back, *after][:_AROUND],
    )


def _jaccard(one: frozenset[bytes] | set[bytes], other: frozenset[bytes]) -> float:
    return len(one & other) / max(1, len(one | other))


@functools.lru_cache(maxsize=16)
def file_model(source: ParsedSource) -> tuple[TokenModel, Counter[tuple[bytes, Kind]]]:
    """Return a model of the tokens of one file, and their counts."""
    model, tokens = TokenModel(), tokens_of(source.data)
    model.add(tokens)
    return model, Counter((t.text, t.kind) for t in tokens)
