"""Format the summary of a campaign as lines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from pytest_ssr.campaign.acceptances import NO_ACCEPTANCES, Acceptances
from pytest_ssr.campaign.facts import CampaignFacts
from pytest_ssr.campaign.report import changes_by_location, rejections, result_line, runs_line, set_aside_line, shorten
from pytest_ssr.campaign.survivors import Survivor, ranked
from pytest_ssr.escaping import escaped_line
from pytest_ssr.progress import counted
from pytest_ssr.project.report_marks import ACCEPTED_FILE
from pytest_ssr.records.candidate_result import CandidateResult, CandidateStatus
from pytest_ssr.source.equivalence import is_proven

_MOST_PLACES = 10
_NOT_JUDGED = {CandidateStatus.NOT_EXERCISED: "not exercised", CandidateStatus.UNDECIDED: "undecided"}
_FEW_TO_SPREAD = 3
"""Fewer valid artifacts in one function are no surprise."""


@dataclass(frozen=True, slots=True)
class SummaryStyle:
    """What a summary shows of the survivors."""

    diffs: bool
    """Whether to show all of them, with their diffs."""
    flag: str
    """The option that does."""
    in_places: bool = True
    """Whether to show them at all, by their places."""


def summary_lines(
    campaign: CampaignFacts,
    results: Sequence[CandidateResult],
    style: SummaryStyle,
    *,
    read: Callable[[str], bytes],
    acceptances: Acceptances = NO_ACCEPTANCES,
) -> Iterator[tuple[str, str]]:
    """Yield (kind, line) about the results; kinds are plain, valid, heading, missed, diff.

    read: returns the original content of a file.
    """
    valid = [a for a in results if a.status is CandidateStatus.VALID]
    if not campaign.judges_only:
        yield "heading", f"valid artifacts: {len(valid)}"
    for result in valid:
        yield "valid", f"  {result_line(result)[10:]}"
    if line := _concentration_line(results):
        yield "plain", line
    steps = rejections(results)
    if steps:
        yield "heading", "rejected by: " + ", ".join(f"{name} {n}" for name, n in steps)
    if results:
        yield "heading", runs_line(results)
    if campaign.set_aside_since:
        yield "plain", set_aside_line(campaign.set_aside_since)
    if line := _skipped_line(campaign.skipped):
        yield "plain", line
    for status, word in _NOT_JUDGED.items():
        unproven = [a for a in results if a.status is status]
        if unproven:
            changes = "change" if len(unproven) == 1 else "changes"
            yield "plain", f"{word}: {len(unproven)} {changes} ({shorten(str(unproven[0].reason))})"
    survivors = ranked(results, read, acceptances)
    if style.in_places:
        yield from _survivor_lines([s for s in survivors if s.acceptance is None], results, style)
    if line := _accepted_line(survivors):
        yield "plain", line
    yield from _doubtful_entries(acceptances)


def _concentration_line(results: Sequence[CandidateResult]) -> str:
    """Return a line if all artifacts are in one function, with what became of the others; otherwise an empty string."""
    valid = [a for a in results if a.status is CandidateStatus.VALID]
    places = {(a.path, a.scope) for a in valid}
    if len(valid) < _FEW_TO_SPREAD or len(places) > 1:
        return ""
    ((path, scope),) = places
    others = {(a.path, a.scope) for a in results} - places
    noun = "function" if len(others) == 1 else "functions"
    elsewhere = f"changes in {len(others)} other {noun} made none" if others else "no other was tried"
    return f"all {len(valid)} bugs are in 1 function: {scope} in {path}; {elsewhere}"


def _skipped_line(counts: Mapping[str, int]) -> str:
    """Return a line about `# ssr: skip`; an empty string without such comments."""
    shown = [f"{n} {kind if n == 1 else _PLURALS[kind]}" for kind, n in counts.items() if n]
    return f'skipped by "# ssr: skip": {", ".join(shown)}' if shown else ""


_PLURALS = {"function": "functions", "class": "classes", "line": "lines"}


def _survivor_lines(
    survivors: Sequence[Survivor], results: Sequence[CandidateResult], style: SummaryStyle
) -> Iterator[tuple[str, str]]:
    places: dict[tuple[str, str], list[Survivor]] = {}
    for survivor in survivors:
        places.setdefault((survivor.result.path, survivor.result.scope), []).append(survivor)
    if not places:
        return
    yield (
        "heading",
        f"what the tests missed: {len(survivors)} of {counted(len(results), 'change')} survived, in "
        f"{counted(len(places), 'place')}",
    )
    totals = changes_by_location(results)
    for (path, scope), here in list(places.items())[: None if style.diffs else _MOST_PLACES]:
        names = ", ".join(sorted({s.result.operator for s in here}))
        line = f"  {path}:{here[0].result.line} {scope}  {len(here)} of {totals[path, scope]}: {names}"
        ids = " ".join(s.result.identity for s in here if s.result.identity)
        yield "missed", f"{line}{_marks(here)}{f'  [{ids}]' if ids else ''}"
        if style.diffs:
            for survivor in here:
                yield from (("diff", f"    {text}") for text in survivor.result.diff.splitlines())
    if len(places) > _MOST_PLACES and not style.diffs:
        more = len(places) - _MOST_PLACES
        yield "missed", f"  and {more} more place{'s' if more > 1 else ''}; {style.flag} shows all of them"


def _accepted_line(survivors: Sequence[Survivor]) -> str:
    """Return how many survivors are accepted, by the kind; an empty string if none is."""
    kinds = Counter(s.acceptance.kind for s in survivors if s.acceptance is not None)
    if not kinds:
        return ""
    counts = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))
    return f"accepted survivors ({ACCEPTED_FILE}): {counts}"


def _doubtful_entries(acceptances: Acceptances) -> Iterator[tuple[str, str]]:
    """Yield lines about accepted survivors that are accepted no longer."""
    ended, stale = acceptances.ended, acceptances.stale
    for entries, what in (
        (ended, "no longer accepted, the day has passed"),
        (stale, "stale, the code has changed"),
    ):
        if entries:
            shown = ", ".join(
                f"{e.id} ({escaped_line(e.path)} {escaped_line(e.function)})" for e in entries[:_MOST_PLACES]
            )
            more = f" and {len(entries) - _MOST_PLACES} more" if len(entries) > _MOST_PLACES else ""
            yield "missed", f"{what}: {shown}{more}"


def _marks(here: Sequence[Survivor]) -> str:
    """Return the marks of a place's survivors, such as ` (probably equivalent: logging)`."""
    proofs = [s.equivalence.reason for s in here if is_proven(s.equivalence)]
    signs = [str(s.equivalence) for s in here if s.equivalence is not None and not is_proven(s.equivalence)]
    marks = []
    for word, reasons in (("equivalent", proofs), ("probably equivalent", signs)):
        if reasons:
            count = f"{len(reasons)} " if len(reasons) < len(here) else ""
            marks.append(f"{count}{word}: {', '.join(sorted(set(reasons)))}")
    if not any(s.result.is_reached for s in here):
        marks.append("no test runs it")
    return f"  ({'; '.join(marks)})" if marks else ""
