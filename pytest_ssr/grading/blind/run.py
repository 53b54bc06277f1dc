"""Run the tests of an artifact blind: without the values they expect, with their own and with other inputs.

The original shows what is computed, and the buggy code shows which other inputs reveal the bug.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from pytest_ssr.errors import SandboxError
from pytest_ssr.execution.runner import Runner
from pytest_ssr.grading.blind.assertions import END, FALSE, RAISES, RAISES_TEXT, TRUE
from pytest_ssr.grading.blind.compare import (
    Finding,
    Key,
    Line,
    Records,
    Test,
    agree,
    exhausted_cases,
    finding_of,
    holds,
    is_missing,
    is_opaque,
    left_open,
    read_records,
    replaced_names,
    same,
    seen_conditions,
    steady_line,
    usable,
)
from pytest_ssr.grading.blind.conditions import one_sided, watched
from pytest_ssr.grading.blind.reference import BlindReference
from pytest_ssr.grading.blind.suite import BlindSuite, PlainSuite
from pytest_ssr.project.state import CodebaseState
from pytest_ssr.records.test_run import RunStatus

_SEVERAL, _ENOUGH, _MANY = 2, 3, 4
_RIGHT_SHARE = 4
"""Exhausted cases for each right one that prove nothing."""


_ORIGINAL_RUNS = 2
"""Runs of the original that may show that a test no longer computes there what it did."""


@dataclass(frozen=True, slots=True)
class BlindResult:
    """The result of the blind run on a state in which all tests pass, as test ids."""

    wrong: tuple[str, ...] = ()
    """Tests whose computed values are not those of the original, or do not satisfy their assertions."""
    failed: tuple[str, ...] = ()
    """Those among them that fail with their computed values."""
    not_repaired: tuple[str, ...] = ()
    """Tests that with most other inputs compute the same as the buggy code, nothing, always the same, or anything but
    what the original computes."""
    unspecified: tuple[str, ...] = ()
    """Tests that with another input compute neither what the original nor what the buggy code computes."""
    unchecked: tuple[str, ...] = ()
    """Tests that cannot be run blind."""
    unvaried: tuple[str, ...] = ()
    """FAIL_TO_PASS tests for which no other input changed a value on the original."""
    replaced: tuple[str, ...] = ()
    """Names in libraries and tests, and built-in types, that the state replaces by objects of its own."""
    one_sided: tuple[str, ...] = ()
    """Conditions that the state adds, and that were always true, or always false, as text with their place."""
    seen: frozenset[str] | None = frozenset()
    """The truths of these conditions, by number (see `seen_conditions`)."""
    timed_out: bool = False
    """Whether the time limit ended the run; then nothing is compared."""
    is_partial: bool = False
    """Whether only FAIL_TO_PASS tests with their own inputs are compared."""

    def joined(self, other: BlindResult) -> BlindResult:
        """Return the result of two runs of different tests."""
        return BlindResult(
            wrong=_union(self.wrong, other.wrong),
            failed=_union(self.failed, other.failed),
            not_repaired=_union(self.not_repaired, other.not_repaired),
            unspecified=_union(self.unspecified, other.unspecified),
            unchecked=_union(self.unchecked, other.unchecked),
            unvaried=_union(self.unvaried, other.unvaried),
            replaced=_union(self.replaced, other.replaced),
            seen=self.seen | other.seen if self.seen is not None and other.seen is not None else None,
        )


def _union(one: Collection[str], other: Collection[str]) -> tuple[str, ...]:
    return tuple(sorted({*one, *other}))


@dataclass(slots=True)
class _Tally:
    """Counts of how the cases of one test with other inputs compare."""

    right: int = 0
    lost: int = 0
    other: int = 0
    left_open: int = 0
    """Cases that do not count: the original has no answer there, or nearly the same one."""
    exhausted: int = 0
    """Cases in which the stack or the memory did not suffice."""

    def settle(self) -> None:
        """Count the exhausted cases: recursion is as right as a loop if it is right for inputs that are not large."""
        if _RIGHT_SHARE * self.right >= self.exhausted:
            self.left_open += self.exhausted
        else:
            self.lost += self.exhausted
        self.exhausted = 0

    @property
    def all(self) -> int:
        return self.right + self.lost + self.other


class BlindTests:
    """Runs the blind tests of one artifact on repaired states, and compares the values that they compute."""

    def __init__(self, reference: BlindReference, fail_to_pass: Collection[str], pass_to_pass: Collection[str]) -> None:
        """Prepare to compare states with what the original and the buggy code compute."""
        self._reference, self._failing = reference, frozenset(fail_to_pass)
        tests = self._failing | frozenset(pass_to_pass)
        parts = [part for part in (reference.plain, reference) if part is not None]
        moved = frozenset(reference.plain.names.values() if reference.plain is not None else ()) & tests
        self._comparisons = [
            Comparison(part, self._failing & own, own - self._failing)
            for part, own in zip(parts, (moved, tests - moved) if len(parts) > 1 else (tests,), strict=True)
            if own
        ]
        self._unmoved = self._failing - moved

    @property
    def collected(self) -> tuple[str, ...]:
        """The tests that the original collects."""
        return self._reference.collected

    @property
    def unmoved(self) -> tuple[str, ...]:
        """FAIL_TO_PASS tests that run only under pytest, sorted."""
        return tuple(sorted(self._unmoved))

    def result(self, runner: Runner, state: CodebaseState, *, early: bool = False) -> BlindResult:
        """Run the tests on a state and compare it with the references; raises SandboxError.

        early: end as soon as FAIL_TO_PASS tests are wrong with their own inputs, as with most patches that are no
        repairs.
        """
        if early and self._reference.plain is None:
            first = self._first_result(runner, state)
            if first.wrong or first.timed_out:
                return first
        result = BlindResult()
        watching, conditions = watched(runner.original, state)
        for comparison in self._comparisons:
            own = comparison.result(runner, watching, early=early)
            if own.timed_out or own.is_partial:
                return own
            result = result.joined(own)
        open_conditions = one_sided(conditions, result.seen) if result.seen is not None else ()
        return replace(result, one_sided=open_conditions, seen=frozenset())

    def _first_result(self, runner: Runner, state: CodebaseState) -> BlindResult:
        """Run only FAIL_TO_PASS tests, with their own inputs, under pytest."""
        names = {case: name for case, name in self._reference.names.items() if name in self._failing}
        files = tuple(dict.fromkeys(case.partition("[")[0] for case in names))
        suite = replace(self._reference.suite, files=files, copies=())
        first = Comparison(self._reference, names.values(), (), suite, names).result(runner, state)
        return replace(first, is_partial=True)

    def confirmed(self, runner: Runner, result: BlindResult) -> BlindResult:
        """Return a result without what holds for the original as well at present; raises SandboxError.

        A test that is wrong once is wrong, unless the original no longer computes what it did either: tests may depend
        on time, or on the order of threads. So nothing is gained by a value that is right in one run of two.
        """
        if result.timed_out:
            self._original_result(runner)
            return result
        wrong, not_repaired, changed = set(result.wrong), set(result.not_repaired), set[str]()
        for _ in range(_ORIGINAL_RUNS):
            if not wrong and not not_repaired:
                break
            original = self._original_result(runner)
            changed |= wrong.intersection(original.wrong) | not_repaired.intersection(original.not_repaired)
            wrong.difference_update(original.wrong)
            not_repaired.difference_update(original.not_repaired)
        return replace(
            result,
            wrong=tuple(sorted(wrong)),
            not_repaired=tuple(sorted(not_repaired)),
            unchecked=tuple(sorted({*result.unchecked, *changed} - wrong - not_repaired)),
        )

    def _original_result(self, runner: Runner) -> BlindResult:
        """Compare the original with itself; raises SandboxError if the machine is too busy to run it in time."""
        result = self.result(runner, runner.original)
        if result.timed_out:
            raise SandboxError("the original's tests did not end in time: the machine is too busy")
        return result


class Comparison:
    """Runs blind tests in one kind of process, and compares the values that they compute."""

    def __init__(
        self,
        reference: BlindReference,
        fail_to_pass: Collection[str],
        pass_to_pass: Collection[str],
        suite: BlindSuite | None = None,
        names: Mapping[str, str] | None = None,
    ) -> None:
        """Prepare to compare; suite, names: what is run, if it is a part of the reference's."""
        self._reference, self._suite, self._sites = reference, suite or reference.suite, reference.sites
        self._names = names if names is not None else reference.names
        self._failing, self.tests = frozenset(fail_to_pass), frozenset(fail_to_pass) | frozenset(pass_to_pass)
        self._open: set[int] = set()

    def result(self, runner: Runner, state: CodebaseState, *, early: bool = False) -> BlindResult:
        """Run the tests on a state and compare it with the references; raises SandboxError.

        early: end as soon as FAIL_TO_PASS tests are wrong, if they run without pytest.
        """
        first, suite = BlindResult(), self._suite

        def goes_on(lines: list[str]) -> bool:
            nonlocal first
            assert isinstance(suite, PlainSuite)
            cases = {case: name for case, name in self._names.items() if name in self._failing and case in suite.cases}
            own = self._own_inputs(read_records(lines), cases)
            unchecked = tuple(i for i in own.unchecked if i in self._failing)
            first = replace(own, unchecked=unchecked, is_partial=True)
            return not first.wrong

        if early and isinstance(suite, PlainSuite):
            lines, run = suite.run(runner, state, goes_on=goes_on)
        else:
            lines, run = suite.run(runner, state)
        if first.wrong:
            return first
        if run.status is RunStatus.TIMED_OUT:
            return BlindResult(timed_out=True)
        if lines is None:
            return BlindResult(wrong=tuple(sorted(self._failing)))
        actual = read_records(lines)
        replaced = replaced_names(actual, self._reference.first)
        if replaced is None:
            return BlindResult(wrong=tuple(sorted(self._failing)))
        result = self._compared_with_original(actual)
        result = replace(result, replaced=tuple(sorted(replaced)), seen=seen_conditions(actual))
        ran = {self._names.get(case) for case in self._suite.ran(run)}
        return replace(result, failed=tuple(i for i in result.failed if i in ran))

    def _compared_with_original(self, actual: Records) -> BlindResult:
        result = self._own_inputs(actual, {c: name for c, name in self._names.items() if name in self.tests})
        self._open = {key.site for case in self._names for key in self._left_open(case, actual)}
        not_repaired, unspecified, varied = self._varied(actual)
        unvaried = {i for i in self._failing if i.partition("[")[0] not in varied}
        return replace(
            result,
            not_repaired=tuple(sorted(not_repaired)),
            unspecified=tuple(sorted(unspecified)),
            unvaried=tuple(sorted(unvaried)),
        )

    def _own_inputs(self, actual: Records, names: Mapping[str, str]) -> BlindResult:
        """Compare what some tests compute from their own inputs; names: their real ids by their ids in the suite."""
        wrong, failed, unchecked = set[str](), set[str](), set(self.tests)
        for case, name in names.items():
            reference = self._usable(case)
            if not reference:
                continue
            full = self._reference.full.get(case, {})
            finding = finding_of(self._sites, actual.get(case, {}), reference, full)
            # That a test ends is evidence that nothing else broke, and none that a bug is repaired.
            if finding is Finding.RIGHT or (finding is Finding.OPEN and name not in self._failing):
                unchecked.discard(name)
            elif finding >= Finding.WRONG:
                unchecked.discard(name)
                wrong.add(name)
                failed.update([name] if finding is Finding.FAILS else [])
        return BlindResult(wrong=tuple(sorted(wrong)), failed=tuple(sorted(failed)), unchecked=tuple(sorted(unchecked)))

    def _is_end(self, key: Key) -> bool:
        return key.site in self._sites and self._sites[key.site].ops == (END,)

    def _left_open(self, case: str, actual: Records) -> Iterator[Key]:
        """Yield the comparisons of two computed values in which a state differs from the original."""
        for key, line in self._usable(case).items():
            site, own = self._sites.get(key.site), actual.get(case, {}).get(key)
            if site is None or own is None or is_opaque(line) or not line.values or not all(site.recorded):
                continue
            if not same(site, own, line):
                yield key

    def _usable(self, case: str) -> Test:
        """Return the lines of a test on the original, opaque if they vary."""
        return usable(self._sites, self._reference.first.get(case, {}), self._reference.full.get(case, {}))

    def _varied(self, actual: Records) -> tuple[set[str], set[str], Collection[str]]:
        """Return tests not repaired for other inputs, tests whose values differ with some, and varied test functions.

        The last are test functions for which another input changes a value on the original.
        """
        revealing, all_cases = defaultdict[str, _Tally](_Tally), defaultdict[str, _Tally](_Tally)
        values = defaultdict[tuple[str, Key], list[tuple[Line, Line]]](list)
        exhausted = exhausted_cases(actual)
        cases = defaultdict[str, list[str]](list)
        for case in self._reference.first:
            cases[case.partition("::")[0]].append(case)
        for copy in self._suite.copies:
            for case in cases[copy.path]:
                name = self._names.get(self._suite.source_case(case), "")
                reference = self._steady(case) if name else None
                if reference is None:
                    continue
                for key, line in reference.items():
                    own = actual.get(case, {}).get(key)
                    if own is not None and self._is_determined(case, key, line):
                        values[name, key] = values[name, key] or self._own_lines(case, key, actual)
                        values[name, key].append((line, own))
                outcome, reveals = self._compared(case, reference, actual)
                if outcome == "right" and self._is_unchanged(case, reference):
                    continue
                if outcome == "lost" and case in exhausted:
                    outcome = "exhausted"
                # Rows that the bug does not break must not outvote one that it breaks.
                for group in {name.partition("[")[0], *({name} & self._failing)}:
                    for tally in (all_cases[group], *([revealing[group]] if reveals else [])):
                        setattr(tally, outcome, getattr(tally, outcome) + 1)
        for tally in (*revealing.values(), *all_cases.values()):
            tally.settle()
        lost = {f for f, t in revealing.items() if t.all >= _SEVERAL and 2 * t.lost > t.all}
        for tallies in (revealing, all_cases):
            lost |= {f for f, t in tallies.items() if t.all >= _ENOUGH and 2 * t.right < t.all}
        lost |= {f for f, t in all_cases.items() if t.all >= _MANY and 2 * t.lost > t.all}
        lost |= {name for (name, _), pairs in values.items() if _is_constant(pairs)}
        other = {f for f, t in all_cases.items() if t.right < t.all + t.left_open} - lost
        ids_by_kind = [{i for i in self.tests if {i, i.partition("[")[0]} & names} for names in (lost, other)]
        return ids_by_kind[0], ids_by_kind[1], all_cases.keys()

    def _own_lines(self, case: str, key: Key, actual: Records) -> list[tuple[Line, Line]]:
        """Return what the original and a state write with the test's own input, if both do."""
        source = self._suite.source_case(case)
        first, own = (records.get(source, {}).get(key) for records in (self._reference.first, actual))
        return [(first, own)] if first is not None and own is not None else []

    def _is_determined(self, case: str, key: Key, line: Line) -> bool:
        """Return whether the assertion would notice another value: of messages, if the test expects its own input's."""
        site = self._sites.get(key.site)
        full = self._reference.full.get(self._suite.source_case(case), {}).get(key)
        if site is None or site.ops not in ((RAISES,), (RAISES_TEXT,)):
            return self._is_fixed(key)
        if line.values[:1] == [None]:
            return False
        return full is not None and any(holds(site.ops, [line.values[1], p]) is False for p in full.values[2:])

    def _is_fixed(self, key: Key) -> bool:
        """Return whether an assertion fixes the value itself, or its truth."""
        site = self._sites.get(key.site)
        return site is not None and (not site.is_open or site.ops in ((TRUE,), (FALSE,)))

    def _steady(self, case: str) -> Test | None:
        """Return the lines that a test with another input writes twice on the original.

        None if it does not write the same lines, or if one of them differs that the test's own input determines.
        """
        first, again = self._reference.first[case], self._reference.full.get(case, {})
        if first.keys() != again.keys():
            return None
        varying = {key.site for key, line in self._lines(self._suite.source_case(case)).items() if line is None}
        lines = {}
        for key, steady in self._lines(case).items():
            if steady is not None:
                lines[key] = steady
            elif key.site in varying or self._agree(case, key, first, again):
                # Another round may be equal by chance.
                varying.add(key.site)
            else:
                return None
        return {key: line for key, line in lines.items() if key.site not in varying or self._is_end(key)}

    def _lines(self, case: str) -> Mapping[Key, Line | None]:
        """Return the lines that a test writes twice on the original, by their steady parts; None if they differ."""
        first, again = self._reference.first.get(case, {}), self._reference.full.get(case, {})
        return {
            key: steady_line(self._sites[key.site], line, again[key])
            for key, line in first.items()
            if key in again and key.site in self._sites
        }

    def _is_unchanged(self, case: str, reference: Test) -> bool:
        """Return whether the other input changes nothing on the original, and so proves nothing."""
        usual = self._reference.first.get(self._suite.source_case(case), {})
        return all(usual.get(key) == self._reference.first[case][key] for key in reference)

    def _compared(self, case: str, reference: Test, actual: Records) -> tuple[str, bool]:
        """Return whether a case with another input is right, lost or other, and whether the bug shows in it."""
        own, buggy = actual.get(case, {}), self._reference.buggy.get(case, {})
        # If a test leaves the value open, only the bug's own value counts against a patch.
        values = self._differing(case, reference, self._reference.buggy, strict=True)
        others = values & self._differing(case, reference, actual, strict=True)
        if self._is_like_the_bug(case, others, own, buggy, strict=True):
            return "lost", True
        shows = self._differing(case, reference, self._reference.buggy)
        differs = self._differing(case, reference, actual)
        # What other assertions write is no sign of this bug, but may be one of another.
        beside = {k for k in differs - shows if self._is_fixed(k) or self._is_end(k)} if shows else set[Key]()
        if shows:
            differs &= shows
        if not differs:
            is_open = bool(beside) and not self._is_left_open(beside, reference, own)
            is_open |= any(self._has_other_message(case, key, line, actual) for key, line in reference.items())
            return "left_open" if is_open else "right", bool(values or shows)
        like_the_bug = bool(shows) and self._is_like_the_bug(case, differs, own, buggy)
        is_fixed = any(self._is_fixed(key) or self._is_end(key) for key in differs)
        if not like_the_bug and (not is_fixed or self._is_left_open(differs, reference, own)):
            return "left_open", bool(shows)
        refuses = any(self._is_end(k) and k not in own for k in reference)
        refuses |= any(
            k in own and k in reference and is_missing(own[k]) and not is_missing(reference[k]) for k in differs
        )
        return "lost" if like_the_bug or refuses else "other", bool(shows)

    def _has_other_message(self, case: str, key: Key, line: Line, actual: Records) -> bool:
        """Return whether a state raises with a message that the test would judge differently, or that differs.

        line: what the original writes. A message may differ if it differs with the test's own input as well.
        """
        site, own = self._sites.get(key.site), actual.get(case, {}).get(key)
        source = self._suite.source_case(case)
        full, usual = (records.get(source, {}).get(key) for records in (self._reference.full, actual))
        if site is None or site.ops not in ((RAISES,), (RAISES_TEXT,)):
            return False
        if full is None or own is None or usual is None:
            return False
        if not full.values[2:] or None in (line.values[0], own.values[0]):
            return False
        verdicts = [[holds(site.ops, [each.values[1], p]) for p in full.values[2:]] for each in (line, own)]
        is_original = usual.values[:2] == full.values[:2]
        return verdicts[0] != verdicts[1] or (is_original and own.values[1] != line.values[1])

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

    def _differing(self, case: str, reference: Test, others: Records, *, strict: bool = False) -> set[Key]:
        """Return the assertions of a copy in which others differ from the original; strict: by value, if it is open."""
        other = others.get(case, {})
        left_out = {key.site for key in self._reference.first[case]} - {key.site for key in reference}
        return {
            key
            for key in {**reference, **other}
            if key.site not in left_out
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


def _is_constant(pairs: Sequence[tuple[Line, Line]]) -> bool:
    """Return whether a state writes the same for several inputs for which the original writes different lines."""
    originals, own = ({json.dumps(line) for line in lines} for lines in zip(*pairs, strict=True))
    return len(pairs) >= _ENOUGH and len(originals) > 1 and len(own) == 1
