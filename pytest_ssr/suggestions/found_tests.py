"""Represent tests that were found for survivors, and run them on the original and on the changed code."""

from __future__ import annotations

import posixpath
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from pytest_ssr.errors import SandboxError
from pytest_ssr.execution.baseline import Baseline
from pytest_ssr.execution.runner import Runner
from pytest_ssr.project.state import CodebaseState
from pytest_ssr.records.test_run import Outcome
from pytest_ssr.suggestions.amplification import Amplifier, Sighting
from pytest_ssr.suggestions.differences import Difference
from pytest_ssr.suggestions.skeleton import name_of, skeleton
from pytest_ssr.suggestions.verification import FAILING_SEEDS, PASSING_SEEDS, NewTest


@dataclass(frozen=True, slots=True)
class FoundCall:
    """A test that was found for a survivor: a call whose outcome the change alters."""

    index: int
    """The index of the survivor's result."""
    difference: Difference
    file: str
    """The file of a test that calls the function."""

    @property
    def folder(self) -> str:
        """The folder of that file."""
        return posixpath.dirname(self.file)

    @property
    def oddness(self) -> int:
        """How unusual its inputs are, and what it looks at."""
        return self.difference.oddness

    @property
    def attribute(self) -> str:
        """The attribute that it looks at, as in `Difference`."""
        return self.difference.attribute

    @property
    def name(self) -> str:
        """The name of the test function."""
        return name_of(self.difference.call, self.difference.expected)

    def source(self, changes: Sequence[str]) -> str:
        """Return the test file, with comments on what it notices."""
        d = self.difference
        return skeleton(d.call, d.expected, d.changed, changes, attribute=d.attribute)


@dataclass(frozen=True, slots=True)
class FoundVariant:
    """A test that was made from one of the project's."""

    index: int
    sighting: Sighting
    amplifier: Amplifier
    is_short: bool

    @property
    def file(self) -> str:
        """The file of the test that it was made from."""
        return self.sighting.variant.code.path

    @property
    def folder(self) -> str:
        """The folder of that file."""
        return posixpath.dirname(self.file)

    @property
    def oddness(self) -> int:
        """How unusual its inputs are, and what it looks at."""
        return self.sighting.oddness

    @property
    def attribute(self) -> str:
        """The attribute that it looks at, as in `Difference`."""
        return self.sighting.attribute

    @property
    def name(self) -> str:
        """The name of the test within its file."""
        return self.sighting.name

    def source(self, changes: Sequence[str]) -> str:
        """Return the test file, with comments on what it notices."""
        return self.amplifier.source(self.sighting, changes, is_short=self.is_short)


Found: TypeAlias = FoundCall | FoundVariant


class TestVerification:
    """Runs the tests that were found for the survivors of one project."""

    __test__ = False

    def __init__(self, runner: Runner, baseline: Baseline) -> None:
        self._runner, self._baseline = runner, baseline

    def always_passing(self, found: Sequence[Found]) -> list[Found]:
        """Return the tests that pass on the original in fresh processes with several hash seeds, together."""
        placed: dict[str, tuple[Found, NewTest]] = {}
        for one in found:
            test = NewTest.in_folder(one.folder, one.source(()), self._runner.snapshot.files, first=len(placed))
            placed[test.path] = one, test
        state = self._runner.original.replace({path: test.entry for path, (_, test) in placed.items()})
        passing = set(placed)
        for hash_seed in PASSING_SEEDS if placed else ():
            try:
                run = self._runner.fresh(state, sorted(placed), hash_seed=hash_seed, like_s=self._baseline.seconds)
            except SandboxError:
                # The sandbox works, so the project's code broke it.
                return []
            passing &= {p for p, (one, _) in placed.items() if not run.fault and f"{p}::{one.name}" in run.passing}
        return [one for path, (one, _) in placed.items() if path in passing]

    def passes(self, found: Found) -> bool:
        """Return whether a test passes on the original once."""
        return self._ends_in(found, self._runner.original, Outcome.PASSED)

    def fails(self, found: Found, changed: CodebaseState) -> bool:
        """Return whether a test fails with a change, also in a fresh process."""
        fresh = FAILING_SEEDS[-1]
        return self._ends_in(found, changed, Outcome.FAILED) and self._ends_in(
            found, changed, Outcome.FAILED, fresh_seed=fresh
        )

    def _ends_in(self, found: Found, state: CodebaseState, outcome: Outcome, *, fresh_seed: int | None = None) -> bool:
        """Return whether a test has an outcome on a state, in a fork of a warm process if that is possible."""
        test = NewTest.in_folder(found.folder, found.source(()), self._runner.snapshot.files)
        run = test.run(self._runner, state, fresh_seed, like_s=self._baseline.seconds)
        result = run.results.get(f"{test.path}::{found.name}")
        return (
            not run.fault and set(state.changes) <= run.exercised and result is not None and result.outcome is outcome
        )
