"""Run the tests of an artifact blind: without the values they expect, with their own and with other inputs.

The original shows what is computed, and the buggy code shows which other inputs reveal the bug.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace

from pytest_ssr.errors import SandboxError
from pytest_ssr.execution.runner import Runner
from pytest_ssr.grading.blind.assertions import END, FALSE, TRUE
from pytest_ssr.grading.blind.compare import (
    Key,
    Records,
    Test,
    agree,
    is_missing,
    is_opaque,
    left_open,
    read_records,
    same,
    satisfies,
    steady_line,
    usable,
)
from pytest_ssr.grading.blind.reference import BlindReference
from pytest_ssr.grading.blind.suite import Copy
from pytest_ssr.project.state import CodebaseState
from pytest_ssr.records.test_run import RunStatus

_SEVERAL, _ENOUGH, _MANY, _LEAST_SHARE = 2, 3, 4, 0.25


@dataclass(frozen=True, slots=True)
class BlindResult:
    """The result of the blind run on a state in which all tests pass, as test ids."""

    wrong: tuple[str, ...] = ()
    """Tests whose computed values do not satisfy their assertions."""
    not_repaired: tuple[str, ...] = ()
    """Tests that with most other inputs compute the same as the buggy code, or nothing."""
    unspecified: tuple[str, ...] = ()
    """Tests that with another input compute neither what the original nor what the buggy code computes."""
    unchecked: tuple[str, ...] = ()
    """Tests that cannot be run blind."""
    unvaried: tuple[str, ...] = ()
    """FAIL_TO_PASS tests for which no other input changed a value on the original."""
    timed_out: bool = False
    """Whether the time limit ended the run; then nothing is compared."""


@dataclass(slots=True)
class _Tally:
    """Counts of how the cases of one test with other inputs compare."""

    right: int = 0
    lost: int = 0
    other: int = 0
    left_open: int = 0
    """Cases that do not count: the original has no answer there, or nearly the same one."""

    @property
    def all(self) -> int:
        return self.right + self.lost + self.other


class BlindTests:
    """Runs the blind tests of one artifact on repaired states, and compares the values that they compute."""

    def __init__(self, reference: BlindReference, fail_to_pass: Collection[str], pass_to_pass: Collection[str]) -> None:
        """Prepare to compare states with what the original and the buggy code compute."""
        self._reference, self._suite, self._sites = reference, reference.suite, reference.sites
        self._failing, self._tests = frozenset(fail_to_pass), frozenset(fail_to_pass) | frozenset(pass_to_pass)
        self._open: set[int] = set()

    def result(self, runner: Runner, state: CodebaseState) -> BlindResult:
        """Compare a state in which all tests pass with the references; raises SandboxError.

        A failure counts only if it occurs twice, and if the original still computes what it did: tests may depend on
        time, or on the order of threads.
        """
        first = self._result(runner, state)
        if first.timed_out:
            self._original_result(runner)
            return first
        wrong, not_repaired = set(first.wrong), set(first.not_repaired)
        changed = set[str]()
        if wrong or not_repaired:
            again = self._result(runner, state)
            if not again.timed_out:
                wrong, not_repaired = wrong & set(again.wrong), not_repaired & set(again.not_repaired)
        if wrong or not_repaired:
            original = self._original_result(runner)
            changed = (wrong & set(original.wrong)) | (not_repaired & set(original.not_repaired))
        return replace(
            first,
            wrong=tuple(sorted(wrong - changed)),
            not_repaired=tuple(sorted(not_repaired - changed)),
            unchecked=tuple(sorted({*first.unchecked, *changed})),
        )

    def _original_result(self, runner: Runner) -> BlindResult:
        """Compare the original with itself; raises SandboxError if the machine is too busy to run it in time."""
        result = self._result(runner, runner.original)
        if result.timed_out:
            raise SandboxError("the original's tests did not end in time: the machine is too busy")
        return result

    def _result(self, runner: Runner, state: CodebaseState) -> BlindResult:
        lines, run = self._suite.run(runner, state)
        if run.status is RunStatus.TIMED_OUT:
            return BlindResult(timed_out=True)
        if lines is None:
            return BlindResult(wrong=tuple(sorted(self._failing)))
        actual = read_records(lines)
        wrong, unchecked = set[str](), set(self._tests)
        for case, name in self._reference.names.items():
            reference = self._usable(case)
            if name not in self._tests or not reference:
                continue
            # That a test ends is evidence that nothing else broke, and none that a bug is repaired.
            if name not in self._failing or self._has_values(case, reference):
                unchecked.discard(name)
            # Lines that the original wrote only once, for lack of space or because they vary, are not compared.
            left_out = self._reference.first[case].keys() - reference.keys()
            own = {k: line for k, line in actual.get(case, {}).items() if k not in left_out}
            if not satisfies(self._sites, own, reference, self._reference.full.get(case, {})):
                wrong.add(name)
        self._open = {key.site for case in self._reference.names for key in self._left_open(case, actual)}
        not_repaired, unspecified, varied = self._varied(actual)
        unvaried = {i for i in self._failing if i.partition("[")[0] not in varied}
        return BlindResult(
            wrong=tuple(sorted(wrong)),
            not_repaired=tuple(sorted(not_repaired)),
            unspecified=tuple(sorted(unspecified)),
            unchecked=tuple(sorted(unchecked)),
            unvaried=tuple(sorted(unvaried)),
        )

    def _has_values(self, case: str, reference: Test) -> bool:
        """Return whether there is a value of a test to compare, or the test asserts nothing but that it ends."""
        written = self._reference.first.get(case, {})
        has_values = any(line.values and not self._is_end(key) for key, line in reference.items())
        return has_values or all(self._is_end(key) for key in written)

    def _is_end(self, key: Key) -> bool:
        return key.site in self._sites and self._sites[key.site].ops == (END,)

    def _left_open(self, case: str, actual: Records) -> Iterator[Key]:
        """Yield the comparisons of two computed values in which a state differs from the original."""
        for key, line in self._usable(case).items():
            site, own = self._sites[key.site], actual.get(case, {}).get(key)
            if line.values and all(site.recorded) and own is not None and not same(site, own, line):
                yield key

    def _usable(self, case: str) -> Test:
        """Return the lines of a test on the original that it wrote again when it held its expected values."""
        return usable(self._sites, self._reference.first.get(case, {}), self._reference.full.get(case, {}))

    def _varied(self, actual: Records) -> tuple[set[str], set[str], Collection[str]]:
        """Return tests not repaired for other inputs, tests whose values differ with some, and varied test functions.

        The last are test functions for which another input changes a value on the original.
        """
        revealing, all_cases = defaultdict[str, _Tally](_Tally), defaultdict[str, _Tally](_Tally)
        for copy in self._suite.copies:
            source = self._suite.source_file(copy.path)
            for case in self._reference.first:
                path, _, rest = case.partition("::")
                name = self._reference.names.get(f"{source}::{rest}", "")
                reference = self._steady(copy, case) if path == copy.path and name else None
                if reference is None:
                    continue
                outcome, reveals = self._compared(copy, case, reference, actual)
                if outcome == "right" and not reveals and self._is_unchanged(case, reference):
                    continue
                # Rows that the bug does not break must not outvote one that it breaks.
                for group in {name.partition("[")[0], *({name} & self._failing)}:
                    for tally in (all_cases[group], *([revealing[group]] if reveals else [])):
                        setattr(tally, outcome, getattr(tally, outcome) + 1)
        lost = {f for f, t in revealing.items() if t.all >= _SEVERAL and 2 * t.lost > t.all}
        for tallies in (revealing, all_cases):
            lost |= {f for f, t in tallies.items() if t.all >= _ENOUGH and t.right < _LEAST_SHARE * t.all}
        lost |= {f for f, t in all_cases.items() if t.all >= _MANY and 2 * t.lost > t.all}
        other = {f for f, t in all_cases.items() if t.right < t.all + t.left_open} - lost
        ids_by_kind = [{i for i in self._tests if {i, i.partition("[")[0]} & names} for names in (lost, other)]
        return ids_by_kind[0], ids_by_kind[1], all_cases.keys()

    def _steady(self, copy: Copy, case: str) -> Test | None:
        """Return the lines that a test with another input writes twice on the original; None if any of them differs."""
        first, again = self._reference.first[case], self._reference.full.get(case, {})
        lines = {}
        for key in {**first, **again}:
            if key.site in copy.unchanged:
                continue
            if key not in first or key not in again:
                return None
            site = self._sites.get(key.site)
            steady = steady_line(site, first[key], again[key]) if site is not None else None
            if steady is None and not self._agree(case, key, first, again):
                return None
            lines[key] = steady or first[key]
        return lines

    def _is_unchanged(self, case: str, reference: Test) -> bool:
        """Return whether the other input changes nothing on the original, and so proves nothing."""
        usual = self._reference.first.get(self._suite.source_case(case), {})
        return all(usual.get(key) == self._reference.first[case][key] for key in reference)

    def _compared(self, copy: Copy, case: str, reference: Test, actual: Records) -> tuple[str, bool]:
        """Return whether a case with another input is right, lost or other, and whether the bug shows in it."""
        own, buggy = actual.get(case, {}), self._reference.buggy.get(case, {})
        # If a test leaves the value open, only the bug's own value counts against a patch.
        values = self._differing(copy, case, reference, self._reference.buggy, strict=True)
        others = values & self._differing(copy, case, reference, actual, strict=True)
        if self._is_like_the_bug(case, others, own, buggy, strict=True):
            return "lost", True
        shows = self._differing(copy, case, reference, self._reference.buggy)
        differs = self._differing(copy, case, reference, actual)
        if shows:
            differs &= shows
        if not differs:
            return "right", bool(values)
        like_the_bug = bool(shows) and self._is_like_the_bug(case, differs, own, buggy)
        if not like_the_bug and self._is_left_open(differs, reference, own):
            return "left_open", bool(shows)
        refuses = any(self._is_end(k) and k not in own for k in reference)
        refuses |= any(
            k in own and k in reference and is_missing(own[k]) and not is_missing(reference[k]) for k in differs
        )
        return "lost" if like_the_bug or refuses else "other", bool(shows)

    def _is_like_the_bug(
        self, case: str, differs: Collection[Key], own: Test, buggy: Test, *, strict: bool = False
    ) -> bool:
        """Return whether there are differences, and a state behaves like the buggy code in all of them."""
        return bool(differs) and all(
            (k in own) is (k in buggy) and (k not in own or self._agree(case, k, buggy, own, strict=strict))
            for k in differs
        )

    def _is_left_open(self, differs: Collection[Key], reference: Test, own: Test) -> bool:
        """Return whether the first difference of a case proves nothing about the repair."""
        first = next((k for k in reference if k in differs), None)
        if first is None:
            # The original raises there, and the other code continues.
            return not any(self._is_end(k) for k in reference)
        site = self._sites.get(first.site)
        return site is not None and left_open(site, reference[first], own.get(first))

    def _differing(self, copy: Copy, case: str, reference: Test, others: Records, *, strict: bool = False) -> set[Key]:
        """Return the assertions of a copy in which others differ from the original; strict: by value, if it is open."""
        other = others.get(case, {})
        return {
            key
            for key in {**reference, **other}
            if key.site not in copy.unchanged
            and not (key in reference and key in other and self._agree(case, key, reference, other, strict=strict))
        }

    def _agree(self, case: str, key: Key, one: Test, other: Test, *, strict: bool = False) -> bool:
        if key.site not in self._sites:
            return one[key] == other[key]
        full = self._reference.full.get(self._suite.source_case(case), {}).get(key)
        site = self._sites[key.site]
        if strict and site.ops not in ((TRUE,), (FALSE,), (END,)):
            return is_opaque(one[key]) or same(site, other[key], one[key])
        return agree(site, one[key], other[key], full, is_open=key.site in self._open)
