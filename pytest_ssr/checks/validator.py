"""Validate an artifact: the seven checks in order, then the controls, then the repeats.

Validation stops at the first step that fails; later steps are recorded as not run. A check costs only the runs that
earlier ones have not made: states with the same tree share their runs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import PurePosixPath

from pytest_ssr.checks import SEVEN, NamedCheck, names_of
from pytest_ssr.checks.context import (
    HASH_SEED,
    ORDER_SEED,
    Finding,
    ValidationContext,
    failed,
    passed,
    suite_fault,
)
from pytest_ssr.errors import ArtifactError, SandboxError
from pytest_ssr.execution.runner import Runner
from pytest_ssr.grading import Grade, grade_patch
from pytest_ssr.patch import FileEntry, Patch
from pytest_ssr.project.state import CodebaseState
from pytest_ssr.records.artifact import BugArtifact
from pytest_ssr.records.check_reasons import CheckCode, CheckReason
from pytest_ssr.records.test_run import SuiteRun
from pytest_ssr.records.verdict import CHECK_NAMES, CONTROL_NAMES, REPEAT_NAMES, CheckResult, Verdict

_COMMENT = b"# a comment, and nothing else, was added here\n"


def step_names(extra: Sequence[NamedCheck] = ()) -> tuple[str, ...]:
    """Return the names of all steps of a validation, in order."""
    return (*CHECK_NAMES, *names_of(extra), *CONTROL_NAMES, *REPEAT_NAMES)


class Validation:
    """Validates one artifact step by step, so that a caller can show each step as it ends."""

    def __init__(self, artifact: BugArtifact, runner: Runner, *, extra_checks: Sequence[NamedCheck] = ()) -> None:
        self.case = ValidationContext(artifact, runner)
        self._checks = (*SEVEN, *extra_checks)
        self._results: dict[str, CheckResult] = {}
        self._pending = self._steps()
        self._failed = False

    def result(self, name: str) -> CheckResult:
        """Return the result of one step, running it and the steps before it; `passed` is None after a failure."""
        while name not in self._results:
            self._advance()
        return self._results[name]

    def verdict(self) -> Verdict:
        """Run all steps and return the verdict."""
        names = step_names(self._checks[len(SEVEN) :])
        results = {name: self.result(name) for name in names}
        context = self.case
        return Verdict(
            artifact_id=context.artifact.content_id(context.runner.snapshot.tree_hash),
            tree_hash=context.runner.snapshot.tree_hash,
            checks=tuple(results[name] for name, _ in self._checks),
            controls=tuple(results[name] for name in CONTROL_NAMES),
            repeats=tuple(results[name] for name in REPEAT_NAMES),
            fail_to_pass=tuple(sorted(context.fail_to_pass)),
            pass_to_pass=tuple(sorted(context.pass_to_pass)) if context.fail_to_pass else (),
            set_aside=dict(sorted(context.set_aside.items())),
            files_control=dict(context.files_control),
            certified="script" if context.by_script else "selected" if context.selected else "full",
            surface=tuple(sorted(context.surface)),
            original_s=round(context.original_seconds, 3),
        )

    def _steps(self) -> Iterator[tuple[str, Callable[[], Finding]]]:
        for name, check in self._checks:
            yield name, lambda check=check: check(self.case)  # type: ignore[misc]
        artifact = self.case.artifact
        patches = (lambda: Patch.parse(b""), artifact.bug.reverse, lambda: artifact.weaken)
        for name, patch, expected in zip(CONTROL_NAMES, patches, (False, True, False), strict=True):
            yield name, lambda patch=patch, expected=expected: self._control(patch(), expected)  # type: ignore[misc]
        yield REPEAT_NAMES[0], lambda: self._repeat(self.case.original, "original", self.case.stable)
        yield REPEAT_NAMES[1], lambda: self._repeat(self.case.buggy, "buggy", self.case.pass_to_pass)

    def _advance(self) -> None:
        name, step = next(self._pending)
        if self._failed:
            self._results[name] = CheckResult(name, None, CheckReason(CheckCode.NOT_RUN))
            return
        self.case.log = []
        start = time.perf_counter()
        try:
            finding = step()
        except ArtifactError as error:
            finding = failed(CheckCode.DOES_NOT_APPLY, error=str(error))
        seconds = round(time.perf_counter() - start, 3)
        self._failed = not finding.passed
        reason = finding.reason
        if isinstance(reason, str):
            reason = CheckReason.of(CheckCode.OTHER, text=reason)
        self._results[name] = CheckResult(name, finding.passed, reason, seconds, tuple(self.case.log))

    def _control(self, patch: Patch, expected: bool) -> Finding:
        grade = self.grade(patch)
        if grade.resolved is None:
            raise SandboxError(grade.reason.text)
        details = {"grade": str(grade.reason.code), "cause": grade.reason.text}
        if grade.resolved is expected:
            return passed(CheckCode.GRADED_AS_EXPECTED, **details)
        return failed(CheckCode.NOT_RESOLVED if expected else CheckCode.RESOLVED_WITHOUT_REPAIR, **details)

    def grade(self, patch: Patch) -> Grade:
        """Grade a patch against what this validation established."""
        context = self.case
        return grade_patch(
            context.runner,
            context.artifact,
            patch,
            fail_to_pass=context.fail_to_pass,
            pass_to_pass=context.pass_to_pass,
            like_s=context.original_seconds or None,
            surface=context.surface,
            trusted=True,
        )

    def _repeat(self, state: CodebaseState, name: str, passing: frozenset[str]) -> Finding:
        """Repeat the tests with another hash seed and order, then with a comment added to the files of the bug."""

        def objection(run: SuiteRun) -> CheckReason | None:
            fault = suite_fault(run, self.case.runner.test_runner)
            if fault is not None:
                return CheckReason.of(CheckCode.REPEAT_FAILED, run=name, cause=fault.text)
            changed = (passing - run.passing) | ((self.case.stable - passing) & run.passing)
            return CheckReason.of(CheckCode.OUTCOMES_DIFFER, run=name, tests=changed) if changed else None

        # Whole files in the other order: tests that never reach the bug may see the state it leaves behind.
        whole = bool(state.changes)
        _, reason = self.case.judged(state, name, objection, hash_seed=HASH_SEED, order_seed=ORDER_SEED, whole=whole)
        if reason is None:
            name = f"{name} with a comment added"
            commented = state.replace(dict(self._commented(state)))
            shared = not state.changes
            _, reason = self.case.judged(commented, name, objection, hash_seed=HASH_SEED, shared=shared)
        if reason is not None:
            return Finding(False, reason)
        return passed(CheckCode.SAME_OUTCOMES, count=len(self.case.stable))

    def _commented(self, state: CodebaseState) -> Iterator[tuple[str, FileEntry]]:
        for path in self.case.artifact.bug.paths:
            entry = state.entry(path)
            if entry is not None and PurePosixPath(path).suffix in (".py", ".pyx", ".pxd", ".pyi"):
                ending = b"" if entry.data.endswith(b"\n") or not entry.data else b"\n"
                yield path, FileEntry(entry.data + ending + _COMMENT, entry.mode)


def validate(artifact: BugArtifact, runner: Runner, *, extra_checks: Sequence[NamedCheck] = ()) -> Verdict:
    """Validate one artifact; raises SandboxError if the sandbox fails, never for a bad artifact."""
    return Validation(artifact, runner, extra_checks=extra_checks).verdict()
