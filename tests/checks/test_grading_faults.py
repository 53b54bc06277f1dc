"""What earlier systems got wrong when they graded a patch; each test is named for what must hold."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pytest_ssr.errors import ArtifactError, SandboxError
from pytest_ssr.execution.workbench import Workbench
from pytest_ssr.grading import grade as grade_module
from pytest_ssr.grading import grade_patch
from pytest_ssr.grading.evidence import RecordedTests
from pytest_ssr.patch import FileEntry, Patch
from pytest_ssr.reasons import Flag, FlagCode, Reason, ReasonCode
from pytest_ssr.surface import is_test_surface

TESTS = "tests/test_add.py"
ADD_BUG = {"pkg/adding.py": "def add(a, b):\n    return a - b\n\n\ndef double(a):\n    return add(a, a)\n"}
REPORT = "python -m pytest -rA -p no:cacheprovider tests/test_add.py tests/test_texts.py\n"
# On trees with a certain comment the parser finds nothing, or does not answer in JSON, or finds that all is well.
PARSER = """\
import json, sys
found, lines = {}, sys.stdin.read().splitlines()
for line in lines:
    for word, status in (("PASSED ", "passed"), ("FAILED ", "failed"), ("ERROR ", "failed")):
        if line.startswith(word):
            found[line[len(word):].split(" - ")[0].strip()] = status
if "# finds nothing" in lines:
    found = {}
if "# no JSON" in lines:
    print("so")
if "# all is well" in lines:
    found = dict.fromkeys(found, "passed")
print(json.dumps(found))
"""
BOTH = {f"{TESTS}::test_add", f"{TESTS}::test_double"}


@pytest.fixture(scope="module")
def graded(bench, without):
    """Grade the files that a solver leaves, or a patch, against one valid artifact."""
    tests = bench.workbench.snapshot.read(TESTS).decode()
    weak = without(without(tests, "test_add"), "test_double")
    script = f"grep '^# ' pkg/adding.py\n{REPORT}"
    artifact = bench.artifact(ADD_BUG, {TESTS: weak}, script=script, parser=PARSER)
    verdict = bench.judge(artifact)
    assert verdict.valid, verdict.rejection
    assert set(verdict.fail_to_pass) == BOTH
    start = bench.workbench.original.apply(artifact.bug).apply(artifact.weaken)

    def grade(changes, **ids):
        if isinstance(changes, Patch):
            patch = changes
        else:
            left = {p: None if t is None else FileEntry(t.encode(), 0o100644) for p, t in changes.items()}
            patch = start.replace(left).patch_from(start)
        wanted = {"fail_to_pass": verdict.fail_to_pass, "pass_to_pass": verdict.pass_to_pass, **ids}
        return grade_patch(bench.workbench.scoped(), artifact, patch, **{"full": True, "like_s": 0.5, **wanted})

    return grade


def test_a_comment_is_no_repair(graded):
    found = graded({"pkg/adding.py": ADD_BUG["pkg/adding.py"] + "# repaired\n"})
    assert found.resolved is False
    assert found.reason == Reason(ReasonCode.TESTS_FAIL, f"2 of 7: {TESTS}::test_add, {TESTS}::test_double")
    assert set(found.fail_to_pass.values()) == {"failed"}
    assert set(found.pass_to_pass.values()) == {"passed"}


def test_no_patch_is_no_repair(graded):
    assert graded({}).resolved is False


def test_a_second_attempt_starts_clean(graded, texts):
    """The first attempt repairs and adds a file; the second could not be applied on top of it."""
    new = {"pkg/adding.py": texts["pkg/adding.py"], "pkg/new.py": "X = 1\n"}
    assert graded(new).resolved is True
    again = graded({"pkg/adding.py": ADD_BUG["pkg/adding.py"].replace("a, a", "a, -a"), "pkg/new.py": "X = 2\n"})
    assert again.resolved is False
    assert again.fail_to_pass[f"{TESTS}::test_double"] == "passed"
    assert again.fail_to_pass[f"{TESTS}::test_add"] == "failed"
    assert graded(new).resolved is True


@pytest.mark.parametrize(
    ("comment", "status", "reason"),
    [
        ("# finds nothing", "missing", ReasonCode.TESTS_FAIL),
        ("# no JSON", "missing", ReasonCode.SCRIPT_FAILED),
    ],
)
def test_a_parser_that_finds_nothing_resolves_nothing(graded, texts, comment, status, reason):
    """`all` of no results is true: each id must be there."""
    found = graded({"pkg/adding.py": f"{texts['pkg/adding.py']}{comment}\n"})
    assert found.resolved is False
    assert found.reason.code is reason
    assert {*found.fail_to_pass.values(), *found.pass_to_pass.values()} == {status}


def test_a_parser_alone_is_not_believed(graded):
    found = graded({"pkg/adding.py": ADD_BUG["pkg/adding.py"] + "# all is well\n"})
    assert found.resolved is False
    assert set(found.fail_to_pass) == BOTH
    assert set(found.fail_to_pass.values()) == {"failed"}


@pytest.mark.parametrize(
    "text", ["def add(a, b:\n", "import nowhere\n", "import os\n\nos._exit(0)\n"], ids=["syntax", "import", "exit"]
)
def test_tests_that_no_longer_run_are_not_passed(graded, text):
    """With a syntax error pytest collects nothing of a file, and so nothing of it fails."""
    found = graded({"pkg/adding.py": text})
    assert found.resolved is False
    assert set(found.fail_to_pass.values()) == {"missing"}
    assert found.pass_to_pass[f"{TESTS}::test_add_nothing"] == "missing"


def test_a_repair_that_breaks_another_test_does_not_resolve(graded, texts):
    found = graded({"pkg/adding.py": texts["pkg/adding.py"].replace("return add(a, a)", "return 4")})
    assert found.resolved is False
    assert set(found.fail_to_pass.values()) == {"passed"}
    assert found.reason == Reason(ReasonCode.TESTS_FAIL, f"1 of 7: {TESTS}::test_double_nothing")


@pytest.mark.parametrize(
    "changes",
    [
        {TESTS: "def test_add():\n    pass\n\n\ndef test_double():\n    pass\n"},
        {TESTS: None},
        {
            "conftest.py": "def pytest_collection_modifyitems(items):\n    for i in items:\n        i.obj = lambda: None\n"
        },
        {"pytest.ini": "[pytest]\naddopts = --collect-only\n"},
        {"sitecustomize.py": "import os\nos._exit(0)\n"},
        {"tests/conftest.py": "import pytest\npytest.fail = None\n"},
    ],
    ids=lambda changes: ",".join(changes),
)
def test_tests_and_what_steers_them_are_restored(graded, changes):
    assert all(is_test_surface(p) for p in changes)
    found = graded(changes)
    assert found.resolved is False
    assert found.flags == (Flag(FlagCode.TESTS_RESTORED, tuple(changes)),)
    assert set(found.fail_to_pass.values()) == {"failed"}
    assert set(found.pass_to_pass.values()) == {"passed"}


def test_a_repair_counts_though_it_touches_tests(graded, texts):
    found = graded({"pkg/adding.py": texts["pkg/adding.py"], TESTS: None, "conftest.py": "import nowhere\n"})
    assert found.resolved is True, found.reason
    assert found.flags == (Flag(FlagCode.TESTS_RESTORED, ("conftest.py", TESTS)),)


def test_a_patch_that_touches_tests_can_be_refused(graded, texts):
    found = graded({"pkg/adding.py": texts["pkg/adding.py"], TESTS: None}, refuse_tests=True)
    assert found.resolved is False
    assert found.reason == Reason(ReasonCode.REFUSED, TESTS)


def test_inputs_are_drawn_anew_after_a_few_grades(bench, monkeypatch):
    """A grade of another bench on the same artifact counts as well."""
    drawn = []

    class Tests:
        def __init__(self, *given):
            drawn.append(self)

        def result(self, bench, state):
            return self

    monkeypatch.setattr(grade_module, "BlindTests", Tests)
    monkeypatch.setattr(bench.workbench, "memo", {})
    artifact = bench.artifact(ADD_BUG, {})

    def asked():
        tests = RecordedTests(artifact, [TESTS], frozenset(BOTH), frozenset())
        scoped = bench.workbench.scoped()
        grading = grade_module._Grading(scoped, tests, 0.5, full=False, trusted=False, baseline=None)
        return grading._blind(bench.workbench.original)

    found = [asked() for _ in range(17)]
    assert [len({id(x) for x in part}) for part in (found[:8], found[8:16], found)] == [1, 1, 3]
    assert len(drawn) == 3


def test_a_sandbox_that_breaks_is_tried_once_more_and_then_no_grade(graded, texts, monkeypatch):
    def breaking(times):
        left, script = [None] * times, Workbench.script

        def run(*given, **named):
            if left:
                left.pop()
                raise SandboxError("the engine is gone")
            return script(*given, **named)

        monkeypatch.setattr(Workbench, "script", run)

    repaired = {"pkg/adding.py": texts["pkg/adding.py"]}
    breaking(1)
    assert graded(repaired).resolved is True
    breaking(2)
    found = graded(repaired)
    assert found.resolved is None
    assert found.reason == Reason(ReasonCode.SANDBOX_FAILED, "the engine is gone")


def test_a_patch_that_does_not_apply_is_a_grade_and_changes_nothing(graded, bench, texts):
    """Made from the original instead of the weakened state; a part of it would fit."""
    other = {"pkg/adding.py": texts["pkg/adding.py"].replace("a + b", "b + a"), "pkg/unused.py": "X = 2\n"}
    found = graded(bench.patch(other))
    assert found.resolved is False
    assert found.reason.code is ReasonCode.PATCH_DOES_NOT_APPLY
    assert found.reason.detail.startswith("hunk 1 of pkg/adding.py does not apply: line 2 is")
    assert (found.fail_to_pass, found.pass_to_pass) == ({}, {})


NEW = b"new file mode 100644\n--- /dev/null\n+++ b/%b\n@@ -0,0 +1 @@\n+X = 1\n"


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("tests", "tests cannot be written: it is a folder"),
        ("pkg", "pkg/adding.py cannot be written: pkg is a file or a symlink, not a folder"),
        ("pkg/__pycache__", "pkg/__pycache__ cannot be written: it is a folder"),
        ("pkg/adding.py/x.py", "pkg/adding.py/x.py cannot be written: pkg/adding.py is a file or a symlink"),
        ("pkg/" + "a" * 256, "a... cannot be written: the name is too long for a file system"),
        ("pkg/" + "\u00e9" * 128, "... cannot be written: the name is too long for a file system"),
        ("/".join(["a" * 200] * 25) + ".py", "a... cannot be written: the name is too long for a file system"),
        ("/".join(["a"] * 1400) + ".py", "... cannot be written: it is over 500 folders deep"),
    ],
    ids=["folder", "package", "compiled", "below", "name", "letters", "path", "deep"],
)
def test_a_file_that_cannot_be_made_is_the_patchs_fault(graded, bench, texts, path, why):
    """Its name or its place allows no file; the sandbox is not to blame, and nobody crashes."""
    repair = bench.patch({"pkg/adding.py": ADD_BUG["pkg/adding.py"]}).reverse()
    name = path.encode()
    found = graded(Patch.parse(repair.data + b"diff --git a/%b b/%b\n" % (name, name) + NEW % name))
    assert found.resolved is False, found.reason
    assert found.reason.code is ReasonCode.PATCH_DOES_NOT_APPLY
    assert why in found.reason.detail


@pytest.mark.parametrize("path", ["b" * 255 + "/" + "a" * 252 + ".py", "/".join(["a"] * 499) + "/x.py"])
def test_a_name_that_is_just_short_enough_is_no_fault(graded, bench, path):
    repair = bench.patch({"pkg/adding.py": ADD_BUG["pkg/adding.py"]}).reverse()
    name = path.encode()
    found = graded(Patch.parse(repair.data + b"diff --git a/%b b/%b\n" % (name, name) + NEW % name))
    assert found.resolved is True, found.reason


def test_a_file_may_stand_where_the_patch_takes_a_folder_away(graded, bench, texts):
    """What the test surface gets back afterwards must not lie below it."""
    tests = [p for p in texts if p.startswith("tests/")]
    repaired = {"pkg/adding.py": texts["pkg/adding.py"], "tests": "X = 1\n", **dict.fromkeys(tests)}
    found = graded(repaired)
    assert found.resolved is False
    assert found.reason == Reason(ReasonCode.PATCH_DOES_NOT_APPLY, "tests cannot be written: it is a folder")


def test_a_file_in_the_place_of_the_interpreter_is_the_patchs_fault(graded, bench, texts, monkeypatch):
    monkeypatch.setattr(bench.workbench, "interpreter", bench.workbench.interpreter)
    place = bench.workbench.snapshot.origin / ".venv" / "lib"
    shown = (*bench.workbench.interpreter.readable, place)
    bench.workbench.interpreter = replace(bench.workbench.interpreter, readable=shown)
    found = graded({"pkg/adding.py": texts["pkg/adding.py"], ".venv": "X = 1\n"})
    assert found.resolved is False
    why = ".venv cannot be written: the interpreter's folder is there"
    assert found.reason == Reason(ReasonCode.PATCH_DOES_NOT_APPLY, why)


def test_an_artifact_without_recorded_failures_grades_nothing(graded, texts):
    with pytest.raises(ArtifactError, match=r"^the artifact records no FAIL_TO_PASS test; validate it first$"):
        graded({"pkg/adding.py": texts["pkg/adding.py"]}, fail_to_pass=())
