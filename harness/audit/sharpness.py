"""Change the solution of a task in many small ways, and count the changes that its tests notice."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import PurePosixPath

from harness.audit.card import ChangeStatus, Sharpness, SolutionChange
from harness.audit.hard_coded import OPERATOR, hard_coded
from harness.datasets.instance_task import InstanceTask
from pytest_ssr.campaign.artifact_builder import candidate_state
from pytest_ssr.campaign.campaign import Campaign
from pytest_ssr.campaign.factory import load_injectors
from pytest_ssr.campaign.survivors import equivalence_of
from pytest_ssr.errors import NothingToDoError, ProjectError, SandboxError, SettingsError
from pytest_ssr.injectors.hunk_reverts import effect_of
from pytest_ssr.injectors.protocol import Candidate, Injector, SourceTree
from pytest_ssr.injectors.recorded import GivenInjector
from pytest_ssr.injectors.revision_filter import ProjectDiff, diff_since
from pytest_ssr.interrupts import TimeBudgetError, raise_if_stopped, until
from pytest_ssr.patch import Patch
from pytest_ssr.project.state import CodebaseState
from pytest_ssr.records.candidate_result import CandidateResult, CandidateStatus
from pytest_ssr.records.check_reasons import CheckCode
from pytest_ssr.records.reasons import Reason, ReasonCode
from pytest_ssr.records.suggested_test import SuggestedTest
from pytest_ssr.storage.store import Store
from pytest_ssr.suggestions.suggest import Suggester

OPERATORS = "mutation,removal"
_REVERTED = "revert-hunk"
_RELEASE = re.compile(r"_*version_*|_*about_*|_*release_*")
"""Modules that hold the number of a release, which no test should demand."""
_FOR_CHANGES = 0.6
"""The share of the time for changes; the rest is for the proofs of survivors."""
_STATUSES = {
    CandidateStatus.NOTICED: ChangeStatus.NOTICED,
    CandidateStatus.TIMED_OUT: ChangeStatus.NOTICED,
    CandidateStatus.SURVIVED: ChangeStatus.SURVIVED,
}


def sharpness_of(
    task: InstanceTask,
    store: Store,
    *,
    most: int,
    deadline: float,
    report: Callable[[str], None] = lambda _: None,
) -> Sharpness:
    """Return what the tests of a task notice of changes in the functions that its solution changes.

    Each change is put into the solved code; one that tests which decide do not notice is proven by a test that does,
    if one is found. most: how many changes are tried. deadline: a time of `time.monotonic`, after which nothing further
    is tried. report: called with what is being done. Raises SandboxError.
    """
    unsolved = task.runner.original.apply(task.artifact.bug)
    diff = solution_diff(task, unsolved)
    if not diff.lines:
        return Sharpness(problem=Reason(ReasonCode.NO_CODE_CHANGED))
    try:
        with until(deadline):
            campaign = _campaign(task, store, unsolved, diff)
    except (NothingToDoError, ProjectError, SettingsError) as error:
        return Sharpness(problem=Reason(ReasonCode.NO_CODE_CHANGED, str(error)))
    except TimeBudgetError:
        return Sharpness(problem=Reason(ReasonCode.OUT_OF_TIME))
    try:
        return _judged(campaign, most, deadline, report)
    finally:
        campaign.close()


def solution_diff(task: InstanceTask, unsolved: CodebaseState) -> ProjectDiff:
    """Return the functions that the solution of a task changes, in the solved code."""
    snapshot = task.runner.snapshot
    changed = [path for path in snapshot.code_paths() if path in unsolved.changes]
    before = {path: entry.data if (entry := unsolved.entry(path)) is not None else None for path in changed}
    return diff_since(snapshot, before, task.instance.key)


def _campaign(task: InstanceTask, store: Store, unsolved: CodebaseState, diff: ProjectDiff) -> Campaign:
    deciding = task.tests.failing | task.tests.passing

    def opened(own: Sequence[Candidate]) -> Campaign:
        return Campaign(
            task.runner.scoped(),
            store,
            [
                GivenInjector(own),
                *(OwnLines(injector, diff) for injector in load_injectors(OPERATORS)),
                *load_injectors(OPERATORS),
            ],
            seed=0,
            tests=task.files,
            diff=diff,
            judges_only=True,
            deciding=deciding,
        )

    first = opened(())
    try:
        own = [*reverted_hunks(task.runner.original, task.artifact.bug)]
        # The code under test may break the run that records its calls.
        with contextlib.suppress(SandboxError):
            own += hard_coded(first, unsolved, task.tests.failing)
    finally:
        first.close()
    return opened(own)


class OwnLines:
    """An injector whose candidates begin on lines that the solution adds."""

    def __init__(self, injector: Injector, diff: ProjectDiff) -> None:
        self.name = f"{injector.name} of own lines"
        self._injector, self._diff = injector, diff

    def candidates(self, tree: SourceTree, *, seed: int) -> Iterator[Candidate]:
        """Yield these candidates."""
        for candidate in self._injector.candidates(tree, seed=seed):
            raise_if_stopped()
            if is_own(self._diff, candidate.path, candidate.line):
                yield candidate


def is_own(diff: ProjectDiff | None, path: str, line: int) -> bool:
    """Return whether the solution adds a line, counted from 1, of a file."""
    return diff is not None and line in diff.edited.get(path, ())


def reverted_hunks(solved: CodebaseState, bug: Patch) -> Iterator[Candidate]:
    """Yield the solution without one of its hunks, for each hunk; nothing for a solution of one hunk."""
    parts = bug.split_hunks()
    for part in parts if len(parts) > 1 else ():
        change = part.files[0]
        state = solved.apply(part)
        entry, before = state.entry(change.path), solved.entry(change.path)
        path = PurePosixPath(change.path)
        if entry is None or before is None or not _stands_alone(before.data, entry.data):
            continue
        if path.suffix != ".py" or _RELEASE.fullmatch(path.stem) or not change.hunks:
            continue
        yield Candidate(
            strategy=_REVERTED,
            operator=_REVERTED,
            changes={path: entry.data if entry is not None else None for path, entry in state.changes.items()},
            path=change.path,
            line=change.hunks[0].old_start,
            scope="",
            detail="a hunk of the solution reverted",
        )


def _stands_alone(before: bytes, after: bytes) -> bool:
    """Return whether a part of a solution can be missing by itself: what is left parses, and lacks no name."""
    old, new = effect_of(before), effect_of(after)
    return old is not None and new is not None and new.unbound <= old.unbound


def _judged(campaign: Campaign, most: int, deadline: float, report: Callable[[str], None]) -> Sharpness:
    results = []
    begin = time.monotonic()
    end = begin + _FOR_CHANGES * (deadline - begin)
    with until(end):
        for index in range(most):
            report(f"change {index + 1}")
            result = campaign.attempt(index)
            if result is None:
                break
            results.append(result)
    try:
        with until(deadline):
            planned = campaign.count(most)
    except TimeBudgetError:
        planned = len(results)
    tests = _proofs(campaign, [r for r in results if r.status is CandidateStatus.SURVIVED], deadline, report)
    changes = tuple(_change(campaign, result, tests.get(result.index)) for result in results)
    problem = None
    if not changes:
        problem = Reason(ReasonCode.OUT_OF_TIME if planned else ReasonCode.NO_CODE_CHANGED)
    return Sharpness(changes, planned, problem)


def _proofs(
    campaign: Campaign, survivors: Sequence[CandidateResult], deadline: float, report: Callable[[str], None]
) -> dict[int, SuggestedTest]:
    """Return the tests that notice survivors, by the index of the survivor."""
    suggester = Suggester(campaign.runner, campaign.baseline, campaign.snapshot.allowed or (), seed=campaign.seed)
    found: list[SuggestedTest] = []
    for result in survivors:
        candidate = campaign.candidate(result.index)
        if candidate is None or equivalence_of(result, campaign.snapshot.read) is not None:
            continue
        report(f"a test for survivor {result.index + 1}")
        try:
            with until(deadline):
                found.append(suggester.suggest(result, candidate_state(campaign.snapshot, candidate)))
        except TimeBudgetError:
            break
    report("the new tests again")
    return {suggested.index: suggested for suggested in suggester.confirm(found)}


def _change(campaign: Campaign, result: CandidateResult, test: SuggestedTest | None) -> SolutionChange:
    status = _STATUSES.get(result.status, ChangeStatus.UNDECIDED)
    if result.strategy == OPERATOR and status is ChangeStatus.NOTICED:
        # It may fail for another reason than what it returns: other functions of the file are as before, too.
        status = ChangeStatus.UNDECIDED
    sign = ""
    if status is ChangeStatus.SURVIVED:
        equivalence = equivalence_of(result, campaign.snapshot.read)
        if equivalence is not None:
            status, sign = ChangeStatus.EQUIVALENT, str(equivalence)
        elif result.reason is not None and result.reason.code is CheckCode.NOT_REACHED:
            status = ChangeStatus.NOT_REACHED
    return SolutionChange(
        status,
        result.operator,
        result.path,
        result.line,
        result.scope,
        result.detail,
        result.diff,
        sign=sign,
        is_own=is_own(campaign.diff, result.path, result.line) or result.strategy in (_REVERTED, OPERATOR),
        no_proof=test.reason if test is not None else None,
        test=test.test if test is not None else "",
        test_file=test.file if test is not None else "",
        shown_by=test.change if test is not None else "",
    )
