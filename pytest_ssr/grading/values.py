"""What code computes in the tests of a bug, written down and compared outside: with their inputs, and with others.

Tests are planted that assert nothing: they write the values that the real ones compare, once as they stand, once with
an input changed at random. The original says what the values are, the buggy state which of them the bug shows in.
A process can report what it likes, but for inputs that nobody can know before it has to compute the right value to
write it: they are drawn at random, and one draw serves few grades. What a test leaves open, a repair may do otherwise:
two values that are equal as the test asks are right whatever they are, and of what is only bounded, whether it holds is
compared.
"""

from __future__ import annotations

import random
import string
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from pytest_ssr.codebase import CodebaseState
from pytest_ssr.execution.workbench import MOST_VALUES, Workbench
from pytest_ssr.grading.asking import Asked, asking, inputs_of
from pytest_ssr.grading.bases import tests_of
from pytest_ssr.grading.recorder import END, EQUAL, HOLDS, recorder_of
from pytest_ssr.grading.records import (
    Key,
    Record,
    Records,
    Test,
    agrees,
    alike,
    as_asked,
    is_open,
    is_right,
    read_records,
    told,
)
from pytest_ssr.grading.twins import Function, Garden
from pytest_ssr.outcomes import RunStatus, SuiteRun
from pytest_ssr.patch import FileEntry
from pytest_ssr.weakening.text import Definition

_MOST_FUNCTIONS, _SEVERAL, _LEAST_SHARE, _BOTH = 8, 2, 0.5, 2
_VARIED, _MORE_VARIED, _QUICK_S = 4, 12, 2.0
"""Inputs of a test; where all tests take no longer than that."""
_ROOM_S = 10.0
_MOST_CHARS = 100_000
"""That the names of tests may have, all together, on a command line."""
_AGAIN = 3
_USAGE = 4
"""Pytest's exit status where one of them is not there."""
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Answer:
    """What the values say about a state."""

    forged: str = ""
    """Where a value is not the original's, though the tests that compare it pass."""
    unrepaired: str = ""
    """Where values for other inputs are mostly not the original's."""
    told: frozenset[str] = frozenset()
    """FAIL_TO_PASS functions that compare a value in which the bug shows, that is right here and can be read."""
    untold: tuple[str, ...] = ()
    """The others."""
    untried: tuple[str, ...] = ()
    """FAIL_TO_PASS functions for which no other input was found in which the bug shows and the value is right."""
    differing: tuple[str, ...] = ()
    """FAIL_TO_PASS functions with another input for which a value is not the original's, though most are."""
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
        self._files = list(files)
        self._failing = frozenset(t.partition("[")[0] for t in fail_to_pass)
        texts = {p: e.data for p in files if (e := bench.original.entry(p)) is not None}
        garden = Garden(texts, [*fail_to_pass, *others], tests_of(bench.original))
        alike: dict[object, list[Function]] = {}
        known = [f for f in garden.functions if (n := garden.definition(f)) is not None and _can_be_asked(n)]
        for function in known:
            alike.setdefault(garden.place(function), []).append(function)
        owners = {place: {_id(f) for f in found} for place, found in alike.items()}
        failing = [f for f in known if _id(f) in self._failing]
        drawn = _some(garden.once(failing), len(failing) if every else _MOST_FUNCTIONS, chance)
        places = {garden.place(f) for f in failing}
        rest = garden.once([f for f in known if garden.place(f) not in places])
        drawn += rest if every else []
        self._left_out = () if every else tuple(sorted(_id(f) for f in rest))
        most = _MORE_VARIED if usual.seconds <= _QUICK_S else _VARIED
        wanted: list[tuple[Function, Callable[[str], str]]] = []
        recorder = "_" + "".join(chance.choices(string.ascii_lowercase, k=8))
        self._varied: list[bool] = []
        self._asked: list[Asked] = []
        self._unvaried: list[int] = []
        self._owners: list[frozenset[str]] = []
        for function in drawn:
            node = garden.definition(function)
            assert node is not None
            first, mine = len(wanted), self._failing & owners[garden.place(function)]
            inputs = _some(range(len(inputs_of(node))), most, chance) if mine else []
            for place in (None, *inputs):
                make = partial(
                    asking,
                    node,
                    recorder=recorder,
                    place=place,
                    number=chance.randint(2, 99),
                    helpers=garden.helpers(function),
                )
                wanted.append((function, lambda name, make=make: make(name).text))  # type: ignore[misc] # bound here
                self._varied.append(place is not None)
                self._asked.append(make(""))
                self._unvaried.append(first)
                self._owners.append(mine)
        self._planted, self._names = garden.plant_texts(wanted, recorder_of(recorder), chance)
        named = zip(wanted, self._names, strict=True)
        # In each class that inherits it.
        self._ids = {name: [f.id_of(name) for f in alike[garden.place(function)]] for (function, _), name in named}
        self._targets = [i for ids in self._ids.values() for i in ids]
        if sum(map(len, self._targets)) > _MOST_CHARS:
            self._targets = self._files
        self._chars = 0
        self._known: dict[int, Test] = {}
        self._telling: dict[int, frozenset[Key]] = {}
        if wanted:
            self._measure(bench, buggy)

    def _measure(self, bench: Workbench, buggy: CodebaseState) -> None:
        """Find what the values are, and where the bug shows in them."""
        first, second = (self._written(bench, bench.original, seed) or {} for seed in (0, 1))
        for place, name in enumerate(self._names):
            if name in first and first[name] == second.get(name):
                self._known[place] = first[name]
        places = [p for p in self._known if self._owners[p]]
        wrong, ending = self._written_apart(bench, buggy, [self._names[p] for p in places])
        for place in places:
            name = self._names[place]
            telling = self._showing(place, wrong.get(name, {}), ending.get(name))
            if telling:
                self._telling[place] = telling

    def _written_apart(
        self, bench: Workbench, buggy: CodebaseState, names: Sequence[str]
    ) -> tuple[Records, Mapping[str, Collection[str]]]:
        """Return what is written on the buggy state; and of planted tests that may not have run whole, the cases that
        ended the run: the bug shows in these, and of others that wrote nothing, nothing is known.

        One that ends the run, or a file that cannot be imported, says nothing of those that did not run for it: they
        are run without it, a few times.
        """
        lines, run = self._run(bench, buggy, self._targets, 0)
        found, ending = dict(read_records(lines or ())), dict[str, set[str]]()
        if run.status is RunStatus.COMPLETED:
            return found, {}
        whose = {i: name for name in names for i in self._ids[name]}
        for file in sorted({i.partition("::")[0] for i, name in whose.items() if name not in found}):
            left = {i: n for i, n in whose.items() if n not in found and i.partition("::")[0] == file}
            for _ in range(_AGAIN):
                last = next((i for i in run.collected if i not in run.results), "")
                if name := whose.get(last.partition("[")[0]):
                    ending.setdefault(name, set()).add(f"{last.replace(name, '')} (call)")
                    left.pop(last.partition("[")[0], None)
                if not left:
                    break
                lines, run = self._run(bench, buggy, list(left), 0)
                found.update(read_records(lines or ()))
                left = {i: n for i, n in left.items() if n not in found}
                if run.status is RunStatus.COMPLETED or not run.collected:
                    # All have run, or their file cannot be imported: the bug shows.
                    left = {}
            for name in left.values():
                ending.setdefault(name, set())
        return found, ending

    def _showing(self, place: int, wrong: Test, ending: Collection[str] | None) -> frozenset[Key]:
        """Return the comparisons in which the bug shows; of a varied test those that hang on what was changed.

        ending: None where all cases have run, else those of which something is known though they may write nothing.
        """
        found, ended = set(), set[str]()
        if ending is not None:
            ended = {key.case for key in self._known[place]} - {key.case for key in wrong} - set(ending)
        for key, theirs in self._known[place].items():
            mine = wrong.get(key)
            # Behind the place where the buggy code ends a test, nothing is known of it.
            shows = key.case not in ended if mine is None else not is_right(mine, theirs, exactly=True)
            ended |= {key.case} if mine is None else set()
            if shows and key.kind != END and (not self._varied[place] or self._hangs(place, key, mine)):
                found.add(key)
        return frozenset(found)

    def _hangs(self, place: int, key: Key, wrong: Record | None) -> bool:
        """Tell whether what the bug shows in is another thing than in the test as it stands.

        The changed input has to be in the side in which it shows, or the original has another value there. Else only
        what is expected was changed, and code that knows the answers of the tests has the right one.
        """
        theirs, asked = self._known[place][key], self._asked[place]
        hangs, computes = asked.hangs.get(key.number, frozenset()), asked.computes.get(key.number, frozenset())
        plain = self._known.get(self._unvaried[place], {})
        usual = [plain[key]] if key in plain else [r for k, r in plain.items() if k[1:] == key[1:]]
        if key.kind == HOLDS:
            return bool(hangs) or (bool(usual) and all(r != theirs for r in usual))
        if wrong is None or len(wrong.values) != len(theirs.values):
            shown = sorted(computes)[:1]
        else:
            shown = [n for n, (a, b) in enumerate(zip(wrong.sides, theirs.sides, strict=True)) if not alike(a, b)]
            # Two values that cannot be written down: the first is what is asked for, if it is computed at all.
            shown = shown or sorted(computes)[:1]
        sides = [r.sides for r in usual if len(r.sides) == len(theirs.sides)]
        return any(n in hangs or (bool(sides) and all(not alike(s[n], theirs.sides[n]) for s in sides)) for n in shown)

    @property
    def unread(self) -> frozenset[str]:
        """FAIL_TO_PASS functions in which the bug shows only, or also, in what cannot be written down."""
        read, unread = set[str](), set[str]()
        for place, keys in self._telling.items():
            for key in keys if not self._varied[place] else ():
                (read if self._known[place][key].is_read else unread).update(self._owners[place])
        return frozenset((self._failing - read) | unread)

    def answer(self, bench: Workbench, state: CodebaseState) -> Answer:
        """Compare a state that seems repaired; raises SandboxError."""
        written = self._written(bench, state, 0) if self._known else {}
        if written is None and self._chars < MOST_VALUES / 2:
            return Answer(unrepaired="the tests compare far more than on the original, more than is read")
        if written is None:
            everything = tuple(sorted(self._failing))
            return Answer(untold=everything, untried=everything, left_out=self._left_out)
        for place in sorted(p for p in self._known if not self._varied[p]):
            # What the test itself compares has to be as the test asks.
            mine, theirs = written.get(self._names[place], {}), self._known[place]
            if not as_asked(mine, theirs):
                what = f"in {self._tested(place)} {self._difference(place, written)}"
                # What only a function of the code's own says is right may be right, and may be pretended.
                return Answer(unrepaired=what) if as_asked(mine, theirs, at_its_word=True) else Answer(what)
        found = {p: self._is_right_in(p, written) for p in sorted(self._telling) if self._varied[p]}
        right, wrong = ([p for p, is_right in found.items() if is_right is kind] for kind in (True, False))
        for place in wrong:
            alike = [self._unvaried[p] == self._unvaried[place] for p in wrong]
            none_right = sum(alike) >= _SEVERAL and all(self._unvaried[p] != self._unvaried[place] for p in right)
            if none_right or len(right) < _LEAST_SHARE * (len(right) + len(wrong)):
                where = f"{self._tested(place)} with another input"
                return Answer("", f"in {where} {self._difference(place, written)}")
        told = self._failing & self._told_of(written)
        tried, differing = (frozenset(owner for p in places for owner in self._owners[p]) for places in (right, wrong))
        untold, untried = (tuple(sorted(self._failing - found)) for found in (told, tried))
        return Answer("", "", told, untold, untried, tuple(sorted(differing & tried)), self._left_out)

    def _is_right_in(self, place: int, written: Records) -> bool | None:
        """Tell whether a varied test is right where the bug shows in it; None where that cannot be told."""
        mine, theirs = written.get(self._names[place], {}), self._known[place]
        computes = self._asked[place].computes
        # What stands in the test as it is cannot be another value.
        keys = [
            key
            for key in self._telling[place]
            if len(computes.get(key.number, ())) < _BOTH or not is_open(mine.get(key), theirs[key])
        ]
        return all(agrees(mine, theirs, key, exactly=True) for key in keys) if keys else None

    def _told_of(self, written: Records) -> set[str]:
        """Return the functions with a value in which the bug shows, and all such values written down."""
        found, doubtful = set[str](), set[str]()
        for place, keys in self._telling.items():
            mine, theirs = written.get(self._names[place], {}), self._known[place]
            for key in (k for k in keys if theirs[k].is_read or k.kind == EQUAL):
                # Every unread value could be one that is equal to everything.
                is_read = theirs[key].is_read and key in mine and mine[key].is_read
                found |= self._owners[place] if is_read else set()
                doubtful |= self._owners[place] if key in mine and not is_read else set()
        return found - doubtful

    def _difference(self, place: int, written: Records) -> str:
        mine, theirs = written.get(self._names[place], {}), self._known[place]
        return f"the values are {told(mine)}, on the original {told(theirs)}"

    def _tested(self, place: int) -> str:
        name = self._names[place]
        function = next(t.function for i, t in self._planted.twins.items() if i.rpartition("::")[2] == name)
        return function.id_of(function.chain[-1])

    def _written(self, bench: Workbench, state: CodebaseState, hash_seed: int) -> Records | None:
        """Return what the planted tests write on a state; None where that is more than is read."""
        lines, run = self._run(bench, state, self._targets, hash_seed)
        if state == bench.original and run.exit_code == _USAGE and self._targets != self._files:
            # One of them is collected under another name, or not at all.
            self._targets = self._files
            return self._written(bench, state, hash_seed)
        if state == bench.original:
            if run.status is RunStatus.TIMED_OUT:
                return {}
            self._like_s = max(self._like_s, run.seconds)
        if lines is None:
            return None
        if state == bench.original:
            self._chars = max(self._chars, sum(map(len, lines)))
        return read_records(lines)

    def _run(
        self, bench: Workbench, state: CodebaseState, targets: Sequence[str], hash_seed: int
    ) -> tuple[list[str] | None, SuiteRun]:
        files = {p: (d, e.mode) for p, d in self._planted.files.items() if (e := bench.original.entry(p)) is not None}
        changed = state.replace({p: FileEntry(d, mode) for p, (d, mode) in files.items()})
        return bench.values(changed, targets, hash_seed=hash_seed, like_s=self._like_s)


def _id(function: Function) -> str:
    return function.id_of(function.chain[-1]) if function.chain else ""


def _can_be_asked(node: Definition) -> bool:
    """Tell whether a test can be written anew: an expression may be too deep for that."""
    try:
        asking(node, "")
    except RecursionError:
        return False
    return True


def _some(values: Sequence[_T], most: int, chance: random.Random) -> list[_T]:
    return chance.sample(values, min(len(values), most))
