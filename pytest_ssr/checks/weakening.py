"""Check 6, `test-weakening`: the weakening hides at least one failure, and the weakened suite runs and passes."""

from __future__ import annotations

from pytest_ssr.checks.context import Finding, ValidationContext
from pytest_ssr.records.test_run import RunStatus, SuiteRun, abbreviate

NAME = "test-weakening"


def check(context: ValidationContext) -> Finding:
    """Run the script on the weakened state; pytest itself must confirm its result."""
    if not context.artifact.weaken.files:
        return Finding(False, "test_weaken.diff is empty")
    run = context.script(context.weakened, "weakened")
    if run.fault:
        return Finding(False, f"on the weakened state: {run.fault}")
    if run.contradiction and not context.set_aside:
        return Finding(False, f"on the weakened state {run.contradiction}")
    if not run.passing:
        return Finding(False, "no test passes on the weakened state")
    failed = set(run.statuses) - run.passing
    hidden = context.fail_to_pass - failed
    if not hidden:
        return Finding(False, f"{abbreviate(context.fail_to_pass)} still fails after the weakening")
    failing = failed - set(context.set_aside)
    if failing:
        return Finding(False, f"the weakened suite does not pass: {abbreviate(list(failing))} fails")
    if run.exit_code != 0 and not failed:
        return Finding(False, f"the weakened suite does not pass: the script ended with status {run.exit_code}")

    def objection(evidence: SuiteRun) -> str:
        if evidence.fault:
            return f"pytest itself on the weakened state: {evidence.fault}"
        before = context.suite(context.original, "original")
        if evidence.status is RunStatus.COLLECTION_ERROR and before.status is not RunStatus.COLLECTION_ERROR:
            return f"the weakened suite cannot be collected: {evidence.reason}"
        disputed = run.passing - evidence.passing
        unseen = (set(evidence.results) & context.fail_to_pass) - evidence.passing
        if disputed or unseen:
            return f"script and pytest disagree on the weakened state about {abbreviate(disputed | unseen)}"
        return ""

    _, reason = context.judged(context.weakened, "weakened", objection)
    if reason:
        return Finding(False, reason)
    removed = len(context.fail_to_pass - set(run.statuses))
    return Finding(True, f"{len(hidden)} failures hidden, {removed} of them by removal; {len(run.passing)} tests pass")
