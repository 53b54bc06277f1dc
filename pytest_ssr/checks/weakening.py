"""Check 6, `test-weakening`: the weakening hides at least one failure, and the weakened suite runs and passes."""

from __future__ import annotations

from pytest_ssr.checks.case import Case, Finding
from pytest_ssr.outcomes import RunStatus, SuiteRun, some

NAME = "test-weakening"


def check(case: Case) -> Finding:
    """Run the script on the weakened state; pytest itself must bear it out."""
    if not case.artifact.weaken.files:
        return Finding(False, "test_weaken.diff is empty")
    run = case.script(case.weakened, "weakened")
    if run.fault:
        return Finding(False, f"on the weakened state: {run.fault}")
    if run.contradiction and not case.set_aside:
        return Finding(False, f"on the weakened state {run.contradiction}")
    if not run.passing:
        return Finding(False, "no test passes on the weakened state")
    failed = set(run.statuses) - run.passing
    hidden = case.fail_to_pass - failed
    if not hidden:
        return Finding(False, f"{some(case.fail_to_pass)} still fails after the weakening")
    left = failed - set(case.set_aside)
    if left:
        return Finding(False, f"the weakened suite does not pass: {some(list(left))} fails")
    if run.exit_code != 0 and not failed:
        return Finding(False, f"the weakened suite does not pass: the script ended with status {run.exit_code}")

    def objection(evidence: SuiteRun) -> str:
        if evidence.fault:
            return f"pytest itself on the weakened state: {evidence.fault}"
        before = case.suite(case.original, "original")
        if evidence.status is RunStatus.COLLECTION_ERROR and before.status is not RunStatus.COLLECTION_ERROR:
            return f"the weakened suite cannot be collected: {evidence.reason}"
        disputed = run.passing - evidence.passing
        unseen = (set(evidence.results) & case.fail_to_pass) - evidence.passing
        if disputed or unseen:
            return f"script and pytest disagree on the weakened state about {some(disputed | unseen)}"
        return ""

    _, reason = case.judged(case.weakened, "weakened", objection)
    if reason:
        return Finding(False, reason)
    gone = len(case.fail_to_pass - set(run.statuses))
    return Finding(True, f"{len(hidden)} failures hidden, {gone} of them by removal; {len(run.passing)} tests pass")
