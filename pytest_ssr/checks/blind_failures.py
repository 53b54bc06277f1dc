"""Whether tests that fail on the buggy state fail by what the code computes.

The tests are asked blind: rewritten so that they write what the code computes and do not hold what they expect. Where
they allow it they run without pytest in charge, with other clocks, variables and hash seeds, and twice in one process;
those that need fixtures run under pytest. A bug that then computes what a test asks for shows only under pytest, by a
text of the tests, or for a while.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from pytest_ssr.codebase import CodebaseState
from pytest_ssr.execution.plain import AGAIN, PlainCase, Surroundings
from pytest_ssr.execution.workbench import Workbench
from pytest_ssr.grading.blind.assertions import END, SAME, Site
from pytest_ssr.grading.blind.compare import Records, Test, as_asked, read_records, same, usable
from pytest_ssr.grading.blind.files import BlindFiles, paired

_CENTURY_S = 100 * 365 * 24 * 3600
_ROUNDS = 2


@dataclass(frozen=True, slots=True)
class BlindFailures:
    """What tests that fail on a state do there when they are asked blind; ids of pytest."""

    asked: frozenset[str] = frozenset()
    """Those that can be asked so."""
    as_asked: frozenset[str] = frozenset()
    """Those of them that compute what they ask for."""

    @property
    def pretended(self) -> bool:
        """Whether at least half of the failures are not there when the tests are asked blind."""
        return bool(self.as_asked) and 2 * len(self.as_asked) >= len(self.asked)


@dataclass(frozen=True, slots=True)
class _Reference:
    """What the blind tests of some files do on the original, under pytest."""

    files: BlindFiles
    names: Mapping[str, str]
    """The real id of each blind test."""
    places: Mapping[str, Mapping[str, int]]
    """The row of a table that each parameter of a blind test is taken from."""
    tests: Mapping[str, Test]
    """What each writes twice."""
    full: Records
    """What each writes where the tests hold what they expect."""
    seconds: float

    def is_asked(self, case: str, theirs: Test) -> bool:
        """Tell whether a test reaches its end on the original, and computes there what it asks for."""
        sites = self.files.sites
        ends = any(key.site in sites and sites[key.site].ops == (END,) for key in theirs)
        return ends and as_asked(sites, theirs, self.tests[case], self.full.get(case, {}))


def blind_failures(
    bench: Workbench, buggy: CodebaseState, files: Sequence[str], failing: Collection[str], chance: random.Random
) -> BlindFailures:
    """Ask the tests that fail on a state blind; raises SandboxError."""
    reference = _reference(bench, files)
    cases = [case for case, name in reference.names.items() if name in failing and case in reference.tests]
    plain = _asked_plainly(bench, buggy, reference, cases, chance) if cases else {}
    left = [case for case in cases if case not in plain and reference.is_asked(case, reference.tests[case])]
    found = plain | (_asked_under_pytest(bench, buggy, files, reference, left) if left else {})
    return BlindFailures(
        frozenset(reference.names[case] for case in found),
        frozenset(reference.names[case] for case, held in found.items() if held),
    )


def _reference(bench: Workbench, files: Sequence[str]) -> _Reference:
    key = ("blind reference", tuple(files), bench.root)
    if key not in bench.memo:
        bench.memo[key] = _made_reference(bench, files)
    found: _Reference = bench.memo[key]
    return found


def _made_reference(bench: Workbench, files: Sequence[str]) -> _Reference:
    original, rewritten = bench.original, BlindFiles(bench.original, files)
    usual, _ = bench.suite(original, files, fresh=True)
    seconds = usual.seconds
    lines, run = bench.values(rewritten.put_into(original), files, hash_seed=0, like_s=seconds)
    again, _ = bench.values(rewritten.put_into(original, full=True), files, hash_seed=1, like_s=seconds)
    first, full = read_records(lines or ()), read_records(again or ())
    names = paired(run, usual)
    return _Reference(
        files=rewritten,
        names=names,
        places={case: dict(run.parameters.get(case, ())) for case in names},
        tests={case: usable(rewritten.sites, first[case], full.get(case, {})) for case in names if case in first},
        full=full,
        seconds=max(seconds, run.seconds),
    )


def _asked_plainly(
    bench: Workbench, buggy: CodebaseState, reference: _Reference, cases: Iterable[str], chance: random.Random
) -> dict[str, bool]:
    """Return the tests that can be asked without pytest, and whether they compute what they ask for, anywhere."""
    wanted = [PlainCase(case, reference.places[case]) for case in cases]
    seeds = chance.sample(range(3, 1000), 2)
    both = [
        Surroundings(seeds[0], with_pytest=True, ahead_s=_CENTURY_S, seed=seeds[0]),
        Surroundings(seeds[1], with_pytest=False, ahead_s=0, seed=seeds[1]),
    ]

    def records(state: CodebaseState, surroundings: Surroundings) -> Records:
        blind, like_s = reference.files.put_into(state), _ROUNDS * reference.seconds
        return read_records(bench.plain_values(blind, wanted, surroundings, like_s=like_s))

    first, second = (records(bench.original, surroundings) for surroundings in both)
    asked: dict[str, dict[str, Test]] = {}
    for case in cases:
        for ending in ("", AGAIN):
            theirs = _twice(first.get(case + ending, {}), second.get(case + ending, {}))
            if reference.is_asked(case, theirs):
                asked.setdefault(case, {})[case + ending] = theirs
    if not asked:
        return {}
    mine = [records(buggy, surroundings) for surroundings in both]
    return {
        case: any(
            as_asked(reference.files.sites, found.get(name, {}), theirs, reference.full.get(case, {}))
            for name, theirs in tests.items()
            for found in mine
        )
        for case, tests in asked.items()
    }


def _twice(first: Test, second: Test) -> Test:
    """Return what two runs write alike: whole assertions, with all of their rounds."""
    differing = {
        key.site
        for key in {**first, **second}
        if not (key in first and key in second and first[key].held == second[key].held)
        or not same(Site((SAME,), (True,)), first[key], second[key])
    }
    return {key: line for key, line in first.items() if key.site not in differing}


def _asked_under_pytest(
    bench: Workbench, buggy: CodebaseState, files: Sequence[str], reference: _Reference, cases: Iterable[str]
) -> dict[str, bool]:
    """Return, for tests that need pytest, whether they compute what they ask for."""
    blind = reference.files.put_into(buggy)
    lines, _ = bench.values(blind, files, hash_seed=2, like_s=reference.seconds)
    mine = read_records(lines or ())
    return {
        case: as_asked(reference.files.sites, mine.get(case, {}), reference.tests[case], reference.full.get(case, {}))
        for case in cases
    }
