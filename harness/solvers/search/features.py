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
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from harness.solvers.search.donors import module_names
from harness.solvers.search.patterns import Repair
from harness.solvers.search.token_model import Kind, Token, TokenModel, log_probabilities, tokens_of
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


class Lines:
    """The sets of tokens of a function's lines, to find those that are most like another set.

    A set is a number with a bit for each token: `&` of numbers takes a fraction of the time of `&` of sets.
    """

    def __init__(self, lines: Iterable[frozenset[bytes]]) -> None:
        unique = list(dict.fromkeys(lines))
        self._bits = {text: 1 << place for place, text in enumerate(frozenset[bytes]().union(*unique))}
        self._lines = [(self._mask(texts), len(texts), texts) for texts in unique]

    def _mask(self, texts: Iterable[bytes]) -> int:
        mask = 0
        for text in texts:
            mask |= self._bits.get(text, 0)
        return mask

    def likeness(self, texts: Collection[bytes], apart_from: frozenset[bytes]) -> float:
        """Return the highest Jaccard index of a set of tokens and a line of other tokens than `apart_from`."""
        mask, size, highest = self._mask(texts), len(texts), 0.0
        for line, length, tokens in self._lines:
            common = (mask & line).bit_count()
            if common and tokens != apart_from:
                highest = max(highest, common / (size + length - common))
        return highest


class ScopeFeatures:
    """Describes repairs of one scope."""

    def __init__(self, source: ParsedSource, scope: Scope, general: TokenModel) -> None:
        """Prepare to describe repairs. general: a model of the tokens of many projects."""
        self._source, self._scope = source, scope
        own, in_file = file_model(source)
        # Many repairs of a function take out the same tokens, or put the same ones in.
        self._general, self._file = (functools.cache(model.log_probability) for model in (general, own))
        self._likelihood = functools.cache(self._likelihood_of)
        self._tokens_of = functools.cache(tokens_of)
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
        self._nearest = Lines(line.texts for _, line in self._lines[:_MOST_LINES])
        self._likeness = {line: self._nearest.likeness(line.texts, line.texts) for _, line in self._lines}
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
            if (values := log_probabilities(model, before, texts))
        )
        is_assignment = any(text == b"=" or (text[-1:] == b"=" and text[:-1] in _ARITHMETIC) for text in texts)
        return _Line(frozenset(texts) - {b"\n"}, texts[0], is_assignment, general, own)

    def rows(self, repairs: Sequence[Repair]) -> list[list[float]]:
        """Return the features of repairs, a row for each."""
        return [self._row(repair) for repair in repairs]

    def _row(self, repair: Repair) -> list[float]:
        edit = min(repair.edits, key=lambda e: e.start)
        first = bisect.bisect_left(self._starts, edit.start)
        last = bisect.bisect_left(self._starts, max(edit.end, edit.start))
        before, after = self._tokens[max(0, first - _AROUND) : first], self._tokens[last : last + _AROUND]
        old, new = self._tokens[first:last], self._tokens_of(edit.text)
        old, new, before, after = _reduced(old, new, before, after)
        for other in sorted(repair.edits, key=lambda e: e.start)[1:]:
            new = new + self._tokens_of(other.text)
            old = old + self._tokens[bisect.bisect_left(self._starts, other.start) :
                                     bisect.bisect_left(self._starts, other.end)]  # fmt: skip
        added, removed = len(new), len(old)
        row = [len(repair.edits), math.log1p(added), math.log1p(removed), added - removed, not removed, not added]
        row += [*_kinds(new), *_kinds(old)]
        row += self._likelihoods(before, old, new, after)
        index = bisect.bisect_right(self._line_starts, edit.start) - 1
        line = self._lines[index][1] if 0 <= index < len(self._lines) else None
        row += self._surprise(line)
        row += self._familiarity(old, new, line)
        length = max(1, self._scope.end - self._scope.start)
        indent = edit.start - self._source.line_start(edit.start)
        row += [(edit.start - self._scope.start) / length, math.log(length), indent / 4]
        old_texts, new_texts = [t.text for t in old], [t.text for t in new]
        removed_names = {t.text for t in old if t.kind is Kind.NAME}
        row += [sum(text in removed_names for text in new_texts), new_texts.count(b"not") - old_texts.count(b"not")]
        first_text = line.first if line is not None else b""
        row += [first_text == statement for statement in _STATEMENTS]
        is_assignment = line is not None and line.is_assignment
        row += [is_assignment, line is not None and first_text not in _STATEMENTS and not is_assignment]
        return row

    def _likelihoods(
        self, before: Sequence[Token], old: Sequence[Token], new: Sequence[Token], after: Sequence[Token]
    ) -> list[float]:
        """Return, for both models, how much likelier the code becomes, and the mean of what is put in and taken out."""
        around, behind = tuple(t.text for t in before), tuple(t.text for t in after)
        put_in, taken_out = (self._likelihood(around, tuple(t.text for t in tokens), behind) for tokens in (new, old))
        row = list[float]()
        for (sum_in, mean_in), (sum_out, mean_out) in zip(put_in, taken_out, strict=True):
            row += [sum_in - sum_out, mean_in, mean_out]
        return row

    def _likelihood_of(
        self, before: tuple[bytes, ...], texts: tuple[bytes, ...], after: tuple[bytes, ...]
    ) -> list[tuple[float, float]]:
        """Return, for both models, the logarithm of the probability of tokens and of those after them, and its mean."""
        pairs = []
        for model in (self._general, self._file):
            values = log_probabilities(model, before, (*texts, *after))
            pairs.append((sum(values), sum(values[: len(texts)]) / len(texts) if texts else 0.0))
        return pairs

    def _surprise(self, line: _Line | None) -> list[float]:
        """Return how unlikely the changed line is, beside the others of the function."""
        if line is None or not self._by_surprise:
            return [0.0, 0.0, 0.5]
        place = bisect.bisect_left(self._by_surprise, line.general + line.file) / len(self._by_surprise)
        return [line.general - self._mean[0], line.file - self._mean[1], place]

    def _familiarity(self, old: Sequence[Token], new: Sequence[Token], line: _Line | None) -> list[float]:
        """Return how much of what is put in exists nearby."""
        names = [t.text for t in new if t.kind is Kind.NAME]
        texts = line.texts if line is not None else frozenset[bytes]()
        row = [
            sum(n in known for n in names) / len(names) if names else 1.0
            for known in (self._names, self._file_names, texts)
        ]
        row.append(sum(n in self._lonely for n in names))
        row.append(sum(t.text in self._lonely for t in old if t.kind is Kind.NAME))
        for tokens, own in ((new, 0), (old, 1)):
            counts = [self._file_counts[t.text, t.kind] for t in tokens if t.kind is not Kind.LINE]
            row.append(math.log1p(max(0, min(counts) - own)) if counts else 0.0)
        changed = (texts - {t.text for t in old}) | {t.text for t in new} - {b"\n"}
        now, then = self._nearest.likeness(changed, texts), self._likeness[line] if line is not None else 0.0
        return [*row, now, now - then]


def _kinds(tokens: Sequence[Token]) -> list[int]:
    """Return the number of tokens of each kind."""
    counts = [0] * len(Kind)
    for token in tokens:
        counts[token.kind] += 1
    return counts


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


@functools.lru_cache(maxsize=16)
def file_model(source: ParsedSource) -> tuple[TokenModel, Counter[tuple[bytes, Kind]]]:
    """Return a model of the tokens of one file, and their counts."""
    model, tokens = TokenModel(), tokens_of(source.data)
    model.add(tokens)
    return model, Counter((t.text, t.kind) for t in tokens)
