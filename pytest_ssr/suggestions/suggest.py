"""Search for a test that notices a surviving change, and verify it.

Tests that call the changed function show how it is called; variations of these calls are evaluated on the original and
on the changed code. The smallest call with another result becomes a test, which is shown only if pytest, in fresh
sandboxes and with several hash seeds, lets it pass on the original and fail with the change.
"""

from __future__ import annotations

import itertools
import posixpath
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from pytest_ssr.errors import SandboxError
from pytest_ssr.execution.baseline import Baseline
from pytest_ssr.execution.runner import Runner
from pytest_ssr.execution.test_runners import PytestRunner
from pytest_ssr.patch import FileEntry
from pytest_ssr.project.state import CodebaseState
from pytest_ssr.records.candidate_result import CandidateResult
from pytest_ssr.records.suggested_test import NoSuggestion, SuggestedTest
from pytest_ssr.records.test_run import Outcome
from pytest_ssr.suggestions.calls import Call
from pytest_ssr.suggestions.functions import Function, constants_in, function_at
from pytest_ssr.suggestions.literals import source_of
from pytest_ssr.suggestions.outcomes import (
    TEXT,
    CallOutcome,
    OutcomeKind,
    can_be_expected,
    evaluate,
    is_noticed,
    is_same,
)
from pytest_ssr.suggestions.recording import RecordedCalls, record_calls
from pytest_ssr.suggestions.skeleton import MOST_CHARACTERS, change_text, name_of, skeleton
from pytest_ssr.suggestions.variation import varied

_MOST_TESTS, _MOST_TESTS_S = 60, 20.0
"""Tests that show how a function is called, and the seconds that they may take."""
_MOST_CALLS, _MOST_FUNCTIONS, _MOST_TRIED = 400, 3, 3
"""Calls of one function; functions that lead to the changed code; tests that are verified for one survivor."""
_REPEATED_SEEDS, _PASSING_SEEDS, _FAILING_SEEDS = (1, 2), (0, 3, 4), (0, 1)
"""Hash seeds of repeated calls, and of the runs of a test on the original and on the changed code.

A result that depends on the order of a small set is often the same for two of them.
"""


@dataclass(frozen=True, slots=True)
class _Difference:
    """A call whose outcome the change alters."""

    call: Call
    expected: CallOutcome
    changed: CallOutcome
    attribute: str
    """Which attribute of the result shows it; empty for the result itself."""
    nearness: int
    """Position of the called function: the changed one is 0, its callers follow."""

    @property
    def order(self) -> tuple[object, ...]:
        """The best comes first: a public function, a value, values as in tests, a short call."""
        raises = self.expected.kind is OutcomeKind.RAISES
        text = self.call.expression
        is_private, is_part = not self.call.function.is_public, bool(self.attribute)
        is_text = self.attribute == TEXT
        return is_private, self.nearness, raises, self.call.steps, is_part, is_text, len(text), text, self.attribute

    @property
    def size(self) -> int:
        """How long a test of it is, in characters."""
        return len(self.call.expression) + len(source_of(self.expected.value))


class Suggester:
    """Suggests tests for the survivors of one project."""

    def __init__(self, runner: Runner, baseline: Baseline, files: Collection[str], *, seed: int) -> None:
        """files: the project's code."""
        self._runner, self._baseline, self._seed = runner, baseline, seed
        self._sources: Mapping[str, bytes] = {path: runner.snapshot.read(path) for path in sorted(files)}
        self._recorded: dict[Function, RecordedCalls] = {}

    def suggest(self, result: CandidateResult, changed: CodebaseState) -> SuggestedTest:
        """Return the test for a survivor, or the reason that none was found; changed: the state with the change."""
        try:
            found = self._search(result, changed)
        except SandboxError:
            # The run ended before this search began, so that the sandbox works: the project's code broke it.
            found = NoSuggestion.LIMIT
        test, folder, reason = ("", "", found) if isinstance(found, NoSuggestion) else (*found, None)
        return SuggestedTest(result.index, result.path, result.line, result.scope, test, folder, reason)

    def _search(self, result: CandidateResult, changed: CodebaseState) -> tuple[str, str] | NoSuggestion:
        """Return the source of a test and its folder."""
        if not isinstance(self._runner.test_runner, PytestRunner):
            return NoSuggestion.OTHER_RUNNER
        entry = changed.entry(result.path)
        function = function_at(result.path, self._sources.get(result.path, b""), result.line)
        if function is None or entry is None or len(changed.changes) != 1:
            return NoSuggestion.NO_FUNCTION
        tests = self._tests_of(function)
        if not tests:
            return NoSuggestion.NOT_REACHED
        recorded = self._recorded_calls(function, tests)
        if not any(recorded.calls.values()):
            return NoSuggestion.NO_LITERAL_INPUTS if recorded.is_whole else NoSuggestion.LIMIT
        constants = self._constants(function, entry.data, result)
        calls = self._calls(recorded, constants)
        differences = self._differences(calls, changed)
        if isinstance(differences, NoSuggestion):
            return differences
        folder = posixpath.dirname(tests[0].partition("::")[0])
        change = change_text(result.diff)
        short = (d for d in differences if d.size <= MOST_CHARACTERS)
        for difference in itertools.islice(short, _MOST_TRIED):
            source = skeleton(
                difference.call, difference.expected, difference.changed, change, attribute=difference.attribute
            )
            if self._is_verified(source, name_of(difference.call, difference.expected), folder, changed):
                return source, folder
        return NoSuggestion.NOT_VERIFIED

    def _tests_of(self, function: Function) -> list[str]:
        """Return tests that reach a function, few enough to run quickly."""
        reach, durations = self._baseline.reach, self._baseline.durations
        names: Collection[str] = self._baseline.stable
        if reach is not None and function.path in reach.spots:
            spots = reach.spots[function.path].items()
            bits = [b for (line, _), b in spots if function.first < line <= function.last]
            names = frozenset().union(*map(reach.names, set(bits)))
        usable = self._baseline.stable - self._baseline.doctests_in_code
        found = [test for test in self._baseline.collected if test in names and test in usable]
        step = max(1, len(found) / _MOST_TESTS)
        chosen: list[str] = []
        seconds = 0.0
        for test in [found[int(n * step)] for n in range(min(len(found), _MOST_TESTS))]:
            seconds += durations.get(test, 0.0)
            if chosen and seconds > _MOST_TESTS_S:
                break
            chosen.append(test)
        return chosen

    def _recorded_calls(self, function: Function, tests: Sequence[str]) -> RecordedCalls:
        if function not in self._recorded:
            seconds = sum(self._baseline.durations.get(test, 0.0) for test in tests)
            recorded = record_calls(self._runner, function, tests, self._sources, like_s=seconds)
            self._recorded[function] = recorded
        return self._recorded[function]

    def _constants(self, function: Function, new: bytes, result: CandidateResult) -> list[object]:
        """Return the literals of both versions of a function, those on the changed line first."""
        lines = [result.line]
        old = constants_in(self._sources[function.path], lines, function)
        both = [*constants_in(new, lines, function)[:4], *old]
        return list({(type(value), value): value for value in both}.values())

    def _calls(self, recorded: RecordedCalls, constants: Sequence[object]) -> list[tuple[int, Call]]:
        functions = [(n, f) for n, (f, calls) in enumerate(recorded.calls.items()) if calls]
        chosen = sorted(functions, key=lambda item: (not item[1].is_public, item[0]))[:_MOST_FUNCTIONS]
        return [
            (number, call)
            for number, function in chosen
            for call in varied(recorded.calls[function], constants, most=_MOST_CALLS, seed=self._seed)
        ]

    def _differences(
        self, numbered: Sequence[tuple[int, Call]], changed: CodebaseState
    ) -> list[_Difference] | NoSuggestion:
        """Return the calls that the change alters, the best for a test first."""
        runner, calls = self._runner, [call for _, call in numbered]
        first = evaluate(runner, runner.original, calls, hash_seed=0)
        others = [evaluate(runner, runner.original, calls, hash_seed=s, elsewhere=True) for s in _REPEATED_SEEDS]
        after = evaluate(runner, changed, calls, hash_seed=0)
        found, is_unsteady = [], False
        for (index, attribute), outcome in first.items():
            if not 0 <= index < len(calls) or not can_be_expected(outcome, self._sources):
                continue
            # What is returned instead of an object may have no such attribute.
            new = after.get((index, attribute), after.get((index, "")))
            if new is not None and is_noticed(outcome, new):
                if all(is_same(outcome, other.get((index, attribute))) for other in others):
                    nearness, call = numbered[index]
                    found.append(_Difference(call, outcome, new, attribute, nearness))
                else:
                    is_unsteady = True
        if found:
            return sorted(found, key=lambda difference: difference.order)
        if is_unsteady:
            return NoSuggestion.NOT_DETERMINISTIC
        return NoSuggestion.NO_DIFFERENCE if first and after else NoSuggestion.LIMIT

    def _is_verified(self, source: str, name: str, folder: str, changed: CodebaseState) -> bool:
        """Return whether a test passes on the original and fails with the change, every time."""
        path = self._free_path(folder)
        test = FileEntry(source.encode(), 0o100644)
        original, with_change = (state.replace({path: test}) for state in (self._runner.original, changed))
        runs = itertools.chain(
            ((original, seed, Outcome.PASSED) for seed in _PASSING_SEEDS),
            ((with_change, seed, Outcome.FAILED) for seed in _FAILING_SEEDS),
        )
        watched = set(changed.changes)
        for state, seed, outcome in runs:
            run = self._runner.fresh(state, [path], hash_seed=seed, like_s=self._baseline.seconds)
            result = run.results.get(f"{path}::{name}")
            has_change = state is original or watched <= run.exercised
            if run.fault or not has_change or result is None or result.outcome is not outcome:
                return False
        return True

    def _free_path(self, folder: str) -> str:
        names = (f"test_suggested_{n}.py" for n in itertools.count())
        return next(p for p in (posixpath.join(folder, n) for n in names) if p not in self._runner.snapshot.files)
