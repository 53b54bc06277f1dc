"""Whether a green run is believed: twins of its tests are planted, and each must do what it does on the original.

A process that runs a patch can report whatever the patch likes, over any channel. It cannot know which of the tests
are twins, nor what they expect: names, values and places are drawn anew for each grade, and what each twin must do is
seen on the original, in a process that the patch is not in. A run where everything passes is a forgery, and one where
only the tests of known names pass is one as well. Out of reach is a patch that answers the known inputs by a table.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from pytest_ssr.codebase import CodebaseState
from pytest_ssr.execution.workbench import Workbench
from pytest_ssr.grading.twins import Function, Garden, Planted
from pytest_ssr.outcomes import Outcome, SuiteRun
from pytest_ssr.patch import FileEntry

_MOST_FUNCTIONS, _MOST_OTHERS, _MOST_SITES = 12, 6, 3
_FAILED = (Outcome.FAILED, Outcome.ERROR)
_T = TypeVar("_T")
_Place = tuple[Function, int | None, str]


@dataclass(frozen=True, slots=True)
class Opinion:
    """What the twins say about a run where all tests pass."""

    forged: str = ""
    """Why the outcomes cannot be true; empty when nothing speaks against them."""
    failed: str = ""
    """Why the tests do not pass, though they seemed to."""
    fault: str = ""
    """Why the run proves nothing."""
    must_pass: int = 0
    """Twins that had to pass."""
    must_fail: int = 0
    """Twins that had to fail."""


class Canaries:
    """The twins of one artifact's tests, proven on the original."""

    def __init__(
        self,
        bench: Workbench,
        files: Sequence[str],
        fail_to_pass: Collection[str],
        pass_to_pass: Collection[str],
        chance: random.Random,
        *,
        like_s: float | None = None,
    ) -> None:
        """Run the twins on the original; raises SandboxError when the sandbox breaks."""
        self._bench, self._files, self._like_s = bench, tuple(files), like_s
        texts = {p: e.data for p in files if (e := bench.original.entry(p)) is not None}
        real = Garden(texts, fail_to_pass).functions
        others = [f for f in Garden(texts, pass_to_pass).functions if f not in real]
        chosen = [*_some(real, _MOST_FUNCTIONS, chance), *_some(others, _MOST_OTHERS, chance)]
        ids = [f.id_of(f.chain[-1]) for f in chosen if f.chain]
        self._garden = Garden(texts, ids)
        everything = self._garden.sites
        # The last site, an assertion at the end, is there for the tests that have no other.
        numbers = {f: list(range(len(sites))) for f, sites in everything.items()}
        wanted = {f: [None, *_some(n[:-1], _MOST_SITES, chance), *n[-1:]] for f, n in numbers.items()}
        self._good: frozenset[_Place] = frozenset()
        for functions in (list(everything), [f for f in everything if not f.chain]):
            planted = self._garden.plant({f: wanted[f] for f in functions}, chance)
            self._proof = self._run(bench.original, planted, hash_seed=0)
            self._good = frozenset(_as_they_must(self._proof, planted))
            if self._good:
                break

    @property
    def are_there(self) -> bool:
        """Whether any twin does what it must on the original."""
        return bool(self._good)

    def opinion(self, state: CodebaseState, tests: Collection[str], chance: random.Random) -> Opinion:
        """Run a state's tests with fresh twins among them; `tests` have passed without."""
        planted = self._drawn(chance)
        run = self._run(state, planted, hash_seed=chance.randint(3, 1000))
        if run.fault:
            return Opinion(fault=f"with further tests among them, the run ended otherwise: {run.fault}")
        return self._judged(run, planted, tests)

    def pretended(
        self, state: CodebaseState, failing: Collection[str], passing: Collection[str], chance: random.Random
    ) -> str:
        """Return why tests that fail on a state do not fail by its code; empty where nothing speaks for that."""
        planted = self._drawn(chance)
        run = self._run(state, planted, hash_seed=chance.randint(3, 1000))
        like_the_test = unlike = 0
        for name, must_pass in sorted(self._expected(planted).items()):
            twin, result = planted.twin_of(name), run.results.get(name)
            assert twin is not None
            real = twin.function.id_of(twin.function.chain[-1]) + _parameters(name) if twin.function.chain else ""
            passes = result is not None and result.outcome.is_pass
            if passes and not must_pass:
                return f"on the buggy state {name}, which was added and must fail, passes"
            if must_pass and real in passing and not passes and not run.fault:
                return f"on the buggy state {name}, which was added, does not pass as {real} does"
            if must_pass and real in failing:
                like_the_test, unlike = like_the_test + (not passes), unlike + passes
        if unlike and unlike >= like_the_test:
            return "on the buggy state the failing tests pass under other names: it is not the code that fails"
        return ""

    def _drawn(self, chance: random.Random) -> Planted:
        """Plant for each function one twin that must pass and one that must fail, where there are such."""
        by_function: dict[Function, set[int | None]] = {}
        for function, site, _ in sorted(self._good, key=repr):
            by_function.setdefault(function, set()).add(site)
        wanted: dict[Function, list[int | None]] = {}
        for function, sites in by_function.items():
            failing = sorted(s for s in sites if s is not None)
            drawn = [chance.choice(failing[:-1] or failing)] if failing else []
            wanted[function] = [*drawn, *([None] if None in sites else [])]
            chance.shuffle(wanted[function])
        return self._garden.plant(wanted, chance)

    def _judged(self, run: SuiteRun, planted: Planted, tests: Collection[str]) -> Opinion:
        counts = {True: 0, False: 0}
        expected = self._expected(planted)
        for name, must_pass in sorted(expected.items()):
            counts[must_pass] += 1
            result = run.results.get(name)
            if result is None:
                return Opinion(forged=f"{name}, which was added for this grade, did not run")
            if not must_pass and result.outcome not in _FAILED:
                return Opinion(forged=f"{name}, which was added for this grade and must fail, {result.outcome}")
            if must_pass and not result.outcome.is_pass:
                return Opinion(failed=f"{name}, a test under another name, {result.outcome}")
        lost = [i for i in sorted(tests) if i in self._proof.passing and i not in run.passing]
        if lost:
            return Opinion(failed=f"with further tests among them, {lost[0]} does not pass")
        return Opinion(must_pass=counts[True], must_fail=counts[False])

    def _expected(self, planted: Planted) -> Mapping[str, bool]:
        """Return by id whether a twin must pass."""
        found = {}
        for base, twin in planted.twins.items():
            for function, site, parameters in self._good:
                if (function, site) == (twin.function, twin.site):
                    found[base + parameters] = twin.site is None
        return found

    def _run(self, state: CodebaseState, planted: Planted, *, hash_seed: int) -> SuiteRun:
        entries = {p: FileEntry(data, _mode(self._bench, p)) for p, data in planted.files.items()}
        run, _ = self._bench.suite(
            state.replace(entries), self._files, hash_seed=hash_seed, like_s=self._like_s, fresh=True
        )
        return run


def _as_they_must(run: SuiteRun, planted: Planted) -> Iterator[_Place]:
    for name, result in run.results.items() if not run.fault else ():
        twin = planted.twin_of(name)
        if twin is not None and (result.outcome.is_pass if twin.site is None else result.outcome in _FAILED):
            yield twin.function, twin.site, _parameters(name)


def _some(values: Sequence[_T], most: int, chance: random.Random) -> list[_T]:
    return list(values) if len(values) <= most else chance.sample(list(values), most)


def _parameters(name: str) -> str:
    return name[name.index("[") :] if "[" in name else ""


def _mode(bench: Workbench, path: str) -> int:
    entry = bench.original.entry(path)
    assert entry is not None
    return entry.mode
