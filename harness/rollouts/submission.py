"""Decide what is graded at the end of an attempt."""

from __future__ import annotations

from dataclasses import dataclass

from harness.records.trajectory import is_submitted
from harness.solvers.protocol import Solution
from pytest_ssr.patch import Patch
from pytest_ssr.records.reasons import Reason, ReasonCode


@dataclass(frozen=True, slots=True)
class Submission:
    """What an attempt leaves for the grade."""

    patch: Patch | None
    """The patch to grade; None if there is nothing to grade."""
    resolved: bool | None
    """The verdict without a grade: False if nothing was submitted; None for an aborted attempt and for a patch."""
    reason: Reason
    status: str
    """The rollout's status; aborted also if the submitted patch is lost."""


def submission_of(solution: Solution, *, grade_unsubmitted: bool) -> Submission:
    """Return what an attempt leaves for the grade.

    grade_unsubmitted: also grade the changes of an attempt that ended without a submission.
    """
    done, patch = solution.trajectory, solution.patch
    submitted = is_submitted(done)
    if done.status == "aborted":
        reason = Reason(ReasonCode.ATTEMPT_ABORTED, f"{done.exit_reason}: {done.detail}")
        return Submission(_graded_patch(patch, submitted or grade_unsubmitted), None, reason, done.status)
    if submitted and patch is None:
        return Submission(None, None, Reason(ReasonCode.ATTEMPT_ABORTED, "what was handed in is gone"), "aborted")
    patch = _graded_patch(patch, submitted or grade_unsubmitted)
    if patch is None:
        ended = f"{done.exit_reason}: {done.detail}" if done.detail else str(done.exit_reason)
        return Submission(None, False, Reason(ReasonCode.NO_PATCH, f"the attempt ended by {ended}"), done.status)
    return Submission(patch, None, Reason(ReasonCode.NOT_GRADED), done.status)


def _graded_patch(patch: Patch | None, is_graded: bool) -> Patch | None:
    return patch if is_graded and patch is not None and patch.data.strip() else None
