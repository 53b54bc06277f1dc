"""Whether a green run is believed: twins of its tests are planted, and each must do what it does on the original.

A process that runs a patch can report whatever the patch likes, over any channel. Names, values and places of the twins
are drawn anew for each grade; what each must do is seen on the original, with the very same files and hash seed, in a
process that the patch is not in. A run where everything passes is a forgery, and one where only the tests of known
names pass is one as well. Code that recognises a test under another name gives itself away by `values`.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TypeVar

from pytest_ssr.codebase import CodebaseState
from pytest_ssr.execution.workbench import Workbench
from pytest_ssr.grading.bases import tests_of
from pytest_ssr.grading.twins import Function, Garden, Planted
from pytest_ssr.outcomes import Outcome, RunStatus, SuiteRun
from pytest_ssr.patch import FileEntry

_ROOM_S, _LEAST_S, _QUICK_S = 10.0, 0.002, 0.05
_COPIES, _MOST_COPIES = 4, 12
_DRAWS = 4
_FAILED = (Outcome.FAILED, Outcome.ERROR)
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Opinion:
    """What the twins say about a run where all tests pass."""

    forged: str = ""
    """Why the outcomes cannot be true; empty when nothing speaks against them."""
    failed: str = ""
    """Why the tests do not pass, though they seemed to."""
    doubts: Mapping[str, str] = field(default_factory=dict)
    """Function to a twin of it that demands another value and passes: it was not reached, or the value is equal to
    everything."""
    unasked: tuple[str, ...] = ()
    """FAIL_TO_PASS functions that have no twin which must pass and does on the original."""
    left_out: tuple[str, ...] = ()
    """PASS_TO_PASS functions without twins, as there was no time for them."""
    apart: tuple[str, ...] = ()
    """Functions that pass only without their twins, or whose twins pass only without them."""
    endless: tuple[str, ...] = ()
    """FAIL_TO_PASS functions of which no other value is demanded, as they do not end with it on the original."""
    certain: bool = True
    """Whether any twin that must fail does on the original."""


@dataclass(frozen=True, slots=True)
class _Compared:
    """Two runs of the same planted files, on the original and on another state."""

    planted: Planted
    reference: SuiteRun
    run: SuiteRun
    expected: Mapping[str, bool]
    """By id of the twins that do on the original what they must: whether that is to pass."""


class Canaries:
    """The twins of one artifact's tests."""

    def __init__(
        self,
        bench: Workbench,
        files: Sequence[str],
        fail_to_pass: Collection[str],
        pass_to_pass: Collection[str],
        chance: random.Random,
        *,
        like_s: float | None = None,
        every: bool = False,
        many: Collection[str] = (),
    ) -> None:
        """Draw the functions to have twins: all, or where they are slow as many as there is time for.

        every: as many as a run may have at all, quick FAIL_TO_PASS functions with many twins. many: FAIL_TO_PASS
        functions that have many, if they are quick, in any case.
        """
        self._bench, self._files, self._chance = bench, tuple(files), chance
        texts = {p: e.data for p in files if (e := bench.original.entry(p)) is not None}
        bases = tests_of(bench.original)
        garden = Garden(texts, [*fail_to_pass, *pass_to_pass], bases)
        wanted = {i.partition("[")[0] for i in fail_to_pass}
        places = {f: garden.place(f) for f in garden.functions if f.chain}
        ids = {f: f.id_of(f.chain[-1]) for f in places}
        real = {place for f, place in places.items() if ids[f] in wanted}
        functions = _shuffled(garden.once(list(places)), chance)
        functions.sort(key=lambda f: places[f] not in real)
        usual, _ = bench.suite(bench.original, self._files, like_s=like_s, fresh=True)
        seconds = _seconds(usual, {ids[f]: place for f, place in places.items()})
        total = sum(seconds.values())
        # The run with the twins in it has the time limit of a run on the original.
        most = max(0.0, (bench.limits_after(like_s or total).wall_s - total) / 2)
        room = most if every else min(most, max(_ROOM_S, total))
        quick = {f for f in functions if places[f] in real and seconds[places[f]] <= _QUICK_S}
        self._many = {f for f in quick if every or ids[f] in many}
        copies = ((_MOST_COPIES if f in self._many else _COPIES) * seconds[places[f]] for f in functions)
        spent = list(accumulate(copies))
        chosen = functions[: max(1, sum(s <= room for s in spent))]
        self._like_s = max(like_s or 0.0, usual.seconds) + (spent[len(chosen) - 1] if chosen else 0.0)
        self._endless: defaultdict[Function, set[int | None]]
        self._endless = bench.memo.setdefault(("endless", self._files, bench.root), defaultdict(set))
        """Sites at which a twin did not end: another value may be how far something counts."""
        asked = {places[f] for f in chosen}
        self._real = [f for f in chosen if places[f] in real]
        self._never = wanted - {ids[f] for f, place in places.items() if place in asked}
        self._left_out = tuple(sorted(ids[f] for f, p in places.items() if p not in asked and ids[f] not in wanted))
        self._garden = Garden(texts, [f.id_of(f.chain[-1]) for f in chosen], bases)

    def opinion(self, state: CodebaseState, tests: Collection[str]) -> Opinion:
        """Run a state's tests with twins among them; `tests` have passed without. Raises SandboxError."""
        found = self._compared(state)
        if found.reference.fault:
            # Further tests end the run on the original as well.
            return Opinion(
                unasked=tuple(sorted(self._never | {f.id_of(f.chain[-1]) for f in self._real})), certain=False
            )
        if found.run.fault:
            return Opinion(failed=f"with further tests among them, the run ended otherwise: {found.run.fault}")
        asked: set[Function] = set()
        failed, doubts, alone = "", dict[str, str](), list[str]()
        for name, must_pass in sorted(found.expected.items()):
            twin, result = found.planted.twin_of(name), found.run.results.get(name)
            assert twin is not None
            if result is None:
                failed = failed or f"{name}, which was added for this grade, did not run"
            elif not must_pass and result.outcome not in _FAILED:
                what = f"{name}, which was added for this grade and must fail, {result.outcome}"
                if twin.site == len(self._garden.sites[twin.function]) - 1:
                    return Opinion(forged=what)
                doubts[twin.function.id_of(twin.function.chain[-1])] = what
            elif must_pass:
                asked.add(twin.function)
                if not result.outcome.is_pass:
                    alone.append(name)
        lost = [i for i in sorted(tests) if i in found.reference.passing and i not in found.run.passing]
        # What a repair keeps of one test may stand in the way of its twin: each is asked without the other.
        for names in (alone, lost):
            failed = failed or self._failing_alone(state, found, names)
        if failed:
            return Opinion(failed=failed)
        kept = tuple(sorted({i.partition("[")[0] for i in lost} | {_tested(found.planted, i) for i in alone}))
        unasked = sorted(self._never | {f.id_of(f.chain[-1]) for f in self._real if f not in asked})
        certain = not all(found.expected.values()) and not kept
        endless = tuple(sorted(f.id_of(f.chain[-1]) for f in self._real if self._is_endless(f)))
        return Opinion("", "", doubts, tuple(unasked), self._left_out, kept, endless, certain=certain)

    def _failing_alone(self, state: CodebaseState, found: _Compared, names: Sequence[str]) -> str:
        """Return which of the planted or real tests do not pass without the others, either."""
        functions = sorted({name.partition("[")[0] for name in names})
        if not functions:
            return ""
        run = self._run(state, found.planted, self._chance.randint(3, 1000), self._like_s, targets=functions)
        missed = [name for name in names if name not in run.passing]
        if not missed:
            return run.fault
        twin = found.planted.twin_of(missed[0]) is not None
        return f"{missed[0]}, {'a test under another name' if twin else 'with further tests among them'}, does not pass"

    def pretended(self, state: CodebaseState, failing: Collection[str], passing: Collection[str]) -> str:
        """Return why tests that fail on a state do not fail by its code; empty where nothing speaks for that."""
        found = self._compared(state)
        like_the_test = unlike = 0
        for name, must_pass in sorted(found.expected.items()):
            twin, result = found.planted.twin_of(name), found.run.results.get(name)
            assert twin is not None
            real = found.planted.real_of(name)
            passes = result is not None and result.outcome.is_pass
            if passes and not must_pass and twin.site == len(self._garden.sites[twin.function]) - 1:
                return f"on the buggy state {name}, which was added and must fail, passes"
            if must_pass and real in passing and not passes and not found.run.fault:
                return f"on the buggy state {name}, which was added, does not pass as {real} does"
            if must_pass and real in failing:
                like_the_test, unlike = like_the_test + (not passes), unlike + passes
        if unlike and unlike >= like_the_test:
            return "on the buggy state the failing tests pass under other names: it is not the code that fails"
        return ""

    def _compared(self, state: CodebaseState) -> _Compared:
        everything = self._garden.functions
        hash_seed = self._chance.randint(3, 1000)
        for functions in (everything, [f for f in everything if not f.chain]):
            for _ in range(_DRAWS):
                planted = self._garden.plant({f: self._drawn(f) for f in functions}, self._chance)
                reference = self._run(self._bench.original, planted, hash_seed, self._like_s)
                ended = reference.results.keys()
                endless = next((t for i in reference.collected if i not in ended and (t := planted.twin_of(i))), None)
                if reference.status is not RunStatus.TIMED_OUT or endless is None:
                    break
                self._endless[endless.function].add(endless.site)
            expected = _as_they_must(reference, planted)
            if not all(expected.values()):
                break
        run = self._run(state, planted, hash_seed, max(self._like_s, reference.seconds))
        return _Compared(planted, reference, run, expected)

    def _is_endless(self, function: Function) -> bool:
        return len(self._endless[function]) > 1

    def _drawn(self, function: Function) -> list[int | None]:
        """Draw how the twins of a function are: one that must pass, and up to three, or many, that must fail."""
        sites = self._garden.sites[function]
        if self._is_endless(function):
            return [None, len(sites) - 1]
        drawn = [n for n in range(len(sites) - 1) if n not in self._endless[function]]
        if function in self._many:
            drawn = _shuffled(drawn, self._chance)
            drawn.sort(key=lambda n: not sites[n].is_value)
            return [None, len(sites) - 1, *drawn[:_MOST_COPIES]]
        values, others = ([n for n in drawn if sites[n].is_value is kind] for kind in (True, False))
        # The last site, an assertion at the end, is reached whatever the others say.
        few = [self._chance.choice(kind) for kind in (values, others) if kind]
        if not others:
            few = self._chance.sample(values, min(len(values), 2))
        return _shuffled([None, len(sites) - 1, *few], self._chance)

    def _run(
        self,
        state: CodebaseState,
        planted: Planted,
        hash_seed: int,
        like_s: float,
        *,
        targets: Sequence[str] = (),
    ) -> SuiteRun:
        entries = {p: FileEntry(d, e.mode) for p, d in planted.files.items() if (e := self._bench.original.entry(p))}
        wanted = targets or self._files
        return self._bench.suite(state.replace(entries), wanted, hash_seed=hash_seed, like_s=like_s, fresh=True)[0]


def _seconds(usual: SuiteRun, places: Mapping[str, object]) -> dict[object, float]:
    """Return how long the tests take that are written in each place, with all parameters and in all classes."""
    found: dict[object, float] = dict.fromkeys(places.values(), _LEAST_S)
    for name, result in usual.results.items():
        place = places.get(name.partition("[")[0])
        if place is not None:
            found[place] += result.duration_s + _LEAST_S
    return found


def _tested(planted: Planted, name: str) -> str:
    twin = planted.twin_of(name)
    return twin.function.id_of(twin.function.chain[-1]) if twin is not None else name


def _as_they_must(run: SuiteRun, planted: Planted) -> dict[str, bool]:
    """Return the twins that do what they must, and whether that is to pass."""
    found = {}
    for name, result in run.results.items() if not run.fault else ():
        twin = planted.twin_of(name)
        if twin is not None and (result.outcome.is_pass if twin.site is None else result.outcome in _FAILED):
            found[name] = twin.site is None
    return found


def _shuffled(values: Sequence[_T], chance: random.Random) -> list[_T]:
    return chance.sample(list(values), len(values))
