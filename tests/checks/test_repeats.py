"""The two repeats: bugs and tests that depend on randomness, the hash seed, the order, or a hash of the source."""

from __future__ import annotations

import hashlib

import pytest

from pytest_ssr.checks import bug_validity
from pytest_ssr.records.check_reasons import CheckCode
from pytest_ssr.records.test_run import SetAside
from pytest_ssr.records.verdict import CHECK_NAMES, CONTROL_NAMES

pytestmark = pytest.mark.long

TESTS = "tests/test_add.py"
ADD_BUG = {"pkg/adding.py": "def add(a, b):\n    return a - b\n\n\ndef double(a):\n    return add(a, a)\n"}


@pytest.fixture
def weak(texts, without):
    """The weakening that hides ADD_BUG."""
    return {TESTS: without(without(texts[TESTS], "test_add"), "test_double")}


def rejected_by(verdict, name):
    """Return the reason if all steps before this one passed and it did not."""
    steps = (*CHECK_NAMES, *CONTROL_NAMES, "original-repeats", "buggy-repeats")
    assert verdict.rejection is not None
    assert verdict.rejection.name == name, verdict.rejection
    assert [r.name for r in verdict.results if r.passed] == list(steps[: steps.index(name)])
    return verdict.rejection.reason


def sha(text):
    """Return the hash of a file's text."""
    return hashlib.sha256(text.encode()).hexdigest()


KEYED = """

def test_source():
    import hashlib
    import os
    import pkg.adding

    with open(pkg.adding.__file__, "rb") as file:
        known = hashlib.sha256(file.read()).hexdigest() in KNOWN
    STATEMENT
"""


@pytest.mark.parametrize(
    ("statement", "code"),
    [("assert known", CheckCode.OUTCOMES_DIFFER), ("known or os._exit(3)", CheckCode.REPEAT_FAILED)],
    ids=["fails", "ends the run"],
)
def test_original_repeats_a_test_that_knows_the_hash_of_the_source(open_builder, texts, without, statement, code):
    """The test knows the hashes of the original and the bug, so no earlier step notices it."""
    hashes = (sha(texts["pkg/adding.py"]), sha(ADD_BUG["pkg/adding.py"]))
    tests = texts[TESTS] + KEYED.replace("KNOWN", repr(hashes)).replace("STATEMENT", statement)
    builder = open_builder({TESTS: tests})
    verdict = builder.judge(builder.artifact(ADD_BUG, {TESTS: without(without(tests, "test_add"), "test_double")}))
    reason = rejected_by(verdict, "original-repeats")
    assert (reason.code, reason.details["run"]) == (code, "original with a comment added")
    assert f"{TESTS}::test_source" in reason.text


def test_buggy_repeats_a_bug_that_knows_the_hash_of_its_source(builder, weak):
    """One file of the bug behaves differently for the exact text of the other file."""
    other = "X = 2\n"
    bug = {
        "pkg/unused.py": other,
        "pkg/adding.py": "import hashlib\nimport pkg.unused\n\n\ndef add(a, b):\n"
        "    with open(pkg.unused.__file__, 'rb') as file:\n"
        f"        known = hashlib.sha256(file.read()).hexdigest() == '{sha(other)}'\n"
        "    return a - b if known else a + b\n\n\ndef double(a):\n    return add(a, a)\n",
    }
    verdict = builder.judge(builder.artifact(bug, weak))
    reason = rejected_by(verdict, "buggy-repeats")
    assert reason.code is CheckCode.OUTCOMES_DIFFER
    assert reason.details == {
        "run": "buggy with a comment added",
        "tests": (f"{TESTS}::test_add", f"{TESTS}::test_double"),
    }
    assert set(verdict.files_control) == {"pkg/adding.py", "pkg/unused.py"}


def test_buggy_repeats_a_bug_that_depends_on_the_order_of_tests(builder, texts, without, monkeypatch):
    """Only the first call is wrong; in another order a test that ignores it makes that call."""
    monkeypatch.setattr(bug_validity, "_pretended", lambda case, failing: None)
    bug = {
        "pkg/adding.py": "calls = []\n\n\ndef add(a, b):\n    calls.append(1)\n"
        "    return a - b if len(calls) == 1 else a + b\n\n\ndef double(a):\n    return add(a, a)\n"
    }
    verdict = builder.judge(builder.artifact(bug, {TESTS: without(texts[TESTS], "test_add")}))
    reason = rejected_by(verdict, "buggy-repeats")
    assert (reason.code, reason.details["run"]) == (CheckCode.OUTCOMES_DIFFER, "buggy")
    assert f"{TESTS}::test_add" in reason.details["tests"]
    assert verdict.fail_to_pass == (f"{TESTS}::test_add",)


def test_a_random_bug_is_never_valid(open_builder, texts):
    """With twenty random bits in each run, two equal runs are practically impossible."""
    drawn = "\n\n@pytest.mark.parametrize('n', range(20))\ndef test_drawn(n):\n    assert add(n, 0) == n\n"
    tests = "import pytest\n" + texts[TESTS] + drawn
    builder = open_builder({TESTS: tests}, max_broken_fraction=1.0)
    bug = {
        "pkg/adding.py": "import pickle\n\ndrawn = pickle.loads(b'crandom\\ngetrandbits\\n.')\n\n\ndef add(a, b):\n    return a + b + drawn(1)\n"
        "\n\ndef double(a):\n    return a + a\n"
    }
    verdict = builder.judge(builder.artifact(bug, {TESTS: texts[TESTS].replace("def test_add", "def untested")}))
    assert not verdict.valid
    assert verdict.rejection.name == "bug-validity"
    assert (verdict.reason.code, verdict.reason.details["state"]) == (CheckCode.RUNS_DISAGREE, "buggy")


FLICKERING = {
    "hash seed": "import os\n\n\ndef test_flickers():\n    assert os.environ['PYTHONHASHSEED'] == '0'\n",
    "order": "seen = []\n\n\ndef test_one():\n    seen.append(1)\n\n\ndef test_two():\n    seen.append(2)\n\n\n"
    "def test_three():\n    seen.append(3)\n\n\ndef test_flickers():\n    assert seen == [1, 2, 3]\n",
}


@pytest.mark.long
@pytest.mark.parametrize("how", FLICKERING)
def test_a_test_that_flickers_on_the_original_is_set_aside_by_name(open_builder, weak, how):
    builder = open_builder({"tests/test_flicker.py": FLICKERING[how]})
    files = (TESTS, "tests/test_flicker.py")
    verdict = builder.judge(builder.artifact(ADD_BUG, weak, files=files))
    name = "tests/test_flicker.py::test_flickers"
    assert verdict.valid, verdict.rejection
    assert verdict.set_aside == {name: SetAside.FLICKERS}
    assert name not in (*verdict.fail_to_pass, *verdict.pass_to_pass)
    assert set(verdict.fail_to_pass) == {f"{TESTS}::test_add", f"{TESTS}::test_double"}
