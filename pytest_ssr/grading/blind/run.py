"""Run the tests of an artifact blind: without the values they expect, with their own and with other inputs.

The original shows what is computed, and the buggy code shows which other inputs reveal the bug. The references live for
a few grades; then other inputs are drawn.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath

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
from pytest_ssr.grading.blind.files import BlindFiles, paired
from pytest_ssr.grading.blind.varied_files import Copy, CopyGenerator
from pytest_ssr.patch import FileEntry
from pytest_ssr.project.state import CodebaseState
from pytest_ssr.records.test_run import SuiteRun

_SLOW_S = 0.25
"""Time a test with other inputs may take on the original, unless it takes half of that with its own."""
_ATTEMPTS, _USAGE = 3, 4
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


@dataclass
class _References:
    """The values that the blind tests write on the original and on the buggy code."""

    first: Records = field(default_factory=dict)
    full: Records = field(default_factory=dict)
    """A second run on the original, in which the tests hold and write the values they expect."""
    buggy: Records = field(default_factory=dict)


class BlindTests:
    """The blind tests of one artifact, and the values they compute on the original and on the buggy state."""

    def __init__(
        self,
        runner: Runner,
        buggy: CodebaseState,
        files: Sequence[str],
        fail_to_pass: Collection[str],
        pass_to_pass: Collection[str],
        rng: random.Random,
    ) -> None:
        """Run the tests on both states; raises SandboxError when the sandbox fails."""
        self._files = list(files)
        self._failing, self._tests = frozenset(fail_to_pass), frozenset(fail_to_pass) | frozenset(pass_to_pass)
        self._original_run, _ = runner.suite(runner.original, files, fresh=True)
        self._like_s = self._original_run.seconds
        blind_files = BlindFiles(runner.original, files)
        self._entries, self._blind, self._full = blind_files.entries, blind_files.blind, blind_files.full
        self._sites = blind_files.sites
        self._generator = CopyGenerator(
            runner.original, files, blind_files, self._original_run, self._tests, self._failing, rng
        )
        self._token = self._generator.token
        self._copies: list[Copy] = []
        self._open: set[int] = set()
        self._source_cases: dict[str, str] = {}
        self._by_id = True
        self._measure(runner, buggy)

    def _measure(self, runner: Runner, buggy: CodebaseState) -> None:
        """Record the computed values, with other inputs as well; skip tests that do not end with these."""
        endless: set[str] = set()
        self._references = _References()
        for _ in range(_ATTEMPTS):
            self._copies = list(self._generator.draw(endless))
            lines, run = self._run(runner, runner.original, 0)
            if run.exit_code == _USAGE and self._by_id:
                # A file cannot be imported with other inputs, or a test is collected under another name.
                self._by_id = False
                lines, run = self._run(runner, runner.original, 0)
            if not run.fault and lines is not None:
                if self._drop(self._slow(run)):
                    lines, run = self._run(runner, runner.original, 0)
                break
            if not run.unfinished:
                self._copies = []
            elif self._token in run.unfinished:
                endless.add(self._generator.function_of(run.unfinished))
        else:
            self._copies = []
            lines, run = self._run(runner, runner.original, 0)
        self._like_s = max(self._like_s, run.seconds)
        self._names = paired(run, self._original_run)
        self._references.first = read_records(lines or ())
        self._references.full = read_records(self._run(runner, runner.original, 1, full=True)[0] or ())
        if self._copies:
            self._references.buggy = read_records(self._run(runner, buggy, 0, only_copies=True)[0] or ())

    def _slow(self, run: SuiteRun) -> Collection[str]:
        """Return the tests of copies that are slow: a slower repair would not finish there in time."""
        usual: dict[str, float] = defaultdict(float)
        for node_id, result in self._original_run.results.items():
            function = node_id.partition("[")[0]
            usual[function] = max(usual[function], result.duration_s)
        return {
            node_id.partition("[")[0]
            for node_id, result in run.results.items()
            if self._token in node_id
            and result.duration_s > max(_SLOW_S, 2 * usual[self._generator.function_of(node_id)])
        }

    def _drop(self, targets: Collection[str]) -> bool:
        """Drop tests of copies; return whether there were any."""
        if targets and self._by_id:
            remaining = [replace(c, targets=tuple(t for t in c.targets if t not in targets)) for c in self._copies]
            self._copies = [c for c in remaining if c.targets]
        return bool(targets) and self._by_id

    def _run(
        self,
        runner: Runner,
        state: CodebaseState,
        hash_seed: int,
        *,
        full: bool = False,
        only_copies: bool = False,
    ) -> tuple[list[str] | None, SuiteRun]:
        chosen = self._full if full else self._blind
        entries: dict[str, FileEntry | None] = {
            p: FileEntry(chosen[p].text, self._entries[p].mode) for p in self._blind
        }
        for copy in self._copies:
            texts = {copy.path: copy.blind.text, **copy.files}
            entries |= {path: FileEntry(text, 0o100644) for path, text in texts.items()}
        targets = [
            *([] if only_copies else self._files),
            *(t for c in self._copies for t in (c.targets if self._by_id else (c.path,))),
        ]
        changed = state.replace(entries)
        return runner.values(changed, targets, hash_seed=hash_seed, like_s=self._like_s, copies=self._token)

    def _source_case(self, case: str) -> str:
        """Return the node id of a copy's test in the file that was copied."""
        if case not in self._source_cases:
            self._source_cases[case] = self._generator.function_of(case) + case[len(case.partition("[")[0]) :]
        return self._source_cases[case]

    def result(self, runner: Runner, state: CodebaseState) -> BlindResult:
        """Compare a state in which all tests pass with the references; raises SandboxError.

        A failure counts only if it occurs twice: tests may depend on time, or on the order of threads.
        """
        first = self._result(runner, state)
        if not first.wrong and not first.not_repaired:
            return first
        second = self._result(runner, state)
        pairs = ((first.wrong, second.wrong), (first.not_repaired, second.not_repaired))
        wrong, not_repaired = (tuple(sorted(set(one) & set(other))) for one, other in pairs)
        return replace(first, wrong=wrong, not_repaired=not_repaired)

    def _result(self, runner: Runner, state: CodebaseState) -> BlindResult:
        lines, _ = self._run(runner, state, 0)
        if lines is None:
            return BlindResult(wrong=tuple(sorted(self._failing)))
        actual = read_records(lines)
        wrong, unchecked = set[str](), set(self._tests)
        for case, name in self._names.items():
            reference = self._usable(case)
            if name not in self._tests or not reference:
                continue
            unchecked.discard(name)
            # Lines that the original wrote only once, for lack of space or because they vary, are not compared.
            left_out = self._references.first[case].keys() - reference.keys()
            own = {k: line for k, line in actual.get(case, {}).items() if k not in left_out}
            if not satisfies(self._sites, own, reference, self._references.full.get(case, {})):
                wrong.add(name)
        self._open = {key.site for case in self._names for key in self._left_open(case, actual)}
        not_repaired, unspecified, varied = self._varied(actual)
        unvaried = {i for i in self._failing if i.partition("[")[0] not in varied}
        return BlindResult(*(tuple(sorted(ids)) for ids in (wrong, not_repaired, unspecified, unchecked, unvaried)))

    def _left_open(self, case: str, actual: Records) -> Iterator[Key]:
        """Yield the comparisons of two computed values in which a state differs from the original."""
        for key, line in self._usable(case).items():
            site, own = self._sites[key.site], actual.get(case, {}).get(key)
            if all(site.recorded) and own is not None and not same(site, own, line):
                yield key

    def _usable(self, case: str) -> Test:
        """Return the lines of a test on the original that it wrote again when it held its expected values."""
        return usable(self._sites, self._references.first.get(case, {}), self._references.full.get(case, {}))

    def _varied(self, actual: Records) -> tuple[set[str], set[str], Collection[str]]:
        """Return tests not repaired for other inputs, tests whose values differ with some, and varied test functions.

        The last are test functions for which another input changes a value on the original.
        """
        revealing, all_cases = defaultdict[str, _Tally](_Tally), defaultdict[str, _Tally](_Tally)
        for copy in self._copies:
            stem = PurePosixPath(copy.path)
            source = str(stem.with_name(stem.stem.rpartition("_" + self._token)[0] + ".py"))
            for case in self._references.first:
                path, _, rest = case.partition("::")
                name = self._names.get(f"{source}::{rest}", "")
                reference = self._steady(copy, case) if path == copy.path and name else None
                if reference is None:
                    continue
                outcome, reveals = self._compared(copy, case, reference, actual)
                if outcome == "right" and not reveals and self._is_unchanged(case, reference):
                    continue
                function = name.partition("[")[0]
                for tally in (all_cases[function], *([revealing[function]] if reveals else [])):
                    setattr(tally, outcome, getattr(tally, outcome) + 1)
        lost = {f for f, t in revealing.items() if t.all >= _SEVERAL and 2 * t.lost > t.all}
        for tallies in (revealing, all_cases):
            lost |= {f for f, t in tallies.items() if t.all >= _ENOUGH and t.right < _LEAST_SHARE * t.all}
        lost |= {f for f, t in all_cases.items() if t.all >= _MANY and 2 * t.lost > t.all}
        other = {f for f, t in all_cases.items() if t.right < t.all + t.left_open} - lost
        ids_by_kind = [{i for i in self._tests if i.partition("[")[0] in names} for names in (lost, other)]
        return ids_by_kind[0], ids_by_kind[1], all_cases.keys()

    def _steady(self, copy: Copy, case: str) -> Test | None:
        """Return the lines that a test with another input writes twice on the original; None if any of them differs."""
        first, again = self._references.first[case], self._references.full.get(case, {})
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
        usual = self._references.first.get(self._source_case(case), {})
        return all(usual.get(key) == self._references.first[case][key] for key in reference)

    def _compared(self, copy: Copy, case: str, reference: Test, actual: Records) -> tuple[str, bool]:
        """Return whether a case with another input is right, lost or other, and whether the bug shows in it."""
        own, buggy = actual.get(case, {}), self._references.buggy.get(case, {})
        # If a test leaves the value open, only the bug's own value counts against a patch.
        values = self._differing(copy, case, reference, self._references.buggy, strict=True)
        others = values & self._differing(copy, case, reference, actual, strict=True)
        if self._is_like_the_bug(case, others, own, buggy, strict=True):
            return "lost", True
        shows = self._differing(copy, case, reference, self._references.buggy)
        differs = self._differing(copy, case, reference, actual)
        if shows:
            differs &= shows
        if not differs:
            return "right", bool(values)
        like_the_bug = bool(shows) and self._is_like_the_bug(case, differs, own, buggy)
        if not like_the_bug and self._is_left_open(differs, reference, own):
            return "left_open", bool(shows)
        refuses = any(k.site in self._sites and self._sites[k.site].ops == (END,) and k not in own for k in reference)
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
            return not any(k.site in self._sites and self._sites[k.site].ops == (END,) for k in reference)
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
        full = self._references.full.get(self._source_case(case), {}).get(key)
        site = self._sites[key.site]
        if strict and site.ops not in ((TRUE,), (FALSE,), (END,)):
            return is_opaque(one[key]) or same(site, other[key], one[key])
        return agree(site, one[key], other[key], full, is_open=key.site in self._open)
