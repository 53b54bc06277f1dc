"""Decide which bugs an export takes: at most so many of a kind, and no near duplicates.

A decision is about a bug and so about all rollouts at it: the attempts that formats compare stay together. The first
bugs count, in the order of the export, among those that the filters keep.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from harness.exporters.benchmark_tasks import benchmark_tasks
from harness.exporters.near_duplicates import Compared, NearDuplicate, TokenSets, tokens_of_diff, tokens_of_text
from harness.exporters.skipped import SkipCode, SkippedError
from pytest_ssr.errors import SettingsError


class Kind(StrEnum):
    """What a cap counts the bugs of."""

    FUNCTION = "function"
    OPERATOR = "operator"
    REPOSITORY = "repository"


class Likeness(StrEnum):
    """What is done with near duplicates."""

    REPORT = "report"
    DROP = "drop"
    OFF = "off"


_CODES: Mapping[Kind, SkipCode] = {
    Kind.FUNCTION: SkipCode.FUNCTION_CAP,
    Kind.OPERATOR: SkipCode.OPERATOR_CAP,
    Kind.REPOSITORY: SkipCode.REPOSITORY_CAP,
}


@dataclass(frozen=True, slots=True)
class Bug:
    """What is known of a bug, or of a task of a dataset; empty strings stand for what is unknown."""

    id: str
    repository: str = ""
    operator: str = ""
    function: str = ""
    """The file and the function that the bug is in."""
    diff: bytes = b""
    """The bug or its repair."""
    statement: str = ""
    """The task in prose."""

    def group(self, kind: Kind) -> str:
        """Return what it counts to under a cap; empty if that is unknown."""
        if kind is Kind.REPOSITORY:
            return self.repository
        if kind is Kind.OPERATOR:
            return self.operator
        return f"{self.repository}: {self.function}" if self.function else ""


def parse_caps(text: str) -> dict[Kind, int]:
    """Parse `function=2,operator=50`; raises SettingsError for anything else."""
    caps: dict[Kind, int] = {}
    for item in text.split(",") if text else ():
        name, _, number = item.partition("=")
        if name not in tuple(Kind) or Kind(name) in caps or not (number.isascii() and number.isdigit() and int(number)):
            raise SettingsError(
                f"--most-per {text!r} is not a list of caps; write function=2,operator=50,repository=200",
                option="most-per",
            )
        caps[Kind(name)] = int(number)
    return {kind: caps[kind] for kind in Kind if kind in caps}


@dataclass(slots=True)
class Admission:
    """The bugs of an export, as they are taken or refused."""

    caps: Mapping[Kind, int] = field(default_factory=dict)
    likeness: Likeness = Likeness.OFF
    threshold: float = 0.8
    """The least Jaccard similarity of near duplicates."""
    duplicates: list[NearDuplicate] = field(default_factory=list)
    compared: int = 0
    """The number of bugs that were compared with others."""
    not_compared: int = 0
    """The number of bugs of which neither a diff nor a statement is known."""
    not_capped: Counter[Kind] = field(default_factory=Counter)
    """The number of bugs without a function, operator or repository, by the cap that they evade."""
    benchmarks: Counter[str] = field(default_factory=Counter)
    """The number of tasks of each benchmark that bugs are compared with."""
    unreadable: Counter[str] = field(default_factory=Counter)
    """The number of tasks of each benchmark without a diff and a statement, such as rows that cannot be read."""
    _own: dict[Compared, TokenSets] = field(default_factory=dict)
    _others: dict[str, dict[Compared, TokenSets]] = field(default_factory=dict)
    _counts: dict[Kind, Counter[str]] = field(default_factory=dict)
    _decisions: dict[str, SkippedError | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Begin without any bugs."""
        self._own = self._token_sets()
        self._counts = {kind: Counter() for kind in self.caps}

    @property
    def is_selective(self) -> bool:
        """Whether it may refuse a bug."""
        return bool(self.caps) or self.likeness is Likeness.DROP

    @property
    def is_active(self) -> bool:
        """Whether it needs to know the bugs."""
        return bool(self.caps) or self.likeness is not Likeness.OFF

    def read_benchmarks(self, sources: Iterable[Path]) -> None:
        """Read the tasks that no bug should repeat; raises SettingsError for a source that cannot be read."""
        for source in sources:
            name = source.name or str(source)
            sets = self._others.setdefault(name, self._token_sets())
            for task in benchmark_tasks(source):
                tokens = _tokens(task.diff, task.statement)
                (self.benchmarks if tokens else self.unreadable)[name] += 1
                for compared, words in tokens.items():
                    sets[compared].add(task.id, words)

    def to_json(self) -> dict[str, Any]:
        """Return plain data for JSON: what was found, and what could not be compared or counted."""
        found = [{**asdict(duplicate), "similarity": round(duplicate.similarity, 4)} for duplicate in self.duplicates]
        return {
            "near_duplicates": {
                "mode": str(self.likeness),
                "similarity": self.threshold,
                "compared": self.compared,
                "not_compared": self.not_compared,
                "benchmarks": dict(sorted(self.benchmarks.items())),
                "unreadable": dict(sorted(self.unreadable.items())),
                "found": found,
            },
            "not_capped": {str(kind): count for kind, count in sorted(self.not_capped.items())},
        }

    def require(self, name: str, bug: Callable[[], Bug]) -> None:
        """Raise SkippedError if a bug is refused; the first call with its id decides.

        bug: returns it; only called for an unknown id.
        """
        if not self.is_active:
            return
        if name not in self._decisions:
            self._decisions[name] = self._decide(bug())
        if (refusal := self._decisions[name]) is not None:
            raise SkippedError(refusal.code, refusal.detail)

    def _decide(self, bug: Bug) -> SkippedError | None:
        tokens = {} if self.likeness is Likeness.OFF else _tokens(bug.diff, bug.statement)
        duplicate = self._duplicate(bug.id, tokens)
        if self.likeness is not Likeness.OFF:
            self.compared += bool(tokens)
            self.not_compared += not tokens
        if duplicate is not None:
            self.duplicates.append(duplicate)
            if self.likeness is Likeness.DROP:
                return _refusal(duplicate)
        groups = {kind: bug.group(kind) for kind in self.caps}
        for kind, group in groups.items():
            if group and self._counts[kind][group] >= self.caps[kind]:
                return SkippedError(_CODES[kind], group)
        for kind, group in groups.items():
            if group:
                self._counts[kind][group] += 1
            else:
                self.not_capped[kind] += 1
        if duplicate is None:
            for compared, words in tokens.items():
                self._own[compared].add(bug.id, words)
        return None

    def _duplicate(self, name: str, tokens: Mapping[Compared, frozenset[str]]) -> NearDuplicate | None:
        """Return what a bug repeats: a task of a benchmark, or else a bug of the export."""
        for benchmark, sets in (*self._others.items(), ("", self._own)):
            for compared, words in tokens.items():
                if (match := sets[compared].most_similar(words)) is not None:
                    return NearDuplicate(name, match.name, benchmark, compared, match.similarity)
        return None

    def _token_sets(self) -> dict[Compared, TokenSets]:
        return {compared: TokenSets(self.threshold) for compared in Compared}


def _tokens(diff: bytes, statement: str) -> dict[Compared, frozenset[str]]:
    """Return the tokens of what is known."""
    tokens = {Compared.DIFF: tokens_of_diff(diff), Compared.STATEMENT: tokens_of_text(statement)}
    return {compared: words for compared, words in tokens.items() if words}


def _refusal(duplicate: NearDuplicate) -> SkippedError:
    code = SkipCode.BENCHMARK_DUPLICATE if duplicate.benchmark else SkipCode.NEAR_DUPLICATE
    place = f" of {duplicate.benchmark}" if duplicate.benchmark else ""
    detail = f"{duplicate.compared} of {duplicate.id} and {duplicate.original}{place}: {duplicate.similarity:.2f}"
    return SkippedError(code, detail)
