"""The parts of an audit that run no tests: records, names that nobody could know, patches, hunks."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from harness.audit.card import (
    Card,
    Cause,
    ChangeStatus,
    Sharpness,
    SolutionChange,
    Soundness,
    TokenKind,
    Unsound,
    UnsteadyTest,
)
from harness.audit.narrowness import narrowness_of_texts
from harness.audit.sharpness import reverted_hunks
from harness.audit.strengthening import additional_tests, write_patches
from pytest_ssr.patch import FileEntry, Patch, make_patch
from pytest_ssr.project.snapshot import take_snapshot
from pytest_ssr.project.state import CodebaseState
from pytest_ssr.records.reasons import Reason, ReasonCode

BEFORE = "def price(count):\n    return count\n\n\nA = 1\nB = 2\nC = 3\nD = 4\n\n\ndef known_name():\n    return 1\n"
AFTER = BEFORE.replace("return count", "return with_rebate(count)  # known_name").replace(
    "return 1\n", 'raise ValueError("no such price")\n'
)


def state(folder: Path, text: str) -> CodebaseState:
    folder.mkdir()
    (folder / "shop.py").write_text(text)
    return CodebaseState(take_snapshot(folder, folder.parent / "trees", needs_python=False))


def survivor(
    test: str, status: ChangeStatus = ChangeStatus.SURVIVED, file: str = "tests/test_shop.py"
) -> SolutionChange:
    return SolutionChange(status, "op", "shop.py", 2, "price", "", "diff", test=test, test_file=file)


def test_a_card_comes_back_from_json() -> None:
    card = Card(
        "a",
        problem=Reason(ReasonCode.INVALID_ROW, "detail"),
        sound=Soundness((Unsound.UNSTEADY,), (UnsteadyTest("t", Cause.CLOCK),)),
        sharp=Sharpness((survivor("test"), survivor("", ChangeStatus.NOTICED)), planned=3),
    )
    data = json.loads(json.dumps(card.to_json()))
    assert Card.read(data) == card
    assert (data["sharp"]["noticed"], data["sharp"]["counted"], data["sharp"]["proven"]) == (1, 2, 1)


@pytest.mark.parametrize("damage", [{"task": 3}, {"schema_version": 99}, {"sound": {"problems": ["odd"]}}], ids=str)
def test_a_damaged_card_is_none(damage: dict[str, object]) -> None:
    assert Card.from_json({**Card("a").to_json(), **damage}) is None


def test_what_only_tests_and_solution_share_is_unknown(tmp_path: Path) -> None:
    before, solved = state(tmp_path / "a", BEFORE), state(tmp_path / "b", AFTER)
    solution = make_patch({"shop.py": (before.entry("shop.py"), solved.entry("shop.py"))}).data.decode()
    tests = {"test_shop.py": b'with_rebate(1)\nmatch("no such price")\nknown_name\nValueError\nof_tests_alone\n'}

    def unknown(statement: str) -> set[tuple[TokenKind, str]]:
        found = narrowness_of_texts(tests, solution, solved, before, statement)
        return {(token.kind, token.text) for token in found.tokens}

    assert unknown("Prices.") == {(TokenKind.NAME, "with_rebate"), (TokenKind.TEXT, "no such price")}
    assert unknown("Use `with_rebate`, else say: no such\nprice") == set()


def test_a_task_without_a_statement_cannot_be_narrow(tmp_path: Path) -> None:
    solved = state(tmp_path / "a", AFTER)
    assert not narrowness_of_texts({"t.py": b"with_rebate"}, "", solved, solved, " ").is_known


def test_each_hunk_of_a_solution_is_reverted_alone(tmp_path: Path) -> None:
    solved = state(tmp_path / "a", AFTER)
    bug = make_patch({"shop.py": (solved.entry("shop.py"), FileEntry(BEFORE.encode(), 0o100644))})
    texts = [candidate.changes["shop.py"] for candidate in reverted_hunks(solved, bug)]
    assert len(texts) == 2
    assert all(text is not None and (b"with_rebate" in text) != (b"no such price" in text) for text in texts)


def test_a_solution_of_one_hunk_has_none_to_revert(tmp_path: Path) -> None:
    solved = state(tmp_path / "a", BEFORE)
    one = BEFORE.replace("return count", "return 2")
    bug = make_patch({"shop.py": (solved.entry("shop.py"), FileEntry(one.encode(), 0o100644))})
    assert list(reverted_hunks(solved, bug)) == []


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        ("tests/test_shop.py", "tests/test_shop_audit_1.py"),
        ("shop_test.py", "shop_audit_1_test.py"),
        ("check_shop.py", "check_shop_audit_1.py"),
    ],
)
def test_a_new_file_is_named_like_the_tests_of_its_project(file: str, expected: str) -> None:
    change = replace(survivor("def test_a(): pass\n"), test_file=file)
    assert additional_tests(Card("a", sharp=Sharpness((change,)))).paths == (expected,)


def test_equal_tests_of_survivors_are_written_once(tmp_path: Path) -> None:
    tests = [
        "def test_a():\n    # notices: x\n    assert a()\n",
        "def test_a():\n    # notices: y\n    assert a()\n",
        "def test_b():\n    # notices: z\n    assert b()\n",
    ]
    changes = [survivor(test) for test in tests] + [survivor("def test_c(): pass\n", ChangeStatus.EQUIVALENT)]
    card = Card("owner/odd name", sharp=Sharpness(tuple(changes)))
    patch = additional_tests(card)
    assert patch.paths == ("tests/test_shop_audit_1.py", "tests/test_shop_audit_2.py")
    (path,) = write_patches(tmp_path, [card, Card("without")])
    assert path.parent == tmp_path
    assert Patch.parse(path.read_bytes()).paths == patch.paths
