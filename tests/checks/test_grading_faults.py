"""Grading errors of earlier systems; each test is named for the required behaviour."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pytest_ssr.errors import ArtifactError, SandboxError
from pytest_ssr.execution.runner import Runner
from pytest_ssr.grading import grade as grade_module
from pytest_ssr.grading import grade_patch
from pytest_ssr.grading.blind.reference import BlindReference
from pytest_ssr.grading.blind.suite import BlindSuite
from pytest_ssr.grading.evidence import RecordedTests
from pytest_ssr.patch import FileEntry, Patch
from pytest_ssr.project.file_roles import is_test_surface
from pytest_ssr.records.reasons import Flag, FlagCode, Reason, ReasonCode
from pytest_ssr.storage.store import Store
from pytest_ssr.storage.stored_records import StoredRecords

pytestmark = pytest.mark.long

TESTS = "tests/test_add.py"
ADD_BUG = {"pkg/adding.py": "def add(a, b):\n    return a - b\n\n\ndef double(a):\n    return add(a, a)\n"}
REPORT = "python -m pytest -rA -p no:cacheprovider tests/test_add.py tests/test_texts.py\n"
# Depending on a comment in the tree, the parser finds nothing, prints no JSON, or reports that everything passed.
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
def graded(builder, without):
    """Grade changed files, or a patch, against one valid artifact."""
    tests = builder.runner.snapshot.read(TESTS).decode()
    weak = without(without(tests, "test_add"), "test_double")
    script = f"grep '^# ' pkg/adding.py\n{REPORT}"
    artifact = builder.artifact(ADD_BUG, {TESTS: weak}, script=script, parser=PARSER)
    verdict = builder.judge(artifact)
    assert verdict.valid, verdict.rejection
    assert set(verdict.fail_to_pass) == BOTH
    start = builder.runner.original.apply(artifact.bug).apply(artifact.weaken)

    def grade(changes, **ids):
        if isinstance(changes, Patch):
            patch = changes
        else:
            entries = {p: None if t is None else FileEntry(t.encode(), 0o100644) for p, t in changes.items()}
            patch = start.replace(entries).patch_from(start)
        wanted = {"fail_to_pass": verdict.fail_to_pass, "pass_to_pass": verdict.pass_to_pass, **ids}
        return grade_patch(builder.runner.scoped(), artifact, patch, **{"full": True, "like_s": 0.5, **wanted})

    return grade


def test_a_comment_is_not_a_repair(graded):
    grade = graded({"pkg/adding.py": ADD_BUG["pkg/adding.py"] + "# repaired\n"})
    assert grade.resolved is False
    assert grade.reason == Reason(ReasonCode.TESTS_FAIL, f"2 of 7: {TESTS}::test_add, {TESTS}::test_double")
    assert set(grade.fail_to_pass.values()) == {"failed"}
    assert set(grade.pass_to_pass.values()) == {"passed"}


def test_an_empty_patch_is_not_a_repair(graded):
    assert graded({}).resolved is False


def test_a_second_attempt_starts_clean(graded, texts):
    """The first attempt repairs the bug and adds a file; the second would not apply on top of it."""
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
    """`all` of no results is true, so each id must be present."""
    grade = graded({"pkg/adding.py": f"{texts['pkg/adding.py']}{comment}\n"})
    assert grade.resolved is False
    assert grade.reason.code is reason
    assert {*grade.fail_to_pass.values(), *grade.pass_to_pass.values()} == {status}


def test_a_parser_alone_is_not_trusted(graded):
    grade = graded({"pkg/adding.py": ADD_BUG["pkg/adding.py"] + "# all is well\n"})
    assert grade.resolved is False
    assert set(grade.fail_to_pass) == BOTH
    assert set(grade.fail_to_pass.values()) == {"failed"}


@pytest.mark.parametrize(
    "text", ["def add(a, b:\n", "import nowhere\n", "import os\n\nos._exit(0)\n"], ids=["syntax", "import", "exit"]
)
def test_tests_that_no_longer_run_are_not_passed(graded, text):
    """With a syntax error pytest collects no test of a file, so none of them fails."""
    grade = graded({"pkg/adding.py": text})
    assert grade.resolved is False
    assert set(grade.fail_to_pass.values()) == {"missing"}
    assert grade.pass_to_pass[f"{TESTS}::test_add_nothing"] == "missing"


def test_a_repair_that_breaks_another_test_does_not_resolve(graded, texts):
    grade = graded({"pkg/adding.py": texts["pkg/adding.py"].replace("return add(a, a)", "return 4")})
    assert grade.resolved is False
    assert set(grade.fail_to_pass.values()) == {"passed"}
    assert grade.reason == Reason(ReasonCode.TESTS_FAIL, f"1 of 7: {TESTS}::test_double_nothing")


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
def test_tests_and_their_configuration_are_restored(graded, changes):
    assert all(is_test_surface(p) for p in changes)
    grade = graded(changes)
    assert grade.resolved is False
    assert grade.flags == (Flag(FlagCode.TESTS_RESTORED, tuple(changes)),)
    assert set(grade.fail_to_pass.values()) == {"failed"}
    assert set(grade.pass_to_pass.values()) == {"passed"}


def test_a_repair_that_touches_tests_is_resolved(graded, texts):
    grade = graded({"pkg/adding.py": texts["pkg/adding.py"], TESTS: None, "conftest.py": "import nowhere\n"})
    assert grade.resolved is True, grade.reason
    assert grade.flags == (Flag(FlagCode.TESTS_RESTORED, ("conftest.py", TESTS)),)


def test_a_patch_that_touches_tests_can_be_refused(graded, texts):
    grade = graded({"pkg/adding.py": texts["pkg/adding.py"], TESTS: None}, refuse_tests=True)
    assert grade.resolved is False
    assert grade.reason == Reason(ReasonCode.REFUSED, TESTS)


def test_other_inputs_are_drawn_after_a_few_grades(builder, monkeypatch, tmp_path):
    """Grades by other runners with the same store count as well; the store may also be damaged."""
    drawn = []

    def measure(*args):
        drawn.append(BlindReference(BlindSuite((TESTS,), {}, str(len(drawn)), 0.5), {}, {}, ()))
        return drawn[-1]

    monkeypatch.setattr(grade_module, "measure_reference", measure)
    artifact, store = builder.artifact(ADD_BUG, {}), StoredRecords(Store(tmp_path / "store"), "blind")

    def reference():
        tests = RecordedTests(artifact, [TESTS], frozenset(BOTH), frozenset())
        scoped = replace(builder.runner.scoped(), reference_store=store)
        grading = grade_module._Grader(scoped, tests, 0.5, full=False, trusted=False, baseline=None)
        return grading._reference()

    references = [reference() for _ in range(17)]
    assert references == [drawn[0]] * 8 + [drawn[1]] * 8 + [drawn[2]]
    for path in (tmp_path / "store" / "blind").iterdir():
        path.write_text("{}")
    assert reference() == drawn[3]


def test_a_sandbox_failure_is_retried_once_and_then_gives_no_grade(graded, texts, monkeypatch):
    def breaking(times):
        failures, script = [None] * times, Runner.script

        def run(*args, **kwargs):
            if failures:
                failures.pop()
                raise SandboxError("the engine is gone")
            return script(*args, **kwargs)

        monkeypatch.setattr(Runner, "script", run)

    repaired = {"pkg/adding.py": texts["pkg/adding.py"]}
    breaking(1)
    assert graded(repaired).resolved is True
    breaking(2)
    grade = graded(repaired)
    assert grade.resolved is None
    assert grade.reason == Reason(ReasonCode.SANDBOX_FAILED, "the engine is gone")


def test_a_patch_that_does_not_apply_is_unresolved_and_changes_nothing(graded, builder, texts):
    """The patch is made from the original instead of the weakened state; a part of it would apply."""
    other = {"pkg/adding.py": texts["pkg/adding.py"].replace("a + b", "b + a"), "pkg/unused.py": "X = 2\n"}
    grade = graded(builder.patch(other))
    assert grade.resolved is False
    assert grade.reason.code is ReasonCode.PATCH_DOES_NOT_APPLY
    assert grade.reason.detail.startswith("hunk 1 of pkg/adding.py does not apply: line 2 is")
    assert (grade.fail_to_pass, grade.pass_to_pass) == ({}, {})


NEW = b"new file mode 100644\n--- /dev/null\n+++ b/%b\n@@ -0,0 +1 @@\n+X = 1\n"


@pytest.mark.parametrize(
    ("path", "reason"),
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
def test_a_file_that_cannot_be_written_is_a_fault_of_the_patch(graded, builder, texts, path, reason):
    """Its name or path is invalid: that is not a sandbox failure, and nothing crashes."""
    repair = builder.patch({"pkg/adding.py": ADD_BUG["pkg/adding.py"]}).reverse()
    name = path.encode()
    grade = graded(Patch.parse(repair.data + b"diff --git a/%b b/%b\n" % (name, name) + NEW % name))
    assert grade.resolved is False, grade.reason
    assert grade.reason.code is ReasonCode.PATCH_DOES_NOT_APPLY
    assert reason in grade.reason.detail


@pytest.mark.parametrize("path", ["b" * 255 + "/" + "a" * 252 + ".py", "/".join(["a"] * 499) + "/x.py"])
def test_a_name_that_is_just_short_enough_is_accepted(graded, builder, path):
    repair = builder.patch({"pkg/adding.py": ADD_BUG["pkg/adding.py"]}).reverse()
    name = path.encode()
    grade = graded(Patch.parse(repair.data + b"diff --git a/%b b/%b\n" % (name, name) + NEW % name))
    assert grade.resolved is True, grade.reason


def test_a_file_cannot_replace_a_test_folder(graded, builder, texts):
    """The test surface that is restored afterwards must not lie below it."""
    tests = [p for p in texts if p.startswith("tests/")]
    repaired = {"pkg/adding.py": texts["pkg/adding.py"], "tests": "X = 1\n", **dict.fromkeys(tests)}
    grade = graded(repaired)
    assert grade.resolved is False
    assert grade.reason == Reason(ReasonCode.PATCH_DOES_NOT_APPLY, "tests cannot be written: it is a folder")


def test_a_file_in_place_of_the_interpreter_is_a_fault_of_the_patch(graded, builder, texts, monkeypatch):
    monkeypatch.setattr(builder, "runner", builder.runner)
    path = builder.runner.snapshot.origin / ".venv" / "lib"
    shown = (*builder.runner.interpreter.readable, path)
    builder.runner = replace(builder.runner, interpreter=replace(builder.runner.interpreter, readable=shown))
    grade = graded({"pkg/adding.py": texts["pkg/adding.py"], ".venv": "X = 1\n"})
    assert grade.resolved is False
    reason = ".venv cannot be written: the interpreter's folder is there"
    assert grade.reason == Reason(ReasonCode.PATCH_DOES_NOT_APPLY, reason)


def test_an_artifact_without_recorded_failures_grades_nothing(graded, texts):
    with pytest.raises(ArtifactError, match=r"^the artifact records no FAIL_TO_PASS test; validate it first$"):
        graded({"pkg/adding.py": texts["pkg/adding.py"]}, fail_to_pass=())
