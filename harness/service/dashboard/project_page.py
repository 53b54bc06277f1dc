"""Write what one campaign found in a project as a page that needs nothing else: a map, the functions, the bugs."""

from __future__ import annotations

import functools
import itertools
import posixpath
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from harness.service.dashboard.annotated_source import ShownLine, coloured_source, edits_of, excerpt
from harness.service.dashboard.highlighting import HighlightedDiff, highlighted_diff, lines_in_strings
from harness.service.dashboard.project_map import MOST_REGIONS, Region, function_lines, project_maps
from harness.service.dashboard.rendering import STATIC, policy_hash, render
from pytest_ssr import __version__
from pytest_ssr.campaign.findings import Findings, ProvenBug
from pytest_ssr.campaign.score import Score
from pytest_ssr.records.candidate_result import CandidateResult, CandidateStatus
from pytest_ssr.source.equivalence import described

_MOST_TESTS, _MOST_DIFFS = 50, 300
"""Tests of a bug, and bugs with a diff; their artifacts have the others."""
_MOST_ELEMENTS = 3_000
"""With more changes, the inside of a function becomes elements when it is opened: a browser reads text faster."""
_MOST_REASON = 200
"""Characters of the reason of a rejection."""
_WORDS = {
    CandidateStatus.SURVIVED: "survived",
    CandidateStatus.VALID: "proven bug",
    CandidateStatus.NOTICED: "noticed",
    CandidateStatus.REJECTED: "rejected",
    CandidateStatus.UNDECIDED: "undecided",
    CandidateStatus.NOT_EXERCISED: "not exercised",
    CandidateStatus.TIMED_OUT: "timed out",
}
"""The statuses in the order of the page."""


@dataclass(frozen=True, slots=True)
class Change:
    """A change that was tried, in a list."""

    line: int
    status: str
    word: str
    name: str
    """Its operator, or its strategy."""
    detail: str
    note: str
    """Why it is not a proven bug, or how many tests catch it."""
    address: str
    """Of the proven bug; else empty."""


@dataclass(frozen=True, slots=True)
class ShownTest:
    """A test that notices a survivor."""

    line: int
    """The line of the change."""
    lines: Sequence[Markup]


@dataclass(frozen=True, slots=True)
class FunctionPart:
    """A function and the changes in it."""

    anchor: str
    scope: str
    line: int
    score: Score
    counts: Sequence[tuple[str, str]]
    """Each status, and the number of its changes in words; without zeros."""
    lines: Sequence[ShownLine]
    """The surviving changes in the source."""
    diffs: Sequence[HighlightedDiff]
    """Those that cannot be shown there."""
    tests: Sequence[ShownTest]
    """Suggested tests that notice survivors."""
    changes: Sequence[Change]


@dataclass(frozen=True, slots=True)
class FilePart:
    """A file and its functions."""

    anchor: str
    path: str
    score: Score
    survived: int
    functions: Sequence[FunctionPart]


@dataclass(frozen=True, slots=True)
class Bug:
    """A proven bug."""

    anchor: str
    result: CandidateResult
    tests: Sequence[str]
    more: int
    """Tests that are not listed."""
    diff: HighlightedDiff | None
    """None beyond a limit."""


def project_page(findings: Findings) -> str:
    """Return the page."""
    parts = _files(findings)
    style = (STATIC / "dashboard.css").read_text() + (STATIC / "project.css").read_text()
    script = (STATIC / "dashboard.js").read_text() + (STATIC / "project.js").read_text()
    regions = _regions(findings, parts)
    counts = Counter(result.status for result in findings.results)
    return render(
        "project.html",
        campaign=findings.campaign,
        score=findings.score_of(findings.results),
        counts=[_counted(status, counts[status]) for status in _WORDS if counts[status]],
        rejected=counts[CandidateStatus.REJECTED],
        maps=project_maps(regions),
        unmapped=max(0, len(regions) - MOST_REGIONS),
        only_file=findings.campaign.files[0] if len(findings.campaign.files) == 1 else "",
        files=parts,
        is_large=len(findings.results) > _MOST_ELEMENTS,
        untried=sorted(set(findings.campaign.files) - {part.path for part in parts}),
        bugs=_bugs(findings),
        version=__version__,
        style=Markup(style),
        style_hash=policy_hash(style),
        script=Markup(script),
        script_hash=policy_hash(script),
    )


def _files(findings: Findings) -> list[FilePart]:
    """Return the files with changes; those with the survivors that matter most first."""
    by_file: dict[str, dict[str, list[CandidateResult]]] = {}
    for result in findings.results:
        by_file.setdefault(result.path, {}).setdefault(result.scope, []).append(result)
    survivors = {path: sum(map(_survived, scopes.values())) for path, scopes in by_file.items()}
    positions = {survivor.result.index: n for n, survivor in enumerate(findings.survivors)}
    last = len(positions)

    def first(results: Iterable[CandidateResult]) -> int:
        return min((positions.get(result.index, last) for result in results), default=last)

    ordered = sorted(by_file, key=lambda path: (first(itertools.chain(*by_file[path].values())), path))
    addresses = {bug.result.index: f"#bug-{number}" for number, bug in enumerate(findings.bugs)}
    found = []
    for number, path in enumerate(ordered):
        source = findings.source(path) if survivors[path] else None
        lines = coloured_source(source, path) if source is not None else None
        functions = sorted(by_file[path].items(), key=lambda item: (first(item[1]), item[1][0].line, item[0]))
        found.append(
            FilePart(
                f"file-{number}",
                path,
                findings.score_of(result for results in by_file[path].values() for result in results),
                survivors[path],
                [
                    _function(findings, f"file-{number}-{n}", results, lines, addresses)
                    for n, (_, results) in enumerate(functions)
                ],
            )
        )
    return found


def _counted(status: CandidateStatus, number: int) -> str:
    plural = "s" if status is CandidateStatus.VALID and number != 1 else ""
    return f"{number} {_WORDS[status]}{plural}"


def _survived(results: Sequence[CandidateResult]) -> int:
    return sum(result.status is CandidateStatus.SURVIVED for result in results)


def _function(
    findings: Findings,
    anchor: str,
    results: Sequence[CandidateResult],
    source: Sequence[Markup] | None,
    addresses: dict[int, str],
) -> FunctionPart:
    survivors = sorted((r for r in results if r.status is CandidateStatus.SURVIVED), key=lambda r: (r.line, r.index))
    placed = [r for r in survivors if source is not None and edits_of(r.diff, r.path)]
    counts = Counter(result.status for result in results)
    order = list(_WORDS)
    ordered = sorted(results, key=lambda r: (order.index(r.status), r.line, r.index))
    return FunctionPart(
        anchor,
        results[0].scope,
        min(result.line for result in results),
        findings.score_of(results),
        [(str(status), _counted(status, counts[status])) for status in _WORDS if counts[status]],
        excerpt(source, survivors[0].path, placed) if placed and source is not None else (),
        [highlighted_diff(r.diff) for r in survivors if r not in placed],
        [
            ShownTest(r.line, coloured_source(findings.suggestions[r.index].test, "test.py"))
            for r in survivors
            if r.index in findings.suggestions
        ],
        [_change(result, addresses, findings) for result in ordered],
    )


def _change(result: CandidateResult, addresses: dict[int, str], findings: Findings) -> Change:
    note = result.explanation if result.status is not CandidateStatus.SURVIVED or not result.is_reached else ""
    equivalence, accepted = findings.equivalences.get(result.index), findings.accepted.get(result.index)
    if equivalence is not None:
        note = "; ".join([described(equivalence), *([note] if note else [])])
    if accepted is not None:
        note = f"{accepted.kind}: {accepted.reason}"
    if result.status is CandidateStatus.VALID:
        note = f"{result.fail_to_pass} test{'s' if result.fail_to_pass != 1 else ''} fail"
    return Change(
        result.line,
        str(result.status),
        _WORDS[result.status],
        result.operator or result.strategy,
        result.detail,
        note if len(note) <= _MOST_REASON else f"{note[:_MOST_REASON]}…",
        addresses.get(result.index, ""),
    )


def _bugs(findings: Findings) -> list[Bug]:
    @functools.cache
    def opened(path: str) -> Mapping[int, str]:
        return lines_in_strings(path, findings.source(path) or "")

    return [_bug(number, bug, opened) for number, bug in enumerate(findings.bugs)]


def _bug(number: int, bug: ProvenBug, opened: Callable[[str], Mapping[int, str]]) -> Bug:
    more = max(0, len(bug.fail_to_pass) - _MOST_TESTS)
    diff = highlighted_diff(bug.diff, opened=opened) if number < _MOST_DIFFS else None
    return Bug(f"bug-{number}", bug.result, bug.fail_to_pass[:_MOST_TESTS], more, diff)


def _regions(findings: Findings, parts: Sequence[FilePart]) -> list[Region]:
    """Return what the map shows: the files, or the functions if there is only one file."""
    files = findings.campaign.files
    if len(files) == 1:
        lines = function_lines(files[0], findings.source(files[0]) or "")
        tried = {function.scope: function for part in parts for function in part.functions}
        if lines:
            return [_function_region(name, size, tried.get(name)) for name, size in lines.items()]
    by_path = {part.path: part for part in parts}
    return [_file_region(path, _line_count(findings, path), by_path.get(path)) for path in files]


def _function_region(name: str, lines: int, function: FunctionPart | None) -> Region:
    short = name.rpartition(".")[2]
    if function is None:
        return Region(name, short, lines)
    return Region(name, short, lines, f"#{function.anchor}", function.score)


def _file_region(path: str, lines: int, part: FilePart | None) -> Region:
    short = posixpath.basename(path)
    if part is None:
        return Region(path, short, lines)
    return Region(path, short, lines, f"#{part.anchor}", part.score)


def _line_count(findings: Findings, path: str) -> int:
    source = findings.source(path)
    return 1 if source is None else source.count("\n") + 1
