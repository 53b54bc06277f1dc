"""The parsers of printed logs: every tool's form, and hostile text."""

from __future__ import annotations

import time

import pytest
from log_samples import PYTEST, SAMPLES, UNITTEST

from pytest_ssr.execution.log_parsers import LOG_PARSERS, parse_log


@pytest.mark.parametrize("name", SAMPLES)
def test_a_parser_reads_its_tool_s_log(name: str):
    log, expected = SAMPLES[name]
    found = parse_log(name, log.encode())
    assert {test: found.get(test) for test in expected} == expected


@pytest.mark.parametrize("name", sorted(LOG_PARSERS))
def test_every_parser_accepts_any_bytes(name: str):
    noise = bytes(range(256)) * 40 + b"\r\n" + "\u2028 \u0085 ✓ \n".encode() * 5 + b" ... \n ...\nok\n::\n[\n"
    assert all(parse_log(name, noise))


@pytest.mark.parametrize("name", sorted(LOG_PARSERS))
def test_a_hostile_log_takes_linear_time(name: str):
    pieces = (
        " ",
        "a (",
        " ... ",
        "- ",
        ".py:",
        ": ",
        " = 1",
        " > ",
        " in x",
        "Applying a.b...",
        "-Dtest=",
        "[",
        "_",
        "1",
    )
    heads = (
        "",
        "PASSED ",
        "test ",
        "--- PASS: ",
        "[ok]: ",
        "[err]: ",
        "✓ ",
        "✔ ",
        "ok 1 ",
        "FAIL: ",
        "[junit] [PASS] ",
    )
    lines = [head + piece * (9000 // len(piece)) for piece in pieces for head in heads]
    begin = time.process_time()
    parse_log(name, "\n".join(lines).encode())
    assert time.process_time() - begin < 5


def test_a_failure_counts_more_than_other_results():
    more = "PASSED tests/test_a.py::test_two[a b]\nERROR tests/test_a.py::test_one - teardown\n"
    found = parse_log("parse_log_pytest", (PYTEST + more).encode())
    assert (found["tests/test_a.py::test_one"], found["tests/test_a.py::test_two[a b]"]) == ("error", "failed")
    shared = b"One. ... skipped 'no'\nOne. ... ok\nOne. ... skipped 'no'\n"
    assert parse_log("parse_log_unittest", shared) == {"One.": "passed"}


@pytest.mark.parametrize(
    ("line", "test"),
    [
        ("FAILED t.py::a[x - y] - assert [1] - 2 == [3]", "t.py::a[x - y]"),
        ("FAILED t.py::a[x y]", "t.py::a[x y]"),
        ("FAILED t.py::a[x y] assert", "t.py::a[x"),
        ("FAILED t.py::a - assert [1]", "t.py::a"),
        ("FAILED t.py::a", "t.py::a"),
        ("t.py::a[x y] FAILED", "t.py::a[x y]"),
        ("t.py::a[x] FAILED     [ 10%]", "t.py::a[x]"),
    ],
)
def test_ids_of_pytest_keep_their_spaces(line: str, test: str):
    assert parse_log("parse_log_pytest", line.encode()) == {test: "failed"}


def test_colours_and_carriage_returns_are_left_out():
    log = b"\x1b[32mPASSED\x1b[0m t.py::\x1b[1mtest_a\x1b[0m\r\nFAILED t.py::test_b\r\n"
    assert parse_log("parse_log_pytest", log) == {"t.py::test_a": "passed", "t.py::test_b": "failed"}


def test_a_test_whose_subtest_fails_did_not_pass():
    log = "test_x (a.B.test_x) ... \n  test_x (a.B.test_x) (i=1) ... FAIL\nFAIL: test_x (a.B.test_x) (i=1)\n"
    assert parse_log("parse_log_unittest", log.encode())["test_x (a.B.test_x)"] == "failed"
    without_line = "test_x (a.B) ... test_y (a.B) ... ok\nFAIL: test_x (a.B) (i=1)\n"
    found = parse_log("parse_log_unittest", without_line.encode())
    assert found == {"test_x (a.B)": "failed", "test_y (a.B)": "passed"}


def test_output_of_tests_is_no_result():
    found = parse_log("parse_log_unittest", UNITTEST.encode())
    assert not [test for test in found if "Applying" in test or "404" in test or not test]
    assert parse_log("parse_log_pytest", b"  PASSED t.py::test_a\nall PASSED\nPASSED\n\n") == {}
