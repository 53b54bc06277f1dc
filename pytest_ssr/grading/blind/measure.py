"""Measure what the blind tests of one artifact compute on the original and on the buggy code."""

from __future__ import annotations

import json
import random
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from pytest_ssr.execution.runner import Runner
from pytest_ssr.grading.blind.compare import read_records
from pytest_ssr.grading.blind.files import BlindFiles, paired
from pytest_ssr.grading.blind.plain_reference import measure_plain, with_expected
from pytest_ssr.grading.blind.reference import BlindReference
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
_OPERATOR = re.compile(rb"\bdef __(eq|ne|lt|le|gt|ge|contains|iter|getitem)__\b")


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
    blind_files = _blind_files(runner, buggy, files, usual)
    tests = frozenset(fail_to_pass) | frozenset(pass_to_pass)
    generator = CopyGenerator(runner.original, files, blind_files, usual, tests, frozenset(fail_to_pass), buggy, rng)
    limit_like_s = max(MIN_DURATION_S, usual.seconds)
    suite = BlindSuite(tuple(files), blind_files.rewritten(), generator.token, limit_like_s, tests=len(usual.collected))
    suite, lines, run = _with_copies(runner, suite, generator, usual)
    pool = BlindReference(
        replace(suite, like_s=max(suite.like_s, run.seconds)),
        blind_files.sites,
        paired(run, usual),
        tuple(usual.collected),
        tuple(lines or ()),
    )
    plain = measure_plain(runner, buggy, pool, run, fail_to_pass, tests)
    if plain is not None:
        functions = {case.partition("[")[0] for case in plain.names}
        moved = [t for copy in suite.copies for t in copy.targets if suite.source_case(t) in functions]
        names = {case: name for case, name in pool.names.items() if case not in plain.names}
        pool = replace(pool, suite=pool.suite.without(moved), names=names)
    # The bug may be that the code does not end.
    buggy_lines, _ = pool.suite.run(runner, buggy, only_copies=True) if pool.suite.copies else (None, None)
    pool = replace(pool, buggy_lines=tuple(buggy_lines or ()))
    suite = pool.suite.without(_least_telling(pool, generator.most))
    left_out_s = sum(result.duration_s for case, result in run.results.items() if not suite.holds(case))
    suite = replace(suite, like_s=max(limit_like_s, run.seconds - left_out_s))
    full_lines, _ = replace(suite, entries=blind_files.rewritten(full=True)).run(runner, runner.original, hash_seed=1)
    reference = replace(
        pool,
        suite=suite,
        first_lines=_held(suite, pool.first_lines),
        full_lines=tuple(full_lines or ()),
        buggy_lines=_held(suite, pool.buggy_lines),
    )
    if plain is None:
        return reference
    remaining = {case.partition("::")[0] for case, name in reference.names.items() if name in tests}
    suite = replace(suite, files=tuple(path for path in files if path in remaining))
    return replace(reference, suite=suite, plain=with_expected(plain, reference))


def _held(suite: BlindSuite, lines: Sequence[str]) -> tuple[str, ...]:
    """Return the lines of tests that a suite runs."""
    return tuple(line for line in lines if suite.holds(json.loads(line)[0]))


def _least_telling(reference: BlindReference, most: int) -> frozenset[str]:
    """Return tests of copies to leave out: more than `most` of a function, those first that tell least.

    An input tells most if the original and the buggy code compute different values from it, and nothing if the original
    computes the same as from the test's own input. At most half are chosen for the former, so that the others show what
    else a patch changes.
    """
    suite, original, buggy = reference.suite, reference.first, reference.buggy
    cases = defaultdict[str, list[str]](list)
    for case in original:
        cases[case.partition("[")[0]].append(case)
    copies = defaultdict[str, list[str]](list)
    for copy in suite.copies:
        for target in copy.targets:
            copies[suite.source_case(target)].append(target)
    left_out = set[str]()
    for targets in copies.values():
        if suite.selects_tests:
            reveals = {t: any(buggy.get(c) != original[c] for c in cases[t]) for t in targets}
            changes = {t: any(original[c] != original.get(suite.source_case(c)) for c in cases[t]) for t in targets}
            first = [t for t in targets if reveals[t]][: (most + 1) // 2]
            targets = [*first, *sorted((t for t in targets if t not in first), key=lambda t: not changes[t])]
        left_out.update(targets[most:])
    return frozenset(left_out)


def _blind_files(runner: Runner, buggy: CodebaseState, files: Sequence[str], usual: SuiteRun) -> BlindFiles:
    """Return the blind files; if the bug is in a file that defines operators, those that write what these return."""
    blind_files = BlindFiles(runner.original, files)
    entries = (runner.original.entry(path) for path in buggy.changes)
    if not any(_OPERATOR.search(entry.data) for entry in entries if entry is not None):
        return blind_files
    blind = blind_files.put_into(runner.original)
    lines, _ = runner.values(blind, files, hash_seed=0, like_s=max(MIN_DURATION_S, usual.seconds))
    return blind_files.with_operators(read_records(lines or ())) or blind_files


def _with_copies(
    runner: Runner, suite: BlindSuite, generator: CopyGenerator, usual: SuiteRun
) -> tuple[BlindSuite, list[str] | None, SuiteRun]:
    """Add copies to a suite and run it on the original; tests that are slow or do not end there are left out."""
    limits_s = _limits_s(usual)
    varied = replace(suite, copies=tuple(generator.draw()))
    functions = Counter(suite.source_case(target) for copy in varied.copies for target in copy.targets)
    rows = Counter(node_id.partition("[")[0] for node_id in usual.collected)
    kept = sum(rows[function] * min(number, generator.most) for function, number in functions.items())
    varied = replace(varied, tests=len(usual.collected) + kept)
    longest_s = min(COPY_S, max([limits_s[f] for f in functions], default=_SLOW_S))
    for _ in range(_ATTEMPTS):
        lines, run = varied.run(runner, runner.original, copy_s=longest_s)
        if run.exit_code == _USAGE and varied.selects_tests:
            # A file cannot be imported with other inputs, or a test is collected under another name.
            varied = replace(varied, selects_tests=False)
        elif not run.fault and lines is not None:
            varied = varied.without(_slow_tests(varied, limits_s, run, max(_ALL_COPIES_S, 2 * usual.seconds)))
            # Files that cannot be imported with other inputs prove nothing.
            ran = {node_id.partition("::")[0] for node_id in run.results}
            varied = replace(varied, copies=tuple(c for c in varied.copies if c.path in ran))
            return varied, list(_held(varied, lines)), _held_run(varied, run)
        elif varied.is_copy(run.unfinished):
            varied = varied.without_function(run.unfinished)
        else:
            break
    return suite, *suite.run(runner, runner.original)


def _held_run(suite: BlindSuite, run: SuiteRun) -> SuiteRun:
    """Return a run as if it had run no other tests than a suite does."""
    results = {case: result for case, result in run.results.items() if suite.holds(case)}
    left_out_s = sum(result.duration_s for case, result in run.results.items() if case not in results)
    collected = tuple(case for case in run.collected if suite.holds(case))
    return replace(run, results=results, collected=collected, seconds=run.seconds - left_out_s)


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
