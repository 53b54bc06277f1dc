"""Show survivors in GitHub Actions: annotations of lines by workflow commands, and a summary of the job."""

from __future__ import annotations

import html
from collections.abc import Iterator, Mapping
from pathlib import Path

from pytest_ssr.campaign.findings import Findings
from pytest_ssr.campaign.sarif import path_in_repository, survivor_message
from pytest_ssr.errors import StoreWriteError, os_error_advice
from pytest_ssr.escaping import escaped, escaped_line
from pytest_ssr.progress import counted
from pytest_ssr.records.candidate_result import CandidateResult

MOST_ANNOTATIONS = 10
"""GitHub shows no more of one kind for a step."""
_MOST_CODE = 120
_TITLE = "not noticed by any test"
_ACTIONS, _SUMMARY = "GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY"


def is_github(environment: Mapping[str, str]) -> bool:
    """Return whether this is a step of GitHub Actions."""
    return environment.get(_ACTIONS) == "true"


def annotation_lines(findings: Findings) -> Iterator[str]:
    """Yield workflow commands that annotate the lines of survivors: one for each line, ten at most.

    Those that matter most come first; probably equivalent ones have none.
    """
    for result in _one_for_each_line(findings)[:MOST_ANNOTATIONS]:
        path = path_in_repository(findings.campaign.root, result.path)
        file, title = _property(escaped_line(path)), _property(_TITLE)
        yield f"::warning file={file},line={result.line},title={title}::{_data(escaped(survivor_message(result)))}"


def append_job_summary(findings: Findings, environment: Mapping[str, str]) -> None:
    """Append the results to the summary of the job, if there is one; raises StoreWriteError."""
    name = environment.get(_SUMMARY)
    if not name:
        return
    try:
        with Path(name).open("a", encoding="utf-8", errors="backslashreplace") as file:
            file.write(job_summary(findings))
    except OSError as error:
        raise StoreWriteError(f"cannot write {name}: {os_error_advice(error, option='')}") from None


def job_summary(findings: Findings) -> str:
    """Return the results as Markdown."""
    score, survivors = findings.score_of(findings.results), findings.survivors
    low, high = (round(100 * bound) for bound in score.interval)
    share = f"{score.percent} % (95 % interval {low} to {high} %)" if score.rate is not None else "no outcome"
    lines = [
        f"### pytest-ssr: {share}",
        "",
        f"The tests of {_cell(findings.campaign.project)} noticed {score.noticed} of {counted(score.tried, 'change')}; "
        f"{counted(len(findings.bugs), 'proven bug')}.",
        "",
    ]
    if survivors:
        lines += ["| survived | function | change |", "|---|---|---|"]
        for result in (survivor.result for survivor in survivors[:MOST_ANNOTATIONS]):
            place = _cell(f"{path_in_repository(findings.campaign.root, result.path)}:{result.line}")
            change = _cell(f"{result.operator or result.strategy} {result.detail}".rstrip())
            lines.append(f"| {place} | {_cell(result.scope or '(module)')} | {change} |")
        if len(survivors) > MOST_ANNOTATIONS:
            lines += ["", f"and {len(survivors) - MOST_ANNOTATIONS} more"]
    return "\n".join([*lines, "", ""])


def _one_for_each_line(findings: Findings) -> list[CandidateResult]:
    found: dict[tuple[str, int], CandidateResult] = {}
    for survivor in findings.survivors:
        if survivor.equivalence is None:
            found.setdefault((survivor.result.path, survivor.result.line), survivor.result)
    return list(found.values())


def _data(text: str) -> str:
    """Escape the message of a workflow command."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    """Escape a property of a workflow command."""
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def _cell(text: str) -> str:
    """Return code for a cell of a table: as HTML, because its own characters could end a Markdown code span."""
    shown = escaped_line(text)
    shown = shown if len(shown) <= _MOST_CODE else f"{shown[:_MOST_CODE]}…"
    return f"<code>{html.escape(shown).replace('|', '&#124;').replace('`', '&#96;').replace('*', '&#42;')}</code>"
