"""The blind run: the tests of an artifact without what they expect, as they stand and with other inputs.

The original says what is computed, and the buggy code which other inputs show the bug. The references live as long as
a few grades; then other inputs are drawn.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath

from pytest_ssr.codebase import CodebaseState
from pytest_ssr.execution.workbench import Workbench
from pytest_ssr.grading.blind.assertions import END, FALSE, TRUE
from pytest_ssr.grading.blind.compare import (
    Key,
    Records,
    Test,
    agree,
    as_asked,
    is_nothing,
    is_opaque,
    left_open,
    read_records,
    same,
    steady_line,
    usable,
)
from pytest_ssr.grading.blind.copies import Copies, Copy
from pytest_ssr.grading.blind.files import BlindFiles, paired
from pytest_ssr.outcomes import SuiteRun
from pytest_ssr.patch import FileEntry

_SLOW_S = 0.25
"""What a test with other inputs may take on the original, unless it takes half of that with its own."""
_TRIES, _USAGE = 3, 4
_SEVERAL, _MANY, _LEAST_SHARE = 2, 4, 0.25


@dataclass(frozen=True, slots=True)
class BlindResult:
    """What the blind run shows of a state in which all tests pass; ids of tests."""

    wrong: tuple[str, ...] = ()
    """Tests whose computed values are not as they ask."""
    not_repaired: tuple[str, ...] = ()
    """Tests that with most other inputs compute what the buggy code does, or nothing."""
    unspecified: tuple[str, ...] = ()
    """Tests that with another input compute neither what the original nor what the buggy code does."""
    unchecked: tuple[str, ...] = ()
    """Tests that cannot be asked blind."""
    unvaried: tuple[str, ...] = ()
    """FAIL_TO_PASS tests for which no other input made a difference on the original."""


@dataclass(slots=True)
class _Tally:
    """How the cases of one test with other inputs compare."""

    right: int = 0
    lost: int = 0
    other: int = 0
    left_open: int = 0
    """Cases that do not count: the original gives no answer there, or nearly the same."""

    @property
    def all(self) -> int:
        return self.right + self.lost + self.other


@dataclass
class _References:
    """What the blind tests write on the original and on the buggy code."""

    first: Records = field(default_factory=dict)
    full: Records = field(default_factory=dict)
    """Once more, where the tests hold what they expect, and write it."""
    buggy: Records = field(default_factory=dict)


class BlindTests:
    """The blind tests of one artifact, and what they compute on the original and on the buggy state."""

    def __init__(
        self,
        bench: Workbench,
        buggy: CodebaseState,
        files: Sequence[str],
        fail_to_pass: Collection[str],
        pass_to_pass: Collection[str],
        chance: random.Random,
    ) -> None:
        """Run them on both states; raises SandboxError when the sandbox breaks."""
        self._files = list(files)
        self._failing, self._tests = frozenset(fail_to_pass), frozenset(fail_to_pass) | frozenset(pass_to_pass)
        self._usual, _ = bench.suite(bench.original, files, fresh=True)
        self._like_s = self._usual.seconds
        written = BlindFiles(bench.original, files)
        self._entries, self._blind, self._full = written.entries, written.blind, written.full
        self._sites = written.sites
        self._drawing = Copies(bench.original, files, written, self._usual, self._tests, self._failing, chance)
        self._token = self._drawing.token
        self._copies: list[Copy] = []
        self._open: set[int] = set()
        self._usual_cases: dict[str, str] = {}
        self._by_id = True
        self._measure(bench, buggy)

    def _measure(self, bench: Workbench, buggy: CodebaseState) -> None:
        """Find what is computed, with other inputs too; tests that do not end with these are left out."""
        endless: set[str] = set()
        self._known = _References()
        for _ in range(_TRIES):
            self._copies = list(self._drawing.drawn(endless))
            lines, run = self._run(bench, bench.original, 0)
            if run.exit_code == _USAGE and self._by_id:
                # A file cannot be imported with other inputs, or a test is collected under another name.
                self._by_id = False
                lines, run = self._run(bench, bench.original, 0)
            if not run.fault and lines is not None:
                if self._leave_out(self._slow(run)):
                    lines, run = self._run(bench, bench.original, 0)
                break
            if not run.unfinished:
                self._copies = []
            elif self._token in run.unfinished:
                endless.add(self._drawing.function_of(run.unfinished))
        else:
            self._copies = []
            lines, run = self._run(bench, bench.original, 0)
        self._like_s = max(self._like_s, run.seconds)
        self._names = paired(run, self._usual)
        self._known.first = read_records(lines or ())
        self._known.full = read_records(self._run(bench, bench.original, 1, full=True)[0] or ())
        if self._copies:
            self._known.buggy = read_records(self._run(bench, buggy, 0, only_copies=True)[0] or ())

    def _slow(self, run: SuiteRun) -> Collection[str]:
        """Return the tests of copies that take long: a slower repair would get no answer there in time."""
        usual: dict[str, float] = defaultdict(float)
        for node_id, result in self._usual.results.items():
            function = node_id.partition("[")[0]
            usual[function] = max(usual[function], result.duration_s)
        return {
            node_id.partition("[")[0]
            for node_id, result in run.results.items()
            if self._token in node_id
            and result.duration_s > max(_SLOW_S, 2 * usual[self._drawing.function_of(node_id)])
        }

    def _leave_out(self, targets: Collection[str]) -> bool:
        """Leave tests of copies out; returns whether there were any."""
        if targets and self._by_id:
            kept = [replace(c, targets=tuple(t for t in c.targets if t not in targets)) for c in self._copies]
            self._copies = [c for c in kept if c.targets]
        return bool(targets) and self._by_id

    def _run(
        self,
        bench: Workbench,
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
        return bench.values(changed, targets, hash_seed=hash_seed, like_s=self._like_s, copies=self._token)

    def _usual_case(self, case: str) -> str:
        """Return the node id of a copy's test in the file that it is a copy of."""
        if case not in self._usual_cases:
            self._usual_cases[case] = self._drawing.function_of(case) + case[len(case.partition("[")[0]) :]
        return self._usual_cases[case]

    def result(self, bench: Workbench, state: CodebaseState) -> BlindResult:
        """Compare a state in which all tests pass; raises SandboxError.

        What is wrong must be wrong twice: tests may depend on time, or on the order of threads.
        """
        first = self._result(bench, state)
        if not first.wrong and not first.not_repaired:
            return first
        second = self._result(bench, state)
        pairs = ((first.wrong, second.wrong), (first.not_repaired, second.not_repaired))
        wrong, not_repaired = (tuple(sorted(set(one) & set(other))) for one, other in pairs)
        return replace(first, wrong=wrong, not_repaired=not_repaired)

    def _result(self, bench: Workbench, state: CodebaseState) -> BlindResult:
        lines, _ = self._run(bench, state, 0)
        if lines is None:
            return BlindResult(wrong=tuple(sorted(self._failing)))
        mine = read_records(lines)
        wrong, unchecked = set[str](), set(self._tests)
        for case, name in self._names.items():
            theirs = self._usable(case)
            if name not in self._tests or not theirs:
                continue
            unchecked.discard(name)
            # What the original wrote once only, for want of room or as it varies, is compared with nothing.
            left_out = self._known.first[case].keys() - theirs.keys()
            own = {k: line for k, line in mine.get(case, {}).items() if k not in left_out}
            if not as_asked(self._sites, own, theirs, self._known.full.get(case, {})):
                wrong.add(name)
        self._open = {key.site for case in self._names for key in self._left_open(case, mine)}
        not_repaired, unspecified, varied = self._varied(mine)
        unvaried = {i for i in self._failing if i.partition("[")[0] not in varied}
        return BlindResult(*(tuple(sorted(found)) for found in (wrong, not_repaired, unspecified, unchecked, unvaried)))

    def _left_open(self, case: str, mine: Records) -> Iterator[Key]:
        """Yield the comparisons of two computed values in which a state has others than the original."""
        for key, line in self._usable(case).items():
            site, own = self._sites[key.site], mine.get(case, {}).get(key)
            if all(site.recorded) and own is not None and not same(site, own, line):
                yield key

    def _usable(self, case: str) -> Test:
        """Return what a test wrote on the original, and wrote once more where what it expects was there."""
        return usable(self._sites, self._known.first.get(case, {}), self._known.full.get(case, {}))

    def _varied(self, mine: Records) -> tuple[set[str], set[str], Collection[str]]:
        """Return which tests are not repaired for other inputs, which have other values with some, and what was varied.

        The last are test functions for which another input makes a difference on the original.
        """
        telling, all_cases = defaultdict[str, _Tally](_Tally), defaultdict[str, _Tally](_Tally)
        for copy in self._copies:
            stem = PurePosixPath(copy.path)
            real = str(stem.with_name(stem.stem.rpartition("_" + self._token)[0] + ".py"))
            for case in self._known.first:
                path, _, rest = case.partition("::")
                name = self._names.get(f"{real}::{rest}", "")
                theirs = self._steady(copy, case) if path == copy.path and name else None
                if theirs is None:
                    continue
                outcome, tells = self._compared(copy, case, theirs, mine)
                if outcome == "right" and not tells and self._is_as_usual(case, theirs):
                    continue
                function = name.partition("[")[0]
                for tally in (all_cases[function], *([telling[function]] if tells else [])):
                    setattr(tally, outcome, getattr(tally, outcome) + 1)
        lost = {f for f, t in telling.items() if t.all >= _SEVERAL and 2 * t.lost > t.all}
        for tallies in (telling, all_cases):
            lost |= {f for f, t in tallies.items() if t.all >= _MANY and t.right < _LEAST_SHARE * t.all}
        lost |= {f for f, t in all_cases.items() if t.all >= _MANY and 2 * t.lost > t.all}
        other = {f for f, t in all_cases.items() if t.right < t.all + t.left_open} - lost
        found = [{i for i in self._tests if i.partition("[")[0] in names} for names in (lost, other)]
        return found[0], found[1], all_cases.keys()

    def _steady(self, copy: Copy, case: str) -> Test | None:
        """Return what a test with another input writes twice on the original; None if any of it differs."""
        first, again = self._known.first[case], self._known.full.get(case, {})
        found = {}
        for key in {**first, **again}:
            if key.site in copy.unchanged:
                continue
            if key not in first or key not in again:
                return None
            site = self._sites.get(key.site)
            steady = steady_line(site, first[key], again[key]) if site is not None else None
            if steady is None and not self._agree(case, key, first, again):
                return None
            found[key] = steady or first[key]
        return found

    def _is_as_usual(self, case: str, theirs: Test) -> bool:
        """Return whether the other input makes no difference on the original: then it says nothing."""
        usual = self._known.first.get(self._usual_case(case), {})
        return all(usual.get(key) == self._known.first[case][key] for key in theirs)

    def _compared(self, copy: Copy, case: str, theirs: Test, mine: Records) -> tuple[str, bool]:
        """Return whether a case with another input is right, lost or other, and whether the bug shows in it."""
        own, buggy = mine.get(case, {}), self._known.buggy.get(case, {})
        # Where a test leaves the value open, only the bug's own value counts against a patch.
        values = self._differing(copy, case, theirs, self._known.buggy, strict=True)
        others = values & self._differing(copy, case, theirs, mine, strict=True)
        if self._is_like_the_bug(case, others, own, buggy, strict=True):
            return "lost", True
        shows = self._differing(copy, case, theirs, self._known.buggy)
        differs = self._differing(copy, case, theirs, mine)
        if shows:
            differs &= shows
        if not differs:
            return "right", bool(values)
        like_the_bug = bool(shows) and self._is_like_the_bug(case, differs, own, buggy)
        if not like_the_bug and self._is_left_open(differs, theirs, own):
            return "left_open", bool(shows)
        refuses = any(k.site in self._sites and self._sites[k.site].ops == (END,) and k not in own for k in theirs)
        refuses |= any(k in own and k in theirs and is_nothing(own[k]) and not is_nothing(theirs[k]) for k in differs)
        return "lost" if like_the_bug or refuses else "other", bool(shows)

    def _is_like_the_bug(
        self, case: str, differs: Collection[Key], own: Test, buggy: Test, *, strict: bool = False
    ) -> bool:
        """Return whether there are differences, and in all of them a state does what the buggy code does."""
        return bool(differs) and all(
            (k in own) is (k in buggy) and (k not in own or self._agree(case, k, buggy, own, strict=strict))
            for k in differs
        )

    def _is_left_open(self, differs: Collection[Key], theirs: Test, own: Test) -> bool:
        """Return whether the first difference of a case says nothing about the repair."""
        first = next((k for k in theirs if k in differs), None)
        if first is None:
            # The original ends with an error there, and the other code goes on.
            return not any(k.site in self._sites and self._sites[k.site].ops == (END,) for k in theirs)
        site = self._sites.get(first.site)
        return site is not None and left_open(site, theirs[first], own.get(first))

    def _differing(self, copy: Copy, case: str, theirs: Test, others: Records, *, strict: bool = False) -> set[Key]:
        """Return the assertions of a copy in which others differ from the original; strict: by value, if it is open."""
        other = others.get(case, {})
        return {
            key
            for key in {**theirs, **other}
            if key.site not in copy.unchanged
            and not (key in theirs and key in other and self._agree(case, key, theirs, other, strict=strict))
        }

    def _agree(self, case: str, key: Key, one: Test, other: Test, *, strict: bool = False) -> bool:
        if key.site not in self._sites:
            return one[key] == other[key]
        full = self._known.full.get(self._usual_case(case), {}).get(key)
        site = self._sites[key.site]
        if strict and site.ops not in ((TRUE,), (FALSE,), (END,)):
            return is_opaque(one[key]) or same(site, other[key], one[key])
        return agree(site, one[key], other[key], full, is_open=key.site in self._open)
