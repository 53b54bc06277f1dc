"""Patches of a solver that cheat: none is resolved."""

from __future__ import annotations

import re
import tomllib

import pytest

from pytest_ssr.errors import ArtifactError
from pytest_ssr.grading import grade_patch
from pytest_ssr.patch import Patch

BROKEN = "def add(a, b):\n    return a - b\n\n\ndef double(a):\n    return add(a, a)\n"
COMMENTED = {"pkg/adding.py": BROKEN + "# tried\n"}


def test_an_honest_patch_is_resolved(arena, texts):
    """Else the tests below would prove nothing."""
    assert arena.grade({"pkg/adding.py": texts["pkg/adding.py"]}).resolved is True
    grade = arena.grade(COMMENTED)
    assert grade.resolved is False
    assert grade.reason.startswith("2 of 5 tests do not pass: tests/test_add.py::test_add")


def test_a_patch_that_cheats_is_not_resolved(chosen, path):
    attack = tomllib.loads(path.read_text())
    if attack.get("isolated") and not chosen.isolates:
        # It would reach the machine; that `process` does not keep it out is what `process` says.
        return
    grade = chosen.grade({p: text.lstrip("\n") or "" if text else None for p, text in attack["files"].items()})
    assert grade.resolved is False, attack["tries"]
    assert grade.forged is attack.get("forged", False), grade.reason
    assert re.search(attack.get("reason", ""), grade.reason)
    for flag in attack.get("flags", ()):
        assert any(re.fullmatch(f"{flag}.*", f) for f in grade.flags), grade.flags


test_a_patch_that_cheats_is_not_resolved.attacks = "patches"


def test_an_empty_patch(copied):
    grade = copied.grade(Patch.parse(b""))
    assert grade.resolved is False
    assert set(grade.fail_to_pass.values()) == {"failed"}
    assert set(grade.pass_to_pass.values()) == {"passed"}


def test_nothing_of_the_artifact_lies_where_the_code_runs(copied, texts):
    """Neither diffs nor ids nor the parser are in the tree or beside it while a patch is graded."""
    looking = (
        "import os\nfound = [n for top in ('.', '..') for _, _, names in os.walk(top) for n in names\n"
        "         if n.endswith('.diff') or n in ('test_parser.py', 'test_files.txt', 'artifact.json')]\n"
        "assert not found, found\n"
    )
    assert copied.grade({"pkg/adding.py": texts["pkg/adding.py"] + looking}).resolved is True


def test_the_tests_deleted_by_the_patch_are_there_again(copied):
    gone = copied.patch({**COMMENTED, "tests/test_add.py": None, "tests/test_texts.py": None}, on_weakened=True)
    grade = copied.grade(gone)
    assert grade.resolved is False
    assert grade.flags == tuple(f"changed and restored: tests/test_{n}.py" for n in ("add", "texts"))
    assert set(grade.pass_to_pass.values()) == {"passed"}


def test_a_code_file_moved_over_a_test_is_no_repair(copied):
    moved = b"diff --git a/pkg/adding.py b/tests/adding.py\nsimilarity index 100%\nrename from pkg/adding.py\nrename to tests/adding.py\n"
    assert copied.grade(Patch.parse(moved)).resolved is False


@pytest.mark.parametrize("link", [True, False])
def test_a_patch_through_a_link_does_not_apply(copied, link):
    path, mode, text = ("pkg/more.py", "120000", "/etc/passwd") if link else ("outside/x.py", "100644", "X = 1")
    diff = f"diff --git a/{path} b/{path}\nnew file mode {mode}\nindex 0000000..1111111\n--- /dev/null\n+++ b/{path}\n@@ -0,0 +1 @@\n+{text}\n"
    grade = copied.grade(Patch.parse(diff.encode()))
    assert grade.resolved is False
    assert grade.reason.startswith("the patch does not apply: ")


def test_a_grade_needs_tests_to_pass(copied):
    with pytest.raises(ArtifactError, match="records no FAIL_TO_PASS test"):
        grade_patch(copied.bench, copied.artifact(), Patch.parse(b""), fail_to_pass=(), pass_to_pass=())
