"""Check 3, `test-script`: on the original enough tests pass, by the script and by pytest itself.

The script's word is not taken alone: pytest with our own reporter runs the listed files in a sandbox without the
script, once more with another hash seed and another order, and tests that do not pass each time are set aside by name.
"""

from __future__ import annotations

from pytest_ssr.checks.case import HASH_SEED, ORDER_SEED, Case, Finding
from pytest_ssr.outcomes import some

NAME = "test-script"


def check(case: Case) -> Finding:
    """Establish the stable tests: those that pass on the original every time."""
    run = case.original_script or case.script(case.original, "original")
    if run.fault:
        return Finding(False, f"on the original: {run.fault}")
    if run.contradiction:
        return Finding(False, f"on the original {run.contradiction}")
    evidence = case.suite(case.original, "original")
    case.original_seconds = max(run.seconds, evidence.seconds)
    if evidence.fault:
        return Finding(False, f"pytest itself on the listed files of the original: {evidence.fault}")
    unknown = sorted(set(run.statuses) - set(evidence.collected))
    if unknown:
        return Finding(False, f"{some(unknown)}: no such test is collected by pytest in the listed files")
    again = case.suite(case.original, "original", hash_seed=HASH_SEED, order_seed=ORDER_SEED)
    for name in sorted(run.statuses):
        passes = (name in run.passing, name in evidence.passing, name in again.passing)
        if not any(passes):
            case.set_aside[name] = "fails on the original"
        elif not all(passes):
            case.set_aside[name] = "flickers on the original"
    case.stable = run.passing - set(case.set_aside)
    least = case.settings.min_passing_tests
    if len(case.stable) < least:
        aside = f"; set aside: {some(list(case.set_aside))}" if case.set_aside else ""
        return Finding(False, f"{len(case.stable)} tests pass on the original, {least} are required{aside}")
    aside = f", {len(case.set_aside)} set aside" if case.set_aside else ""
    return Finding(True, f"{len(case.stable)} tests pass on the original{aside}")
