"""Audit task directories of Harbor, whose verifiers are black boxes: each grade is a run of the verifier."""

from __future__ import annotations

import itertools
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from harness.audit.card import (
    Card,
    Cause,
    ChangeStatus,
    Condition,
    Cost,
    Sharpness,
    SolutionChange,
    Soundness,
    Unsound,
    UnsteadyTest,
)
from harness.audit.narrowness import narrowness_of_texts
from harness.audit.sealing import harbor_sealing
from harness.audit.sharpness import OPERATORS, OwnLines, is_own, reverted_hunks
from harness.evaluation.harbor_grading import HarborGrade, OpenTask
from harness.harbor.trial import Trial
from pytest_ssr.campaign.artifact_builder import candidate_state, diff_text
from pytest_ssr.campaign.factory import load_injectors
from pytest_ssr.injectors.protocol import Candidate
from pytest_ssr.injectors.revision_filter import ProjectDiff, diff_since, restrict_to_diff
from pytest_ssr.injectors.sampler import interleave
from pytest_ssr.project.state import CodebaseState
from pytest_ssr.records.reasons import Reason, ReasonCode
from pytest_ssr.sandbox.protocol import MIB
from pytest_ssr.source.equivalence import common_equivalence

VERIFIER = "the verifier"
"""What an unsteady test of a task directory is called: which test it is, only its verifier knows."""
_REPEATS: tuple[tuple[Condition, Mapping[str, str]], ...] = (
    (Condition.PLAIN, {}),
    (Condition.HASH_SEED, {"PYTHONHASHSEED": "1"}),
    (Condition.TIME_ZONE, {"TZ": "AAA-13:45"}),
    (Condition.PLAIN, {}),
    (Condition.HASH_SEED, {"PYTHONHASHSEED": "2"}),
)
_CAUSES = {Condition.HASH_SEED: Cause.HASH_SEED, Condition.TIME_ZONE: Cause.TIME_ZONE}
_MOST_TEST_BYTES = 1 << 20


def harbor_card(opened: OpenTask, *, most: int, begin: float, time_s: float, report: Callable[[str], None]) -> Card:
    """Audit an open task; see `AuditWork`. begin: a time of `time.monotonic`. Raises SandboxError."""
    if not opened.reference:
        problem = Reason(ReasonCode.INSTANCE_UNUSABLE, f"{opened.instance.id} has no reference solution")
        return Card(opened.instance.id, problem=problem, sealed=harbor_sealing(opened, deadline=begin + time_s))
    report("repeating its reference runs")
    sound, grade_s = _soundness(opened, begin + 0.3 * time_s)
    if not sound.conditions:
        return Card(opened.instance.id, problem=Reason(ReasonCode.OUT_OF_TIME))
    report("changing its solution")
    sharp = _sharpness(opened, most, begin + 0.75 * time_s, report)
    report("trying forgeries")
    sealed = harbor_sealing(opened, deadline=begin + time_s)
    snapshot = opened.first.snapshot
    size = sum((snapshot.directory / path).lstat().st_size for path in snapshot.files)
    narrow = narrowness_of_texts(
        _tests(opened), opened.reference, opened.original, opened.first, opened.instance.statement
    )
    cost = Cost(round(grade_s, 3), tree_mib=round(size / MIB, 3))
    return Card(opened.instance.id, sound=sound, sharp=sharp, narrow=narrow, sealed=sealed, cost=cost)


def _soundness(opened: OpenTask, deadline: float) -> tuple[Soundness, float]:
    """Repeat the grades of the reference solution and of nothing; also return the seconds of one of the former."""
    wrong: dict[Condition, list[bool]] = defaultdict(list)
    empty_resolved, grade_s, repeats = False, 0.0, 0
    for condition, environment in _REPEATS:
        if time.monotonic() > deadline:
            break
        task = in_environment(opened, environment)
        begin = time.monotonic()
        solved = _verdict(task, opened.reference)
        grade_s = grade_s or time.monotonic() - begin
        empty = _verdict(task, "")
        if solved is None or empty is None:
            continue
        repeats += 1
        empty_resolved |= empty
        wrong[condition].append(empty or not solved)
    unsteady = tuple(_unsteady(wrong))
    problems = [Unsound.EMPTY_RESOLVES] if empty_resolved else []
    problems += [Unsound.UNSTEADY] if unsteady else []
    return Soundness(tuple(problems), unsteady, tuple(wrong), is_cut=repeats < len(_REPEATS)), grade_s


def _verdict(task: OpenTask, patch: str) -> bool | None:
    """Return whether a verifier accepts a patch; None if it gives no reward twice, as on a machine that is too busy."""
    for _ in range(2):
        grade = task.grade(patch)
        if grade.resolved or grade.reason.code in (ReasonCode.TESTS_FAIL, ReasonCode.NO_PATCH):
            return grade.resolved
    return None


def in_environment(opened: OpenTask, environment: Mapping[str, str]) -> OpenTask:
    """Return a task whose verifier has more environment variables."""
    steps = [
        replace(s, verification=replace(s.verification, env={**s.verification.env, **environment}))
        for s in opened.trial.task.steps
    ]
    return replace(opened, trial=Trial(opened.trial.engine, replace(opened.trial.task, steps=tuple(steps))))


def _unsteady(wrong: Mapping[Condition, list[bool]]) -> Iterator[UnsteadyTest]:
    if any(wrong.get(Condition.PLAIN, ())):
        yield UnsteadyTest(VERIFIER, Cause.FLICKERS)
        return
    for condition, cause in _CAUSES.items():
        if any(wrong.get(condition, ())):
            yield UnsteadyTest(VERIFIER, cause)


def _sharpness(opened: OpenTask, most: int, deadline: float, report: Callable[[str], None]) -> Sharpness:
    solved, diff = opened.original, _diff(opened)
    if len(opened.trial.task.steps) > 1:
        return Sharpness(problem=Reason(ReasonCode.UNSUPPORTED_TASK, "it has several steps"))
    if not diff.lines:
        return Sharpness(problem=Reason(ReasonCode.NO_CODE_CHANGED))
    candidates = list(itertools.islice(_candidates(opened, solved, diff), most))
    changes: list[SolutionChange] = []
    for number, candidate in enumerate(candidates, 1):
        if time.monotonic() > deadline:
            break
        report(f"change {number} of {len(candidates)}")
        changes.append(_tried(opened, solved, diff, candidate))
    problem = None
    if not changes:
        problem = Reason(ReasonCode.OUT_OF_TIME if candidates else ReasonCode.NO_CODE_CHANGED)
    return Sharpness(tuple(changes), len(candidates), problem)


def _diff(opened: OpenTask) -> ProjectDiff:
    """Return what the reference solution changes in Python code."""
    first, snapshot = opened.first, opened.original.snapshot
    changed = [p for p in snapshot.code_paths() if first.entry(p) != snapshot.entry(p)]
    before = {path: entry.data if (entry := first.entry(path)) is not None else None for path in changed}
    return diff_since(snapshot, before, opened.instance.key)


def _candidates(opened: OpenTask, solved: CodebaseState, diff: ProjectDiff) -> Iterator[Candidate]:
    injectors = [restrict_to_diff(injector, diff) for injector in load_injectors(OPERATORS)]
    snapshot = replace(solved.snapshot, allowed=frozenset(diff.lines))
    own = [OwnLines(injector, diff) for injector in injectors]
    sources = [reverted_hunks(solved, opened.artifact.bug)]
    sources += [injector.candidates(snapshot, seed=0) for injector in (*own, *injectors)]
    seen = set()
    for candidate in interleave(sources):
        name = tuple(sorted(candidate.changes.items()))
        if name not in seen:
            seen.add(name)
            yield candidate


def _tried(opened: OpenTask, solved: CodebaseState, diff: ProjectDiff, candidate: Candidate) -> SolutionChange:
    state = candidate_state(solved.snapshot, candidate)
    files = [(p, entry.data, data) for p, data in candidate.changes.items() if (entry := solved.entry(p)) is not None]
    equivalence = common_equivalence(files)
    is_same = equivalence is not None
    return SolutionChange(
        ChangeStatus.EQUIVALENT if is_same else _status(opened.grade(_patch_of(opened, state))),
        candidate.operator,
        candidate.path,
        candidate.line,
        candidate.scope,
        candidate.detail,
        diff_text(state),
        sign=str(equivalence or ""),
        is_own=is_own(diff, candidate.path, candidate.line),
    )


def _status(grade: HarborGrade) -> ChangeStatus:
    if grade.resolved:
        return ChangeStatus.SURVIVED
    is_graded = grade.reason.code in (ReasonCode.TESTS_FAIL, ReasonCode.TIMED_OUT)
    return ChangeStatus.NOTICED if is_graded else ChangeStatus.UNDECIDED


def _patch_of(opened: OpenTask, changed: CodebaseState) -> str:
    """Return the work that leads to a changed solution, as a diff from the tree at the beginning."""
    first, snapshot = opened.first, changed.snapshot
    paths = {*snapshot.files, *first.snapshot.files, *changed.changes}
    work = first.replace({path: changed.entry(path) for path in paths if changed.entry(path) != first.entry(path)})
    return work.patch_from(first).data.decode("utf-8", "surrogateescape")


def _tests(opened: OpenTask) -> dict[str, bytes]:
    """Return the files of the verifiers' tests by their names."""
    found = {}
    for step in opened.trial.task.steps:
        for folder in step.verification.tests:
            for path in sorted(folder.rglob("*.py")):
                if path.is_file() and not path.is_symlink() and path.stat().st_size <= _MOST_TEST_BYTES:
                    found[str(path.relative_to(folder))] = path.read_bytes()
    return found
