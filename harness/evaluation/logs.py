"""The log of a plain run of the tests, as SWE-bench's harness keeps it, and what its rule makes of it.

The rule is that of swebench 5.x (`harness/grading.py` and `parse_log_pytest` there): a line that begins with the name
of a status gives it to the word that follows, a PASS_TO_PASS test may be skipped, and a run that ends with another
status than 0 has to show a failure. It believes what is printed and cuts ids at spaces; our own grade does neither, so
where the two disagree both are told.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from harness.instances.cases import Case
from pytest_ssr.errors import ArtifactError
from pytest_ssr.grading import repaired_state
from pytest_ssr.patch import Patch
from pytest_ssr.sandbox.protocol import Limit, Limits

START, END, EXIT_CODE = ">>>>> Start Test Output", ">>>>> End Test Output", ">>>>> Test Exit Code"
APPLIED, NOT_APPLIED = ">>>>> Applied Patch", ">>>>> Patch Apply Failed"
_LATE = "Timeout error: {seconds:g} seconds exceeded."
_VOID = (NOT_APPLIED, ">>>>> Reset Failed", ">>>>> Tests Errored", ">>>>> Tests Timed Out")
_STATUSES = ("FAILED", "PASSED", "SKIPPED", "ERROR", "XFAIL")
_GOOD, _BAD = ("PASSED", "XFAIL"), ("FAILED", "ERROR")


def test_log(case: Case, patch: Patch) -> str:
    """Run the tests of an instance with a patch, as anyone would run them, and return what a log of that holds.

    Empty where the patch does not apply.
    """
    bench, instance = case.bench.scoped(), case.instance
    try:
        state, _ = repaired_state(bench, case.artifact, patch)
    except ArtifactError:
        return ""
    names = (*instance.fail_to_pass, *instance.pass_to_pass)
    files = list(dict.fromkeys(name.split("::", 1)[0] for name in names))
    words = [
        str(bench.interpreter.executable),
        "-m",
        "pytest",
        # Verbose, too: SWE-smith reads those lines, and SWE-bench the summary.
        "-rA",
        "-v",
        "-p",
        "no:cacheprovider",
        *case.bench.root,
        *files,
    ]
    # As long as the same tests had in the grade: a patch that hangs is not waited for twice.
    wall_s = bench.limits_after(case.original_s).wall_s
    with bench.open(state) as sandbox:
        env = {"PYTHONPATH": f"{sandbox.root}/src:{sandbox.root}", "PYTHONHASHSEED": "0"}
        done = sandbox.exec(words, limits=Limits(wall_s=wall_s), env=env)
    text = done.stdout.decode("utf-8", "replace").rstrip("\n")
    lines = [APPLIED, f"+ : {START!r}", text]
    if done.exit_code is None:
        lines += ["", _LATE.format(seconds=wall_s)] if done.limit is Limit.WALL_TIME else []
        return "\n".join([*lines, ""])
    told = f"{EXIT_CODE}: {done.exit_code}"
    return "\n".join(
        [*lines, f"+ SWEBENCH_TEST_EXIT_CODE={done.exit_code}", f"+ : {END!r}", f"+ echo {told!r}", told, ""]
    )


def parsed(log: str) -> dict[str, str]:
    """Return id to status by SWE-bench's rule."""
    body = log.split(START)[1].split(END)[0] if START in log else ""
    return _statuses(body) or _statuses(log)


def _statuses(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for line in text.split("\n"):
        if not line.startswith(_STATUSES):
            continue
        words = (line.replace(" - ", " ") if line.startswith("FAILED") else line).split()
        if len(words) > 1:
            found[words[1]] = words[0]
    return found


def resolved_by(log: str, fail_to_pass: Collection[str], pass_to_pass: Collection[str]) -> bool | None:
    """Tell what SWE-bench's rule makes of a log; None without one."""
    if START not in log:
        return None
    if END not in log or any(word in log for word in _VOID):
        return False
    found = parsed(log)
    ended = re.search(rf"{EXIT_CODE}:\s*(-?\d+)", log)
    if ended is not None and int(ended[1]) and not any(status in _BAD for status in found.values()):
        return False
    repaired = all(found.get(_cut(name)) in _GOOD for name in fail_to_pass)
    return repaired and all(found.get(_cut(name)) in (*_GOOD, "SKIPPED") for name in pass_to_pass)


def _cut(name: str) -> str:
    """Return an id as the rule finds it."""
    return re.split(r"\s", name, maxsplit=1)[0]
