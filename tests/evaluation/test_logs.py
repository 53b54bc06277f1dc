"""SWE-bench's rule applied to logs; `tests/peers/swebench_peer.py` compares it with swebench's own code."""

from __future__ import annotations

import pytest

from harness.evaluation.logs import parse_log, resolved_by

ADD, SHOUT = "tests/test_shop.py::test_add", "tests/test_shop.py::test_shout"


def log(*lines: str, code: int = 0) -> str:
    ending = [f"+ SWEBENCH_TEST_EXIT_CODE={code}", "+ : '>>>>> End Test Output'", f">>>>> Test Exit Code: {code}"]
    return "\n".join(["+ : '>>>>> Start Test Output'", *lines, *ending, ""])


@pytest.mark.parametrize(
    ("text", "resolved"),
    [
        (log(f"PASSED {ADD}", f"PASSED {SHOUT}"), True),
        (log(f"XFAIL {ADD}", f"SKIPPED {SHOUT}"), True),
        (log(f"SKIPPED {ADD}", f"PASSED {SHOUT}"), False),
        (log(f"PASSED {ADD}"), False),
        (log(f"PASSED {ADD}", f"FAILED {SHOUT} - assert 1 == 2", code=1), False),
        # Another test fails, which the row does not list.
        (log(f"PASSED {ADD}", f"PASSED {SHOUT}", "FAILED tests/test_shop.py::test_else", code=1), True),
        # The exit code is a failure, but no test shows one.
        (log(f"PASSED {ADD}", f"PASSED {SHOUT}", code=1), False),
        (log(f"PASSED {ADD}", f"PASSED {SHOUT}").replace("End Test Output", ""), False),
        (f">>>>> Patch Apply Failed\n{log(f'PASSED {ADD}', f'PASSED {SHOUT}')}", False),
        # Outcomes outside of the markers count if there are none between them.
        (f"{log()}PASSED {ADD}\nPASSED {SHOUT}\n", True),
        ("", None),
    ],
)
def test_the_rule_of_swe_bench(text: str, resolved: bool | None) -> None:
    assert resolved_by(text, [ADD], [SHOUT]) is resolved


def test_ids_are_cut_at_spaces() -> None:
    assert parse_log(log("PASSED t.py::test_a[x y]", "FAILED t.py::test_b - why")) == {
        "t.py::test_a[x": "PASSED",
        "t.py::test_b": "FAILED",
    }
    assert resolved_by(log("PASSED t.py::test_a[x y]"), ["t.py::test_a[x y]"], []) is True
