"""Rows of other families, with their names and encodings of columns, are read as those of SWE-bench.

The sources of the formats are in tests/door/README.md.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from harness.datasets.columns import text_list
from harness.datasets.families import invalid_row, plain_id, read_row
from harness.datasets.instance import RowError

PATCH = "diff --git a/shop.py b/shop.py\n--- a/shop.py\n+++ b/shop.py\n@@ -1 +1 @@\n-a\n+b\n"
TESTS = PATCH.replace("shop.py", "tests/test_shop.py")
ADD, SHOUT = "tests/test_shop.py::test_add", 'tests/test_shop.py::test_shout[it\'s "a"]'
COMMON = {"instance_id": "acme__shop-1", "repo": "acme/shop", "base_commit": "1a2b3c4d", "patch": PATCH}
BENCH = {**COMMON, "test_patch": TESTS}
FAMILIES: dict[str, dict[str, Any]] = {
    "swe-bench": {**BENCH, "FAIL_TO_PASS": json.dumps([ADD]), "PASS_TO_PASS": json.dumps([SHOUT])},
    "swe-gym": {**BENCH, "FAIL_TO_PASS": [ADD], "PASS_TO_PASS": [SHOUT], "hints_text": ""},
    "swe-bench pro": {**BENCH, "fail_to_pass": str([ADD]), "pass_to_pass": str([SHOUT])},
    "mixed quotes": {**BENCH, "fail_to_pass": f"['{ADD}']", "pass_to_pass": repr([SHOUT])},
    "a tuple": {**BENCH, "fail_to_pass": str((ADD,)), "pass_to_pass": str((SHOUT,))},
    "swe-rl": {
        "text": "It subtracts.",
        "metadata": {"instance": {**BENCH, "FAIL_TO_PASS": [ADD], "PASS_TO_PASS": [SHOUT]}, "data_source": "acme"},
    },
    "short names": {**BENCH, "F2P": [ADD], "P2P": [SHOUT]},
    "short names, lower case": {**BENCH, "f2p": json.dumps([ADD]), "p2p": [SHOUT]},
    "multi-swe-bench": {
        "org": "acme",
        "repo": "shop",
        "number": 1,
        "base": {"label": "acme:main", "ref": "main", "sha": "1a2b3c4d"},
        "fix_patch": PATCH,
        "test_patch": TESTS,
        "fixed_tests": {ADD: {"run": "PASS", "test": "FAIL", "fix": "PASS"}},
        "p2p_tests": {SHOUT: {"run": "PASS", "test": "PASS", "fix": "PASS"}},
        "resolved_issues": [{"number": 7, "title": "add", "body": "It subtracts."}],
    },
    "multi-swe-bench, exported": {
        **BENCH,
        "org": "acme",
        "repo": "acme/shop",
        "number": 1,
        "FAIL_TO_PASS": [ADD],
        "PASS_TO_PASS": [SHOUT],
    },
    "gold_patch": {**BENCH, "patch": None, "gold_patch": PATCH, "FAIL_TO_PASS": [ADD], "PASS_TO_PASS": [SHOUT]},
    "blanks around the id": {**BENCH, "instance_id": "acme__shop-1 \n", "FAIL_TO_PASS": [ADD], "PASS_TO_PASS": [SHOUT]},
    "a plain diff": {**BENCH, "patch": PATCH.partition("\n")[2], "FAIL_TO_PASS": [ADD], "PASS_TO_PASS": [SHOUT]},
    "blank lines after the diff": {**BENCH, "patch": PATCH + "\n\n", "FAIL_TO_PASS": [ADD], "PASS_TO_PASS": [SHOUT]},
    "a binary file without content": {
        **BENCH,
        "test_patch": "diff --git a/x.png b/x.png\nnew file mode 100644\nindex 0000000..1111111\n"
        "Binary files /dev/null and b/x.png differ\n" + TESTS,
        "FAIL_TO_PASS": [ADD],
        "PASS_TO_PASS": [SHOUT],
    },
}


@pytest.mark.parametrize("family", FAMILIES)
def test_a_row_of_each_family(family: str) -> None:
    instance = read_row(FAMILIES[family], "here")
    assert (instance.id, instance.repo, instance.base_commit) == ("acme__shop-1", "acme/shop", "1a2b3c4d")
    assert (instance.fail_to_pass, instance.pass_to_pass) == ((ADD,), (SHOUT,))
    assert instance.patch.data == PATCH.encode()
    assert instance.test_patch.data == TESTS.encode()
    assert not instance.begins_solved


def test_the_statement_of_several_issues() -> None:
    assert read_row(FAMILIES["multi-swe-bench"], "here").statement == "add\n\nIt subtracts."


@pytest.mark.parametrize(
    ("given", "plain"),
    [
        (f"{ADD} ", ADD),
        (f"\t{ADD}\r\n", ADD),
        (f"./{ADD}", ADD),
        (f"/testbed/{ADD}", ADD),
        (f"/testbed/./{ADD} ", ADD),
        (f"/app/{ADD}", ADD),
        (f"/home/shop/{ADD}", ADD),
        (f"/workspace/acme__shop__1.0/{ADD}", ADD),
        ("./tests/test_shop.py::test_path[./a.py::b]", "tests/test_shop.py::test_path[./a.py::b]"),
        ("tests/test_shop.py::test_path[/testbed/a.py::b]", "tests/test_shop.py::test_path[/testbed/a.py::b]"),
        ("test_add (tests.TestShop) ", "test_add (tests.TestShop)"),
        ("./a title of a test", "./a title of a test"),
        ("test/database.js | works (length > 100) ", "test/database.js | works (length > 100)"),
    ],
)
def test_ids_are_brought_into_the_form_of_runs(given: str, plain: str) -> None:
    assert plain_id(given) == plain
    row = {**BENCH, "FAIL_TO_PASS": [given], "PASS_TO_PASS": [SHOUT]}
    instance = read_row(row, "here")
    assert instance.fail_to_pass == (plain,)
    assert instance.given_ids == ({plain: given} if plain != given else {})


def test_two_forms_of_one_id_are_one_test() -> None:
    instance = read_row({**BENCH, "FAIL_TO_PASS": [f"./{ADD}", ADD], "PASS_TO_PASS": []}, "here")
    assert instance.fail_to_pass == (ADD,)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (["a"], ["a"]),
        (("a", "b"), ["a", "b"]),
        ({"a": 1, "b": 2}, ["a", "b"]),
        ('["a"]', ["a"]),
        ("['a', \"it's\"]", ["a", "it's"]),
        ("('a',)", ["a"]),
        ('{"a": {"run": "PASS"}}', ["a"]),
        ("", []),
        (" ", []),
        ("[]", []),
        ("None", []),
        ("null", []),
        (None, []),
        (float("nan"), []),
    ],
)
def test_encodings_of_lists(value: object, expected: list[str]) -> None:
    assert text_list(value) == expected


@pytest.mark.parametrize(
    "value", [3, "3", "[1", "a::b", "['a', b]", "[1]", [1], ["a", None], "'a'", '"a"', "[" * 9999, "()" * 9, b"[]"]
)
def test_what_is_no_list_of_texts(value: object) -> None:
    with pytest.raises(ValueError, match="is n"):
        text_list(value)


@pytest.mark.parametrize(
    ("missing", "looked_for"),
    [
        ("FAIL_TO_PASS", "FAIL_TO_PASS, F2P, fixed_tests"),
        ("patch", "patch, fix_patch, gold_patch"),
        ("repo", "repo, repository"),
        ("base_commit", "base_commit, base.sha"),
        ("instance_id", "instance_id, task_id"),
    ],
)
def test_a_missing_column_names_those_that_are_there(missing: str, looked_for: str) -> None:
    row = {k: v for k, v in FAMILIES["swe-bench"].items() if k != missing} | {"other": {"column": 1}}
    with pytest.raises(RowError) as error:
        read_row(row, "rows.jsonl: line 3")
    message = str(error.value)
    assert message.startswith(f"rows.jsonl: line 3 has no {missing}: ")
    assert looked_for in message
    assert "other.column" in message


def test_an_empty_column_is_no_missing_one() -> None:
    assert read_row({**BENCH, "FAIL_TO_PASS": "[]", "PASS_TO_PASS": []}, "here").fail_to_pass == ()
    with pytest.raises(RowError, match="patch is empty"):
        read_row({**FAMILIES["swe-bench"], "patch": ""}, "here")


@pytest.mark.parametrize(
    "row",
    [
        {**FAMILIES["multi-swe-bench"], "fix_patch": "no diff"},
        {"text": "", "metadata": {"instance": {**FAMILIES["swe-gym"], "patch": "no diff"}}},
    ],
)
def test_an_invalid_row_of_another_family_keeps_its_name(row: dict[str, Any]) -> None:
    with pytest.raises(RowError) as error:
        read_row(row, "here")
    assert invalid_row(row, "rows.jsonl: line 1", error.value).id == "acme__shop-1"
