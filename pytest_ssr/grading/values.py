"""What code computes in the tests of a bug, written down and compared outside: with their inputs, and with others.

Tests are planted that assert nothing: they write the values that the real ones compare, once as they stand, once with
an input changed at random. The original says what the values are, the buggy state which of them the bug shows in.
A process can report what it likes, but for inputs drawn just now it has to compute the right value to write it. What a
test leaves open, a repair may do otherwise: two values that are equal as the test asks are right whatever they are, and
of what is only bounded, whether it holds is compared.
"""

from __future__ import annotations

import ast
import math
import random
import string
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from pytest_ssr.codebase import CodebaseState
from pytest_ssr.errors import SandboxError
from pytest_ssr.execution.workbench import Workbench
from pytest_ssr.grading.asking import END, EQUAL, NEAR, asking, inputs_of, recorder_of
from pytest_ssr.grading.bases import tests_of
from pytest_ssr.grading.twins import Function, Garden
from pytest_ssr.outcomes import RunStatus
from pytest_ssr.patch import FileEntry
from pytest_ssr.quiet import recorded_warnings

_MOST_FUNCTIONS, _VARIED, _LEAST_SHARE, _NEARLY_BY = 8, 4, 0.5, 1e-3
_MOST_LINE, _ROOM_S = 50_000, 10.0
_T = TypeVar("_T")


class _Unread:
    """Stands for a value that cannot be written down."""

    def __repr__(self) -> str:
        return "?"


_UNREAD = _Unread()


@dataclass(frozen=True, slots=True)
class _Record:
    """One comparison of a test."""

    kind: str
    """`equal`: two values, then whether they are. `near`: what an assertion of one's own gets. `holds`: whether."""
    values: tuple[object, ...]

    @property
    def is_read(self) -> bool:
        """Whether it compares values, and all of them could be written down."""
        return self.kind in (EQUAL, NEAR) and not any(v is _UNREAD for v in self.values)

    @property
    def computed(self) -> tuple[object, ...]:
        """What hangs on the test's inputs."""
        return self.values[:1] if self.kind == EQUAL else self.values


_Records = Mapping[str, list[_Record]]


@dataclass(frozen=True, slots=True)
class Answer:
    """What the values say about a state."""

    forged: str = ""
    """Where a value is not the original's, though the tests that compare it pass."""
    unrepaired: str = ""
    """Where values for other inputs are mostly not the original's."""
    told: frozenset[str] = frozenset()
    """FAIL_TO_PASS functions that compare a value which shows the bug, and is right here."""
    untold: tuple[str, ...] = ()
    """The others."""
    untried: tuple[str, ...] = ()
    """FAIL_TO_PASS functions for which no other input was found that shows the bug."""
    left_out: tuple[str, ...] = ()
    """Other functions that were not asked, as there was no time."""


class Values:
    """Planted tests of one artifact, and what they write on the original and on the buggy state."""

    def __init__(
        self,
        bench: Workbench,
        buggy: CodebaseState,
        files: Sequence[str],
        fail_to_pass: Collection[str],
        others: Collection[str],
        chance: random.Random,
        *,
        every: bool = False,
    ) -> None:
        """Run them on both states; raises SandboxError when the sandbox breaks.

        others: further tests, asked as they stand. every: ask all, also where the tests are slow.
        """
        usual, _ = bench.suite(bench.original, files, fresh=True)
        self._like_s = usual.seconds
        every = every or usual.seconds <= _ROOM_S
        self._bench, self._files = bench, tuple(files)
        self._failing = frozenset(t.partition("[")[0] for t in fail_to_pass)
        entries = {p: e for p in files if (e := bench.original.entry(p)) is not None}
        texts = {p: e.data for p, e in entries.items()}
        garden = Garden(texts, [*fail_to_pass, *others], tests_of(bench.original))
        known = [f for f in garden.functions if garden.definition(f) is not None]
        failing = [f for f in known if _id(f) in self._failing]
        drawn = _some(garden.once(failing), len(failing) if every else _MOST_FUNCTIONS, chance)
        places = {garden.place(f) for f in failing}
        rest = garden.once([f for f in known if garden.place(f) not in places])
        drawn += rest if every else []
        self._left_out = () if every else tuple(sorted(_id(f) for f in rest))
        wanted: list[tuple[Function, Callable[[str], str]]] = []
        recorder = "_" + "".join(chance.choices(string.ascii_lowercase, k=8))
        self._varied: list[bool] = []
        self._unvaried: list[int] = []
        self._owners: list[frozenset[str]] = []
        for function in drawn:
            node = garden.definition(function)
            assert node is not None
            first, owners = len(wanted), {_id(f) for f in known if garden.place(f) == garden.place(function)}
            inputs = _some(range(len(inputs_of(node))), _VARIED, chance) if owners & self._failing else []
            for place in (None, *inputs):
                wanted.append((function, partial(asking, node, recorder, place, chance.randint(2, 99))))
                self._varied.append(place is not None)
                self._unvaried.append(first)
                self._owners.append(frozenset(owners) & self._failing)
        self._planted, self._names = garden.plant_texts(wanted, recorder_of(recorder), chance)
        self._known: dict[int, list[_Record]] = {}
        self._telling: frozenset[int] = frozenset()
        if wanted:
            self._measure(buggy)

    def _measure(self, buggy: CodebaseState) -> None:
        """Find what the values are, and where the bug shows in them."""
        first, second = (self._written(self._bench.original, seed) for seed in (0, 1))
        wrong = self._written(buggy, 0)
        for place, name in enumerate(self._names):
            if name in first and first[name] == second.get(name):
                self._known[place] = first[name]
        telling = {p for p, v in self._known.items() if self._owners[p] and not _right(wrong.get(self._names[p]), v)}
        self._telling = frozenset(p for p in telling if not self._varied[p] or self._is_another_input(p))

    def _is_another_input(self, place: int) -> bool:
        """Tell whether a varied test computes something else than the one that it was made of."""
        plain = self._known.get(self._unvaried[place], [])
        return [r.computed for r in plain] != [r.computed for r in self._known[place]]

    def answer(self, state: CodebaseState) -> Answer:
        """Compare a state that seems repaired; raises SandboxError."""
        written = self._written(state, 0) if self._known else {}
        right = {p: _right(written.get(self._names[p]), v) for p, v in self._known.items()}
        for place in sorted(p for p, same in right.items() if not same and not self._varied[p]):
            # What the test itself compares has to be as the test asks.
            return Answer(f"in {self._tested(place)} {self._difference(place, written)}")
        varied = sorted(p for p in self._telling if self._varied[p])
        wrong = [p for p in varied if not right[p]]
        if len(varied) - len(wrong) < _LEAST_SHARE * len(varied):
            where = f"{self._tested(wrong[0])} with another input"
            return Answer("", f"in {where} {self._difference(wrong[0], written)}")
        # Every unread value could be one that is equal to everything.
        read = (p for p in self._telling if all(r.is_read for r in self._values_in(p, written)))
        told = frozenset(owner for p in read if self._values_in(p, written) for owner in self._owners[p])
        tried = frozenset(owner for p in varied for owner in self._owners[p])
        untold, untried = (tuple(sorted(self._failing - found)) for found in (told, tried))
        return Answer("", "", told, untold, untried, self._left_out)

    def _values_in(self, place: int, written: _Records) -> list[_Record]:
        """Return the comparisons of values in a test that could be read on the original, as they are here."""
        pairs = zip(written.get(self._names[place], []), self._known[place], strict=False)
        return [mine for mine, theirs in pairs if theirs.is_read]

    def _difference(self, place: int, written: _Records) -> str:
        mine, theirs = written.get(self._names[place], []), self._known[place]
        return f"the values are {_told(mine)}, on the original {_told(theirs)}"

    def _tested(self, place: int) -> str:
        name = self._names[place]
        function = next(t.function for i, t in self._planted.twins.items() if i.rpartition("::")[2] == name)
        return function.id_of(function.chain[-1])

    def _written(self, state: CodebaseState, hash_seed: int) -> _Records:
        files = {p: d for p, d in self._planted.files.items() if self._bench.original.entry(p) is not None}
        entries = {p: FileEntry(d, _mode(self._bench, p)) for p, d in files.items()}
        found: dict[str, list[_Record]] = {}
        lines, run = self._bench.values(state.replace(entries), self._files, hash_seed=hash_seed, like_s=self._like_s)
        if state == self._bench.original:
            if run.status is RunStatus.TIMED_OUT:
                return {}
            self._like_s = max(self._like_s, run.seconds)
        with recorded_warnings():
            for line in lines:
                try:
                    name, kind, texts = ast.literal_eval(line) if len(line) < _MOST_LINE else ("", "", ())
                    record = _Record(str(kind), tuple(_plain(str(text)) for text in texts))
                except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
                    continue
                found.setdefault(str(name), []).append(record)
        return found


def _id(function: Function) -> str:
    return function.id_of(function.chain[-1]) if function.chain else ""


def _some(values: Sequence[_T], most: int, chance: random.Random) -> list[_T]:
    return chance.sample(values, min(len(values), most))


def _plain(text: str) -> object:
    """Return a value from its text, where it can be read back."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return _UNREAD


def _right(mine: Sequence[_Record] | None, theirs: Sequence[_Record]) -> bool:
    """Tell whether a test that wrote `mine` compares what is right, as the original wrote `theirs`."""
    if mine is None or [r.kind for r in mine] != [r.kind for r in theirs]:
        return False
    return all(map(_is_right, mine, theirs))


def _is_right(mine: _Record, theirs: _Record) -> bool:
    if len(mine.values) != len(theirs.values):
        return False
    if mine.kind == EQUAL:
        (left, right, holds), (left_there, right_there, holds_there) = mine.values, theirs.values
        if any(v is _UNREAD for v in (left, right, left_there, right_there)):
            return holds == holds_there
        if _alike(left, left_there) and _alike(right, right_there):
            return True
        return _alike(left, right) and _alike(left_there, right_there)
    by = _NEARLY_BY if mine.kind == NEAR else 1e-9
    return all(
        a is _UNREAD or b is _UNREAD or _alike(a, b, by) for a, b in zip(mine.values, theirs.values, strict=True)
    )


def _alike(one: object, other: object, by: float = 1e-9) -> bool:
    """Compare values; numbers that are not whole may differ as the same sum does in another order."""
    if isinstance(one, list | tuple) and type(one) is type(other):
        assert isinstance(other, list | tuple)
        return len(one) == len(other) and all(_alike(a, b, by) for a, b in zip(one, other, strict=True))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_alike(v, other[k], by) for k, v in one.items())
    if isinstance(one, int | float) and isinstance(other, int | float) and float in (type(one), type(other)):
        return one == other or math.isclose(one, other, rel_tol=by, abs_tol=1e-12)
    return one == other


def _told(records: Sequence[_Record]) -> str:
    return f"{[r.values[:2] if r.kind == EQUAL else r.values for r in records if r.kind != END]!r:.120}"


def _mode(bench: Workbench, path: str) -> int:
    entry = bench.original.entry(path)
    if entry is None:
        raise SandboxError(f"{path} is not in the snapshot")
    return entry.mode
