"""Run a new test file on the original and on changed code, several times in fresh sandboxes with other hash seeds."""

from __future__ import annotations

import itertools
import posixpath
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from enum import StrEnum

from pytest_ssr.execution.runner import Runner
from pytest_ssr.patch import FileEntry
from pytest_ssr.project.state import CodebaseState
from pytest_ssr.records.test_run import Outcome, RunStatus, SuiteRun

PASSING_SEEDS, FAILING_SEEDS = (0, 3, 4), (0, 1)
"""Hash seeds of the runs of a test on the original and on the changed code."""
_NOTICING = (Outcome.FAILED, Outcome.ERROR)
_MOST_MESSAGES = 3


@dataclass(frozen=True, slots=True)
class NewTest:
    """A test file that the project does not have."""

    path: str
    source: str

    @classmethod
    def in_folder(cls, folder: str, source: str, files: Collection[str], *, first: int = 0) -> NewTest:
        """Return a test file with a name that is free in a folder.

        files: those of the project. first: the number that is tried first; pytest imports some files by their names
        alone, so that files that run together need different ones.
        """
        names = (f"test_suggested_{n}.py" for n in itertools.count(first))
        return cls(next(p for p in (posixpath.join(folder, n) for n in names) if p not in files), source)

    @property
    def entry(self) -> FileEntry:
        """The file as an entry of a tree."""
        return FileEntry(self.source.encode(), 0o100644)

    def run(self, runner: Runner, state: CodebaseState, fresh_seed: int | None, *, like_s: float) -> SuiteRun:
        """Return a run of the test on a state.

        fresh_seed: hash seed of a fresh process; None: seed 0, in a fork of a warm process if that is possible.
        """
        with_test = state.replace({self.path: self.entry})
        if fresh_seed is None:
            return runner.suite(with_test, [self.path], like_s=like_s, whole=True)[0]
        return runner.fresh(with_test, [self.path], hash_seed=fresh_seed, like_s=like_s)

    def runs(
        self, runner: Runner, state: CodebaseState, hash_seeds: Collection[int], *, like_s: float
    ) -> Iterator[SuiteRun]:
        """Yield a run of the test on a state for each hash seed. like_s: the seconds of a run of all tests."""
        for hash_seed in hash_seeds:
            yield self.run(runner, state, hash_seed, like_s=like_s)


class Verdict(StrEnum):
    """Whether a test notices a change."""

    VERIFIED = "verified"
    """It passes on the original and fails with the change, every time."""
    ORIGINAL = "does-not-pass-on-the-original"
    CHANGE = "does-not-fail-with-the-change"


@dataclass(frozen=True, slots=True)
class Verification:
    """What the runs of a test show."""

    verdict: Verdict
    runs: int
    messages: tuple[str, ...]
    """Why it does not pass on the original, or how it fails with the change: untrusted text."""


def verify(runner: Runner, changed: CodebaseState, test: NewTest, *, like_s: float) -> Verification:
    """Return whether a test file notices a change: all of its tests pass on the original, and one fails with it.

    like_s: the seconds of a run of all tests.
    """
    for number, run in enumerate(test.runs(runner, runner.original, PASSING_SEEDS, like_s=like_s), 1):
        if run.status is not RunStatus.COMPLETED or not run.results or len(run.passing) < len(run.results):
            return Verification(Verdict.ORIGINAL, number, _messages(run))
    always: frozenset[str] | None = None
    messages: tuple[str, ...] = ()
    for number, run in enumerate(test.runs(runner, changed, FAILING_SEEDS, like_s=like_s), 1 + len(PASSING_SEEDS)):
        failing = frozenset(name for name, result in run.results.items() if result.outcome in _NOTICING)
        always = failing if always is None else always & failing
        messages = _messages(run)
        if run.fault or not always or not set(changed.changes) <= run.exercised:
            return Verification(Verdict.CHANGE, number, messages)
    return Verification(Verdict.VERIFIED, len(PASSING_SEEDS) + len(FAILING_SEEDS), messages)


def _messages(run: SuiteRun) -> tuple[str, ...]:
    """Return what a run says of the tests that do not pass, or of itself."""
    others = ((name, result) for name, result in run.results.items() if not result.outcome.is_pass)
    lines = [f"{name}: {result.outcome}: {result.message}" for name, result in others]
    if run.fault or not run.results:
        lines.insert(0, f"{run.status}: {run.reason}")
    return tuple(lines[:_MOST_MESSAGES])
