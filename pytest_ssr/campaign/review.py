"""Turn the survivors in changed code into remarks for a review: few, one for each line, the most important first."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pytest_ssr.campaign.assertion_counts import AssertionCounts
from pytest_ssr.campaign.campaign import Campaign
from pytest_ssr.campaign.survivors import Survivor, ranked
from pytest_ssr.escaping import escaped, escaped_line
from pytest_ssr.progress import counted, format_duration
from pytest_ssr.records.candidate_result import CandidateResult, is_tried
from pytest_ssr.records.suggested_test import NoSuggestion, SuggestedTest
from pytest_ssr.source.parsing import parse_module
from pytest_ssr.source.syntax_tree import parse, scopes
from pytest_ssr.suggestions.skeleton import removed_lines

REVIEW_S = 60.0
"""The time for changes and tests of a review, after the project's tests have been measured."""
FOR_CHANGES = 2 / 3
"""The share of the time that may be used before tests are looked for."""
_ARROW = " -> "
MOST_REMARKS, MOST_IN_FILE = 20, 7
"""Reviewers do not read more."""
_TELLING = frozenset(("early-break",))
"""Operators whose survivors are worth a remark without a proof: no test needs the second turn of a loop. Two reviewers
called all seven of these useful, and 16 of the 54 other survivors without a proof
(benchmarks/results/2026-11-30-pull-requests.md)."""


def changes_until(deadline: float) -> float:
    """Return the time after which no further change of a review is tried, so that tests can be looked for.

    deadline: the end of the review; both are times of `time.monotonic`.
    """
    return deadline - (deadline - time.monotonic()) * (1 - FOR_CHANGES) if math.isfinite(deadline) else deadline


@dataclass(frozen=True, slots=True)
class Remark:
    """One surviving change that a reviewer should look at."""

    result: CandidateResult
    suggestion: SuggestedTest | None = None
    """A test that notices the change; None if none was found."""
    is_run: bool = True
    """Whether a test runs the lines that it changes, not only their function."""

    @property
    def text(self) -> str:
        """The change in words."""
        return change_in_words(self.result, is_run=self.is_run)

    @property
    def is_shown(self) -> bool:
        """Whether a test with usual inputs notices the change; for code that no test runs, any test will do."""
        return self.suggestion is not None and (self.suggestion.oddness == 0 or not self.is_run)

    @property
    def next_command(self) -> str:
        """What to do if no test is wanted."""
        return f'ssr accept {self.result.identity} --reason "..."'

    def to_json(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        result, suggestion = self.result, self.suggestion
        test = (
            {"folder": suggestion.folder, "file": suggestion.file, "content": suggestion.test}
            if suggestion is not None
            else None
        )
        return {
            "id": result.identity,
            "path": result.path,
            "line": result.line,
            "function": result.scope,
            "text": self.text,
            "diff": result.diff,
            "is_reached": self.is_run,
            "shown_by": suggestion.change if suggestion is not None else None,
            "test": test,
            "next": self.next_command,
        }


@dataclass(frozen=True, slots=True)
class Review:
    """What a campaign that is restricted to changed code found."""

    remarks: Sequence[Remark]
    more: int
    """Survivors without a remark, because there are others on the line, in the file, or in all."""
    tried: int
    """Changes whose outcome is known."""
    functions: Sequence[tuple[str, str]]
    """The changed functions, and the code outside functions of changed files: path and qualified name."""
    not_tried: Sequence[tuple[str, str]]
    """Those of them in which no change was tried."""
    is_complete: bool
    """Whether all changes were tried."""
    unproven: Sequence[Remark] = ()
    """Survivors for which no test with usual inputs was found, though perhaps another one.

    Many of these are equivalent, or are about inputs that nobody gives.
    """

    def to_json(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {
            "remarks": [remark.to_json() for remark in self.remarks],
            "unproven": [remark.to_json() for remark in self.unproven],
            "more": self.more,
            "tried": self.tried,
            "complete": self.is_complete,
            "not_tried": [{"path": path, "function": scope} for path, scope in self.not_tried],
        }


def change_in_words(result: CandidateResult, *, is_run: bool = True) -> str:
    """Return a surviving change as a sentence without its place. is_run: as in `Remark`."""
    change = result.detail or result.operator or result.strategy
    sides = _sides(result.detail)
    if sides is not None:
        change = "`{}` became `{}`".format(*sides)
    elif change.endswith(" removed"):
        change = f"`{change.removesuffix(' removed')}` were removed"
    elif change.endswith(" added"):
        change = f"`{change.removesuffix(' added')}` were added"
    else:
        change = f"this changed ({change})"
    if result.is_reached and is_run:
        return f"if {change}, no test would notice"
    return f"no test runs this: none would notice if {change}"


def _sides(detail: str) -> tuple[str, str] | None:
    """Return the code before and after a change; None if a text does not say both, or does so in several ways."""
    parts = detail.split(_ARROW)
    splits = [(_ARROW.join(parts[:n]), _ARROW.join(parts[n:])) for n in range(1, len(parts))]
    if len(splits) > 1:
        # The code has an arrow itself.
        splits = [
            split for split in splits if all(parse_module(side.encode(errors="replace")) is not None for side in split)
        ]
    return splits[0] if len(splits) == 1 else None


def survivors_with_remarks(campaign: Campaign, results: Sequence[CandidateResult]) -> list[CandidateResult]:
    """Return the survivors that a review would remark upon, the most important first."""
    return [survivor.result for survivor in _chosen(campaign, results)[0]]


def _chosen(campaign: Campaign, results: Sequence[CandidateResult]) -> tuple[list[Survivor], int]:
    """Return the survivors that get remarks, and how many others there are; none is equivalent or accepted.

    Those on edited lines that tests run come first, then those on other edited lines, then those that matter most; the
    less the tests assert that run a line, the more it matters. One for each line, at most seven of a file.
    """
    edited = campaign.diff.edited if campaign.diff is not None else {}
    assertions = AssertionCounts(campaign.snapshot, campaign.baseline.reach)
    found = [s for s in ranked(results, campaign.snapshot.read, campaign.acceptances) if s.is_open]

    def order(survivor: Survivor) -> tuple[bool, bool, float]:
        result = survivor.result
        is_edited = result.line in edited.get(result.path, ())
        return not (is_edited and result.is_reached), not is_edited, -survivor.weight - assertions.poverty(result)

    found.sort(key=order)
    chosen: dict[tuple[str, int], Survivor] = {}
    in_file: Counter[str] = Counter()
    for survivor in found:
        place = path, _ = survivor.result.path, survivor.result.line
        if place not in chosen and in_file[path] < MOST_IN_FILE and len(chosen) < MOST_REMARKS:
            chosen[place] = survivor
            in_file[path] += 1
    return list(chosen.values()), len(found) - len(chosen)


def review_of(
    campaign: Campaign,
    results: Sequence[CandidateResult],
    suggestions: Sequence[SuggestedTest] = (),
    *,
    is_complete: bool,
) -> Review:
    """Return the review of the changes that were tried."""
    survivors, more = _chosen(campaign, results)
    tests = {s.index: s for s in suggestions if s.test}
    searched = {s.index for s in suggestions if s.reason is not NoSuggestion.OTHER_RUNNER}
    remarks: list[Remark] = []
    unproven: list[Remark] = []
    places_not_run: set[tuple[str, str]] = set()
    for survivor in survivors:
        result = survivor.result
        remark = Remark(result, tests.get(result.index), _is_run(campaign, result))
        place = result.path, result.scope
        is_shown = remark.is_shown or result.operator in _TELLING
        if not is_shown and remark.is_run and result.index in searched:
            unproven.append(remark)
        elif remark.suggestion is not None or remark.is_run or place not in places_not_run:
            remarks.append(remark)
        else:
            more += 1
        if not remark.is_run:
            places_not_run.add(place)
    places = _changed_places(campaign)
    lines = {(result.path, result.line - 1) for result in results}
    not_tried = [
        (path, name)
        for (path, name), (first, end) in places.items()
        if not any(path == at and first <= line < end for at, line in lines)
    ]
    return Review(remarks, more, sum(map(is_tried, results)), list(places), not_tried, is_complete, unproven)


def _is_run(campaign: Campaign, result: CandidateResult) -> bool:
    """Return whether a test runs the lines that a survivor changes; True if that is not known."""
    reach = campaign.baseline.reach
    return result.is_reached and (reach is None or reach.runs_some(result.path, removed_lines(result.diff)))


def review_lines(review: Review, budget_s: float | None) -> Iterator[tuple[str, str]]:
    """Yield (kind, line) about a review; the kinds are those of `summary_lines`."""
    shown: dict[int | None, int] = {}
    for remark in review.remarks:
        result = remark.result
        place = f"{escaped_line(result.path)}:{result.line}"
        yield "missed", f"{place}: {escaped_line(remark.text)}  [{result.identity}]"
        suggestion = remark.suggestion
        if suggestion is not None and suggestion.same_as in shown:
            yield "diff", f"    the test for line {shown[suggestion.same_as]} notices it, too"
        elif suggestion is not None:
            shown[suggestion.index] = result.line
            yield from (("diff", f"    {line}".rstrip()) for line in escaped(suggestion.test).splitlines())
    if review.unproven:
        ids = " ".join(remark.result.identity for remark in review.unproven)
        without = counted(len(review.unproven), "survivor")
        yield "plain", f"{without} without a remark (no test with usual inputs was found): {ids}"
    if review.more:
        yield "plain", f"and {counted(review.more, 'survivor')} more, on these lines or less important"
    tried = len(review.functions) - len(review.not_tried)
    yield (
        "heading",
        f"{counted(len(review.remarks), 'remark')}: {counted(review.tried, 'change')} tried in {tried} of "
        f"{counted(len(review.functions), 'changed place')}",
    )
    if not review.is_complete and budget_s is not None:
        places = ", ".join(f"{escaped_line(p)} {escaped_line(s)}" for p, s in review.not_tried[:MOST_IN_FILE])
        rest = f"; not reached: {places}" if places else ""
        more = len(review.not_tried) - MOST_IN_FILE
        yield (
            "missed",
            f"not all changes were tried in {format_duration(budget_s)}{rest}{f' and {more} more' if more > 0 else ''}",
        )


def _changed_places(campaign: Campaign) -> dict[tuple[str, str], tuple[int, int]]:
    """Return the changed functions and statements that changes may go into, with their lines (0-based, half-open)."""
    places: dict[tuple[str, str], tuple[int, int]] = {}
    changed = campaign.diff.lines if campaign.diff is not None else {}
    for path in sorted(changed.keys() & (campaign.snapshot.allowed or ())):
        source = parse(path, campaign.snapshot.read(path))
        functions = [s for s in scopes(source) if s.kind == "function"] if source is not None else []
        for first, end in changed[path]:
            inside = [s.qualname for s in functions if first < s.line <= end]
            # The outermost function comes first; a statement outside functions has no name.
            places[path, inside[0] if inside else f"line {first + 1}"] = (first, end)
    return places
