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

_TOGETHER = 10
"""Survivors whose tests run together, so that the interpreter starts a few times only."""


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
    found = _kept(campaign, survivors)
    new = [result for result in survivors if result.index not in found]
    is_interrupted = False
    for start in range(0, len(new), _TOGETHER):
        group: list[SuggestedTest] = []
        try:
            for number, result in enumerate(new[start : start + _TOGETHER], start + 1):
                progress(f"looking for a test that notices survivor {number} of {len(new)}")
                group.append(_searched(campaign, suggester, result, deadline))
        except KeyboardInterrupt:
            is_interrupted = True
        try:
            progress("running the new tests again")
            group = suggester.confirm(group)
        except KeyboardInterrupt:
            # A test that was not run again is not shown.
            group, is_interrupted = [], True
        finally:
            progress("")
        for suggested in group:
            if suggested.reason is not NoSuggestion.LIMIT:
                campaign.store.put_record(_kind(campaign), _record_name(suggested.index), suggested.to_json())
        found |= {suggested.index: suggested for suggested in group}
        if is_interrupted:
            break
    if campaign.runner.fork_server is not None:
        # What ran the changes has closed the warm processes, and they were started once more.
        campaign.runner.fork_server.close()
    return Suggestions([found[s.index] for s in survivors if s.index in found], is_interrupted)


def _kind(campaign: Campaign) -> str:
    return f"{SUGGESTIONS}/{campaign.key}"


def _record_name(index: int) -> str:
    return f"{index:05d}"


def _kept(campaign: Campaign, survivors: Sequence[CandidateResult]) -> dict[int, SuggestedTest]:
    """Return what an earlier search found, by the index of the survivor."""
    records = ((s.index, campaign.store.record(_kind(campaign), _record_name(s.index))) for s in survivors)
    read = ((index, SuggestedTest.from_json(record)) for index, record in records)
    return {index: suggested for index, suggested in read if suggested is not None}


def _searched(campaign: Campaign, suggester: Suggester, result: CandidateResult, deadline: float) -> SuggestedTest:
    """Return what is found for one survivor until a time."""
    candidate = campaign.candidate(result.index)
    if candidate is not None:
        try:
            with until(deadline):
                return suggester.suggest(result, candidate_state(campaign.snapshot, candidate))
        except TimeBudgetError:
            pass
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
