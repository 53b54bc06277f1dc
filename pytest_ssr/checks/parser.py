"""Check 2, `test-parser`: the parser turns real output into statuses, deterministically, and invents nothing."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from pytest_ssr.checks.context import Finding, ValidationContext, failed, passed
from pytest_ssr.records.check_reasons import CheckCode
from pytest_ssr.records.verdict import RunRecord

NAME = "test-parser"
_MAX_ID_CHARS, _MAX_IDS = 100_000, 200_000
"""Ids hold their parameters, which may be long texts."""
_TOKEN = re.compile(rb"[\w/-]+(?:\.py)?")


def check(context: ValidationContext) -> Finding:
    """Run the script on the original, the parser twice on its output, and once on half of it."""
    run = context.script(context.original, "original")
    context.original_script = run
    if run.fault:
        return Finding(False, run.fault.on("original"))
    longest = max(map(len, run.statuses), default=0)
    if longest > _MAX_ID_CHARS or len(run.statuses) > _MAX_IDS:
        return failed(CheckCode.TOO_MANY_IDS, count=len(run.statuses), longest=longest)
    if not run.statuses:
        return failed(CheckCode.NO_TEST_PARSED, state="original")
    again = context.runner.parse_again(context.artifact.parser, run.output)
    context.log.append(RunRecord("parser", "original", f"{len(again.statuses)} statuses"))
    if again.raw != run.parsed:
        return failed(CheckCode.PARSER_NOT_STABLE)
    invented = _invented(run.statuses, run.output)
    if invented is not None:
        return failed(CheckCode.TEST_INVENTED, test=invented[:200])
    half = run.output[: len(run.output) // 2]
    partial = context.runner.parse_again(context.artifact.parser, half)
    # The middle of the output depends on the times and paths in it, so the count is not recorded.
    context.log.append(RunRecord("parser", "half of the output", "read"))
    invented = _invented(partial.statuses, half)
    if invented is not None:
        return failed(CheckCode.TEST_INVENTED_FROM_HALF, test=invented[:200])
    return passed(CheckCode.OUTPUT_PARSED, count=len(run.statuses))


def _invented(statuses: Mapping[str, str], output: bytes) -> str | None:
    """Return the first id that the output does not hold, neither whole nor its function, plain or as a JSON string.

    The function is enough: a parser may build pytest's id from the output of another runner.
    """
    tokens = frozenset(_TOKEN.findall(output))
    for name in statuses:
        before, bracket, parameters = name.partition("[")
        function = before.rpartition("::")[2]
        is_present = any(form in tokens for form in _forms(function)) and (
            not bracket or any(form in output for form in _forms(bracket + parameters))
        )
        if not is_present and not any(form in output for form in _forms(name)):
            return name
    return None


def _forms(text: str) -> tuple[bytes, bytes]:
    return text.encode("utf-8", "surrogatepass"), json.dumps(text)[1:-1].encode()
