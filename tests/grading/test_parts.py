"""The second opinion in parts: what the original cannot do in parts is not held against a repair."""

from __future__ import annotations

from pathlib import Path

import pytest
from plain import plain_python

from pytest_ssr.artifact import BugArtifact
from pytest_ssr.execution.own_script import own_parser, own_script
from pytest_ssr.execution.workbench import Workbench
from pytest_ssr.grading import Grade, grade_patch
from pytest_ssr.opening import open_workbench
from pytest_ssr.patch import FileEntry, Patch
from pytest_ssr.reasons import FlagCode, ReasonCode, has_flag
from pytest_ssr.settings import RuleSettings
from pytest_ssr.store import Store

CODE = "def price(net):\n    return net + net // 10\n"
BUGGY = CODE.replace("+ net // 10", "- net // 10")
FIRST = "from shop import price\n\n\ndef test_price():\n    assert price(100) == 110\n    assert price(200) == 220\n"
SECOND = "from shop import price\n\n\ndef test_nothing():\n    assert price(0) == 0\n"
ALONE = "import os\nimport sys\n\nif 'test_first' not in sys.modules:\n    os._exit(3)\n\n"
SUSPICIOUS = "import inspect\n\nWHERE = inspect.__name__\n\n\n"


@pytest.mark.parametrize("second", [SECOND, ALONE + SECOND])
def test_a_part_that_breaks_on_the_original_is_not_held_against_a_repair(tmp_path: Path, second: str) -> None:
    bench = opened(tmp_path, second)
    assert graded(bench, SUSPICIOUS + CODE) == (True, ReasonCode.RESOLVED)
    assert graded(bench, SUSPICIOUS + BUGGY)[0] is False


HANGS = "import sys\n" + SECOND.replace("price(0) == 0", "price(0) == 0 and 'test_first' in sys.modules")


@pytest.mark.parametrize(
    ("second", "skipped"),
    [(SECOND, []), (ALONE + SECOND, ["test_second.py"]), (HANGS, ["test_second.py::test_nothing"])],
    ids=["whole", "breaks", "hangs"],
)
def test_what_is_passed_over_in_a_part_is_told(tmp_path: Path, second: str, skipped: list[str]) -> None:
    flags = grade_of(opened(tmp_path, second), SUSPICIOUS + CODE).flags
    assert [f.details for f in flags if f.code is FlagCode.NOT_RUN_APART] == ([tuple(skipped)] if skipped else [])


def test_what_passes_only_beside_the_others_is_seen(tmp_path: Path) -> None:
    """A repair that hangs on another file of tests being there."""
    bench = opened(tmp_path, SECOND)
    sign = "(1 if 'test_second' in sys.modules else -1) *"
    hung = f"import sys\n\n\n{CODE.replace('+ net', f'+ {sign} net')}"
    resolved, reason = graded(bench, hung)
    assert resolved is False
    assert reason is ReasonCode.TESTS_FAIL_APART


def opened(folder: Path, second: str) -> Workbench:
    project = folder / "project"
    project.mkdir()
    texts = {"shop.py": CODE, "test_first.py": FIRST, "test_second.py": second}
    for name, text in texts.items():
        (project / name).write_text(text)
    place, python = Store(folder / "store"), plain_python()
    return open_workbench(project, place, settings=RuleSettings(), sandbox="process", python=python)


def graded(bench: Workbench, text: str) -> tuple[bool | None, ReasonCode]:
    """Grade these contents of shop.py."""
    grade = grade_of(bench, text)
    return grade.resolved, grade.reason.code


def grade_of(bench: Workbench, text: str) -> Grade:
    original = bench.original
    buggy = original.replace({"shop.py": FileEntry(BUGGY.encode())})
    files = ("test_first.py", "test_second.py")
    bug = buggy.patch_from(original)
    artifact = BugArtifact(own_script(files, options=()), files, own_parser(), bug, Patch.parse(b""))
    patch = buggy.replace({"shop.py": FileEntry(text.encode())}).patch_from(buggy)
    grade: Grade = grade_patch(
        bench.scoped(),
        artifact,
        patch,
        fail_to_pass=["test_first.py::test_price"],
        pass_to_pass=["test_second.py::test_nothing"],
    )
    assert has_flag(grade.flags, FlagCode.SUSPICIOUS_CODE)
    return grade
