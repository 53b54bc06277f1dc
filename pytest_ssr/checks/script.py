"""Check 3, `test-script`: enough tests pass on the original, by the script and by pytest itself.

The script is not trusted alone: pytest with our own reporter runs the listed files in a sandbox without the script,
and again with another hash seed and order; tests that do not pass each time are set aside by name.
"""

from __future__ import annotations

from pytest_ssr.checks.context import (
    HASH_SEED,
    ORDER_SEED,
    Finding,
    ValidationContext,
    failed,
    passed,
    suite_fault,
)
from pytest_ssr.records.check_reasons import CheckCode
from pytest_ssr.records.test_run import SetAside

NAME = "test-script"


def check(context: ValidationContext) -> Finding:
    """Establish the stable tests: those that pass on the original every time."""
    run = context.original_script or context.script(context.original, "original")
    objection = context.unproven(run)
    if objection is not None:
        return Finding(False, objection.on("original"))
    most = context.settings.script_limit_s
    if most and run.seconds > most:
        return failed(CheckCode.SCRIPT_TOO_SLOW, seconds=round(run.seconds, 1), most=most, state="original")
    evidence = context.suite(context.original, "original")
    context.original_seconds = max(run.seconds, evidence.seconds)
    fault = suite_fault(evidence, context.runner.test_runner)
    if fault is not None:
        return Finding(False, fault.on("original"))
    unknown = sorted(set(run.statuses) - set(evidence.collected))
    if unknown:
        return failed(CheckCode.TEST_NOT_COLLECTED, tests=unknown, **context.runner_detail)
    again = context.suite(context.original, "original", hash_seed=HASH_SEED, order_seed=ORDER_SEED)
    for name in sorted(run.statuses):
        passes = (name in run.passing, name in evidence.passing, name in again.passing)
        if not any(passes):
            context.set_aside[name] = SetAside.FAILED
        elif not all(passes):
            context.set_aside[name] = SetAside.FLICKERS
    context.stable = run.passing - set(context.set_aside)
    count, excluded, required = len(context.stable), len(context.set_aside), context.settings.min_passing_tests
    if count < required:
        return failed(CheckCode.TOO_FEW_PASS, count=count, required=required, excluded=excluded, state="original")
    return passed(CheckCode.ORIGINAL_PASSES, count=count, excluded=excluded)
