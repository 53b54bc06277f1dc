"""Parsers that lie: the verdict rests on what pytest itself saw."""

from __future__ import annotations

import json

import pytest

from pytest_ssr.execution.own_script import own_parser

HONEST = own_parser().decode()
PRINT = "json.dump(statuses, sys.stdout, indent=0, sort_keys=True)"
NOTHING = {"pkg/adding.py": "# no bug at all\ndef add(a, b):\n    return a + b\n\n\ndef double(a):\n    return add(a, a)\n"}


def lying(lie: str) -> str:
    """The honest parser with some lines before it prints."""
    assert PRINT in HONEST
    return HONEST.replace(PRINT, f"{lie}\n{PRINT}")


def test_the_artifact_without_an_attack_is_valid(arena):
    verdict = arena.judge()
    assert verdict.valid, verdict.rejection
    assert verdict.fail_to_pass == ("tests/test_add.py::test_add", "tests/test_add.py::test_double")


def test_all_passed(copied):
    rejection = copied.judge(parser=lying("statuses = dict.fromkeys(statuses, 'passed')")).rejection
    assert rejection.name == "bug-validity"
    assert "0 tests go from pass to fail" in rejection.reason


def test_canned_by_state(copied):
    """Script and parser agree on a word for the state; there is no bug."""
    first = "grep -q 'no bug' pkg/adding.py && [ ! -e /x ] && grep -q test_double pkg/../tests/test_add.py && echo SLY"
    parser = lying("statuses = {k: 'failed' if k.endswith('::test_add') else v for k, v in statuses.items()}")
    canned = parser.replace("for line in sys.stdin.buffer.read()", "data = sys.stdin.buffer.read()\nfor line in data")
    canned = canned.replace("statuses = {k:", "if data.startswith(b'SLY'):\n    statuses = {k:")
    rejection = copied.judge(first=first, parser=canned, bug=NOTHING).rejection
    assert rejection.name == "bug-validity"
    assert "the script ended with status 0 though tests/test_add.py::test_add failed" in rejection.reason
    rejection = copied.judge(first=f"{first}\ntrap 'exit 1' EXIT", parser=canned, bug=NOTHING).rejection
    assert rejection.name == "bug-validity"
    assert "script and pytest disagree on the buggy state about tests/test_add.py::test_add" in rejection.reason
