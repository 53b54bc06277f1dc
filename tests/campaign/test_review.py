"""A review says in a few remarks what no test would notice in the code that has changed."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from plain import plain_python

from pytest_ssr.campaign.review import MOST_IN_FILE, change_in_words
from pytest_ssr.records.candidate_result import CandidateResult, CandidateStatus
from pytest_ssr.records.check_reasons import CheckCode, CheckReason
from pytest_ssr.records.suggested_test import NoSuggestion, SuggestedTest
from pytest_ssr.suggestions.suggest import Suggester

CODE = "def double(x):\n    return x * 2\n\n\ndef old(x):\n    return x - 1\n"
NEW = """

def clamp(value, high):
    if value > high:
        return high
    return value + 0


def lines(a, b, c):
    a = a + 1
    b = b + 2
    c = c + 3
    d = a * b
    e = b * c
    f = c * a
    g = d + e + f
    h = d - e - f
    return g - h
"""
TESTS = "import calc\n\n\ndef test_double():\n    assert calc.double(3) == 6\n    calc.old(1)\n"
NEW_TESTS = "\n\ndef test_clamp():\n    assert calc.clamp(3, 5) == 3\n    assert calc.lines(1, 2, 3)\n"
Run = Callable[..., tuple[int, str]]


def git(folder: Path, *arguments: str) -> None:
    subprocess.run(
        ["git", "-c", "user.name=a", "-c", "user.email=a@b.c", *arguments], cwd=folder, check=True, capture_output=True
    )


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "calc.py").write_text(CODE)
    (tmp_path / "test_calc.py").write_text(TESTS)
    git(tmp_path, "init", "-b", "main")
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-m", "first")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def branch(project: Path) -> Path:
    git(project, "checkout", "-b", "feature")
    (project / "calc.py").write_text(CODE + NEW)
    (project / "test_calc.py").write_text(TESTS + NEW_TESTS)
    git(project, "commit", "-am", "second")
    return project


def reviewed(run: Run, *options: str) -> tuple[int, dict[str, Any]]:
    code, out = run("review", "--json", "--python", str(plain_python()), *options)
    return code, json.loads(out)


def test_a_branch_is_reviewed_since_it_left_the_main_one(branch: Path, run: Run) -> None:
    code, found = reviewed(run)
    assert code == found["exit"] == 0
    assert found["complete"]
    assert not found["not_tried"]
    remarks = found["remarks"]
    assert {r["function"] for r in remarks} <= {"clamp", "lines"}, "old code is left alone"
    assert 0 < len(remarks) <= MOST_IN_FILE
    assert len({r["line"] for r in remarks}) == len(remarks)
    assert found["more"] > 0
    tested = [r for r in remarks if r["test"]]
    assert tested
    for remark in tested:
        (branch / "test_suggested.py").write_text(remark["test"]["content"])
        subprocess.run([plain_python(), "-m", "pytest", "-q", "test_suggested.py"], cwd=branch, check=True)
    (branch / "test_suggested.py").unlink()

    # What the team accepts is not remarked upon again.
    assert run("accept", remarks[0]["id"], "--reason", "a sketch")[0] == 0
    assert remarks[0]["id"] not in [r["id"] for r in reviewed(run)[1]["remarks"]]


SUMS = """

def sum_of(values):
    total = 0
    for value in values:
        total = total + value * 1
    if total > 1000:
        total = total - 1000
        total = total * 2
    return total
"""


def test_survivors_that_no_input_shows_are_no_remarks(project: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def suggest(self: Suggester, result: CandidateResult, changed: object) -> SuggestedTest:
        reason = NoSuggestion.NO_DIFFERENCE
        return SuggestedTest(result.index, result.path, result.line, result.scope, reason=reason)

    monkeypatch.setattr(Suggester, "suggest", suggest)
    (project / "calc.py").write_text(CODE + SUMS)
    (project / "test_calc.py").write_text(TESTS + "\n\ndef test_sum():\n    assert calc.sum_of([3]) == 3\n")
    git(project, "commit", "-am", "second")
    _, found = reviewed(run, "HEAD^")
    by_text = {r["text"]: r["is_reached"] for r in found["remarks"]}
    assert by_text.pop("if `break` were added, no test would notice")
    assert list(by_text.values()) == [False], "of code that no test runs, there is one remark"
    assert found["unproven"]
    assert all(r["is_reached"] for r in found["unproven"])
    assert not {r["id"] for r in found["remarks"]} & {r["id"] for r in found["unproven"]}


def test_of_code_that_tests_run_only_usual_inputs_make_remarks(
    project: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def suggest(self: Suggester, result: CandidateResult, changed: object) -> SuggestedTest:
        usual = "total = 0" in result.diff.partition("+++")[2].partition("\n-")[2]
        place = result.index, result.path, result.line, result.scope
        return SuggestedTest(*place, "def test(): ...\n", change="a -> b", oddness=0 if usual else 1)

    monkeypatch.setattr(Suggester, "suggest", suggest)
    monkeypatch.setattr(Suggester, "confirm", lambda self, suggested: list(suggested))
    (project / "calc.py").write_text(CODE + SUMS)
    (project / "test_calc.py").write_text(TESTS + "\n\ndef test_sum():\n    assert calc.sum_of([3]) == 3\n")
    git(project, "commit", "-am", "second")
    _, found = reviewed(run, "HEAD^")
    assert {r["is_reached"] for r in found["unproven"]} == {True}
    assert all(r["test"] for r in found["unproven"])
    assert {r["is_reached"] for r in found["remarks"]} == {True, False}
    assert [r["line"] for r in found["remarks"] if not r["is_reached"]] == [14, 15]


@pytest.mark.long
def test_a_gate_decides_the_exit_code(branch: Path, run: Run) -> None:
    code, found = reviewed(run, "--fail-on", "new")
    assert code == found["exit"] == 1


def test_edited_lines_come_first(project: Path, run: Run) -> None:
    old = NEW.replace("h = d - e - f", "h = d")
    (project / "calc.py").write_text(CODE + old)
    (project / "test_calc.py").write_text(TESTS + NEW_TESTS)
    git(project, "commit", "-am", "second")
    (project / "calc.py").write_text(CODE + NEW)
    _, found = reviewed(run, "HEAD")
    assert {r["function"] for r in found["remarks"]} == {"lines"}
    edited = (CODE + NEW).splitlines().index("    h = d - e - f") + 1
    assert found["remarks"][0]["line"] == edited


def test_code_that_tests_run_and_hardly_check_comes_before_others(project: Path, run: Run) -> None:
    names = ("checked", "called", "unrun")
    functions = "".join(f"\n\ndef {name}(a, b, c):\n    return (a + b) * c\n" for name in names)
    tests = """

def test_checked():
    result = calc.checked(0, 2, 1)
    assert result == 2
    assert type(result) is int
    assert result is not None


def test_called():
    calc.called(0, 2, 1)
"""
    (project / "calc.py").write_text(CODE + functions)
    (project / "test_calc.py").write_text(TESTS + tests)
    _, found = reviewed(run, "HEAD")
    functions_in_order = [r["function"] for r in found["remarks"]]
    assert functions_in_order == sorted(functions_in_order, key=("called", "checked", "unrun").index)
    assert set(functions_in_order) == set(names)


def test_the_end_of_the_time_is_said(branch: Path, run: Run) -> None:
    code, found = reviewed(run, "--time", "0.001")
    assert code == 0
    assert not found["complete"]
    assert {place["function"] for place in found["not_tried"]} == {"clamp", "lines"}


def test_without_changes_there_is_nothing_to_do(project: Path, run: Run) -> None:
    reports = ("--sarif", "out.sarif", "--stryker", "out.json", "--html", "page")
    for name in ("out.sarif", "out.json"):
        # As an earlier run may have left it.
        (project / name).write_text('{"left": 1}')
    code, out = run("review", "--python", str(plain_python()), *reports)
    assert code == 0
    assert "remark" not in out
    assert json.loads((project / "out.sarif").read_text())["runs"][0]["results"] == []
    assert json.loads((project / "out.json").read_text())["files"] == {}
    assert (project / "page" / "index.html").is_file()


@pytest.mark.parametrize("arguments", [["nowhere"], ["--repo", "missing"], ["--time", "soon"]])
def test_mistakes(project: Path, run: Run, arguments: list[str]) -> None:
    assert run("review", *arguments)[0] == 2


def test_a_folder_without_git(tmp_path: Path, run: Run) -> None:
    (tmp_path / "calc.py").write_text(CODE)
    assert run("review", "--repo", str(tmp_path))[0] == 2


@pytest.mark.parametrize(
    ("detail", "code", "text"),
    [
        ("> -> >=", CheckCode.NOT_NOTICED, "if `>` became `>=`, no test would notice"),
        ('"a -> b" -> ""', CheckCode.NOT_NOTICED, 'if `"a -> b"` became `""`, no test would notice'),
        (
            "def f() -> int: -> def f() -> str:",
            CheckCode.NOT_NOTICED,
            "if this changed (def f() -> int: -> def f() -> str:), no test would notice",
        ),
        ("return a removed", CheckCode.NOT_NOTICED, "if `return a` were removed, no test would notice"),
        ("1 added", CheckCode.NOT_NOTICED, "if `1` were added, no test would notice"),
        ("", CheckCode.NOT_NOTICED, "if this changed (op), no test would notice"),
        ("> -> >=", CheckCode.NOT_REACHED, "no test runs this: none would notice if `>` became `>=`"),
    ],
)
def test_changes_in_words(detail: str, code: CheckCode, text: str) -> None:
    result = CandidateResult(
        0, CandidateStatus.SURVIVED, "mutation", "op", "a.py", 1, "f", detail, "", reason=CheckReason(code)
    )
    assert change_in_words(result) == text


def test_one_test_is_enough(branch: Path, run: Run) -> None:
    (branch / "test_calc.py").write_text("import calc\n\n\ndef test_clamp():\n    assert calc.clamp(3, 5) == 3\n")
    code, found = reviewed(run, "--changes", "3")
    assert code == 0
    assert found["tried"] == 3
