"""The three controls: which artifacts can fail them, and which cannot because of how patches are graded."""

from __future__ import annotations

import pytest

from pytest_ssr.checks.validator import Validation
from pytest_ssr.grading import grade_patch
from pytest_ssr.grading.repaired_state import repaired_state
from pytest_ssr.patch import Patch
from pytest_ssr.records.check_reasons import CheckCode
from pytest_ssr.records.reasons import Reason, ReasonCode
from pytest_ssr.records.verdict import CHECK_NAMES, CONTROL_NAMES

pytestmark = pytest.mark.long

ADD_BUG = {"pkg/adding.py": "def add(a, b):\n    return a - b\n\n\ndef double(a):\n    return add(a, a)\n"}
MARKED = {
    "pkg/texts.py": "try:\n    from pkg.mark import MARK\nexcept ImportError:\n    MARK = '?'\n\n\n"
    "def shout(text):\n    return text.upper() + MARK\n\n\ndef quiet(text):\n    return text.lower()\n",
    "pkg/mark.py": 'MARK = "!"\n',
}
NO_PROGRAM = """

def test_mark_is_no_program():
    import os
    import pkg

    assert not os.access(os.path.join(os.path.dirname(pkg.__file__), "mark.py"), os.X_OK)
"""


@pytest.fixture
def weak(texts, without):
    """The weakening that hides ADD_BUG."""
    return {"tests/test_add.py": without(without(texts["tests/test_add.py"], "test_add"), "test_double")}


def test_reverse_patch_whose_reverse_differs_from_the_original(open_builder, texts, without):
    """The diff declares the file it deletes as executable, so the reverse creates an executable and a test fails."""
    tests = texts["tests/test_texts.py"] + NO_PROGRAM
    builder = open_builder({**MARKED, "tests/test_texts.py": tests})
    bug = Patch.parse(builder.patch({"pkg/mark.py": None}).data.replace(b"mode 100644", b"mode 100755"))
    weakened = without(without(tests, "test_shout"), "test_both")
    verdict = builder.judge(builder.artifact(bug, {"tests/test_texts.py": weakened}))
    assert [r.name for r in verdict.results if r.passed] == [*CHECK_NAMES, "empty-patch"]
    assert verdict.rejection.name == "reverse-patch"
    failing = Reason(ReasonCode.TESTS_FAIL, "1 of 8: tests/test_texts.py::test_mark_is_no_program")
    assert verdict.reason.code is CheckCode.NOT_RESOLVED
    assert verdict.reason.details == {"grade": "tests-fail", "cause": failing.text}


WEAKENINGS = {
    "edited": {"tests/test_add.py": "def test_more():\n    pass\n"},
    "deleted": {"tests/test_add.py": None},
    "two files": {"tests/test_add.py": "\n", "tests/test_texts.py": "\n"},
    "another mode": Patch.parse(
        b"diff --git a/tests/test_add.py b/tests/test_add.py\nold mode 100644\nnew mode 100755\n"
    ),
}


@pytest.mark.parametrize("how", WEAKENINGS)
def test_without_a_repair_the_buggy_tree_is_graded(builder, how):
    """So `empty-patch` and `weakening-only` cannot resolve: the FAIL_TO_PASS tests fail on exactly that tree."""
    artifact = builder.artifact(ADD_BUG, WEAKENINGS[how])
    buggy = builder.runner.original.apply(artifact.bug)
    assert buggy.apply(artifact.weaken).tree_hash != buggy.tree_hash
    state, dropped = repaired_state(builder.runner, artifact, Patch.parse(b""))
    assert (state.tree_hash, dropped) == (buggy.tree_hash, ())
    if how != "deleted":  # a deletion cannot be applied twice
        state, dropped = repaired_state(builder.runner, artifact, artifact.weaken)
        assert (state.tree_hash, dropped) == (buggy.tree_hash, tuple(artifact.weaken.paths))


@pytest.mark.parametrize("control", ["empty-patch", "weakening-only"])
def test_a_control_that_resolves_without_a_repair_rejects(builder, weak, control):
    """No artifact reaches this; the tests graded here are ones that the bug does not break."""
    validation = Validation(builder.artifact(ADD_BUG, weak), builder.runner.scoped())
    before = CONTROL_NAMES[: CONTROL_NAMES.index(control)]
    assert all(validation.result(name).passed for name in (*CHECK_NAMES, *before))
    validation.case.stable = validation.case.fail_to_pass = frozenset(["tests/test_texts.py::test_quiet"])
    assert validation.result(control).passed is False
    reason = validation.result(control).reason
    assert (reason.code, reason.details["grade"]) == (CheckCode.RESOLVED_WITHOUT_REPAIR, "resolved")
    assert not validation.verdict().valid
    assert validation.verdict().rejection.name == control


def test_the_controls_of_a_valid_artifact_report_their_grades(builder, weak):
    artifact = builder.artifact(ADD_BUG, weak)
    verdict = builder.judge(artifact)
    assert {c.reason.code for c in verdict.controls} == {CheckCode.GRADED_AS_EXPECTED}
    assert [(c.name, c.passed, c.reason.details["grade"]) for c in verdict.controls] == [
        ("empty-patch", True, "tests-fail"),
        ("reverse-patch", True, "resolved"),
        ("weakening-only", True, "tests-fail"),
    ]
    ids = {"fail_to_pass": verdict.fail_to_pass, "pass_to_pass": verdict.pass_to_pass}
    assert grade_patch(builder.runner, artifact, artifact.bug.reverse(), **ids).resolved is True
