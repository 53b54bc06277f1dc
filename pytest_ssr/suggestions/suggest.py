"""Search for a test that notices a surviving change, and verify it.

Tests that call the changed function show how it is called, and so do examples in docstrings, texts and tests;
variations of these calls are evaluated on the original and on the changed code. The plainest call with another result
becomes a test, which is shown only if pytest, in fresh sandboxes and with several hash seeds, lets it pass on the
original and fail with the change.
"""

from __future__ import annotations

import ast
import functools
import itertools
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from pytest_ssr.errors import SandboxError
from pytest_ssr.execution.baseline import Baseline
from pytest_ssr.execution.runner import Runner
from pytest_ssr.execution.test_runners import PytestRunner
from pytest_ssr.interrupts import TimeBudgetError
from pytest_ssr.project.state import CodebaseState
from pytest_ssr.records.candidate_result import CandidateResult
from pytest_ssr.records.suggested_test import NoSuggestion, SuggestedTest
from pytest_ssr.suggestions.amplification import Amplifier
from pytest_ssr.suggestions.calls import OPERATORS, AnyCall, Phrase, import_of
from pytest_ssr.suggestions.differences import differences
from pytest_ssr.suggestions.examples import examples_in, is_text, module_name
from pytest_ssr.suggestions.expressions import literals_in
from pytest_ssr.suggestions.found_tests import Found, FoundCall, FoundVariant, TestVerification
from pytest_ssr.suggestions.functions import Function, FunctionKind, constants_in, function_at, functions_of
from pytest_ssr.suggestions.literals import Expression, Literal, source_of
from pytest_ssr.suggestions.outcomes import AFTER, evaluate, is_noticed, outcome_at
from pytest_ssr.suggestions.phrases import callers_in, phrases_for, varied_phrases
from pytest_ssr.suggestions.recording import RecordedCalls, record_calls
from pytest_ssr.suggestions.skeleton import MOST_CHARACTERS, change_text, removed_lines
from pytest_ssr.suggestions.variation import varied

_MOST_CALLS, _MOST_INSTANCES, _MOST_VALUES = 60, 4, 12
_MOST_PARAMETERS = 2
_PLAIN: tuple[Literal, ...] = (1, 2, "a", [1, 2])
"""Values to try if no example has any."""


def invented_calls(function: Function, examples: Sequence[Expression], sources: Mapping[str, bytes]) -> list[Phrase]:
    """Return calls of a public function with at most two parameters to give, the shortest first."""
    module = module_name(function.path)
    is_special = function.name.startswith("__") and function.name not in OPERATORS
    if not module or not function.is_public or len(function.required) > _MOST_PARAMETERS:
        return []
    if is_special and function.kind is not FunctionKind.INIT:
        return []
    about = [e for e in examples if any(statement.startswith(f"from {module} import ") for statement in e.imports)]
    values = _values(about)
    given = itertools.product(values, repeat=len(function.required))
    keywords = [name if name.endswith("=") else "" for name in function.required]
    named = [", ".join(map("".join, zip(keywords, texts, strict=True))) for texts in given]
    subjects = _subjects(function, module, about, sources)
    pairs = [(subject, texts) for texts in named for subject in subjects]
    found = [Phrase(function, Expression(_call(function, s.source, t), s.imports), steps=1) for s, t in pairs]
    return sorted(found, key=lambda p: (len(p.expression), p.expression))[:_MOST_CALLS]


def _values(examples: Sequence[Expression]) -> list[str]:
    """Return the sources of values to try, those of examples first."""
    inner = [value for example in examples for value in literals_in(example)]
    texts = dict.fromkeys(sorted(map(source_of, inner), key=len))
    return list(dict.fromkeys([*itertools.islice(texts, _MOST_VALUES), *map(source_of, _PLAIN)]))


def _subjects(
    function: Function, module: str, examples: Sequence[Expression], sources: Mapping[str, bytes]
) -> list[Expression]:
    """Return what is called: the function, the class, or instances of the class."""
    owner = ".".join(function.names[:-1])
    own = Expression(owner or function.name, frozenset((import_of(module, owner or function.name),)))
    if function.kind not in (FunctionKind.METHOD, FunctionKind.PROPERTY):
        return [own]
    made = sorted((e for e in examples if _makes(e, owner)), key=lambda e: len(e.source))[:_MOST_INSTANCES]
    init = (*function.names[:-1], "__init__")
    needed = next((f.required for f in functions_of(function.path, sources[function.path]) if f.names == init), ())
    return made if needed else [Expression(f"{owner}()", own.imports), *made]


def _makes(example: Expression, owner: str) -> bool:
    node = ast.parse(example.source, mode="eval").body
    return isinstance(node, ast.Call) and ast.unparse(node.func) == owner


def _call(function: Function, subject: str, arguments: str) -> str:
    if function.kind in (FunctionKind.FUNCTION, FunctionKind.INIT):
        return f"{subject}({arguments})"
    if function.kind is FunctionKind.PROPERTY:
        return f"{subject}.{function.name}"
    if function.name in OPERATORS:
        return OPERATORS[function.name].format(subject, arguments, "", arguments=arguments)
    return f"{subject}.{function.name}({arguments})"


_MOST_TESTS, _MOST_TESTS_S = 60, 20.0
"""Tests that show how a function is called, and the seconds that they may take."""
_MOST_CALLS, _MOST_VARIED, _MOST_FUNCTIONS, _MOST_TRIED = 400, 300, 3, 3
"""Calls of one function; varied examples; functions that lead to the changed code; tests verified for one survivor."""


_AnyFound = TypeVar("_AnyFound", FoundCall, FoundVariant)


class Suggester:
    """Suggests tests for the survivors of one project."""

    def __init__(self, runner: Runner, baseline: Baseline, files: Collection[str], *, seed: int) -> None:
        """files: the project's code."""
        self._runner, self._baseline, self._seed = runner, baseline, seed
        self._sources: Mapping[str, bytes] = {path: runner.snapshot.read(path) for path in sorted(files)}
        self._recorded: dict[Function, RecordedCalls] = {}
        self._amplifier = Amplifier(runner, self._sources)
        self._verification = TestVerification(runner, baseline)
        self._found: list[Found] = []
        self._confirmed: set[int] = set()

    def suggest(self, result: CandidateResult, changed: CodebaseState) -> SuggestedTest:
        """Return the test for a survivor, or the reason that none was found; changed: the state with the change.

        It has passed on the original once; `confirm` runs it, and others, in fresh processes. A test that was found for
        an earlier survivor is returned again if it notices this one, too.
        """
        where = result.index, result.path, result.line, result.scope
        change = change_text(result.diff)
        known: Found | None = None
        try:
            known = self._known(changed)
            found = known if known is not None and self._oddness(known) == 0 else self._search(result, changed)
        except (SandboxError, RecursionError):
            # The run ended before this search began, so that the sandbox works: the project's code broke it. Code that
            # is nested very deeply can be read, but neither copied nor written.
            found = NoSuggestion.LIMIT
        except TimeBudgetError:
            if known is None:
                raise
            found = known
        if known is not None and (isinstance(found, NoSuggestion) or self._oddness(known) <= self._oddness(found)):
            found = known
        if isinstance(found, NoSuggestion):
            return SuggestedTest(*where, reason=found)
        first = found.index if found.index != result.index else None
        if first is None:
            self._found.append(found)
        return SuggestedTest(
            *where, found.source((change,)), found.folder,
            change=change, same_as=first, file=found.file, oddness=self._oddness(found),
        )  # fmt: skip

    def _known(self, changed: CodebaseState) -> Found | None:
        """Return an earlier test that notices a change."""
        if not self._found or len(changed.changes) != 1:
            return None
        calls = [found for found in self._found if isinstance(found, FoundCall)]
        variants = [found for found in self._found if isinstance(found, FoundVariant)]
        after = (
            evaluate(self._runner, changed, [found.difference.call for found in calls], hash_seed=0) if calls else {}
        )
        for number, found in enumerate(calls):
            difference = found.difference
            new = outcome_at(after, (number, difference.attribute))
            if new is not None and is_noticed(difference.expected, new) and self._verification.fails(found, changed):
                return found
        return next((found for found in variants[-_MOST_TRIED:] if self._verification.fails(found, changed)), None)

    def _search(self, result: CandidateResult, changed: CodebaseState) -> Found | NoSuggestion:
        """Return a test that was not known before, with usual inputs if there is one."""
        if not isinstance(self._runner.test_runner, PytestRunner):
            return NoSuggestion.OTHER_RUNNER
        entry = changed.entry(result.path)
        function = function_at(result.path, self._sources.get(result.path, b""), result.line)
        if function is None or entry is None or len(changed.changes) != 1:
            return NoSuggestion.NO_FUNCTION
        constants = self._constants(function, entry.data, result)
        call = self._call(result, function, constants, changed)
        if isinstance(call, FoundCall) and self._oddness(call) == 0:
            return call
        try:
            variant = self._variant(result, function, changed)
        except (SandboxError, RecursionError, TimeBudgetError):
            if isinstance(call, NoSuggestion):
                raise
            return call
        if isinstance(variant, NoSuggestion):
            return call
        is_usual = isinstance(call, FoundCall) and self._oddness(call) <= self._oddness(variant)
        return call if is_usual else variant

    def _oddness(self, found: Found) -> int:
        """Return how unusual a test is; it counts if it reads an attribute that no test of the project reads."""
        attribute = found.attribute.removeprefix(AFTER)
        is_hidden = attribute and not attribute.startswith("__") and attribute not in self._attributes
        return found.oddness + bool(is_hidden)

    @functools.cached_property
    def _attributes(self) -> frozenset[str]:
        """The attributes that the project's tests read."""
        code = b"\n".join(map(self._runner.snapshot.read, self._baseline.files)).decode(errors="replace")
        return frozenset(re.findall(r"\.\s*(\w+)", code))

    def _call(
        self, result: CandidateResult, function: Function, constants: Sequence[object], changed: CodebaseState
    ) -> FoundCall | NoSuggestion:
        """Return a test with a call of the function, or of one that leads to it."""
        tests = self._tests_of(function.path, function.first, function.last)
        recorded = self._recorded_calls(function, tests)
        calls = [*self._calls(recorded, constants), *self._phrases(function, recorded, constants)]
        if not calls:
            empty = NoSuggestion.NO_LITERAL_INPUTS if recorded.is_whole else NoSuggestion.LIMIT
            return empty if tests else NoSuggestion.NOT_REACHED
        ordered = differences(self._runner, calls, changed, self._sources)
        if isinstance(ordered, NoSuggestion):
            return ordered
        file = (tests or self._usable())[0].partition("::")[0]
        short = (d for d in ordered if d.size <= MOST_CHARACTERS)
        candidates = [FoundCall(result.index, difference, file) for difference in short]
        candidates.sort(key=lambda found: (found.difference.call.is_private, self._oddness(found)))
        return self._verified(candidates[:_MOST_TRIED], changed)

    def _variant(
        self, result: CandidateResult, function: Function, changed: CodebaseState
    ) -> FoundVariant | NoSuggestion:
        """Return a test made from one that runs the changed line; if no test does, from one that runs the function."""
        lines, reach = removed_lines(result.diff), self._baseline.reach
        if reach is not None and not reach.runs_some(result.path, lines):
            return NoSuggestion.NOT_REACHED
        tests = self._tests_of(result.path, min(lines) - 1, max(lines)) if lines else []
        tests = tests or self._tests_of(result.path, function.first, function.last)
        if not tests:
            return NoSuggestion.NOT_REACHED
        seconds = sum(self._baseline.durations.get(test, 0.0) for test in tests)
        # Those of the original alone: all changes of a function share what its tests do there.
        constants = constants_in(self._sources[function.path], (), function)
        ordered = self._amplifier.sightings(tests, constants, changed, like_s=seconds)
        if isinstance(ordered, NoSuggestion):
            return ordered
        short = [FoundVariant(result.index, sighting, self._amplifier, is_short=True) for sighting in ordered]
        short.sort(key=self._oddness)
        candidates = (replace(f, is_short=is_short) for f in short[:_MOST_TRIED] for is_short in (True, False))
        return self._verified((c for c in candidates if c.source(())), changed)

    def _verified(self, candidates: Iterable[_AnyFound], changed: CodebaseState) -> _AnyFound | NoSuggestion:
        """Return the first test that passes on the original and fails with a change."""
        for found in candidates:
            if self._verification.passes(found) and self._verification.fails(found, changed):
                return found
        return NoSuggestion.NOT_VERIFIED

    def _usable(self) -> list[str]:
        """Return the tests whose functions a person has written."""
        usable = self._baseline.stable - self._baseline.doctests_in_code
        return [test for test in self._baseline.collected if test in usable]

    def _tests_of(self, path: str, first: int, last: int) -> list[str]:
        """Return tests that reach a line after the first and up to the last, few enough to run quickly."""
        reach, durations = self._baseline.reach, self._baseline.durations
        names: Collection[str] = self._baseline.stable
        if reach is not None and path in reach.spots:
            bits = [b for (line, _), b in reach.spots[path].items() if first < line <= last]
            names = frozenset().union(*map(reach.names, set(bits)))
        found = [test for test in self._usable() if test in names]
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
        if not tests:
            return RecordedCalls({}, is_whole=True)
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

    def _phrases(
        self, function: Function, recorded: RecordedCalls, constants: Sequence[object]
    ) -> Iterator[tuple[int, AnyCall]]:
        """Yield the examples that may call a function, and variations of them, with the nearness."""
        chosen = phrases_for(function, self._examples, self._callers)
        if not recorded.calls.get(function):
            invented = [(0, phrase) for phrase in invented_calls(function, self._examples, self._sources)]
            chosen = [*invented, *chosen]
        for steps, group in itertools.groupby(chosen, key=lambda item: item[0]):
            phrases = [phrase for _, phrase in group]
            most = _MOST_VARIED * len(phrases) // len(chosen)
            for phrase in varied_phrases(phrases, constants, most=most, seed=self._seed):
                yield steps, phrase

    @functools.cached_property
    def _examples(self) -> list[Expression]:
        snapshot = self._runner.snapshot
        tests = {path: snapshot.read(path) for path in self._baseline.files}
        texts = {path: snapshot.read(path) for path in snapshot.files if is_text(path)}
        return examples_in(self._sources, tests, texts)

    @functools.cached_property
    def _callers(self) -> Mapping[str, frozenset[Function]]:
        return callers_in(self._sources)

    def _calls(self, recorded: RecordedCalls, constants: Sequence[object]) -> list[tuple[int, AnyCall]]:
        functions = [(n, f) for n, (f, calls) in enumerate(recorded.calls.items()) if calls]
        chosen = sorted(functions, key=lambda item: (not item[1].is_public, item[0]))[:_MOST_FUNCTIONS]
        return [
            (number, call)
            for number, function in chosen
            for call in varied(recorded.calls[function], constants, most=_MOST_CALLS, seed=self._seed)
        ]

    def confirm(self, suggestions: Sequence[SuggestedTest]) -> list[SuggestedTest]:
        """Return suggestions without the tests that do not pass on the original in fresh processes, every time.

        The tests run together, and those that fail so run again alone.
        """
        found = {f.index: f for f in self._found if f.index not in self._confirmed}
        asked = {s.index if s.same_as is None else s.same_as for s in suggestions if s.test}
        open_ = [found[index] for index in sorted(asked & found.keys())]
        passing = self._verification.always_passing(open_)
        passing += [f for f in open_ if f not in passing and self._verification.always_passing([f])]
        self._confirmed |= {f.index for f in passing}
        self._found = [f for f in self._found if f not in open_ or f in passing]
        return [self._as_confirmed(suggested) for suggested in suggestions]

    def _as_confirmed(self, suggested: SuggestedTest) -> SuggestedTest:
        first = suggested.index if suggested.same_as is None else suggested.same_as
        if not suggested.test or first in self._confirmed:
            return suggested
        return replace(suggested, test="", change="", same_as=None, reason=NoSuggestion.NOT_VERIFIED)
