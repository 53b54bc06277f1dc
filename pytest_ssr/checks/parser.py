"""Check 2, `test-parser`: the parser turns real output into statuses, the same bytes twice, and invents nothing."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from pytest_ssr.checks.case import Case, Finding
from pytest_ssr.verdict import RunRecord

NAME = "test-parser"
_LONGEST_ID, _MOST_IDS = 10_000, 200_000
_WORD = re.compile(rb"[\w/-]+(?:\.py)?")


def check(case: Case) -> Finding:
    """Run the script on the original, the parser twice on its output, and once on half of it."""
    run = case.script(case.original, "original")
    case.original_script = run
    if run.fault:
        return Finding(False, f"on the original: {run.fault}")
    longest = max(map(len, run.statuses), default=0)
    if longest > _LONGEST_ID or len(run.statuses) > _MOST_IDS:
        return Finding(False, f"the parser gives {len(run.statuses)} ids, the longest of {longest} characters")
    if not run.statuses:
        return Finding(False, "the parser finds no test in the script's output on the original")
    again = case.bench.parse_again(case.artifact.parser, run.output)
    case.log.append(RunRecord("parser", "original", f"{len(again.statuses)} statuses"))
    if again.raw != run.parsed:
        return Finding(False, "the parser gives other bytes for the same output the second time")
    invented = _invented(run.statuses, run.output)
    if invented is not None:
        return Finding(False, f"the parser reports {invented[:200]!r}, which the output does not hold")
    half = run.output[: len(run.output) // 2]
    partial = case.bench.parse_again(case.artifact.parser, half)
    # Where half of it ends depends on the times and places in the output, so the count is no part of the record.
    case.log.append(RunRecord("parser", "half of the output", "read"))
    invented = _invented(partial.statuses, half)
    if invented is not None:
        return Finding(
            False, f"from half of the output the parser reports {invented[:200]!r}, which that half does not hold"
        )
    return Finding(True, f"{len(run.statuses)} tests read from the output, twice the same")


def _invented(statuses: Mapping[str, str], output: bytes) -> str | None:
    """Return the first id that the output does not hold: neither whole nor its function, as it is or as a JSON string.

    The function is enough: a parser may put pytest's id together from what another runner prints.
    """
    words = frozenset(_WORD.findall(output))
    for name in statuses:
        before, bracket, parameters = name.partition("[")
        function = before.rpartition("::")[2]
        held = any(form in words for form in _forms(function)) and (
            not bracket or any(form in output for form in _forms(bracket + parameters))
        )
        if not held and not any(form in output for form in _forms(name)):
            return name
    return None


def _forms(text: str) -> tuple[bytes, bytes]:
    return text.encode("utf-8", "surrogatepass"), json.dumps(text)[1:-1].encode()
