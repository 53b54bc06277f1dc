"""Test the summary's lines: how many survivors it shows, its marks, and what was skipped."""

from __future__ import annotations

import re
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from pytest_ssr.campaign.report import failures_line, set_aside_line
from pytest_ssr.campaign.summary import SummaryStyle, summary_lines
from pytest_ssr.patch import FileEntry, make_patch
from pytest_ssr.records.candidate_result import CandidateResult, CandidateStatus
from pytest_ssr.records.check_reasons import CheckCode, CheckReason
from pytest_ssr.records.test_run import SetAside
from pytest_ssr.source.normal_form import EquivalenceProof

SOURCE = b"import logging\n\n\ndef f(a):\n    logging.debug('x')\n    return a\n"
CHANGED = SOURCE.replace(b"'x'", b"'y'")


def survivor(index: int, scope: str, *, diff: str = "", operator: str = "change") -> CandidateResult:
    """Return a surviving change of a function."""
    status = CandidateStatus.SURVIVED
    return CandidateResult(index, status, "mutation", operator, "a.py", index, scope, "", diff)


def lines(results: list[CandidateResult], *, diffs: bool = False, **skipped: int) -> list[str]:
    """Return the summary of results."""
    campaign: Any = SimpleNamespace(set_aside_since={}, judges_only=False, skipped=skipped)
    style = SummaryStyle(diffs, "--show-all")
    return [line for _, line in summary_lines(campaign, results, style, read=lambda path: SOURCE)]


def test_ten_places_are_shown_and_one_line_for_the_others() -> None:
    shown = lines([survivor(n, f"f{n:02}") for n in range(13)])
    assert sum(line.startswith("  a.py") for line in shown) == 10
    assert [line for line in shown if "--show-all" in line] == ["  and 3 more places; --show-all shows all of them"]
    everything = lines([survivor(n, f"f{n:02}", diff="+1") for n in range(13)], diffs=True)
    assert sum(line.startswith("  a.py") for line in everything) == 13
    assert everything.count("    +1") == 13
    assert not any("--show-all" in line for line in lines([survivor(n, f"f{n:02}") for n in range(10)]))


def test_probably_equivalent_survivors_are_marked_and_last() -> None:
    diff = make_patch({"a.py": (FileEntry(SOURCE, 0o100644), FileEntry(CHANGED, 0o100644))}).data.decode()
    shown = lines([survivor(1, "f", diff=diff), survivor(2, "g"), survivor(3, "h", diff=diff), survivor(4, "h")])
    places = [line.split(maxsplit=1)[1] for line in shown if line.startswith("  a.py")]
    assert places == [
        "g  1 of 1: change",
        "h  2 of 2: change  (1 probably equivalent: logging)",
        "f  1 of 1: change  (probably equivalent: logging)",
    ]


def test_proven_survivors_are_marked_with_the_reason() -> None:
    proven = [replace(survivor(n, "h"), sign=str(sign)) for n, sign in enumerate(("bound", "order", "message", ""))]
    (place,) = [line for line in lines(proven) if line.startswith("  a.py")]
    (mark,) = re.findall(r"\((.*)\)", place)
    reasons = ", ".join(sorted((EquivalenceProof.BOUND.reason, EquivalenceProof.ORDER.reason)))
    assert mark == f"2 equivalent: {reasons}; 1 probably equivalent: message"


def test_places_that_no_test_reaches_are_marked() -> None:
    unreached = CheckReason(CheckCode.NOT_REACHED)
    shown = lines(
        [replace(survivor(1, "f"), reason=unreached), survivor(2, "g"), replace(survivor(3, "g"), reason=unreached)]
    )
    assert [line for line in shown if line.startswith("  a.py")] == [
        "  a.py:2 g  2 of 2: change",
        "  a.py:1 f  1 of 1: change  (no test runs it)",
    ]


def test_tests_that_are_set_aside_are_grouped_by_reason() -> None:
    reasons = {f"t.py::test_{n}": SetAside.SKIPPED if n == 1 else SetAside.FAILED for n in range(6)}
    assert set_aside_line(reasons) == (
        "set aside: t.py::test_0, t.py::test_2, t.py::test_3 and 2 more (failed); t.py::test_1 (skipped)"
    )


def test_what_tests_fail_with_is_grouped() -> None:
    messages = ["no database"] * 4 + ["no network"] * 2 + ["a", "b", "c"]
    assert (
        failures_line(messages)
        == "tests that are set aside fail with: no database (4); no network (2); a (1); 2 with others"
    )
    assert failures_line(["a"]) == "tests that are set aside fail with: a (1)"


def test_what_a_comment_skips_is_counted() -> None:
    assert 'skipped by "# ssr: skip": 3 functions, 1 class, 2 lines' in lines([], function=3, **{"class": 1}, line=2)
    assert not any("skipped" in line for line in lines([], function=0, line=0))


def test_artifacts_in_one_function_are_explained() -> None:
    def valid(index: int, scope: str) -> CandidateResult:
        return CandidateResult(index, CandidateStatus.VALID, "mutation", "change", "a.py", index, scope, "", "")

    alone = lines([valid(n, "f") for n in range(3)])
    assert "all 3 bugs are in 1 function: f in a.py; no other was tried" in alone
    tried = lines([*(valid(n, "f") for n in range(3)), survivor(4, "g")])
    assert "all 3 bugs are in 1 function: f in a.py; changes in 1 other function made none" in tried
    assert not any("in 1 function" in line for line in lines([valid(1, "f"), valid(2, "f"), valid(3, "g")]))
    assert not any("in 1 function" in line for line in lines([valid(1, "f"), valid(2, "f")]))
