"""Measure what the blind tests of one artifact compute on the original and on the buggy code."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from pytest_ssr.execution.runner import Runner
from pytest_ssr.grading.blind.assertions import Site
from pytest_ssr.grading.blind.compare import Records, read_records
from pytest_ssr.grading.blind.files import BlindFiles, paired
from pytest_ssr.grading.blind.suite import COPY_S, BlindSuite
from pytest_ssr.grading.blind.varied_files import CopyGenerator
from pytest_ssr.grading.evidence import MIN_DURATION_S
from pytest_ssr.project.state import CodebaseState
from pytest_ssr.records.test_run import SuiteRun

_SLOW_S = 0.25
"""Time a test with other inputs may take on the original, unless it takes half of that with its own."""
_ALL_COPIES_S = 2.0
"""Seconds that all copies together may take, if twice the time of all tests is less."""
_ATTEMPTS, _USAGE = 8, 4


@dataclass(frozen=True)
class BlindReference:
    """The blind tests of one artifact, and the lines that they write on the original and on the buggy code."""

    suite: BlindSuite
    sites: Mapping[int, Site]
    """The assertions of the blind tests, by number."""
    names: Mapping[str, str]
    """The real id of each blind test."""
    collected: tuple[str, ...]
    """The tests that the original collects."""
    first_lines: tuple[str, ...] = ()
    """Lines on the original, with the tests' own inputs and with others."""
    full_lines: tuple[str, ...] = ()
    """Lines of a second run on the original, in which the tests hold and write the values they expect."""
    buggy_lines: tuple[str, ...] = ()
    """Lines on the buggy code, with other inputs alone."""

    @cached_property
    def first(self) -> Records:
        """The values on the original."""
        return read_records(self.first_lines)

    @cached_property
    def full(self) -> Records:
        """The values on the original, with those that the tests expect."""
        return read_records(self.full_lines)

    @cached_property
    def buggy(self) -> Records:
        """The values on the buggy code."""
        return read_records(self.buggy_lines)

    def to_json(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {
            "suite": self.suite.to_json(),
            "sites": [[number, *site] for number, site in self.sites.items()],
            "names": dict(self.names),
            "collected": self.collected,
            "lines": [self.first_lines, self.full_lines, self.buggy_lines],
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> BlindReference | None:
        """Read plain data back; None if it is damaged."""
        try:
            return cls(
                BlindSuite.from_json(data["suite"]),
                {number: Site(tuple(ops), tuple(recorded), choice) for number, ops, recorded, choice in data["sites"]},
                dict(data["names"]),
                tuple(data["collected"]),
                *(tuple(lines) for lines in data["lines"]),
            )
        except (KeyError, TypeError, ValueError, AttributeError):
            return None


def measure_reference(
    runner: Runner,
    buggy: CodebaseState,
    files: Sequence[str],
    fail_to_pass: Collection[str],
    pass_to_pass: Collection[str],
    rng: random.Random,
) -> BlindReference:
    """Draw other inputs, and run the blind tests on the original and on the buggy state; raises SandboxError."""
    usual, _ = runner.suite(runner.original, files, fresh=True)
    blind_files = BlindFiles(runner.original, files)
    tests = frozenset(fail_to_pass) | frozenset(pass_to_pass)
    generator = CopyGenerator(runner.original, files, blind_files, usual, tests, frozenset(fail_to_pass), rng)
    limit_like_s = max(MIN_DURATION_S, usual.seconds)
    suite = BlindSuite(tuple(files), blind_files.rewritten(), generator.token, limit_like_s)
    suite, lines, run = _with_copies(runner, suite, generator, usual)
    suite = replace(suite, like_s=max(suite.like_s, run.seconds))
    full_suite = replace(suite, entries=blind_files.rewritten(full=True))
    full_lines, _ = full_suite.run(runner, runner.original, hash_seed=1)
    # The bug may be that the code does not end.
    brief = replace(suite, like_s=max(usual.seconds, run.seconds))
    buggy_lines, _ = brief.run(runner, buggy, only_copies=True) if suite.copies else (None, None)
    return BlindReference(
        suite,
        blind_files.sites,
        paired(run, usual),
        tuple(usual.collected),
        tuple(lines or ()),
        tuple(full_lines or ()),
        tuple(buggy_lines or ()),
    )


def _with_copies(
    runner: Runner, suite: BlindSuite, generator: CopyGenerator, usual: SuiteRun
) -> tuple[BlindSuite, list[str] | None, SuiteRun]:
    """Add copies to a suite and run it on the original; tests that are slow or do not end there are left out."""
    limits_s = _limits_s(usual)
    varied = replace(suite, copies=tuple(generator.draw()))
    functions = {suite.source_case(target) for copy in varied.copies for target in copy.targets}
    longest_s = min(COPY_S, max([limits_s[f] for f in functions], default=_SLOW_S))
    for _ in range(_ATTEMPTS):
        lines, run = varied.run(runner, runner.original, copy_s=longest_s)
        if run.exit_code == _USAGE and varied.selects_tests:
            # A file cannot be imported with other inputs, or a test is collected under another name.
            varied = replace(varied, selects_tests=False)
        elif not run.fault and lines is not None:
            slow = _slow_tests(varied, limits_s, run, max(_ALL_COPIES_S, 2 * usual.seconds))
            if not slow:
                # Files that cannot be imported with other inputs prove nothing.
                ran = {node_id.partition("::")[0] for node_id in run.results}
                return replace(varied, copies=tuple(c for c in varied.copies if c.path in ran)), lines, run
            varied = varied.without(slow)
        elif varied.is_copy(run.unfinished):
            varied = varied.without_function(run.unfinished)
        else:
            break
    return suite, *suite.run(runner, runner.original)


def _limits_s(usual: SuiteRun) -> Mapping[str, float]:
    """Return the seconds that tests may take with other inputs, by the function: a slower repair must end in time."""
    limits_s: dict[str, float] = defaultdict(lambda: _SLOW_S)
    for node_id, result in usual.results.items():
        function = node_id.partition("[")[0]
        limits_s[function] = max(limits_s[function], 2 * result.duration_s)
    return limits_s


def _slow_tests(
    suite: BlindSuite, limits_s: Mapping[str, float], run: SuiteRun, all_copies_s: float
) -> Collection[str]:
    """Return the tests of copies that take longer than their limit, and the slowest ones if all take too long."""
    slow, seconds = set[str](), defaultdict[str, float](float)
    for node_id, result in run.results.items():
        function = node_id.partition("[")[0]
        if suite.is_copy(node_id):
            seconds[function] += result.duration_s
            if result.duration_s > limits_s[suite.source_case(function)]:
                slow.add(function)
    remaining_s = sum(duration_s for function, duration_s in seconds.items() if function not in slow)
    for function, duration_s in sorted(seconds.items(), key=lambda item: -item[1]):
        if remaining_s <= all_copies_s:
            break
        if function not in slow:
            slow.add(function)
            remaining_s -= duration_s
    return slow
