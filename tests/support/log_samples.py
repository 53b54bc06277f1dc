"""Logs of test tools, with the outcomes that they hold; for the tests of parsers, ours and those of swebench."""

from __future__ import annotations

PYTEST = """\
collected 5 items

tests/test_a.py::test_one PASSED                                         [ 20%]
tests/test_a.py::test_two[a b] FAILED                                    [ 40%]
tests/test_a.py::test_three SKIPPED (later)                              [ 60%]
==================================== PASSES ====================================
----------------------------- Captured stdout call -----------------------------
all tests PASSED
=========================== short test summary info ============================
PASSED tests/test_a.py::test_one
SKIPPED [1] tests/test_a.py:9: later
XFAIL tests/test_a.py::test_four - reason
FAILED tests/test_a.py::test_two[a b] - assert 1 == 2
ERROR tests/test_b.py - ImportError: no module
================= 1 failed, 1 passed, 1 skipped, 1 xfailed, 1 error in 0.10s ===
"""
_PYTEST = {
    "tests/test_a.py::test_one": "passed",
    "tests/test_a.py::test_two[a b]": "failed",
    "tests/test_a.py::test_four": "xfailed",
    "tests/test_b.py": "error",
}

UNITTEST = """\
Found 9 test(s).
  Applying sites.0001_initial... OK
test_fast (app.tests.FastTests.test_fast) ... ok
test_noisy (app.tests.FastTests.test_noisy) ... 404 GET /missing (127.0.0.1) 0.27ms
ok
test_wrong (app.tests.FastTests.test_wrong) ... FAIL
test_raises (app.tests.FastTests.test_raises) ... ERROR
test_later (app.tests.FastTests.test_later) ... skipped 'not ... now'
test_known (app.tests.FastTests.test_known) ... expected failure
test_told (app.tests.FastTests.test_told)
Content-Type: ... is replaced. ... ok
Applying sites.0002_alter_domain_unique...test_migrates (app.tests.Migrations.test_migrates) ... ok

======================================================================
FAIL: test_wrong (app.tests.FastTests.test_wrong)
----------------------------------------------------------------------
AssertionError: 1 != 2
"""
_UNITTEST = {
    "test_fast (app.tests.FastTests.test_fast)": "passed",
    "test_noisy (app.tests.FastTests.test_noisy)": "passed",
    "test_wrong (app.tests.FastTests.test_wrong)": "failed",
    "test_raises (app.tests.FastTests.test_raises)": "error",
    "test_later (app.tests.FastTests.test_later)": "skipped",
    "Content-Type: ... is replaced.": "passed",
    "test_migrates (app.tests.Migrations.test_migrates)": "passed",
}

SYMPY = """\
sympy/core/tests/test_a.py[4]
test_one ok
test_two F
test_three E
test_four f
test_five ok                                                     [FAIL]

________________________________________________________________________________
____________________ sympy/core/tests/test_a.py:test_two _____________________
AssertionError
"""
_SYMPY = {
    "test_one": "passed",
    "test_two": "failed",
    "test_three": "error",
    "sympy/core/tests/test_a.py:test_two": "failed",
}

SAMPLES: dict[str, tuple[str, dict[str, str]]] = {
    "parse_log_pytest": (PYTEST, _PYTEST),
    "parse_log_pytest_v2": (PYTEST, _PYTEST),
    "parse_log_seaborn": (
        "tests/test_a.py::test_one PASSED [ 50%]\nFAILED tests/test_a.py::test_two - assert 0\n",
        {"tests/test_a.py::test_one": "passed", "tests/test_a.py::test_two": "failed"},
    ),
    "parse_log_pytest_options": (
        "PASSED t.py::test_a[/tmp/x/y.txt]\nPASSED t.py::test_b[//host/y]\nPASSED t.py::test_c[/a/*.txt]\nPASSED t.py::d\n",
        {"t.py::test_a[/y.txt]": "passed", "t.py::test_b[//host/y]": "passed"}
        | {"t.py::test_c[/a/*.txt]": "passed", "t.py::d": "passed"},
    ),
    "parse_log_matplotlib": (
        "PASSED t.py::test_a[MouseButton.LEFT-x]\nFAILED t.py::test_a[MouseButton.RIGHT-x] - assert\n",
        {"t.py::test_a[1-x]": "passed", "t.py::test_a[3-x]": "failed"},
    ),
    "parse_log_django": (UNITTEST, _UNITTEST),
    "parse_log_sympy": (SYMPY, _SYMPY),
    "parse_log_gotest": (
        "=== RUN   TestA\n--- PASS: TestA (0.00s)\n    --- FAIL: TestB/x_(y) (0.01s)\n--- SKIP: TestC (0.00s)\nFAIL\n",
        {"TestA": "passed", "TestB/x_(y)": "failed", "TestC": "skipped"},
    ),
    "parse_log_cargo": (
        "running 2 tests\ntest a::b ... ok\ntest a::c ... FAILED\ntest result: FAILED. 1 passed; 1 failed\n",
        {"a::b": "passed", "a::c": "failed"},
    ),
    "parse_log_googletest": (
        "[ RUN      ] a.b\n[       OK ] a.b (0 ms)\n1: [  FAILED  ] a.c/2 (13 ms)\n[  FAILED  ] 1 test, listed below:\n",
        {"a.b": "passed", "a.c/2": "failed"},
    ),
    "parse_log_jest": (
        "PASS src/a.test.js\n  a\n    ✓ adds (5 ms)\n    ✕ waits 5s\n    ○ skips\n",
        {"adds": "passed", "waits 5s": "failed", "skips": "skipped"},
    ),
    "parse_log_jest_json": (
        "[PASSED] a adds\n[FAILED] a takes\n",
        {"a adds": "passed", "a takes": "failed"},
    ),
    "parse_log_vitest": (
        " ✓ a.test.ts > adds 5ms\n × a.test.ts > takes\n ↓ a.test.ts > later [skipped]\n",
        {"a.test.ts > adds": "passed", "a.test.ts > takes": "failed", "a.test.ts > later": "skipped"},
    ),
    "parse_log_tap": (
        "TAP version 13\nok 1 - adds\nnot ok 2 - takes 5s\n1..2\n",
        {"- adds": "passed", "- takes 5s": "failed"},
    ),
    "parse_log_phpunit": (
        "Money (Tests\\MoneyTest)\n ✔ Adds\n ✘ Takes\nOther (Tests\\OtherTest)\n ↩ Adds\n",
        {"Money > Adds": "passed", "Money > Takes": "failed", "Other > Adds": "skipped"},
    ),
    "parse_log_gradle_custom": (
        "> Task :test\na.B > adds PASSED\na.B > takes\nWARNING: slow\nFAILED\n",
        {"a.B > adds": "passed", "a.B > takes": "failed"},
    ),
    "parse_log_maven": (
        "+ mvn test -Dtest=A#adds\n[INFO] BUILD SUCCESS\n+ mvn test -Dtest=A#takes -q\n[INFO] BUILD FAILURE\n",
        {"A#adds": "passed", "A#takes": "failed"},
    ),
    "parse_log_ant": (
        "    [junit] [PASS] adds(a.B)\n    [junit] [ERR] takes(a.B)\n",
        {"adds(a.B)": "passed", "takes(a.B)": "failed"},
    ),
    "parse_log_redis": (
        "[ok]: SET and GET in order (12 ms)\n[err]: GET fails in tests/unit/a.tcl\n[skip]: slow\n",
        {"SET and GET in order": "passed", "GET fails": "failed", "slow": "skipped"},
    ),
    "parse_log_jq": ("PASS: tests/a\n  FAIL: tests/b\n", {"tests/a": "passed", "tests/b": "failed"}),
    "parse_log_micropython_test": (
        "pass  basics/a.py\nFAIL  basics/b.py\nskip  basics/c.py\n1 tests passed\n",
        {"basics/a.py": "passed", "basics/b.py": "failed", "basics/c.py": "skipped"},
    ),
    "parse_log_minitest": (
        "TestA#test_: adds. = 0.01 s = .\nTestA#test_: takes. = 0.02 s = F\n",
        {"TestA#test_: adds": "passed", "TestA#test_: takes": "failed"},
    ),
    "parse_log_ruby_unit": (
        "  test: adds:\t.: (0.001)\n  test: takes:\tF\n  test: later:\tO\n",
        {"adds": "passed", "takes": "failed", "later": "skipped"},
    ),
}
