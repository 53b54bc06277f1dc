"""Conversion of R2E-Gym's rows, with the fields of its own dataset."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from plain import plain_python
from rows import BASE, git, written

from harness.datasets import InstanceError
from harness.datasets.families import read_row

TESTS = """\
import pytest
from shop import add, shout


class TestShop:
    def test_shout(self):
        assert shout("a") == "A"

    @pytest.mark.parametrize("a", [1.5, 2])
    def test_add(self, a):
        assert add(a, 1) == a + 1


def test_subtract():
    assert add(3, 1) == 2
"""
EXPECTED = {
    "TestShop.test_shout": "PASSED",
    "\x1b[1mTestShop.test_add[1.5]\x1b[0m": "PASSED",
    "TestShop.test_add[2]": "PASSED",
    "test_subtract - assert 4 == 2": "FAILED",
}
BEFORE = (
    "=== short test summary info ===\n\x1b[32mPASSED\x1b[0m r2e_tests/test_1.py::\x1b[1mTestShop::test_shout\x1b[0m\n"
    "FAILED r2e_tests/test_1.py::TestShop::test_add[1.5] - assert 0.5 == 2.5\n"
    "FAILED r2e_tests/test_1.py::TestShop::test_add[2] - assert 1 == 3\nPASSED r2e_tests/test_1.py::test_subtract\n"
)


def hunk(*lines: tuple[str, str]) -> dict[str, Any]:
    span = {"start": 1, "length": 2}
    all_lines = [{"type": kind, "content": text} for kind, text in lines]
    return {"descriptor": {"old_range": span, "new_range": span, "section": ""}, "line_group": {"all_lines": all_lines}}


def file_diff(path: str, *hunks: dict[str, Any]) -> dict[str, Any]:
    return {
        "old_file_content": "",
        "new_file_content": "",
        "header": {"file": {"path": path}, "misc_line": None},
        "index_line": {"old_commit_hash": "1a2b3c4", "new_commit_hash": "5d6e7f8", "mode": "100644"},
        "is_binary_file": False,
        "binary_line": None,
        "minus_file": {"path": f"a/{path}"},
        "plus_file": {"path": f"b/{path}"},
        "hunks": list(hunks),
    }


@pytest.fixture
def row(repository: tuple[Path, list[dict[str, Any]]]) -> dict[str, Any]:
    base = git(repository[0] / "acme__shop", "rev-parse", "HEAD").strip()
    solution = hunk(("context", "def add(a, b):"), ("deleted", "    return a - b"), ("added", "    return a + b"))
    assert BASE["shop.py"].startswith("def add(a, b):\n    return a - b\n")
    commit = {
        "file_diffs": [file_diff("shop.py", solution), file_diff("tests/test_shop.py"), file_diff("notes.md")],
        "old_commit_hash": base,
        "new_commit_hash": "f" * 40,
        "commit_message": "Add",
        "commit_date": "2024-05-06T07:08:09",
    }
    execution = {
        "repo_name": "acme/shop",
        "new_commit_hash": "f" * 40,
        "test_file_codes": [TESTS],
        "test_file_names": ["test_1.py"],
        "old_commit_res_stdout": BEFORE,
    }
    return {
        "repo_name": "acme/shop",
        "docker_image": "acme/shop_final:ffff",
        "commit_hash": "f" * 40,
        "parsed_commit_content": json.dumps(commit),
        "execution_result_content": json.dumps(execution),
        "modified_files": ["shop.py"],
        "prompt": "",
        "problem_statement": "add() subtracts.",
        "expected_output_json": json.dumps(EXPECTED),
    }


def test_a_row(row):
    instance = read_row(row, "here")
    assert (instance.id, instance.repo, instance.family) == (f"acme__shop-{'f' * 12}", "acme/shop", "r2e-gym")
    assert instance.fail_to_pass == tuple(f"r2e_tests/test_1.py::TestShop::test_add[{a}]" for a in ("1.5", "2"))
    assert instance.pass_to_pass == ("r2e_tests/test_1.py::TestShop::test_shout",)
    assert (instance.patch.paths, instance.test_patch.paths) == (("shop.py",), ("r2e_tests/test_1.py",))
    assert (instance.image, instance.statement, instance.created_at[:10]) == (
        "acme/shop_final:ffff",
        "add() subtracts.",
        "2024-05-06",
    )


def test_owner_and_parent_commit_are_added(row):
    parsed = json.loads(row["parsed_commit_content"])
    row["parsed_commit_content"] = json.dumps({**parsed, "old_commit_hash": ""})
    instance = read_row({**row, "repo_name": "pillow", "instance_id": None}, "here")
    assert (instance.repo, instance.base_commit) == ("python-pillow/Pillow", f"{'f' * 40}^")


def test_an_ambiguous_test_name_is_left_out(row):
    execution = json.loads(row["execution_result_content"])
    execution |= {
        "test_file_names": ["test_1.py", "test_2.py"],
        "test_file_codes": [TESTS, "class TestShop:\n    pass\n"],
    }
    instance = read_row({**row, "execution_result_content": json.dumps(execution)}, "here")
    assert (instance.fail_to_pass, instance.pass_to_pass) == ((), ())


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("repo_name", "unheard-of", "is not owner/name"),
        ("commit_hash", None, "commit_hash is missing"),
        ("expected_output_json", "[1]", "is not an object"),
        ("parsed_commit_content", "{", "is not JSON"),
        ("parsed_commit_content", '{"file_diffs": [3]}', "file_diffs"),
        (
            "execution_result_content",
            '{"test_file_names": ["../up.py"], "test_file_codes": [""]}',
            "is not a test file",
        ),
        ("execution_result_content", '{"test_file_names": ["a.py"]}', "needs test_file_names"),
    ],
)
def test_an_error_in_a_row_names_its_location(row, field, value, message):
    with pytest.raises(InstanceError, match=r"^here") as error:
        read_row({**row, field: value}, "here")
    assert message in str(error.value)


@pytest.mark.long
def test_the_solution_is_resolved_and_an_empty_patch_is_not(row, repository, tmp_path: Path):
    rows = written(tmp_path / "r2e.jsonl", [row])
    common = ["--repos", repository[0], "--python", plain_python(), "--sandbox", "process"]
    for predictions, code in (("gold", 0), ("empty", 1)):
        argv = ["eval", rows, "--predictions", predictions, *common, "--out", tmp_path / predictions]
        process = subprocess.run([sys.executable, "-m", "harness.cli", *map(str, argv)], check=False)
        assert process.returncode == code
    result = json.loads((tmp_path / "gold" / "results.jsonl").read_text())
    assert (len(result["fail_to_pass"]), len(result["pass_to_pass"])) == (2, 1)
