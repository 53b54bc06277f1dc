"""Write all changes in the schema of Stryker's mutation testing reports, which viewers and dashboards read.

The schema is version 2 of `mutation-testing-report-schema`. Viewers compute a score from the states of the mutants, so
that a change that does not count in our score is `Ignored`, with the reason: the two scores are the same.
"""

from __future__ import annotations

import functools
import json
from collections import Counter
from collections.abc import Callable
from typing import Any

from pytest_ssr import __version__
from pytest_ssr.campaign.findings import Findings, text_of
from pytest_ssr.campaign.sarif import digest_of
from pytest_ssr.injectors.recorded import changes_of
from pytest_ssr.project.report_marks import STRYKER_GENERATOR
from pytest_ssr.records.candidate_result import CandidateResult, CandidateStatus
from pytest_ssr.source.equivalence import is_proven

_HIGH, _LOW = 80, 60
"""The scores in percent from which on viewers show green and yellow, the defaults of Stryker."""


def stryker_text(findings: Findings) -> str:
    """Return all results as a report, with the files that they are in."""
    killers = {bug.result.index: bug.fail_to_pass for bug in findings.bugs}
    files: dict[str, dict[str, Any]] = {}
    repetitions: Counter[str] = Counter()
    content = functools.cache(findings.content)
    source_of = functools.cache(findings.source)
    for result in findings.results:
        source = source_of(result.path)
        if source is None:
            continue
        digest = digest_of(result)
        repetitions[digest] += 1
        mutant = {
            "id": f"{digest}:{repetitions[digest]}",
            "mutatorName": result.operator or result.strategy,
            **_place(result, source, content),
            **_state(findings, result),
            "duration": round(1000 * result.seconds),
        }
        if result.detail:
            mutant["description"] = result.detail
        if tests := killers.get(result.index):
            mutant["killedBy"] = list(tests)
        file = files.setdefault(result.path, {"language": "python", "source": source, "mutants": []})
        file["mutants"].append(mutant)
    report = {
        **STRYKER_GENERATOR,
        "framework": {"name": "pytest-ssr", "version": __version__},
        "thresholds": {"high": _HIGH, "low": _LOW},
        "files": dict(sorted(files.items())),
        "testFiles": _test_files({test for tests in killers.values() for test in tests}),
    }
    return json.dumps(report) + "\n"


def _state(findings: Findings, result: CandidateResult) -> dict[str, str]:
    """Return the status of a change, with the reason unless it is killed."""
    if result.index not in findings.scored:
        return {"status": "Ignored", "statusReason": _why_ignored(findings, result)}
    if result.status is not CandidateStatus.SURVIVED:
        return {"status": "Killed"}
    return {"status": "Survived" if result.is_reached else "NoCoverage", "statusReason": result.explanation}


def _why_ignored(findings: Findings, result: CandidateResult) -> str:
    if (acceptance := findings.accepted.get(result.index)) is not None:
        return f"{acceptance.kind}: {acceptance.reason}"
    if (equivalence := findings.equivalences.get(result.index)) is not None:
        reason = equivalence.reason if is_proven(equivalence) else str(equivalence)
        return f"{'equivalent' if is_proven(equivalence) else 'probably equivalent'}: {reason}"
    return result.explanation or str(result.status)


def _place(result: CandidateResult, source: str, content: Callable[[str], bytes | None]) -> dict[str, Any]:
    """Return the location of a change in its file, and the text that takes its place; the line, if it is not known."""

    def read(path: str) -> bytes:
        data = content(path)
        if data is None:
            raise FileNotFoundError(path)
        # As in the diff, which is text.
        return data.decode("utf-8", "replace").encode()

    after = {path: after for path, _, after in changes_of(result, read) or ()}.get(result.path)
    if after is None:
        line = min(max(1, result.line), source.count("\n") + 1)
        end = len(source.split("\n")[line - 1])
        return {"location": {"start": {"line": line, "column": 1}, "end": {"line": line, "column": end + 1}}}
    changed = text_of(after)
    first, last = _difference(source, changed)
    return {
        "location": {"start": _position(source, first), "end": _position(source, len(source) - last)},
        "replacement": changed[first : len(changed) - last],
    }


def _difference(old: str, new: str) -> tuple[int, int]:
    """Return the lengths of the beginning and of the end that two texts share, without parts of words or operators."""
    first = _shared(old, new)
    last = min(_shared(old[::-1], new[::-1]), len(old) - first, len(new) - first)
    while first and any(_belong_together(text[first - 1], text[first : first + 1]) for text in (old, new)):
        first -= 1
    while last and any(_belong_together(text[-last], text[-last - 1 : len(text) - last]) for text in (old, new)):
        last -= 1
    return first, last


def _shared(old: str, new: str) -> int:
    """Return the length of the beginning that two texts share; by halves, because files may be large."""
    shared, most = 0, min(len(old), len(new))
    while shared < most:
        middle = (shared + most + 1) // 2
        if old[shared:middle] == new[shared:middle]:
            shared = middle
        else:
            most = middle - 1
    return shared


def _belong_together(one: str, other: str) -> bool:
    """Return whether two characters beside each other are parts of one word or operator; False at the end of a text."""
    if not other or one.isspace() or other.isspace():
        return False
    return (one.isalnum() or one == "_") == (other.isalnum() or other == "_")


def _position(text: str, offset: int) -> dict[str, int]:
    """Return an offset as line and column, both from 1; viewers count columns in units of UTF-16."""
    line = text.count("\n", 0, offset)
    begin = text.rfind("\n", 0, offset) + 1
    return {"line": line + 1, "column": len(text[begin:offset].encode("utf-16-le", "surrogatepass")) // 2 + 1}


def _test_files(tests: set[str]) -> dict[str, Any]:
    files: dict[str, dict[str, Any]] = {}
    for test in sorted(tests):
        path, _, name = test.partition("::")
        files.setdefault(path, {"tests": []})["tests"].append({"id": test, "name": name or test})
    return files
