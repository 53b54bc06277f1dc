"""Artifacts that pass every earlier check and fail exactly one, with its reason."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pytest_ssr.checks import bug_scope, bug_validity
from pytest_ssr.checks.context import ValidationContext
from pytest_ssr.checks.validator import Validation
from pytest_ssr.patch import Patch
from pytest_ssr.records.check_reasons import CheckCode
from pytest_ssr.records.test_run import SetAside
from pytest_ssr.records.verdict import CHECK_NAMES

pytestmark = pytest.mark.long

ADD_BUG = {"pkg/adding.py": "def add(a, b):\n    return a - b\n\n\ndef double(a):\n    return add(a, a)\n"}
GONE = ("test_add", "test_double")
ADD_TESTS = "tests/test_add.py"


@pytest.fixture
def weak(texts, without):
    """The weakening that hides ADD_BUG."""
    text = texts[ADD_TESTS]
    for name in GONE:
        text = without(text, name)
    return {ADD_TESTS: text}


def rejected(builder, artifact, name, code, **details):
    """Validate, and return the verdict if exactly this step failed, with this reason, and none before."""
    verdict = builder.judge(artifact)
    assert not verdict.valid
    assert verdict.rejection is not None, verdict.fault
    assert verdict.rejection.name == name, verdict.rejection
    reason = verdict.rejection.reason
    assert reason.code is code, reason
    assert {n: reason.details.get(n) for n in details} == details
    later = verdict.results[verdict.results.index(verdict.rejection) + 1 :]
    assert all(r.passed is None and r.reason.code is CheckCode.NOT_RUN for r in later)
    return verdict


@pytest.mark.parametrize(
    ("files", "code", "details"),
    [
        ((), CheckCode.NO_FILE_LISTED, {}),
        (("tests/test_add.py", "tests/test_no.py"), CheckCode.FILE_MISSING, {"files": ("tests/test_no.py",)}),
        (("tests/test_texts.py",), CheckCode.FILE_NOT_LISTED, {"files": ("tests/test_add.py",)}),
        (("tests/test_add.py", "pkg/texts.py"), CheckCode.NO_TEST_IN_FILE, {"file": "pkg/texts.py"}),
    ],
)
def test_test_files(builder, weak, files, code, details):
    script = "python -m pytest -q tests\n"
    rejected(builder, builder.artifact(ADD_BUG, weak, files=files, script=script), "test-files", code, **details)


REPORT = "python -m pytest -rA -p no:cacheprovider tests/test_add.py tests/test_texts.py\n"
PARSER = """\
import json, sys
found = {}
for line in sys.stdin:
    for word, status in (("PASSED ", "passed"), ("FAILED ", "failed"), ("ERROR ", "failed")):
        if line.startswith(word):
            found[line[len(word):].split(" - ")[0].strip()] = status
print(json.dumps(found))
"""


@pytest.mark.parametrize(
    ("change", "code", "details"),
    [
        (("'passed'", "'PASSED'"), CheckCode.UNKNOWN_STATUS, {"status": "'PASSED'"}),
        (("json.dumps(found)", "'all good'"), CheckCode.OUTPUT_NOT_JSON, {}),
        (("json.dumps(found)", "json.dumps(list(found))"), CheckCode.OUTPUT_NOT_OBJECT, {"type": "list"}),
        (("json.dumps(found)", "'{}'"), CheckCode.NO_TEST_PARSED, {"state": "original"}),
        (
            ("found = {}", "found = {'tests/test_add.py::test_none': 'passed'}"),
            CheckCode.TEST_INVENTED,
            {"test": "tests/test_add.py::test_none"},
        ),
        (
            ("found = {}", "import os\nfound = {}\nprint(' ' * (os.getpid() % 7 + os.urandom(1)[0]))"),
            CheckCode.PARSER_NOT_STABLE,
            {},
        ),
        (("print(", "sys.exit(3)\nprint("), CheckCode.PARSER_FAILED, {"status": "3"}),
        (
            ("found = {}", "found = {f'tests/test_add.py::test_{n}': 'passed' for n in ('add', 'add_nothing')}"),
            CheckCode.TEST_INVENTED_FROM_HALF,
            {},
        ),
    ],
)
def test_test_parser(builder, weak, change, code, details):
    parser = PARSER.replace('"', "'").replace(*change)
    assert change[1] in parser
    # The results stand at the end, so that half of the output holds none of them.
    script = REPORT.replace("-rA", "-q -rA")
    rejected(builder, builder.artifact(ADD_BUG, weak, script=script, parser=parser), "test-parser", code, **details)


def test_test_script_ids_that_pytest_does_not_know(builder, weak):
    script = REPORT + "echo 'PASSED tests/test_add.py::test_more'\n"
    artifact = builder.artifact(ADD_BUG, weak, script=script, parser=PARSER)
    rejected(builder, artifact, "test-script", CheckCode.TEST_NOT_COLLECTED, tests=(f"{ADD_TESTS}::test_more",))


def test_test_script_that_takes_too_long(open_builder, weak):
    builder = open_builder(script_limit_s=0.01)
    rejected(builder, builder.artifact(ADD_BUG, weak), "test-script", CheckCode.SCRIPT_TOO_SLOW, most=0.01)


def test_test_script_with_status_0_while_a_test_fails(open_builder, weak):
    builder = open_builder(
        {"tests/test_texts.py": "def test_never():\n    assert False\n\n\ndef test_fine():\n    pass\n"}
    )
    artifact = builder.artifact(ADD_BUG, weak, script=REPORT + "exit 0\n", parser=PARSER)
    rejected(
        builder, artifact, "test-script", CheckCode.EXIT_STATUS_CONTRADICTS, test="tests/test_texts.py::test_never"
    )


def test_test_script_with_too_few_tests(open_builder, weak):
    builder = open_builder({"tests/test_texts.py": "def test_never():\n    assert False\n"}, min_passing_tests=5)
    verdict = rejected(
        builder,
        builder.artifact(ADD_BUG, weak, script=REPORT, parser=PARSER),
        "test-script",
        CheckCode.TOO_FEW_PASS,
        count=4,
        required=5,
        excluded=1,
    )
    assert verdict.set_aside == {"tests/test_texts.py::test_never": SetAside.FAILED}


@pytest.mark.parametrize(
    ("bug", "code", "details"),
    [
        ({**ADD_BUG, "conftest.py": "X = 1\n"}, CheckCode.TEST_SURFACE_CHANGED, {"file": "conftest.py"}),
        ({**ADD_BUG, "tests/test_texts.py": "\n"}, CheckCode.TEST_SURFACE_CHANGED, {"file": "tests/test_texts.py"}),
        ({**ADD_BUG, "pytest.ini": "[pytest]\naddopts = -x\n"}, CheckCode.TEST_SURFACE_CHANGED, {"file": "pytest.ini"}),
        ({**ADD_BUG, "sitecustomize.py": "X = 1\n"}, CheckCode.TEST_SURFACE_CHANGED, {"file": "sitecustomize.py"}),
        ({**ADD_BUG, "notes.txt": "other\n"}, CheckCode.NOT_CODE, {"file": "notes.txt"}),
        ({}, CheckCode.TOO_FEW_FILES, {"count": 0, "required": 1}),
    ],
)
def test_bug_scope(builder, weak, bug, code, details):
    rejected(builder, builder.artifact(bug, weak), "bug-scope", code, **details)


def test_bug_scope_a_diff_that_does_not_apply(builder, open_builder, weak):
    other = open_builder({"pkg/adding.py": "def add(x, y):\n    return x + y\n"})
    patch = other.patch({"pkg/adding.py": "def add(x, y):\n    return x - y\n"})
    verdict = rejected(builder, builder.artifact(patch, weak), "bug-scope", CheckCode.DOES_NOT_APPLY)
    assert verdict.reason.details["error"].startswith("hunk 1 of pkg/adding.py")


UNPARSABLE = CheckCode.NOT_PARSABLE
PYTHON_2 = "def total(xs):\n    print 'adding'\n    return sum(xs)\n"
PYTHON_3_12 = "type Pair = tuple[int, int]\n\n\ndef first[T](xs: list[T]) -> T:\n    return xs[0]\n"
MATCH = (
    "def kind(x):\n    match x:\n        case [a, *_]:\n            return a\n        case _:\n            return 0\n"
)
UNREADABLE = "def total(xs:\n    return ??\n"


@pytest.mark.parametrize(
    ("before", "after", "code"),
    [
        ("def total(xs):\n    return sum(xs)\n", "def total(xs):\n    return sum(xs\n", UNPARSABLE),
        (None, "def total(xs:\n", UNPARSABLE),
        (MATCH, MATCH.replace("case [a, *_]", "case [a, *_"), UNPARSABLE),
        (MATCH, MATCH.replace("return 0", "return 1"), CheckCode.CODE_CHANGED),
        (PYTHON_2, PYTHON_2.replace("sum(xs)", "sum(xs"), UNPARSABLE),
        (PYTHON_2, PYTHON_2.replace("sum(xs)", "sum(xs[1:])"), CheckCode.CODE_CHANGED),
        (PYTHON_3_12, PYTHON_3_12.replace("xs[0]", "xs[0"), UNPARSABLE),
        (PYTHON_3_12, PYTHON_3_12.replace("xs[0]", "xs[1]"), CheckCode.CODE_CHANGED),
        (UNREADABLE, UNREADABLE.replace("??", "!!"), CheckCode.CODE_CHANGED),
    ],
)
def test_bug_scope_syntax_errors_that_the_bug_brings(open_builder, weak, before, after, code):
    builder = open_builder({"pkg/more.py": before} if before else {})
    artifact = builder.artifact({"pkg/more.py": after}, weak)
    assert bug_scope.check(ValidationContext(artifact, builder.runner)).reason.code is code


@pytest.mark.parametrize(
    ("before", "after", "details"),
    [
        ("def f(a):  # ssr: skip\n    return a\n", "def f(a):  # ssr: skip\n    return 1\n", {"line": 1}),
        ("def f(a):  # ssr: skip\n    return a\n", "def f(a):\n    return a\n", {"line": 1}),
        ("A = 1\nB = 2  # ssr: skip\n", "A = 1\nB = 3\n", {"line": 2}),
        ("A = 1\nB = 2  # ssr: skip\n", None, {"line": 2}),
        ("A = 1\nB = 2  # ssr: skip\n", "A = 2\nB = 2  # ssr: skip\n", None),
    ],
)
def test_bug_scope_code_that_a_comment_excludes(open_builder, weak, before, after, details):
    builder = open_builder({"pkg/more.py": before})
    finding = bug_scope.check(ValidationContext(builder.artifact({"pkg/more.py": after}, weak), builder.runner))
    assert finding.passed is (details is None)
    if details is not None:
        assert finding.reason.code is CheckCode.EXCLUDED_CHANGED
        assert finding.reason.details == {"file": "pkg/more.py", **details}


def test_bug_scope_too_few_files(open_builder, weak):
    builder = open_builder(min_changed_files=2)
    rejected(builder, builder.artifact(ADD_BUG, weak), "bug-scope", CheckCode.TOO_FEW_FILES, count=1, required=2)


def test_bug_validity_a_comment_is_not_a_bug(builder, texts, weak):
    bug = {"pkg/adding.py": texts["pkg/adding.py"] + "# nothing\n"}
    rejected(builder, builder.artifact(bug, weak), "bug-validity", CheckCode.TOO_FEW_BREAK, count=0, required=1)


def test_bug_validity_most_of_the_suite_broken(builder, weak):
    bug = {"pkg/__init__.py": "import nowhere\n"}
    rejected(builder, builder.artifact(bug, weak), "bug-validity", CheckCode.TOO_MANY_BREAK, share=1.0, most=0.5)


def test_bug_validity_a_failure_that_only_the_script_sees(builder, texts, weak):
    bug = {"pkg/unused.py": "X = 2\n"}
    script = REPORT.replace("-rA", "-rA -v") + (
        "if grep -q 2 pkg/unused.py; then echo 'FAILED tests/test_add.py::test_add'; exit 1; fi\n"
    )
    artifact = builder.artifact(bug, weak, script=script, parser=PARSER)
    rejected(
        builder, artifact, "bug-validity", CheckCode.RUNS_DISAGREE, state="buggy", tests=(f"{ADD_TESTS}::test_add",)
    )


def test_bug_validity_a_bug_that_never_ends(open_builder, weak):
    builder = open_builder(time_limit_s=3.0)
    bug = {
        "pkg/adding.py": "def add(a, b):\n    while a == 1:\n        pass\n    return a + b\n\n\ndef double(a):\n    return a + a\n"
    }
    rejected(builder, builder.artifact(bug, weak), "bug-validity", CheckCode.SCRIPT_LIMIT, limit="wall time", seconds=3)


@pytest.mark.parametrize(
    ("weakening", "code"),
    [
        ({}, CheckCode.WEAKENING_EMPTY),
        ({"tests/test_texts.py": "def test_other():\n    pass\n"}, CheckCode.NOTHING_HIDDEN),
        ({ADD_TESTS: "import nowhere\n", "tests/test_texts.py": "import nowhere\n"}, CheckCode.NO_TEST_PASSES),
    ],
)
def test_test_weakening(builder, weakening, code):
    rejected(builder, builder.artifact(ADD_BUG, weakening), "test-weakening", code)


def test_test_weakening_that_hides_one_failure_and_leaves_another(builder, texts, without):
    weak = {ADD_TESTS: without(texts[ADD_TESTS], "test_add")}
    rejected(
        builder,
        builder.artifact(ADD_BUG, weak),
        "test-weakening",
        CheckCode.WEAKENED_FAILS,
        tests=(f"{ADD_TESTS}::test_double",),
    )


@pytest.mark.parametrize(("share", "valid"), [(1.0, True), (0.3, True), (0.1, False)])
def test_test_weakening_may_leave_a_share_of_failures(open_builder, texts, without, share, valid):
    """By default none (above); in the paper all but one of the failures."""
    builder = open_builder(max_weakened_failing=share)
    weak = {ADD_TESTS: without(texts[ADD_TESTS], "test_add")}
    verdict = builder.judge(builder.artifact(ADD_BUG, weak))
    assert verdict.valid is valid, verdict.rejection
    if not valid:
        assert verdict.reason.code is CheckCode.WEAKENED_FAILS


def test_test_weakening_that_pytest_does_not_confirm(builder, texts):
    weak = {ADD_TESTS: texts[ADD_TESTS] + "# weaker\n"}
    script = REPORT.replace("python", "out=$(python").rstrip() + (
        '); code=$?\nif grep -q weaker tests/test_add.py; then echo "$out" | sed "s/^FAILED/PASSED/"; exit 0; fi\n'
        'echo "$out"; exit $code\n'
    )
    artifact = builder.artifact(ADD_BUG, weak, script=script, parser=PARSER)
    rejected(builder, artifact, "test-weakening", CheckCode.RUNS_DISAGREE, state="weakened")


def test_inverse_mutation_a_file_that_does_not_matter(builder, weak):
    bug = {**ADD_BUG, "pkg/unused.py": "X = 2\n"}
    verdict = rejected(
        builder,
        builder.artifact(bug, weak),
        "inverse-mutation",
        CheckCode.NOTHING_REVIVED,
        part="pkg/unused.py",
    )
    assert verdict.files_control["pkg/unused.py"] == ()


def test_inverse_mutation_an_added_file_without_effect(builder, weak):
    bug = {**ADD_BUG, "pkg/extra.py": "X = 2\n"}
    rejected(builder, builder.artifact(bug, weak), "inverse-mutation", CheckCode.NOTHING_REVIVED, part="pkg/extra.py")


@pytest.mark.long
def test_inverse_mutation_by_hunk(open_builder, texts, weak):
    pad = "".join(f"# {n}\n" for n in range(12))
    original = texts["pkg/adding.py"] + pad + "Y = 1\n"
    bug = {"pkg/adding.py": original.replace("a + b", "a - b").replace("Y = 1", "Y = 2")}
    by_file, by_hunk = (open_builder({"pkg/adding.py": original}, per_hunk=p) for p in (False, True))
    assert by_file.judge(by_file.artifact(bug, weak)).valid
    rejected(
        by_hunk, by_hunk.artifact(bug, weak), "inverse-mutation", CheckCode.NOTHING_REVIVED, part="pkg/adding.py hunk 2"
    )


# The hash of "a" under the first hash seed.
HASHED = 4644417185603328019


def test_original_repeats_a_test_keyed_on_the_source(open_builder, texts, without):
    keyed = (
        "\n\ndef test_source():\n    import hashlib\n    import pkg.adding\n\n"
        "    text = open(pkg.adding.__file__, 'rb').read()\n    assert len(text) == "
        + f"{len(texts['pkg/adding.py'])}\n"
    )
    builder = open_builder({ADD_TESTS: texts[ADD_TESTS] + keyed})
    bug = {"pkg/adding.py": ADD_BUG["pkg/adding.py"].replace("a - b", "a -  b")}
    weak = texts[ADD_TESTS]
    for name in GONE:
        weak = without(weak, name)
    artifact = builder.artifact(bug, {ADD_TESTS: weak})
    rejected(builder, artifact, "original-repeats", CheckCode.OUTCOMES_DIFFER, run="original with a comment added")


@pytest.mark.parametrize(
    ("condition", "run"),
    [
        (f"hash('a') == {HASHED}", "buggy"),
        ("open(__file__).read().count('a comment') == 1", "buggy with a comment added"),
    ],
)
def test_buggy_repeats_a_bug_that_comes_and_goes(builder, weak, condition, run, monkeypatch):
    """The blind runs of bug-validity, disabled here, would detect some of these earlier."""
    monkeypatch.setattr(bug_validity, "_pretended", lambda case, failing: None)
    bug = {
        "pkg/adding.py": "import os\n\n\ndef add(a, b):\n"
        f"    return a - b if {condition} else a + b\n\n\ndef double(a):\n    return add(a, a)\n"
    }
    rejected(builder, builder.artifact(bug, weak), "buggy-repeats", CheckCode.OUTCOMES_DIFFER, run=run)


def controlled(builder, artifact):
    """Run the seven checks, and return the validation before its controls."""
    validation = Validation(artifact, builder.runner.scoped())
    for name in CHECK_NAMES:
        assert validation.result(name).passed
    return validation


# An artifact that passes the checks passes the controls, unless grading is broken: so these tests break it.
@pytest.mark.parametrize("control", ["empty-patch", "weakening-only"])
def test_a_control_fails_if_a_patch_without_a_repair_resolves(builder, weak, control):
    validation = controlled(builder, builder.artifact(ADD_BUG, weak))
    if control == "weakening-only":
        assert validation.result("reverse-patch").passed
    validation.case.fail_to_pass = frozenset(["tests/test_add.py::test_add_nothing"])
    validation.case.stable = validation.case.fail_to_pass
    # A run of the buggy state that passes, as a forged one would.
    for key, run in list(validation.case.runner.cache.scripts.items()):
        stable_statuses = {i: s for i, s in run.statuses.items() if i in validation.case.stable}
        validation.case.runner.cache.scripts[key] = replace(run, statuses=stable_statuses, exit_code=0)
    result = validation.result(control)
    assert result.passed is False
    assert result.reason.code is CheckCode.RESOLVED_WITHOUT_REPAIR


def test_the_reverse_control_fails_when_the_repair_does_not_resolve(builder, weak):
    validation = controlled(builder, builder.artifact(ADD_BUG, weak))
    validation.case.fail_to_pass = frozenset(["tests/test_texts.py::test_skipped"])
    assert validation.result("empty-patch").passed
    result = validation.result("reverse-patch")
    assert result.passed is False
    assert result.reason.code is CheckCode.NOT_RESOLVED
    assert result.reason.details["grade"] == "tests-fail"


def test_a_bug_that_copies_a_file_gets_a_verdict(builder, weak):
    copy = (
        b"diff --git a/pkg/texts.py b/pkg/texts2.py\nsimilarity index 100%\n"
        b"copy from pkg/texts.py\ncopy to pkg/texts2.py\n"
    )
    verdict = builder.judge(builder.artifact(Patch.parse(builder.patch(ADD_BUG).data + copy), weak))
    assert not verdict.valid
    assert verdict.rejection is not None


def test_test_weakening_that_cannot_be_imported(open_builder, texts):
    never = texts["tests/test_texts.py"] + "\n\ndef test_never():\n    assert False\n"
    builder = open_builder({"tests/test_texts.py": never})
    artifact = builder.artifact(ADD_BUG, {"tests/test_add.py": "import nowhere\n"})
    verdict = rejected(builder, artifact, "test-weakening", CheckCode.WEAKENED_NOT_COLLECTED)
    assert verdict.reason.details["cause"].startswith(ADD_TESTS)


def test_test_weakening_whose_script_hides_a_broken_import(builder):
    script = (
        "python -m pytest -rA -p no:cacheprovider --continue-on-collection-errors tests/test_add.py "
        "tests/test_texts.py > out.txt; cat out.txt; ! grep -q ^FAILED out.txt\n"
    )
    parser = PARSER.replace(', ("ERROR ", "failed")', "")
    artifact = builder.artifact(ADD_BUG, {"tests/test_add.py": "import nowhere\n"}, script=script, parser=parser)
    rejected(builder, artifact, "test-weakening", CheckCode.WEAKENED_NOT_COLLECTED)


def test_test_parser_with_a_huge_id(builder, weak):
    parser = PARSER.replace("found = {}", "found = {'x' * 2_000_000: 'passed'}")
    artifact = builder.artifact(ADD_BUG, weak, script=REPORT, parser=parser)
    verdict = rejected(builder, artifact, "test-parser", CheckCode.TOO_MANY_IDS, longest=2_000_000)
    assert len(verdict.reason.text) < 500


def test_test_parser_with_a_long_id(builder, weak):
    script = REPORT + "echo " + "y" * 50_000 + "\n"
    parser = PARSER.replace(
        "    for word", "    found.update({line.strip(): 'passed'} if line[0] == 'y' else {})\n    for word"
    )
    verdict = builder.judge(builder.artifact(ADD_BUG, weak, script=script, parser=parser))
    assert next(r for r in verdict.results if r.name == "test-parser").passed


def test_test_parser_with_very_many_ids_is_fast(builder, weak):
    script = REPORT + "for i in $(seq 30000); do echo t$i; done\n"
    parser = PARSER.replace("print(", "found.update({f'x::t{i}': 'passed' for i in range(1, 30001)})\nprint(")
    artifact = builder.artifact(ADD_BUG, weak, script=script, parser=parser)
    rejected(builder, artifact, "test-parser", CheckCode.TEST_INVENTED_FROM_HALF)
