"""Parsers that lie or fail: the verdict depends on pytest's own results."""

from __future__ import annotations

import json

import pytest

from pytest_ssr.execution.script_template import default_parser, default_script
from pytest_ssr.records.check_reasons import CheckCode, CheckReason

pytestmark = pytest.mark.long

HONEST = default_parser().decode()
PRINT = "json.dump(statuses, sys.stdout, indent=0, sort_keys=True)\nprint()\n"
RUN = default_script(("tests/test_add.py", "tests/test_texts.py"), options=()).decode()
NOTHING = {"pkg/adding.py": "# sly\ndef add(a, b):\n    return a + b\n\n\ndef double(a):\n    return add(a, a)\n"}
ONE_FAILS = "statuses = {k: 'failed' if k.endswith('::test_add') else v for k, v in statuses.items()}"
ADD = "tests/test_add.py::test_add"


def lying(lie: str) -> str:
    """Return the honest parser with some lines inserted before it prints."""
    assert PRINT in HONEST
    return HONEST.replace(PRINT, f"{lie}\n{PRINT}")


def failing_if_present(paths: str) -> str:
    """Return a parser that reports a failed test if a file exists at one of these paths."""
    return lying(
        f"import os\nif any(os.path.exists(os.path.expandvars(p)) for p in {paths.split()!r}):\n    {ONE_FAILS}"
    )


def test_the_artifact_without_an_attack_is_valid(arena):
    verdict = arena.judge()
    assert verdict.valid, verdict.rejection
    assert verdict.fail_to_pass == ("tests/test_add.py::test_add", "tests/test_add.py::test_double")


def test_all_passed(copied):
    rejection = copied.judge(parser=lying("statuses = dict.fromkeys(statuses, 'passed')")).rejection
    assert rejection.name == "bug-validity"
    assert rejection.reason.code is CheckCode.TOO_FEW_BREAK


def test_all_failed(copied):
    rejection = copied.judge(parser=lying("statuses = dict.fromkeys(statuses, 'failed')")).rejection
    assert rejection.name == "test-script"
    assert rejection.reason.code is CheckCode.EXIT_STATUS_CONTRADICTS


CODES = {
    "the same status": ("true", CheckCode.EXIT_STATUS_CONTRADICTS, {"test": ADD}),
    "a status to match": ("exit 1", CheckCode.RUNS_DISAGREE, {"tests": (ADD,)}),
}


@pytest.mark.parametrize("how", CODES)
def test_canned_by_the_state_of_the_tree(copied, how):
    """Script and parser agree on a signal for the buggy state; there is no bug."""
    end, code, details = CODES[how]
    script = f"{RUN}\nif grep -q sly pkg/adding.py; then echo SLY; {end}; fi; true\n"
    parser = lying(f"if b'SLY' in data:\n    {ONE_FAILS}").replace("sys.stdin.buffer.read()", "data")
    parser = parser.replace("statuses = {}\n", "statuses = {}\ndata = sys.stdin.buffer.read()\n")
    rejection = copied.judge(script=script, parser=parser, bug=NOTHING).rejection
    assert rejection.name == "bug-validity"
    assert rejection.reason.code is code
    assert rejection.reason.details == {**details, "state": "buggy"}


def test_a_fixed_list(copied):
    """A name missing from the output reveals it, and a name in the output is compared with pytest's results.

    Half of the output may or may not hold the real one: that depends on the output's length.
    """
    for name, steps in (("test_add", ("bug-validity", "test-parser")), ("test_made_up", ("test-parser",))):
        statuses = json.dumps({f"tests/test_add.py::{name}": "passed"})
        assert copied.judge(parser=f"print({statuses!r})\n").rejection.name in steps


def test_a_fixed_list_for_a_script_that_prints_every_name_twice(copied):
    """Both halves of the output hold all names, so only pytest itself can refute it."""
    every = "tests/test_add.py::test_add tests/test_add.py::test_double tests/test_texts.py::test_shout"
    statuses = dict.fromkeys(every.split(), "passed")
    script = f"if grep -q sly pkg/adding.py; then s=1; else s=0; fi; echo $s {every}; echo $s {every}; exit $s\n"
    parser = (
        f"import json, sys\nfound = {statuses!r}\n"
        f"if sys.stdin.read()[0] == '1':\n    found[{ADD!r}] = 'failed'\nprint(json.dumps(found))\n"
    )
    rejection = copied.judge(script=script, parser=parser, bug=NOTHING).rejection
    assert rejection.name == "bug-validity"
    assert rejection.reason == CheckReason(CheckCode.RUNS_DISAGREE, {"tests": (ADD,), "state": "buggy"})


INSIDE = "./{m} ../{m} $HOME/{m} $TMPDIR/{m} $HOME/../{m}"
OUTSIDE = INSIDE + " /tmp/{m} /var/tmp/{m} /dev/shm/{m} {h}/{m} {p}/{m}"


def cheat(arena, paths):
    """Validate a script without a bug that leaves a file for the parser at all these paths."""
    writer = f"for f in {paths}; do grep -q sly pkg/adding.py && echo x > $f; done 2>/dev/null; true\n"
    return arena.judge(script=writer + RUN, parser=failing_if_present(paths), bug=NOTHING).rejection


def test_a_file_from_the_script_to_the_parser(arena, marker):
    rejection = cheat(arena, INSIDE.format(m=marker))
    assert rejection.name == "bug-validity"
    assert rejection.reason.code is CheckCode.TOO_FEW_BREAK


@pytest.mark.bubblewrap
def test_a_file_from_the_script_to_the_parser_on_paths_of_the_machine(isolated, marker, tmp_path):
    rejection = cheat(isolated, OUTSIDE.format(m=marker, h=tmp_path, p=isolated.project))
    assert rejection.name == "bug-validity"
    assert rejection.reason.code is CheckCode.TOO_FEW_BREAK


def test_a_parser_that_counts_its_runs(arena, marker):
    """It would be honest while it is checked and lie later; but each run starts clean."""
    paths = INSIDE.format(m=marker)
    counting = (
        f"import os\npaths = [os.path.expandvars(p) for p in {paths.split()!r}]\n"
        f"if any(os.path.exists(p) for p in paths):\n    {ONE_FAILS}\n"
        "for p in paths:\n    try:\n        open(p, 'w').close()\n    except OSError:\n        pass\n"
    )
    rejection = arena.judge(parser=lying(counting), bug=NOTHING).rejection
    assert rejection.name == "bug-validity"
    assert rejection.reason.code is CheckCode.TOO_FEW_BREAK


def test_a_script_that_counts_its_runs(arena, marker):
    """It prints its number, and a cooperating parser could make the third run fail."""
    paths = INSIDE.format(m=marker)
    counting = f"for f in {paths}; do [ -e $f ] && echo SECOND; echo x > $f; done 2>/dev/null"
    assert arena.step("test-parser", first=counting).passed
    assert b"SECOND" not in arena.printed(f"{counting}; true\n{RUN}")


def test_ids_of_a_megabyte(copied):
    result = copied.step("test-parser", parser="import json; print(json.dumps({'x' * 1000000: 'passed'}))\n")
    assert result.passed is False
    assert (result.reason.code, result.reason.details["longest"]) == (CheckCode.TOO_MANY_IDS, 1000000)


def test_an_id_that_is_not_valid_utf8(copied):
    """The verdict can be written although an id cannot be encoded as UTF-8."""
    odd = 'echo \'#ssr-result {"id": "tests/test_add.py::\\ud800", "status": "passed"}\''
    verdict = copied.judge(script=f"{odd}\n{odd}\n{RUN}")
    assert verdict.rejection.name == "test-script"
    assert verdict.reason.code is CheckCode.TEST_NOT_COLLECTED
    assert json.loads(json.dumps(verdict.to_json()))["valid"] is False


ALL = ("test_add::test_nothing", "test_add::test_double_nothing", "test_texts::test_shout")
BY_TEXT = """
said() { echo "tests/${1/::/.py::} $2"; }
for name in %s; do said "$name" passed; done
if grep -q test_add tests/test_add.py; then
  grep -q "$WORDS" pkg/adding.py && how=passed || how=failed
  said test_add::test_add $how; said test_add::test_double $how
  [ $how = passed ]
fi
"""
READ = "import json, sys\nprint(json.dumps(dict(line.split() for line in sys.stdin if '::' in line)))\n"


@pytest.mark.parametrize("pattern", ["return a + b", "a + b$", "^    return a +"])
def test_a_script_that_looks_for_the_text_of_the_original(copied, pattern):
    """A repair with other text would never pass in it."""
    script = f"WORDS={pattern!r}\n" + BY_TEXT % " ".join(ALL)
    rejection = copied.judge(script=script, parser=READ).rejection
    assert rejection is not None
    assert (rejection.reason.code, rejection.reason.details["state"]) == (CheckCode.RUNS_DISAGREE, "paraphrased")
