"""Check 3, `test-script`: enough tests pass on the original, by the script and by pytest itself.

The script is not trusted alone: pytest with our own reporter runs the listed files in a sandbox without the script,
and again with another hash seed and order; tests that do not pass each time are set aside by name.
"""

from __future__ import annotations

from pytest_ssr.checks.context import HASH_SEED, ORDER_SEED, Finding, ValidationContext
from pytest_ssr.records.test_run import abbreviate

NAME = "test-script"


def check(context: ValidationContext) -> Finding:
    """Establish the stable tests: those that pass on the original every time."""
    run = context.original_script or context.script(context.original, "original")
    if run.fault:
        return Finding(False, f"on the original: {run.fault}")
    if run.contradiction:
        return Finding(False, f"on the original {run.contradiction}")
    evidence = context.suite(context.original, "original")
    context.original_seconds = max(run.seconds, evidence.seconds)
    if evidence.fault:
        return Finding(False, f"pytest itself on the listed files of the original: {evidence.fault}")
    unknown = sorted(set(run.statuses) - set(evidence.collected))
    if unknown:
        return Finding(False, f"{abbreviate(unknown)}: no such test is collected by pytest in the listed files")
    again = context.suite(context.original, "original", hash_seed=HASH_SEED, order_seed=ORDER_SEED)
    for name in sorted(run.statuses):
        passes = (name in run.passing, name in evidence.passing, name in again.passing)
        if not any(passes):
            context.set_aside[name] = "fails on the original"
        elif not all(passes):
            context.set_aside[name] = "flickers on the original"
    context.stable = run.passing - set(context.set_aside)
    least = context.settings.min_passing_tests
    if len(context.stable) < least:
        aside = f"; set aside: {abbreviate(list(context.set_aside))}" if context.set_aside else ""
        return Finding(False, f"{len(context.stable)} tests pass on the original, {least} are required{aside}")
    aside = f", {len(context.set_aside)} set aside" if context.set_aside else ""
    return Finding(True, f"{len(context.stable)} tests pass on the original{aside}")
