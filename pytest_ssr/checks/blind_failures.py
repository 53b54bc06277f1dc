"""Check whether tests that fail on the buggy state fail because of the values that the code computes.

The tests run blind: rewritten so that they write the values that the code computes and do not hold the values they
expect. If possible they run without pytest, with other clocks, environment variables and hash seeds, twice in one
process, and from another folder in a tree without the tests' own one and without configuration files; tests that need
pytest's own fixtures run under pytest. If the code then computes what a test expects, the bug shows only
under pytest, depends on the text of the tests, or lasts only for a while.
"""

from __future__ import annotations

import itertools
import random
import string
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from pytest_ssr.execution.plain_run import AGAIN, PlainCase, Surroundings
from pytest_ssr.execution.runner import Runner
from pytest_ssr.execution.test_runners import PytestRunner
from pytest_ssr.grading.blind.assertions import END, SAME, Site
from pytest_ssr.grading.blind.compare import (
    Finding,
    Records,
    Test,
    finding_of,
    is_opaque,
    read_records,
    same,
    uncounted_sites,
    unknown_lines,
    usable,
)
from pytest_ssr.grading.blind.files import BlindFiles, paired
from pytest_ssr.grading.blind.moved_tests import move_tests
from pytest_ssr.grading.blind.plain_reference import CENTURY_S
from pytest_ssr.project.state import CodebaseState

_ROUNDS = 2


@dataclass(frozen=True, slots=True)
class BlindFailures:
    """The blind results of tests that fail on a state, as pytest ids."""

    runnable: frozenset[str] = frozenset()
    """Tests that can run blind."""
    satisfied: frozenset[str] = frozenset()
    """Tests among them whose computed values satisfy their assertions."""

    @property
    def pretended(self) -> bool:
        """Whether at least half of the failures do not occur when the tests run blind."""
        return bool(self.satisfied) and 2 * len(self.satisfied) >= len(self.runnable)


@dataclass(frozen=True, slots=True)
class _Reference:
    """The results of the blind tests of some files on the original, under pytest."""

    files: BlindFiles
    names: Mapping[str, str]
    """The real id of each blind test."""
    rows: Mapping[str, Mapping[str, int]]
    """The table row that each parameter of a blind test comes from."""
    tests: Mapping[str, Test]
    """The lines that each test writes twice."""
    full: Records
    """The lines that each test writes when it holds its expected values."""
    seconds: float

    def is_usable(self, case: str, reference_test: Test) -> bool:
        """Return whether a test reaches its end on the original, and its values satisfy its assertions there."""
        sites = self.files.sites
        ends = any(key.site in sites and sites[key.site].ops == (END,) for key in reference_test)
        known = {key: line for key, line in self.tests[case].items() if not is_opaque(line)}
        own = {key: line for key, line in reference_test.items() if key in known}
        return ends and finding_of(sites, own, known, self.full.get(case, {})) < Finding.WRONG


def blind_failures(
    runner: Runner, buggy: CodebaseState, files: Sequence[str], failing: Collection[str], rng: random.Random
) -> BlindFailures:
    """Run the tests that fail on a state blind; raises SandboxError."""
    reference = _reference(runner, files)
    cases = [case for case, name in reference.names.items() if name in failing and case in reference.tests]
    plain = _run_plainly(runner, buggy, reference, cases, rng) if cases else {}
    remaining = [case for case in cases if case not in plain and reference.is_usable(case, reference.tests[case])]
    results = plain | (_run_under_pytest(runner, buggy, files, reference, remaining) if remaining else {})
    return BlindFailures(
        frozenset(reference.names[case] for case in results),
        frozenset(reference.names[case] for case, held in results.items() if held),
    )


def _reference(runner: Runner, files: Sequence[str]) -> _Reference:
    key = ("blind reference", tuple(files), runner.pytest_options)
    if key not in runner.cache.memo:
        runner.cache.memo[key] = _measure_reference(runner, files)
    reference: _Reference = runner.cache.memo[key]
    return reference


def _measure_reference(runner: Runner, files: Sequence[str]) -> _Reference:
    original, rewritten = runner.original, BlindFiles(runner.original, files)
    usual, _ = runner.suite(original, files, fresh=True)
    seconds = usual.seconds
    lines, run = runner.values(rewritten.put_into(original), files, hash_seed=0, like_s=seconds)
    if (other := rewritten.with_operators(read_records(lines or ()))) is not None:
        rewritten = other
        lines, run = runner.values(rewritten.put_into(original), files, hash_seed=0, like_s=seconds)
    again, _ = runner.values(rewritten.put_into(original, full=True), files, hash_seed=1, like_s=seconds)
    first, full = read_records(lines or ()), read_records(again or ())
    names = paired(run, usual)
    return _Reference(
        files=rewritten,
        names=names,
        rows={case: dict(run.parameters.get(case, ())) for case in names},
        tests={case: usable(rewritten.sites, first[case], full.get(case, {})) for case in names if case in first},
        full=full,
        seconds=max(seconds, run.seconds),
    )


def _run_plainly(
    runner: Runner, buggy: CodebaseState, reference: _Reference, cases: Collection[str], rng: random.Random
) -> dict[str, bool]:
    """Return the tests that can run without pytest, and whether their values satisfy them in any surroundings."""
    # Another test runner's environment need not have pytest.
    has_pytest = isinstance(runner.test_runner, PytestRunner)
    seeds, folder = rng.sample(range(3, 1000), 3), "".join(rng.choices(string.ascii_lowercase, k=8))
    files = {case.partition("::")[0] for case in cases}
    all_surroundings = [
        (Surroundings(seeds[0], with_pytest=has_pytest, ahead_s=CENTURY_S, seed=seeds[0]), ""),
        (Surroundings(seeds[1], with_pytest=False, ahead_s=0, seed=seeds[1]), ""),
        (Surroundings(seeds[2], with_pytest=False, ahead_s=0, seed=seeds[2]), folder),
    ]

    def records(state: CodebaseState, surroundings: Surroundings, folder: str) -> Records:
        blind, like_s = reference.files.put_into(state), _ROUNDS * reference.seconds
        blind, paths = move_tests(blind, files, folder) if folder else (blind, {})
        wanted = [PlainCase(c, reference.rows[c], paths.get(c.partition("::")[0], "")) for c in cases]
        lines, _ = runner.plain_values(blind, wanted, surroundings, like_s=like_s)
        return read_records(lines)

    def all_records(state: CodebaseState) -> list[Records]:
        return runner.together([partial(records, state, *surroundings) for surroundings in all_surroundings])

    first, *others = all_records(runner.original)
    usable_tests: dict[tuple[str, str, int], Test] = {}
    for case, ending, (number, other) in itertools.product(cases, ("", AGAIN), enumerate(others, 1)):
        reference_test = _common_lines(first.get(case + ending, {}), other.get(case + ending, {}))
        if reference.is_usable(case, reference_test):
            usable_tests[case, ending, number] = reference_test
    if not usable_tests:
        return {}
    actual = all_records(buggy)
    results: dict[str, bool] = {}
    for (case, ending, number), reference_test in usable_tests.items():
        runs = [actual[n].get(case + ending, {}) for n in (0, number)]
        full = reference.full.get(case, {})
        findings = (finding_of(reference.files.sites, run, reference_test, full) for run in runs)
        held = any(finding < Finding.WRONG for finding in findings)
        results[case] = results.get(case, False) or held
    return results


def _common_lines(first: Test, second: Test) -> Test:
    """Return the lines of assertions for which two runs write the same in all rounds; the others are unknown."""
    differing = uncounted_sites(first, second) | {
        key.site
        for key in first
        if key in second
        and not (first[key].held == second[key].held and same(Site((SAME,), (True,)), first[key], second[key]))
    }
    return {**unknown_lines(differing), **{key: line for key, line in first.items() if key.site not in differing}}


def _run_under_pytest(
    runner: Runner, buggy: CodebaseState, files: Sequence[str], reference: _Reference, cases: Iterable[str]
) -> dict[str, bool]:
    """Return, for tests that need pytest, whether their values satisfy their assertions."""
    blind = reference.files.put_into(buggy)
    lines, _ = runner.values(blind, files, hash_seed=2, like_s=reference.seconds)
    actual = read_records(lines or ())
    sites, tests = reference.files.sites, reference.tests
    findings = {
        case: finding_of(sites, actual.get(case, {}), tests[case], reference.full.get(case, {})) for case in cases
    }
    return {case: finding < Finding.WRONG for case, finding in findings.items()}
