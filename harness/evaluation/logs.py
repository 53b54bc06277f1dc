"""Write logs of test runs in the format of SWE-bench's harness, and apply its rule to them.

The rule is that of swebench 5.x (`harness/grading.py` and `parse_log_pytest` there): a line that starts with a status
assigns it to the next word, a PASS_TO_PASS test may be skipped, and a run with a nonzero exit code must show a failure.
It trusts the output and cuts ids at spaces; our own grade does neither, so if the two disagree both are reported.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from pytest_ssr.records.test_run import Limit, SuiteRun

START, END, EXIT_CODE = ">>>>> Start Test Output", ">>>>> End Test Output", ">>>>> Test Exit Code"
APPLIED, NOT_APPLIED = ">>>>> Applied Patch", ">>>>> Patch Apply Failed"
_TIMED_OUT = "Timeout error: {seconds:.0f} seconds exceeded."
_FAILURE_MARKERS = (NOT_APPLIED, ">>>>> Reset Failed", ">>>>> Tests Errored", ">>>>> Tests Timed Out")
_STATUSES = ("FAILED", "PASSED", "SKIPPED", "ERROR", "XFAIL")
_GOOD, _BAD = ("PASSED", "XFAIL"), ("FAILED", "ERROR")


def test_log(run: SuiteRun) -> str:
    """Return the log of a verbose run: SWE-smith reads the verbose lines, and SWE-bench the summary."""
    text = run.output.decode("utf-8", "replace").rstrip("\n")
    lines = [APPLIED, f"+ : {START!r}", text]
    if run.exit_code is None:
        lines += ["", _TIMED_OUT.format(seconds=run.seconds)] if run.limit is Limit.WALL_TIME else []
        return "\n".join([*lines, ""])
    exit_line = f"{EXIT_CODE}: {run.exit_code}"
    return "\n".join(
        [
            *lines,
            f"+ SWEBENCH_TEST_EXIT_CODE={run.exit_code}",
            f"+ : {END!r}",
            f"+ echo {exit_line!r}",
            exit_line,
            "",
        ]
    )


def parse_log(log: str) -> dict[str, str]:
    """Return statuses by test id, parsed by SWE-bench's rule."""
    body = log.split(START)[1].split(END)[0] if START in log else ""
    return _statuses(body) or _statuses(log)


def _statuses(text: str) -> dict[str, str]:
    statuses: dict[str, str] = {}
    for line in text.split("\n"):
        if not line.startswith(_STATUSES):
            continue
        fields = (line.replace(" - ", " ") if line.startswith("FAILED") else line).split()
        if len(fields) > 1:
            statuses[fields[1]] = fields[0]
    return statuses


def resolved_by(log: str, fail_to_pass: Collection[str], pass_to_pass: Collection[str]) -> bool | None:
    """Return whether a log is resolved by SWE-bench's rule; None if it has no test output."""
    if START not in log:
        return None
    if END not in log or any(marker in log for marker in _FAILURE_MARKERS):
        return False
    statuses = parse_log(log)
    exit_code = re.search(rf"{EXIT_CODE}:\s*(-?\d+)", log)
    if exit_code is not None and int(exit_code[1]) and not any(status in _BAD for status in statuses.values()):
        return False
    repaired = all(statuses.get(_cut_id(name)) in _GOOD for name in fail_to_pass)
    return repaired and all(statuses.get(_cut_id(name)) in (*_GOOD, "SKIPPED") for name in pass_to_pass)


def _cut_id(name: str) -> str:
    """Return an id as the rule reads it, cut at the first space."""
    return re.split(r"\s", name, maxsplit=1)[0]
