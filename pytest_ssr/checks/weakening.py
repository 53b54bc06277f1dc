"""Check 6, `test-weakening`: the weakening hides at least one failure, and the weakened suite runs and passes.

A share of its tests may fail if the settings allow that: the paper (section 2.3) asks for one hidden failure only.

It must not require the bug: tests that pass on the weakened state must not fail on the original with the weakening.
"""

from __future__ import annotations

from pytest_ssr.checks.context import Finding, ValidationContext, failed, passed, suite_fault
from pytest_ssr.records.check_reasons import CheckCode, CheckReason
from pytest_ssr.records.test_run import Outcome, RunStatus, SuiteRun

NAME = "test-weakening"


def check(context: ValidationContext) -> Finding:
    """Run the script on the weakened state; the test runner itself must confirm its result."""
    if not context.artifact.weaken.files:
        return failed(CheckCode.WEAKENING_EMPTY)
    run = context.script(context.weakened, "weakened")
    if run.fault is not None:
        return Finding(False, run.fault.on("weakened"))
    unproven = context.unproven(run)
    if unproven is not None and not context.set_aside:
        return Finding(False, unproven.on("weakened"))
    if not run.passing:
        return failed(CheckCode.NO_TEST_PASSES, state="weakened")
    not_passing = set(run.statuses) - run.passing
    hidden = context.fail_to_pass - not_passing
    if not hidden:
        return failed(CheckCode.NOTHING_HIDDEN, tests=context.fail_to_pass)
    failing = not_passing - set(context.set_aside)
    if len(failing) > context.settings.max_weakened_failing * len(run.statuses):
        return failed(CheckCode.WEAKENED_FAILS, tests=failing)
    if run.exit_code != 0 and not not_passing and not context.by_script:
        return failed(CheckCode.WEAKENED_EXIT_STATUS, status=str(run.exit_code))

    def objection(evidence: SuiteRun) -> CheckReason | None:
        fault = suite_fault(evidence, context.runner.test_runner)
        if fault is not None:
            return fault.on("weakened")
        before = context.suite(context.original, "original")
        if evidence.status is RunStatus.COLLECTION_ERROR and before.status is not RunStatus.COLLECTION_ERROR:
            return CheckReason.of(CheckCode.WEAKENED_NOT_COLLECTED, cause=evidence.reason)
        disputed = run.passing - evidence.passing
        # A doctest is weakened by skipping its examples, so that it is still collected.
        failed_here = {i for i, r in evidence.results.items() if r.outcome in (Outcome.FAILED, Outcome.ERROR)}
        unseen = (failed_here & context.fail_to_pass) - failing
        if disputed or unseen:
            return CheckReason.of(
                CheckCode.RUNS_DISAGREE, tests=disputed | unseen, state="weakened", **context.runner_detail
            )
        return None

    _, reason = context.judged(context.weakened, "weakened", objection)
    reason = reason or _requires_bug(context)
    if reason is not None:
        return Finding(False, reason)
    removed = len(context.fail_to_pass - set(run.statuses))
    return passed(CheckCode.FAILURES_HIDDEN, hidden=len(hidden), removed=removed, passing=len(run.passing))


def _requires_bug(context: ValidationContext) -> CheckReason | None:
    """Return why a weakening asserts what the buggy code does; None if it does not, as for our own weakening."""
    if context.runner.selection is not None:
        return None
    repaired = context.original.apply(context.artifact.weaken)
    with_bug, without = context.suite(context.weakened, "weakened"), context.suite(repaired, "original, weakened")
    lost = with_bug.passing - without.passing - set(context.set_aside)
    return CheckReason.of(CheckCode.WEAKENED_NEEDS_BUG, tests=lost) if lost else None
