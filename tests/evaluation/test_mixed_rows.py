"""Datasets with rows that cannot be read, used or trusted: each row has its own result, and the others are graded."""

from __future__ import annotations

import json
import venv
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from program_projects import SYMPY_PROGRAM, SYMPY_RUNTESTS
from rows import diff, git, written

from harness.cli.main import main
from harness.evaluation.plan import Obstacle
from pytest_ssr.records.reasons import ReasonCode

CODE = "def add(a, b):\n    return a - b\n\n\ndef shout(text):\n    return text.upper()\n"
FIXED = CODE.replace("a - b", "a + b")
HEAD = "import unittest\n\nfrom shop import add, shout\n\n\nclass ShopTest(unittest.TestCase):\n"
ADDS = '\n    def test_{name}(self):\n        """{text}"""\n        self.assertEqual(add({number}, 2), {number} + 2)\n'
SHOUTS = '\n    def test_shout(self):\n        """It shouts."""\n        self.assertEqual(shout("a"), "A")\n'
# Printed lines look like results of other tests, and hide this test's own in a log.
PRINTS = """
    def test_prints(self):
        print("test_gone (tests.test_shop.ShopTest) ... ok", end="")
        self.assertEqual(add(1, 2), 3)
        print("test_prints (tests.test_shop.ShopTest) ... FAIL")
"""
SHOP = {"shop.py": CODE, "tests/__init__.py": "", "tests/test_shop.py": HEAD + SHOUTS}
ALGEBRA = {
    "bin/test": SYMPY_PROGRAM,
    "sympy/__init__.py": "",
    "sympy/calc.py": CODE,
    "sympy/testing/__init__.py": "",
    "sympy/testing/runtests.py": SYMPY_RUNTESTS,
    "sympy/tests/test_a.py": "",
    "sympy/tests/test_b.py": "",
}
SAME_NAMES = {
    "sympy/tests/test_a.py": "from sympy.calc import add\n\n\ndef test_add():\n    assert add(1, 2) == 3\n",
    "sympy/tests/test_b.py": "from sympy.calc import add, shout\n\n\ndef test_add():\n    assert add(1, 0) == 1\n\n\n"
    'def test_shout():\n    assert shout("a") == "A"\n',
}
NAME = "test_{} (tests.test_shop.ShopTest)"
SHOUT = NAME.format("shout")


class Clones:
    """A folder of repositories, and rows of them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name, files in {"shop": SHOP, "algebra": ALGEBRA}.items():
            self._write(name, files)

    def _write(self, name: str, files: Mapping[str, str]) -> None:
        clone = self.folder / f"acme__{name}"
        for path, text in files.items():
            (clone / path).parent.mkdir(parents=True, exist_ok=True)
            (clone / path).write_text(text)
        git(clone, "init", "-q")
        git(clone, "add", "-A")
        git(clone, "commit", "-q", "-m", "first")

    def row(self, name: str, tests: Mapping[str, str], failing: list[str], passing: list[str]) -> dict[str, Any]:
        """Return a row whose solution repairs `add`. name: `shop` or `algebra`, a hyphen, and more."""
        repo = name.partition("-")[0]
        clone = self.folder / f"acme__{repo}"
        return {
            "repo": f"acme/{repo}",
            "instance_id": f"acme__{name}",
            "base_commit": git(clone, "rev-parse", "HEAD").strip(),
            "patch": diff(clone, {{"shop": "shop.py", "algebra": "sympy/calc.py"}[repo]: FIXED}),
            "test_patch": diff(clone, tests),
            "FAIL_TO_PASS": json.dumps(failing),
            "PASS_TO_PASS": json.dumps(passing),
        }

    def shop(self, name: str, tests: str, failing: list[str], passing: list[str]) -> dict[str, Any]:
        """Return a row of unittest."""
        return self.row(f"shop-{name}", {"tests/test_shop.py": HEAD + SHOUTS + tests}, failing, passing)


@pytest.fixture(scope="module")
def clones(tmp_path_factory: pytest.TempPathFactory) -> Clones:
    return Clones(tmp_path_factory.mktemp("clones"))


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an interpreter without pytest."""
    folder = tmp_path_factory.mktemp("python")
    venv.create(folder, with_pip=False)
    return folder / "bin" / "python"


def evaluated(clones: Clones, path: Path, python: Path, *options: str) -> tuple[int, dict[str, dict[str, Any]]]:
    """Return the exit code of `ssr eval`, and its results by instance."""
    out = path.parent / "out"
    command = ["eval", str(path), "--repos", str(clones.folder), "--python", str(python), "--sandbox", "process"]
    code = main([*command, "--out", str(out), "--json", *options])
    lines = (out / "results.jsonl").read_text().splitlines()
    return code, {r["task"]: r for r in map(json.loads, lines)}


def codes(results: Mapping[str, Mapping[str, Any]]) -> dict[str, tuple[str, str]]:
    return {name: (r["status"], r["reason"]["code"]) for name, r in results.items()}


GRADED = ("resolved", ReasonCode.RESOLVED)
UNUSABLE = ("infra", ReasonCode.INSTANCE_UNUSABLE)
INVALID = ("infra", ReasonCode.INVALID_ROW)


@pytest.mark.long
def test_each_row_of_a_mixed_dataset_has_its_own_status(clones: Clones, python: Path, tmp_path: Path) -> None:
    add = ADDS.format(name="add", text="It adds.", number=1)
    same_docstring = add + ADDS.format(name="add_more", text="It adds.", number=5)
    similar = add + ADDS.format(name="add_more", text="It adds more.", number=5)
    crash = "import sys\n\nfrom shop import add, nothing\n" + HEAD + SHOUTS
    rows = [
        clones.shop("good", add, ["It adds."], [SHOUT]),
        # One id for two tests, and two ids that differ by their docstrings only.
        clones.shop("same", same_docstring, ["It adds."], [SHOUT]),
        clones.shop("similar", similar, ["It adds.", "It adds more."], [SHOUT]),
        clones.row("algebra-names", SAME_NAMES, ["test_add"], ["test_shout"]),
        clones.shop("printed", add + PRINTS, [NAME.format("prints")], [SHOUT]),
        clones.shop("forged", add + PRINTS, [NAME.format("gone")], [SHOUT]),
        clones.row("shop-import", {"tests/test_shop.py": crash}, [SHOUT], []),
        clones.row("algebra-runner", {**SAME_NAMES, "bin/test": "import nothing_there\n"}, ["test_add"], []),
        clones.row("shop-pytest", {"tests/test_shop.py": HEAD + SHOUTS + add}, ["tests/test_shop.py::x"], []),
        clones.shop("no-runner", add, ["an id of no runner"], []),
    ]
    code, results = evaluated(clones, written(tmp_path / "rows.jsonl", rows), python, "--predictions", "gold")
    assert code == 3
    assert codes(results) == {
        "acme__shop-good": GRADED,
        "acme__shop-same": GRADED,
        "acme__shop-similar": GRADED,
        "acme__algebra-names": GRADED,
        "acme__shop-printed": GRADED,
        "acme__shop-forged": UNUSABLE,
        "acme__shop-import": UNUSABLE,
        "acme__algebra-runner": UNUSABLE,
        "acme__shop-pytest": UNUSABLE,
        "acme__shop-no-runner": UNUSABLE,
    }
    details = [r["reason"]["detail"] for name, r in results.items() if codes(results)[name] == UNUSABLE]
    assert len(set(details)) == len(details)
    assert "pytest" not in results["acme__algebra-runner"]["reason"]["detail"]
    # All tests that an ambiguous id names must pass.
    half = diff(clones.folder / "acme__shop", {"shop.py": CODE.replace("a - b", "3 if a == 1 else a - b")})
    wrong = {"instance_id": "acme__shop-same", "model_name_or_path": "half", "model_patch": half}
    path = written(tmp_path / "half.jsonl", [wrong])
    code, results = evaluated(clones, tmp_path / "rows.jsonl", python, "--predictions", str(path))
    assert codes(results) == {"acme__shop-same": ("unresolved", ReasonCode.TESTS_FAIL)}


def test_a_row_of_another_language_has_its_own_reason(clones: Clones, python: Path, tmp_path: Path) -> None:
    good = clones.shop("good", ADDS.format(name="add", text="It adds.", number=1), ["It adds."], [SHOUT])
    go = {**good, "instance_id": "acme__shop-go", "language": "go"}
    code, results = evaluated(clones, written(tmp_path / "rows.jsonl", [good, go]), python, "--predictions", "gold")
    assert (code, codes(results)) == (
        3,
        {"acme__shop-good": GRADED, "acme__shop-go": ("infra", ReasonCode.OTHER_LANGUAGE)},
    )


@pytest.fixture
def damaged(clones: Clones, tmp_path: Path) -> Path:
    """Return a dataset with one valid row, and one of each kind of damage."""
    good = clones.shop("good", ADDS.format(name="add", text="It adds.", number=1), ["It adds."], [SHOUT])
    without_repo = {k: v for k, v in good.items() if k != "repo"} | {"instance_id": "acme__shop-2"}
    changes: list[dict[str, Any]] = [
        {"instance_id": "acme__shop-3", "FAIL_TO_PASS": [1, 2]},
        {"instance_id": "acme__shop-4", "version": 5.2},
        {"instance_id": "acme__shop-5", "patch": ""},
        {"instance_id": ["acme__shop-6"]},
        {"instance_id": "acme__shop-7", "install_config": {"test_cmd": 5}},
        {},
    ]
    rows = [good, without_repo, *({**good, **change} for change in changes)]
    path = written(tmp_path / "rows.jsonl", rows)
    with path.open("ab") as file:
        file.write(b'{"instance_id": "acme__shop-9",\n[]\n"\xff"\n')
    return path


NAMES = [f"acme__shop-{n}" for n in ("good", 2, 3, 4, 5)] + ["rows.jsonl-line-6", "acme__shop-7"]
NAMES += [f"rows.jsonl-line-{n}" for n in (8, 9, 10, 11)]


def test_rows_that_cannot_be_read_are_listed_with_their_line(
    clones: Clones, python: Path, damaged: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, results = evaluated(clones, damaged, python, "--predictions", "gold")
    assert code == 3
    assert codes(results) == {name: GRADED if name == NAMES[0] else INVALID for name in NAMES}
    for number, name in enumerate(NAMES[1:], 2):
        assert results[name]["reason"]["detail"].startswith(f"{damaged}: line {number}")
    summary = json.loads(capsys.readouterr().out)
    assert (summary["total"], summary["graded"], summary["resolve_rate"]) == (11, 1, 1.0)
    common = ["--repos", str(clones.folder), "--python", str(python), "--out", str(damaged.parent / "dry")]
    assert main(["eval", str(damaged), "--predictions", "gold", "--dry-run", "--json", *common]) == 1
    plan = json.loads(capsys.readouterr().out)
    assert [row["instance_id"] for row in plan["rows"]] == NAMES
    assert [row["blocked"] and row["blocked"]["obstacle"] for row in plan["rows"]] == [
        None,
        *[Obstacle.INVALID_ROW] * 10,
    ]
    assert main(["leaderboard", str(damaged.parent / "out"), "--instances", str(damaged), "--json"]) == 0
    board = json.loads(capsys.readouterr().out)
    (solver,) = board["solvers"]
    assert (solver["attempts"], solver["graded"], solver["resolved"], solver["missing"]) == (11, 1, 1, 10)


@pytest.mark.long
def test_predictions_and_a_solver_go_on_without_invalid_rows(clones: Clones, python: Path, damaged: Path) -> None:
    patch = json.loads(damaged.read_text(errors="replace").splitlines()[0])["patch"]
    mine = [{"instance_id": NAMES[n], "model_name_or_path": "mine", "model_patch": patch} for n in (0, 1)]
    predictions = written(damaged.parent / "mine.jsonl", mine)
    _, results = evaluated(clones, damaged, python, "--predictions", str(predictions))
    assert codes(results) == {name: GRADED if name == NAMES[0] else INVALID for name in NAMES}
    assert {r["solver"] for r in results.values()} == {"mine"}
    common = ["--repos", str(clones.folder), "--python", str(python), "--out", str(damaged.parent / "run")]
    main(["run", str(damaged), "--solver", "search", "--solver.tries", "1", *common, "--sandbox", "process", "--json"])
    lines = (damaged.parent / "run" / "results.jsonl").read_text().splitlines()
    results = {r["task"]: r for r in map(json.loads, lines)}
    assert [name for name, code in codes(results).items() if code == INVALID] == NAMES[1:]


def test_without_a_valid_row_there_is_nothing_to_grade(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text("[]\nnot JSON\n")
    assert main(["eval", str(path), "--predictions", "gold", "--out", str(tmp_path / "out")]) == 2
    assert "line 1" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
