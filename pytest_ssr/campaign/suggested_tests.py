"""Suggest tests for the survivors of a campaign, and keep them in its store."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from pytest_ssr.campaign.artifact_builder import candidate_state
from pytest_ssr.campaign.campaign import Campaign
from pytest_ssr.campaign.findings import SUGGESTIONS
from pytest_ssr.campaign.survivors import ranked
from pytest_ssr.escaping import escaped, escaped_line
from pytest_ssr.interrupts import TimeBudgetError, until
from pytest_ssr.records.candidate_result import CandidateResult
from pytest_ssr.records.suggested_test import NoSuggestion, SuggestedTest
from pytest_ssr.suggestions.skeleton import notices
from pytest_ssr.suggestions.suggest import Suggester


@dataclass(frozen=True, slots=True)
class Suggestions:
    """What a search for tests has found."""

    tests: Sequence[SuggestedTest]
    """One for each survivor that was looked at, also if it has no test."""
    is_interrupted: bool = False
    """Whether an interrupt ended the search before the last survivor."""


def survivors_for_tests(campaign: Campaign, results: Sequence[CandidateResult], most: int) -> list[CandidateResult]:
    """Return the survivors that matter most, at most `most`; none that is equivalent or accepted."""
    found = ranked(results, campaign.snapshot.read, campaign.acceptances)
    return [s.result for s in found if s.is_open][:most]


def suggest_tests(
    campaign: Campaign,
    survivors: Sequence[CandidateResult],
    *,
    deadline: float,
    progress: Callable[[str], None] = lambda line: None,
) -> Suggestions:
    """Return what was found for survivors.

    deadline: a time of `time.monotonic`; the survivors after it get no test. progress: called with a line that says
    what is being done.
    """
    if not survivors:
        return Suggestions(())
    suggester = Suggester(campaign.runner, campaign.baseline, campaign.snapshot.allowed or (), seed=campaign.seed)
    found: list[SuggestedTest] = []
    try:
        for number, result in enumerate(survivors):
            progress(f"looking for a test that notices survivor {number + 1} of {len(survivors)}")
            found.append(_suggested(campaign, suggester, result, deadline))
    except KeyboardInterrupt:
        # The results of the campaign are there, and so are the tests for the other survivors.
        return Suggestions(found, is_interrupted=True)
    finally:
        progress("")
    return Suggestions(found)


def _suggested(campaign: Campaign, suggester: Suggester, result: CandidateResult, deadline: float) -> SuggestedTest:
    """Return what was found for one survivor, from the store or by looking for it."""
    kind, name = f"{SUGGESTIONS}/{campaign.key}", f"{result.index:05d}"
    suggested = SuggestedTest.from_json(campaign.store.record(kind, name))
    if suggested is not None:
        return suggested
    candidate = campaign.candidate(result.index)
    if candidate is not None:
        try:
            with until(deadline):
                suggested = suggester.suggest(result, candidate_state(campaign.snapshot, candidate))
        except TimeBudgetError:
            pass
        else:
            campaign.store.put_record(kind, name, suggested.to_json())
            return suggested
    return SuggestedTest(result.index, result.path, result.line, result.scope, reason=NoSuggestion.LIMIT)


def suggestion_lines(suggestions: Sequence[SuggestedTest]) -> Iterator[tuple[str, str]]:
    """Yield (kind, line) for the summary; the kinds are those of `summary_lines`."""
    noticed = [s for s in suggestions if s.test]
    counts = Counter(str(s.reason) for s in suggestions if s.reason is not None)
    others = ", ".join(f"{reason} {count}" for reason, count in counts.most_common())
    if not suggestions:
        return
    groups = _by_test(noticed)
    verb = "notice" if len(groups) > 1 else "notices"
    notice = f" {verb} {len(noticed)}" if len(groups) < len(noticed) else ""
    survivors = f"{len(suggestions)} survivor{'s' if len(suggestions) > 1 else ''}"
    counted = f"{len(groups)}{notice} of {survivors}" if notice else f"{len(groups)} for {survivors}"
    yield "heading", f"suggested tests: {counted}" + (f"; none for: {others}" if others else "")
    if noticed:
        yield (
            "plain",
            "  Each passes today and fails with the change. It demands what the code does; judge if that is right.",
        )
    for group in groups:
        for suggested in group:
            yield "missed", f"  {escaped_line(suggested.path)}:{suggested.line} {escaped_line(suggested.scope)}"
        yield from (("diff", f"    {line}".rstrip()) for line in escaped(_with_all_changes(group)).splitlines())


def _by_test(suggestions: Sequence[SuggestedTest]) -> list[list[SuggestedTest]]:
    """Return the survivors with the same test together."""
    groups: dict[int, list[SuggestedTest]] = {}
    for suggested in suggestions:
        first = suggested.index if suggested.same_as is None else suggested.same_as
        groups.setdefault(first, []).append(suggested)
    return list(groups.values())


def _with_all_changes(group: Sequence[SuggestedTest]) -> str:
    """Return the test of survivors with comments on all of their changes."""
    (own,) = notices([group[0].change])
    return group[0].test.replace(own, "\n".join(notices([s.change for s in group])), 1)
