"""Validation errors of earlier systems; each test is named for the required behaviour."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from pytest_ssr.campaign.factory import open_runner
from pytest_ssr.checks.context import suite_fault
from pytest_ssr.checks.validator import Validation
from pytest_ssr.execution import test_runners
from pytest_ssr.execution.script_template import default_script
from pytest_ssr.patch import Patch
from pytest_ssr.records.check_reasons import CheckCode, reason_from_json, reason_to_json
from pytest_ssr.records.test_run import RunStatus, SetAside, SuiteRun
from pytest_ssr.settings import RuleSettings
from pytest_ssr.storage.store import Store

pytestmark = pytest.mark.long

TESTS = "tests/test_add.py"
BROKEN = {f"{TESTS}::test_add", f"{TESTS}::test_double"}
ADD_BUG = {"pkg/adding.py": "def add(a, b):\n    return a - b\n\n\ndef double(a):\n    return add(a, a)\n"}
TWO_FILES = {
    "pkg/adding.py": "def add(a, b):\n    return a + b\n\n\ndef double(a):\n    return a\n",
    "pkg/texts.py": 'MARK = "?"\n\n\ndef shout(text):\n    return text.upper() + MARK\n\n\ndef quiet(text):\n'
    "    return text.lower()\n",
}
REPORT = "python -m pytest -rA -p no:cacheprovider tests/test_add.py tests/test_texts.py\n"
PARSER = """\
import json, sys
found, lines = {}, sys.stdin.read().splitlines()
for line in lines:
    for word, status in (("PASSED ", "passed"), ("FAILED ", "failed"), ("ERROR ", "failed")):
        if line.startswith(word):
            found[line[len(word):].split(" - ")[0].strip()] = status
print(json.dumps(found))
"""


@pytest.fixture
def weak(texts, without):
    """The weakening that hides ADD_BUG."""
    return {TESTS: without(without(texts[TESTS], "test_add"), "test_double")}


def rejected(builder, artifact, name):
    """Return the reason if this step is the first that fails."""
    verdict = builder.judge(artifact)
    assert verdict.rejection is not None
    assert verdict.rejection.name == name, verdict.rejection
    return verdict.rejection.reason


PRINT_STATE = (
    "state=\ngrep -q 'return a$' pkg/adding.py && state=$state.adding\ngrep -q '\"?\"' pkg/texts.py && state=$state.texts\n"
    "grep -q 'def test_double()' tests/test_add.py || state=$state.weak\necho \"in$state\"\n"
)
ONE_STATE = {
    "in.adding.texts": ("bug-validity", {"state": "buggy"}),
    "in.adding.texts.weak": ("test-weakening", {"state": "weakened"}),
    "in.texts": ("inverse-mutation", {"part": "pkg/adding.py"}),
    "in.adding": ("inverse-mutation", {"part": "pkg/texts.py"}),
}


@pytest.mark.parametrize(
    ("state", "answer", "code"),
    [(state, "print('no JSON')", CheckCode.OUTPUT_NOT_JSON) for state in ONE_STATE]
    + [("in.adding.texts", "print(json.dumps(dict.fromkeys(found, 'FAILED')))", CheckCode.UNKNOWN_STATUS)],
)
def test_a_parser_that_fails_on_one_state_rejects_there(builder, texts, without, state, answer, code):
    weakened = {TESTS: texts[TESTS], "tests/test_texts.py": texts["tests/test_texts.py"]}
    for path, names in ((TESTS, ["test_double"]), ("tests/test_texts.py", ["test_shout", "test_both"])):
        for name in names:
            weakened[path] = without(weakened[path], name)
    parser = PARSER.replace("print(", f"if {state!r} in lines:\n    {answer}\n    raise SystemExit\nprint(")
    name, details = ONE_STATE[state]
    reason = rejected(builder, builder.artifact(TWO_FILES, weakened, script=PRINT_STATE + REPORT, parser=parser), name)
    assert reason.code is (CheckCode.REVERT_PROVES_NOTHING if name == "inverse-mutation" else code)
    assert details.items() <= reason.details.items()


@pytest.mark.long
def test_an_error_in_a_fixture_counts_as_failing(open_builder):
    tests = (
        "import pytest\nfrom pkg.adding import add\n\n\n@pytest.fixture\ndef three():\n    return add(1, 2)\n\n\n"
        "def test_with_it(three):\n    assert three\n\n\ndef test_plain():\n    pass\n"
    )
    builder = open_builder({TESTS: tests})
    bug = {"pkg/adding.py": "def add(a, b):\n    raise ValueError\n\n\ndef double(a):\n    return a + a\n"}
    verdict = builder.judge(builder.artifact(bug, {TESTS: tests.replace("def test_with_it", "def with_it")}))
    assert verdict.valid, verdict.rejection
    assert verdict.fail_to_pass == (f"{TESTS}::test_with_it",)


@pytest.mark.long
def test_tests_that_failed_or_were_skipped_before_are_set_aside(open_builder, texts, weak):
    never = texts["tests/test_texts.py"] + "\n\ndef test_never():\n    assert False\n"
    builder = open_builder({"tests/test_texts.py": never})
    verdict = builder.judge(builder.artifact(ADD_BUG, weak))
    assert verdict.valid, verdict.rejection
    assert set(verdict.fail_to_pass) == BROKEN
    assert verdict.set_aside == {"tests/test_texts.py::test_never": SetAside.FAILED}
    assert not {"test_never", "test_skipped"} & {i.rpartition("::")[2] for i in verdict.pass_to_pass}
    comment = builder.artifact({"pkg/adding.py": texts["pkg/adding.py"] + "# nothing\n"}, weak)
    assert rejected(builder, comment, "bug-validity").code is CheckCode.TOO_FEW_BREAK


def test_a_test_file_that_is_not_listed_may_not_be_in_the_bug(builder, weak):
    artifact = builder.artifact({**ADD_BUG, "tests/test_texts.py": "\n"}, weak, files=(TESTS,))
    reason = rejected(builder, artifact, "bug-scope")
    assert (reason.code, reason.details) == (CheckCode.TEST_SURFACE_CHANGED, {"file": "tests/test_texts.py"})


def test_a_deleted_test_file_counts_as_weakened(builder):
    script = "python -m pytest -rA -p no:cacheprovider $(ls tests/test_*.py)\n"
    verdict = builder.judge(builder.artifact(ADD_BUG, {TESTS: None}, script=script, parser=PARSER))
    assert verdict.valid, verdict.rejection
    assert verdict.checks[5].reason.details == {"hidden": 2, "removed": 2, "passing": 3}


def test_paths_reach_no_shell_unquoted(open_builder, texts, weak):
    path = "tests/it's a test $(touch pwned);`touch pwned`.py"
    files = (path, "tests/test_texts.py")
    script = default_script(files, options=()).decode() + "code=$?\nls\nexit $code\n"
    builder = open_builder({path: texts[TESTS]})
    validation = Validation(builder.artifact(ADD_BUG, {path: weak[TESTS]}, files=files, script=script), builder.runner)
    assert validation.result("test-weakening").passed, validation.verdict().rejection
    assert validation.case.fail_to_pass == {f"{path}::test_add", f"{path}::test_double"}
    printed = validation.case.script(validation.case.buggy, "buggy").output.decode().splitlines()
    assert "pkg" in printed
    assert "pwned" not in printed


def test_a_file_with_a_redundant_effect_fails_the_inverse_mutation(open_builder):
    tests = "from pkg.top import plus\n\n\ndef test_plus():\n    assert plus(1, 2) == 3\n\n\ndef test_is():\n    assert plus\n"
    top = "from pkg.adding import double\n\n\ndef plus(a, b):\n    return double(a) - a + b\n"
    builder = open_builder({"pkg/top.py": top, TESTS: tests})
    bug = {"pkg/top.py": top.replace("+ b", "+ b + 1"), "pkg/adding.py": "def double(a):\n    return a + a + 5\n"}
    artifact = builder.artifact(bug, {TESTS: tests.replace("def test_plus", "def plus_")}, files=(TESTS,))
    reason = rejected(builder, artifact, "inverse-mutation")
    assert (reason.code, reason.details) == (CheckCode.NOTHING_REVIVED, {"part": "pkg/adding.py"})


def test_each_state_starts_clean_whatever_an_earlier_run_left(open_builder, weak):
    """The script runs nothing if it finds traces of itself or of a test."""
    leaves = "from pathlib import Path\n\n\ndef test_leaves():\n    Path('left-by-test').touch()\n"
    builder = open_builder({"tests/test_leaves.py": leaves})
    files = (TESTS, "tests/test_texts.py", "tests/test_leaves.py")
    traces = "left-by-test left-by-script $TMPDIR/left-by-script $HOME/left-by-script"
    script = f"ls {traces} 2>/dev/null && exit 7\n{REPORT.strip()} tests/test_leaves.py\ncode=$?\n"
    script += f"ls left-by-test && touch {traces}\nexit $code\n"
    artifact = builder.artifact(ADD_BUG, weak, files=files, script=script, parser=PARSER)
    verdict = builder.judge(artifact)
    assert verdict.valid, verdict.rejection
    assert set(verdict.fail_to_pass) == BROKEN
    run, is_new = builder.runner.scoped().script(artifact_state(builder, artifact), artifact)
    assert is_new
    assert b"left-by-test" in run.output
    assert run.exit_code == 0


def artifact_state(builder, artifact):
    """Return the weakened state of an artifact."""
    return builder.runner.original.apply(artifact.bug).apply(artifact.weaken)


def test_neither_the_artifact_nor_the_history_is_visible_to_the_tests(open_builder, weak, tmp_path):
    first = open_builder()
    origin = Path(first.runner.snapshot.origin)
    for command in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "history"]):
        subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b.c", *command], cwd=origin, check=True)
    assert (origin / ".git/refs").is_dir()
    builder = type(first)(open_runner(origin, Store(tmp_path), settings=RuleSettings(), sandbox="process"))
    artifact = builder.artifact(ADD_BUG, weak, script="ls -aR . $HOME $TMPDIR\n", parser="print('{}')\n")
    run, _ = builder.runner.script(artifact_state(builder, artifact), artifact)
    names = set(run.output.decode().split())
    assert {"test_add.py", "adding.py"} <= names
    assert not names & {
        ".git",
        "bug_inject.diff",
        "test_weaken.diff",
        "test_files.txt",
        "test_parser.py",
        "artifact.json",
    }


def test_later_changes_of_the_project_do_not_affect_a_validation(open_builder, weak):
    builder = open_builder()
    (Path(builder.runner.snapshot.origin) / "pkg/adding.py").write_text("a syntax error\n")
    (Path(builder.runner.snapshot.origin) / TESTS).unlink()
    validation = Validation(builder.artifact(ADD_BUG, weak), builder.runner)
    assert validation.result("bug-validity").passed, validation.verdict().rejection
    assert validation.case.fail_to_pass == BROKEN


def test_a_diff_that_applies_only_in_part_is_not_applied(builder, texts, weak):
    bug = Patch.parse(builder.patch(TWO_FILES).data.replace(b'-MARK = "!"', b'-MARK = "."'))
    reason = rejected(builder, builder.artifact(bug, weak), "bug-scope")
    assert reason.code is CheckCode.DOES_NOT_APPLY
    assert reason.details["error"].startswith("hunk 1 of pkg/texts.py does not apply: line 1 is 'MARK = \"!\"'")


@pytest.mark.parametrize(("test_runner", "name"), [(test_runners.PYTEST, "pytest"), (test_runners.SYMPY, "sympy")])
def test_a_fault_names_the_runner_that_ran(test_runner: test_runners.TestRunner, name: str) -> None:
    reason = suite_fault(SuiteRun(RunStatus.TIMED_OUT, reason="no end"), test_runner)
    assert reason is not None
    assert (reason.code, reason.details.get("runner", "pytest")) == (CheckCode.SUITE_FAILED, name)
    assert reason.text.startswith(name)
    read = reason_from_json(reason_to_json(reason))
    assert read == reason
