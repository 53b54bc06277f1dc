"""Check 2, `test-parser`: the parser turns real output into statuses, the same bytes twice, and invents nothing."""

from __future__ import annotations

import json
import re

from pytest_ssr.checks.case import Case, Finding
from pytest_ssr.verdict import RunRecord

NAME = "test-parser"


def check(case: Case) -> Finding:
    """Run the script on the original, the parser twice on its output, and once on half of it."""
    run = case.script(case.original, "original")
    case.original_script = run
    if run.fault:
        return Finding(False, f"on the original: {run.fault}")
    if not run.statuses:
        return Finding(False, "the parser finds no test in the script's output on the original")
    again = case.bench.parse(case.artifact.parser, run.output)
    case.log.append(RunRecord("parser", "original", f"{len(again.statuses)} statuses"))
    if again.raw != run.parsed:
        return Finding(False, "the parser gives other bytes for the same output the second time")
    invented = _invented(run.statuses, run.output)
    if invented is not None:
        return Finding(False, f"the parser reports {invented!r}, which the output does not hold")
    half = run.output[: len(run.output) // 2]
    partial = case.bench.parse(case.artifact.parser, half)
    case.log.append(RunRecord("parser", "half of the output", f"{len(partial.statuses)} statuses"))
    invented = _invented(partial.statuses, half)
    if invented is not None:
        return Finding(False, f"from half of the output the parser reports {invented!r}, which that half does not hold")
    return Finding(True, f"{len(run.statuses)} tests read from the output, twice the same")


def _invented(statuses: object, output: bytes) -> str | None:
    """Return the first id that the output does not hold: neither whole nor its function, as it is or as a JSON string.

    The function is enough: a parser may put pytest's id together from what another runner prints.
    """
    assert isinstance(statuses, dict)
    for name in statuses:
        before, bracket, parameters = name.partition("[")
        function = before.rpartition("::")[2] + bracket + parameters
        if not any(form in output for form in _forms(name)) and not any(
            re.search(rb"(?<![\w/-])" + re.escape(form) + rb"(?![\w-]|\.py)", output) for form in _forms(function)
        ):
            return str(name)
    return None


def _forms(text: str) -> tuple[bytes, bytes]:
    return text.encode("utf-8", "surrogatepass"), json.dumps(text)[1:-1].encode()
