"""Forgeries on rows: SWE-bench's rule accepts several, and the grade of this package none."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import pytest

from harness.audit.forgery_kit import row_forgeries
from harness.audit.sealing import TESTS, _grade, _RowVerifier, row_sealing
from pytest_ssr.grading import unsolved_state
from pytest_ssr.records.reasons import ReasonCode

pytestmark = [pytest.mark.long, pytest.mark.bubblewrap]

REFUSED = {"exits-at-import", "deselects-tests", "skips-tests"}
"""Without a line that says so, SWE-bench's rule takes no test for passed."""


def later(seconds: float = 300.0) -> float:
    return time.monotonic() + seconds


@pytest.mark.parametrize("index", [0, 1, 2, 3, 4])
def test_a_solution_is_accepted_by_both_and_the_bug_by_none(rows: Any, index: int) -> None:
    """Otherwise the tests below would prove nothing."""
    instance = rows.instances[index]
    task = rows.grader.task(instance)
    verifier, start = _RowVerifier(instance, task), unsolved_state(task.runner, task.artifact)
    assert verifier.accepts(task.runner.original, later()) is True
    assert verifier.accepts_patch(task.artifact.bug.reverse(), later()) is True
    assert _grade(rows.grader, task, task.artifact.bug.reverse()) is True
    assert verifier.accepts(start, later()) is False


def test_each_forgery_is_refused_here_and_most_are_accepted_by_a_log(rows: Any) -> None:
    instance = rows.instances[0]
    sealing = row_sealing(rows.grader, instance, rows.grader.task(instance), deadline=later())
    assert [r.forgery for r in sealing.forgeries] == [f.name for f in row_forgeries()]
    assert {r.ours for r in sealing.forgeries} == {False}
    assert set(sealing.accepted) == {f.name for f in row_forgeries()} - REFUSED
    assert (sealing.leaks, sealing.verifier, sealing.problem) == ((), TESTS, None)


def test_a_new_function_can_be_forged_as_well(rows: Any) -> None:
    """Its tests cannot even be imported, unless a forgery provides the name."""
    instance = rows.instances[1]
    sealing = row_sealing(rows.grader, instance, rows.grader.task(instance), deadline=later())
    assert {r.ours for r in sealing.forgeries} == {False}
    assert {"prints-results", "prints-at-exit", "runs-nothing", "equals-everything"} <= set(sealing.accepted)


def test_tests_of_another_runner_are_forged_without_pytest(rows: Any) -> None:
    instance = rows.instances[2]
    sealing = row_sealing(rows.grader, instance, rows.grader.task(instance), deadline=later())
    assert {r.ours for r in sealing.forgeries} == {False}
    assert {"prints-results", "runs-nothing", "asserts-nothing", "equals-everything"} <= set(sealing.accepted)
    assert not {f.name for f in row_forgeries() if f.needs_pytest} & {r.forgery for r in sealing.forgeries}


def test_a_row_s_own_command_decides(rows: Any) -> None:
    """It compares what a process prints, and no forgery of the kit knows that."""
    instance = rows.instances[3]
    sealing = row_sealing(rows.grader, instance, rows.grader.task(instance), deadline=later())
    assert {(r.own, r.ours) for r in sealing.forgeries} == {(False, False)}


def test_a_row_of_another_language_is_not_called_sealed(rows: Any) -> None:
    instance = rows.instances[4]
    sealing = row_sealing(rows.grader, instance, rows.grader.task(instance), deadline=later())
    assert sealing.forgeries == ()
    assert sealing.problem is not None
    assert sealing.problem.code is ReasonCode.OTHER_LANGUAGE


def test_after_the_deadline_nothing_is_tried(rows: Any) -> None:
    instance = rows.instances[0]
    sealing = row_sealing(rows.grader, instance, rows.grader.task(instance), deadline=time.monotonic())
    assert (sealing.forgeries, sealing.leaks, sealing.problem) == ((), (), None)


def test_a_verifier_that_refuses_the_solution_gives_no_verdict(rows: Any) -> None:
    instance = rows.instances[0]
    task = rows.grader.task(instance)
    unknown = replace(instance, pass_to_pass=(*instance.pass_to_pass, "tests/test_shop.py::test_unknown"))
    sealing = row_sealing(rows.grader, unknown, task, deadline=later(12.0))
    assert sealing.forgeries
    assert {r.own for r in sealing.forgeries} == {None}


def test_a_sandbox_that_fails_is_the_problem(rows: Any) -> None:
    instance = rows.instances[0]
    task = rows.grader.task(instance)
    snapshot = replace(task.runner.snapshot, directory=task.runner.snapshot.directory / "gone")
    broken = replace(task, runner=replace(task.runner, snapshot=snapshot))
    sealing = row_sealing(rows.grader, instance, broken, deadline=later())
    assert sealing.problem is not None
    assert sealing.problem.code in (ReasonCode.SANDBOX_FAILED, ReasonCode.INSTANCE_UNUSABLE)
    assert sealing.forgeries == ()
