"""Let a language model write candidate repairs: the lines of suspicious regions, several replies at a time."""

from __future__ import annotations

import json
import math
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from random import Random
from typing import Any

from harness.local_models.sampling import Question, Sampler
from harness.records.trajectory import Journal
from harness.solvers.search.patterns import Repair
from harness.solvers.search.solver import noise, record_model
from harness.solvers.search.workspace import SearchWorkspace
from harness.solvers.writer.prompt import BEGIN, END, Failure, has_marks, lines_of, question
from harness.solvers.writer.regions import Region, function_text, is_indented, regions_of
from pytest_ssr.injectors.equivalence import fingerprint
from pytest_ssr.project.state import CodebaseState
from pytest_ssr.source.syntax_tree import Edit, ParsedSource, Scope

SAMPLES = "samples.jsonl"
"""The file beside the trajectory with all that an attempt has sampled, in this order."""
PATTERN = "written"
"""The pattern of a repair that a model wrote."""
TOKENS = 112
"""Most tokens of a reply: more than 99 % of the originals of static bugs need fewer."""
_TOGETHER = 8
"""Replies for one region that are sampled at a time."""
_SHARPNESS = 6
"""Exponent of a region's suspicion, as in the search."""
_MOST_SEED = 2**31


class Outcome(StrEnum):
    """What became of a reply."""

    CANDIDATE = "candidate"
    """It is another repair than those before it, and was run unless the attempt ended."""
    REPEAT = "repeat"
    """It compiles to the same code as an earlier one."""
    UNCHANGED = "unchanged"
    """It compiles to the same code as the buggy lines."""
    INVALID = "invalid"
    """With it, the function is not valid Python."""
    INCOMPLETE = "incomplete"
    """It has no end mark, or another form."""


@dataclass(frozen=True, slots=True)
class _Spot:
    """A region in its file, and the logarithm of its weight in draws."""

    source: ParsedSource
    scope: Scope
    region: Region
    weight: float

    @property
    def first(self) -> int:
        return self.source.line(self.scope.start) + self.region.first - 1

    @property
    def last(self) -> int:
        return self.source.line(self.scope.start) + self.region.last - 1

    def repair(self, lines: str) -> Repair:
        """Return the repair that puts lines in the place of the region."""
        start = self.scope.start + len(self.region.before.encode())
        end = min(start + len(self.region.lines.encode()), len(self.source.data))
        span = (self.scope.node.start_point.row + 1, self.scope.node.end_point.row + 1)
        edits = (Edit(start, end, lines.encode()),)
        return Repair(self.source.path, PATTERN, 1.0, edits, self.first, self.last, span)


@dataclass(slots=True)
class WrittenRepairs:
    """Proposes what a language model writes, in one attempt.

    Each time, a region is drawn in proportion to its suspicion. A region of several statements has a lower weight than
    one of a single statement.
    """

    workspace: SearchWorkspace
    sampler: Sampler
    rng: Random
    samples: int
    """Replies that may still be sampled."""
    temperature: float
    failure: Failure | None
    """Shown to the model; None if it is not."""
    tokens: int = 0
    """Number of tokens that the model has read or written."""
    cpu_s: float = 0.0
    """Seconds of processor time of this thread in the model."""
    written: list[dict[str, Any]] = field(default_factory=list)
    """Each reply with its outcome, as plain data."""

    def repairs(self, base: CodebaseState) -> Iterator[Repair]:
        """Yield what is written for a state, without repetitions, until all replies are used."""
        spots, proposed = self._spots(base), defaultdict[tuple[str, int], set[str]](set)
        while spots and self.samples > 0:
            spot = max(spots, key=lambda each: each.weight + noise(self.rng))
            known = proposed[spot.source.path, spot.scope.start]
            for reply in self._replies(spot):
                lines = lines_of(reply)
                outcome = outcome_of(spot.region, lines, known)
                facts = {"path": spot.source.path, "first": spot.first, "last": spot.last}
                self.written.append({**facts, "text": reply, "outcome": str(outcome)})
                if outcome is Outcome.CANDIDATE and lines is not None:
                    yield spot.repair(lines)

    def record(self, journal: Journal, *, solved: bool) -> None:
        """Record all that was sampled, and what it cost."""
        counts = Counter(str(row["outcome"]) for row in self.written)
        by_outcome = {str(outcome): counts[outcome] for outcome in Outcome}
        facts = {"sampled": len(self.written), **by_outcome, "tokens": self.tokens, "cpu_s": round(self.cpu_s, 3)}
        record_model(journal, facts)
        journal.write_sibling(SAMPLES, "".join(f"{json.dumps(row)}\n" for row in self.written))

    def _spots(self, base: CodebaseState) -> list[_Spot]:
        spots = []
        for place in self.workspace.suspicious_functions(base):
            source, scope = place.source, place.scope
            text = function_text(source, scope)
            if text is None or has_marks(text):
                continue
            top, span = source.line(scope.start), (scope.node.start_point.row + 1, scope.node.end_point.row + 1)
            for region in regions_of(text):
                first, last = top + region.first - 1, top + region.last - 1
                if suspicion := self.workspace.suspicion.of(source.path, first, last, function=span):
                    weight = _SHARPNESS * math.log(suspicion) - 2 * math.log(region.statements)
                    spots.append(_Spot(source, scope, region, weight))
        return spots

    def _replies(self, spot: _Spot) -> tuple[str, ...]:
        count = min(_TOGETHER, self.samples)
        self.samples -= count
        asked = Question(question(spot.region, self.failure), BEGIN, f"\n{END}")
        begin = time.thread_time()
        sampled = self.sampler.sample(
            asked, count=count, temperature=self.temperature, tokens=TOKENS, seed=self.rng.randrange(_MOST_SEED)
        )
        self.cpu_s += time.thread_time() - begin
        self.tokens += sampled.tokens
        return sampled.replies


def outcome_of(region: Region, lines: str | None, known: set[str]) -> Outcome:
    """Return what becomes of a reply. known: the fingerprints of the function that were proposed before."""
    if lines is None:
        return Outcome.INCOMPLETE
    made = _fingerprint(region.with_lines(lines))
    if made is None:
        return Outcome.INVALID
    if made == _fingerprint(region.with_lines(region.lines)):
        return Outcome.UNCHANGED
    if made in known:
        return Outcome.REPEAT
    known.add(made)
    return Outcome.CANDIDATE


def _fingerprint(function: str) -> str | None:
    return fingerprint(function.encode(), indented=is_indented(function))
