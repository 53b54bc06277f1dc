"""Make tests for surviving changes from the tests that run the changed code.

The statements of these tests, as they are and with other literals, are run on the original and on the changed code;
where they evaluate to something else, an assertion is missing. This is test amplification as of DSpot (Danglot et al.,
"Automatic test improvement with DSpot", 2019): inputs are varied, and what is observed becomes an assertion.
"""

from __future__ import annotations

import ast
import copy
import datetime
import itertools
import json
import posixpath
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from pytest_ssr.errors import SandboxError
from pytest_ssr.execution.runner import Runner
from pytest_ssr.execution.suite import run_suite
from pytest_ssr.patch import FileEntry
from pytest_ssr.project.state import CodebaseState
from pytest_ssr.records.suggested_test import NoSuggestion
from pytest_ssr.sandbox.protocol import MIB
from pytest_ssr.suggestions.calls import import_of
from pytest_ssr.suggestions.expressions import written
from pytest_ssr.suggestions.literals import Literal, imports_of, source_of
from pytest_ssr.suggestions.outcomes import (
    ELSEWHERE,
    CallOutcome,
    OutcomeKind,
    Place,
    can_be_expected,
    differ_in_container,
    is_noticed,
    is_same,
    outcome_at,
    parsed_outcomes,
)
from pytest_ssr.suggestions.skeleton import MOST_CHARACTERS, assertion_of, notices
from pytest_ssr.suggestions.test_code import TestCode, leaves, near, put, raises_in, test_code, without_observations
from pytest_ssr.suggestions.test_slices import TestFile, test_slice
from pytest_ssr.suggestions.verification import NewTest

_MOST_TESTS, _MOST_VARIANTS, _MOST_STATEMENTS, _MOST_LINES = 8, 160, 40, 120
_MOST_BYTES = 4 * MIB
_FLOOR_S, _MOST_S = 10.0, 30.0
_OTHER_SEED = 1
_MARKS = ("test_suggested_", "_ssr_", "_more0", "/pytest-of-", "/scratch/", " at 0x")
"""What only texts about a run hold."""
_NOTICES = "ssr_notices"
"""What stands in the place of the comments of a test."""


@dataclass(frozen=True, slots=True)
class Variant:
    """Statements of a test, with the number of the first one."""

    code: TestCode
    first: int

    @property
    def statements(self) -> list[ast.stmt]:
        """The statements to observe."""
        return list(itertools.islice(leaves(self.code.body), _MOST_STATEMENTS))

    @property
    def observed(self) -> ast.stmt:
        """The function that is run to observe the statements."""
        body = copy.deepcopy(self.code.body)
        for number, leaf in enumerate(list(itertools.islice(leaves(body), _MOST_STATEMENTS)), self.first):
            body = put(body, leaf, _observing(leaf, number))
        return self.code.with_body(body, f"{self.code.name}_ssr_{self.first}")


@dataclass(frozen=True, slots=True)
class Sighting:
    """A statement that evaluates to something else with a change."""

    variant: Variant
    number: int
    attribute: str
    expected: CallOutcome
    changed: CallOutcome

    @property
    def order(self) -> tuple[object, ...]:
        """The best comes first: the inputs of the test, a value, a short assertion."""
        code, raises = self.variant.code, self.expected.kind is OutcomeKind.RAISES
        is_shown = self.expected.kind in (OutcomeKind.VALUE, OutcomeKind.ITEMS)
        text = source_of(self.expected.value)
        return self.oddness, code.steps, raises, not is_shown, bool(self.attribute), self.number, len(text), text

    @property
    def oddness(self) -> int:
        """How unusual a test of it is: the inputs, and what it shows."""
        return self.variant.code.oddness + differ_in_container(self.expected, self.changed)

    @property
    def name(self) -> str:
        """The identifier of the test within its file."""
        code = self.variant.code
        return f"{code.owner}::{code.name}_more" if code.owner else f"{code.name}_more"

    def source(self, file: TestFile, changes: Sequence[str], *, is_short: bool) -> str:
        """Return a test file that demands what the original does.

        file: the one that has the test. is_short: whether to leave out what the test compares before.
        """
        code, expected = self.variant.code, self.expected
        leaf = self.variant.statements[self.number]
        imports = set(imports_of(expected.value))
        if expected.kind is OutcomeKind.RAISES:
            imports |= {"import pytest"}
            if expected.module != "builtins":
                imports |= {import_of(expected.module, expected.name)}
        demands = _demanding(leaf, self.attribute, expected, self.changed)
        body = put(code.body, leaf, demands, is_last=True)
        if is_short:
            body = without_observations(body, demands)
        function = code.with_body([ast.Expr(ast.Name(_NOTICES, ast.Load())), *body], f"{code.name}_more")
        before, _, after = test_slice(file, code.owner, [function], imports).partition(f"{_NOTICES}\n")
        head, _, indent = before.rpartition("\n")
        lines = [head, *(f"{indent}{line.strip()}" for line in notices(changes))]
        return "\n".join(lines) + f"\n{after}"


class Amplifier:
    """Finds tests for the changes of one project."""

    def __init__(self, runner: Runner, sources: Mapping[str, bytes]) -> None:
        """sources: the project's code."""
        self._runner, self._sources = runner, sources
        self._files: dict[str, TestFile | None] = {}
        self._known: dict[tuple[str, ...], dict[Place, CallOutcome]] = {}

    def sightings(
        self, tests: Sequence[str], constants: Sequence[Literal], changed: CodebaseState, *, like_s: float
    ) -> list[Sighting] | NoSuggestion:
        """Return what a change alters, the best for a test first, or the reason that there is nothing.

        tests: those that run the changed code. constants: values that matter. like_s: seconds that the tests take.
        Raises SandboxError.
        """
        variants = list(self._variants(tests, constants, like_s))
        if not variants:
            return NoSuggestion.NO_LITERAL_INPUTS
        before = self._on_original(variants)
        after = self._observe(variants, changed, hash_seed=0)
        places = _by_number(before)
        found = [s for variant in variants for s in self._differences(variant, places, after)]
        if not found:
            return NoSuggestion.NO_DIFFERENCE if before and after else NoSuggestion.LIMIT
        return sorted(found, key=lambda s: s.order)

    def source(self, sighting: Sighting, changes: Sequence[str], *, is_short: bool) -> str:
        """Return the test for a sighting, as `Sighting.source`; an empty text for one that is too long."""
        file = self._file(sighting.variant.code.path)
        if file is None or len(source_of(sighting.expected.value)) > MOST_CHARACTERS:
            return ""
        text = sighting.source(file, changes, is_short=is_short)
        return text if text.count("\n") - len(changes) <= _MOST_LINES else ""

    def _file(self, path: str) -> TestFile | None:
        """Return a test file of the project; None if it cannot be parsed, or is no file of the snapshot."""
        if path not in self._files:
            snapshot = self._runner.snapshot
            self._files[path] = TestFile.read(snapshot.read(path)) if path in snapshot.files else None
        return self._files[path]

    def _variants(self, tests: Sequence[str], constants: Sequence[Literal], like_s: float) -> Iterator[Variant]:
        """Yield the tests as they are, then with other literals, each test in turn."""
        names: dict[str, list[str]] = {}
        for test in tests:
            path, _, rest = test.partition("::")
            names.setdefault(path, []).append(rest.partition("[")[0])
        files = {path: file for path in names if (file := self._file(path)) is not None}
        codes = [code for path, file in files.items() for code in test_code(path, file.tree, names[path])]
        most = min(_MOST_VARIANTS, max(len(codes), int(_MOST_VARIANTS * _FLOOR_S / max(_FLOOR_S, 50 * like_s))))
        turns = itertools.zip_longest(*(near(code, constants) for code in codes[:_MOST_TESTS]))
        others = (code for turn in turns for code in turn if code is not None)
        first = 0
        for code in itertools.islice(itertools.chain(codes[:_MOST_TESTS], others), most):
            yield Variant(code, first)
            first += _MOST_STATEMENTS

    def _on_original(self, variants: Sequence[Variant]) -> dict[Place, CallOutcome]:
        """Return what the statements of variants always evaluate to on the original.

        Each variant is run twice for all survivors, the second time with another hash seed, time zone and user.
        """
        keys = {variant.first: variant.code.key for variant in variants}
        new = [variant for variant in variants if keys[variant.first] not in self._known]
        seen = self._observe(new, self._runner.original, hash_seed=0) if new else {}
        again = self._observe(new, self._runner.original, hash_seed=_OTHER_SEED, env=ELSEWHERE) if seen else {}
        for variant in new:
            self._known[keys[variant.first]] = {}
        for (place, attribute), outcome in seen.items():
            first = place - place % _MOST_STATEMENTS
            if first in keys and is_same(outcome, again.get((place, attribute))):
                self._known[keys[first]][place - first, attribute] = outcome
        return {
            (variant.first + number, attribute): outcome
            for variant in variants
            for (number, attribute), outcome in self._known[keys[variant.first]].items()
        }

    def _observe(
        self, variants: Sequence[Variant], state: CodebaseState, *, hash_seed: int, env: Mapping[str, str] | None = None
    ) -> dict[Place, CallOutcome]:
        """Return what the statements of variants evaluate to on a state of the code."""
        files = self._observing_files(variants)
        limits = replace(self._runner.limits, wall_s=_MOST_S)
        with self._runner.open(state.replace(files)) as sandbox:
            folder = f"{sandbox.scratch}/{secrets.token_hex(8)}"
            sandbox.write(f"{folder}/seen", b"")
            sandbox.write(f"{folder}/request", json.dumps({"out": f"{folder}/seen"}).encode())
            run_suite(
                sandbox,
                self._runner.interpreter,
                targets=sorted(files),
                options=self._runner.pytest_options,
                limits=limits,
                hash_seed=hash_seed,
                env={"SSR_SEEN": f"{folder}/request", **(env or {})},
                guests=("call_literals", "call_probe", "test_observer"),
                test_runner=self._runner.test_runner,
            )
            self._runner.counts.runs += 1
            try:
                raw = sandbox.read(f"{folder}/seen", max_bytes=_MOST_BYTES)
            except (FileNotFoundError, SandboxError):
                # The tests can write to the file, and delete it.
                return {}
        return parsed_outcomes(raw)

    def _observing_files(self, variants: Sequence[Variant]) -> dict[str, FileEntry]:
        """Return the files that run variants: one for each class, or module, that has tests of them."""
        groups: dict[tuple[str, str], list[Variant]] = {}
        for variant in variants:
            groups.setdefault((variant.code.path, variant.code.owner), []).append(variant)
        files: dict[str, FileEntry] = {}
        for (path, owner), group in groups.items():
            file = self._file(path)
            if file is None:
                continue
            source = test_slice(file, owner, [variant.observed for variant in group], ())
            folder = posixpath.dirname(path)
            # pytest refuses files of the same name in folders that are no packages.
            used = (posixpath.join(folder, posixpath.basename(other)) for other in files)
            new = NewTest.in_folder(folder, source, {*self._runner.snapshot.files, *used})
            files[new.path] = FileEntry(source.encode(errors="replace"), 0o100644)
        return files

    def _differences(
        self, variant: Variant, before: Mapping[int, Mapping[str, CallOutcome]], after: Mapping[Place, CallOutcome]
    ) -> Iterator[Sighting]:
        """Yield what differs in a variant, up to the first exception that does."""
        for number in range(len(variant.statements)):
            place = variant.first + number
            for attribute, expected in before.get(place, {}).items():
                changed = outcome_at(after, (place, attribute))
                if changed is None or not _is_noticed(expected, changed):
                    continue
                if expected.kind in (OutcomeKind.VALUE, OutcomeKind.ITEMS, OutcomeKind.RAISES):
                    if not can_be_expected(expected, self._sources) or is_of_this_run(expected.value):
                        continue
                yield Sighting(variant, number, attribute, expected, changed)
            old, new = before.get(place, {}).get(""), after.get((place, ""))
            if old != new and any(o is not None and o.kind is OutcomeKind.RAISES for o in (old, new)):
                # What follows is another story.
                return


def _by_number(outcomes: Mapping[Place, CallOutcome]) -> dict[int, dict[str, CallOutcome]]:
    """Return outcomes by the number of the statement, then by attribute."""
    found: dict[int, dict[str, CallOutcome]] = {}
    for (number, attribute), outcome in outcomes.items():
        found.setdefault(number, {})[attribute] = outcome
    return found


def is_of_this_run(value: Literal) -> bool:
    """Return whether a value holds the name of a file or a test that was run, a temporary path, an address or the day.

    Such a value is the same in all runs of now, and another one in the project, or tomorrow.
    """
    today = datetime.date.today()
    days = [today + datetime.timedelta(days=n) for n in (-1, 0, 1)]
    marks = [*_MARKS, *map(str, days), *(f"({day.year}, {day.month}, {day.day}" for day in days)]
    text = source_of(value)
    return any(mark in text for mark in marks)


def _is_noticed(expected: CallOutcome, changed: CallOutcome) -> bool:
    """Return whether a test of a statement may fail with a change; one without a value can only raise."""
    if expected.kind in (OutcomeKind.OTHER, OutcomeKind.OBJECT):
        return changed.kind is OutcomeKind.RAISES
    return is_noticed(expected, changed)


def _observing(leaf: ast.stmt, number: int) -> list[ast.stmt]:
    """Return what runs a statement and records what it evaluates to."""
    place = ast.Constant(number)
    if isinstance(leaf, ast.Expr):
        return [ast.Expr(ast.Call(ast.Name("__ssr_see__", ast.Load()), [place, leaf.value], []))]
    if raises_in(leaf) is not None and isinstance(leaf, ast.With):
        block = copy.copy(leaf)
        context = ast.Call(ast.Name("__ssr_raises__", ast.Load()), [place], [])
        block.items = [ast.withitem(context, leaf.items[0].optional_vars)]
        return [block]
    return [leaf, ast.Expr(ast.Call(ast.Name("__ssr_see__", ast.Load()), [place], []))]


def _demanding(leaf: ast.stmt, attribute: str, expected: CallOutcome, changed: CallOutcome) -> list[ast.stmt]:
    """Return what fails if a statement does not do what it does on the original."""
    inner = leaf.body if isinstance(leaf, ast.With) else [leaf]
    if expected.kind is OutcomeKind.RAISES:
        raises = ast.parse(f"pytest.raises({expected.name})", mode="eval").body
        return [ast.With([ast.withitem(raises)], inner)]
    if isinstance(leaf, ast.Expr) and expected.kind in (OutcomeKind.VALUE, OutcomeKind.ITEMS):
        lines = assertion_of(written(leaf.value), attribute, expected, changed)
        return ast.parse("\n".join(lines)).body
    return inner
