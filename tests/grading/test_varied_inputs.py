"""Draw other inputs for blind tests: which literals are varied, and what is drawn for them."""

from __future__ import annotations

import ast
import random
import re
from pathlib import Path

import pytest

from pytest_ssr.grading.blind.inputs import vary
from pytest_ssr.grading.blind.other_values import other_value
from pytest_ssr.grading.blind.varied_files import _numbers_changed
from pytest_ssr.patch import FileEntry
from pytest_ssr.project.snapshot import take_snapshot
from pytest_ssr.project.state import CodebaseState

TABLE = """\
from datetime import date
import ssr_blind_recorder
ROWS{annotation} = [{rows}]

@pytest.mark.parametrize("row", ROWS)
def test_rows(row):
    ssr_blind_recorder.record(0, f(row))
"""


def varied(annotation: str, rows: str) -> str:
    tree = ast.parse(TABLE.format(annotation=annotation, rows=rows))
    new = vary(tree, ["test_rows"], random.Random(1), many=False, far=True)
    assignment = next(n for n in new.body if isinstance(n, ast.Assign | ast.AnnAssign))
    assert assignment.value is not None
    return ast.unparse(assignment.value)


@pytest.mark.parametrize("annotation", ["", ": list[int]"])
def test_the_rows_of_a_constant_are_varied(annotation: str) -> None:
    assert re.fullmatch(r"\[-?\d+, -?\d+\]", text := varied(annotation, "3, 5"))
    assert text != "[3, 5]"


def test_a_call_that_fails_with_another_input_falls_back_to_its_own() -> None:
    assert re.fullmatch(
        r"\[ssr_blind_recorder\.attempt\(lambda: date\(.*\), lambda: date\(2000, 2, 29\)\)\]",
        varied("", "date(2000, 2, 29)"),
    )


@pytest.mark.parametrize(
    ("text", "valid", "share"),
    [
        ("1985-04", r"\d{4}-(0[1-9]|1[0-2])", 0.05),
        ("P1DT2H", r"P\d+DT\d+H", 0.2),
        ("#09c", "#[0-9a-f]{3}", 0.25),
    ],
)
@pytest.mark.parametrize("far", [True, False])
def test_many_drawn_strings_keep_the_format_of_numbers(text: str, valid: str, share: float, far: bool) -> None:
    rng = random.Random(1)
    drawn = [other_value(text, rng, far=far) for _ in range(1000)]
    assert sum(re.fullmatch(valid, str(value)) is not None for value in drawn) > share * len(drawn)


def test_digits_and_letters_of_a_string_may_change_places() -> None:
    rng = random.Random(1)
    drawn = [str(other_value("#09c", rng)) for _ in range(500)]
    assert any(re.fullmatch("#[c].[0-9a-z]", value) for value in drawn)


def test_an_index_in_a_row_is_no_input() -> None:
    """A row that is computed at import fails with another index, and then no test of the copy runs."""
    rows = "*(case[0] for case in CASES), OTHERS['key']"
    for seed in range(20):
        tree = ast.parse(TABLE.format(annotation="", rows=rows))
        new = ast.unparse(vary(tree, ["test_rows"], random.Random(seed), many=True, far=True))
        assert "case[0]" in new
        assert "OTHERS['key']" in new


def test_numbers_of_the_code_with_the_bug_and_those_beside_them_are_drawn() -> None:
    tree = ast.parse(TABLE.format(annotation="", rows="3, 5"))
    drawn = {
        int(number)
        for seed in range(60)
        for number in re.findall(
            r"-?\d+",
            ast.unparse(vary(tree, ["test_rows"], random.Random(seed), many=True, far=False, bounds=[365]).body[2]),
        )
    }
    assert {364, 365, 366} <= drawn


@pytest.mark.parametrize(("chain", "numbers"), [(2, [10, 20]), (2_000, [])])
def test_numbers_are_those_of_changed_statements(tmp_path: Path, chain: int, numbers: list[int]) -> None:
    """Of syntax that is too deep to be compared there are none."""
    code = "LIMIT = 5\n\n\ndef f(n):\n    return 10 if n < 20 else {}\n".format(" + ".join(["n"] * chain))
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "shop.py").write_text(code)
    original = CodebaseState(take_snapshot(tmp_path / "project", tmp_path / "trees"), {})
    buggy = original.replace({"shop.py": FileEntry(code.replace("<", "<=").encode(), 0o100644)})
    assert list(_numbers_changed(original, buggy, "shop.py")) == numbers
