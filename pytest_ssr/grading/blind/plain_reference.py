"""Measure what the FAIL_TO_PASS tests of one artifact compute without pytest, on the original and on the buggy code."""

from __future__ import annotations

import json
import secrets
import string
from collections.abc import Collection, Sequence
from dataclasses import fields, replace
from functools import partial

from pytest_ssr.execution.plain_run import AGAIN
from pytest_ssr.execution.runner import Runner
from pytest_ssr.grading.blind.compare import Records, Test, read_records, uncounted_sites
from pytest_ssr.grading.blind.reference import BlindReference
from pytest_ssr.grading.blind.suite import BlindSuite, PlainSuite
from pytest_ssr.project.state import CodebaseState
from pytest_ssr.records.test_run import RunStatus, SuiteRun

CENTURY_S = 100 * 365 * 24 * 3600
"""Seconds by which the clocks of a process without pytest are ahead, if its tests can stand it."""
_FOLDER_LENGTH = 8


def measure_plain(
    runner: Runner,
    buggy: CodebaseState,
    reference: BlindReference,
    run: SuiteRun,
    fail_to_pass: Collection[str],
    tests: Collection[str],
) -> BlindReference | None:
    """Return what tests and their copies write without pytest; None if no FAIL_TO_PASS test runs there.

    Tests stay in their folder if FAIL_TO_PASS tests do not run in another one, and in the present if these do not run a
    century later. The full lines lack the expected values (see `with_expected`). run: the run that `reference` was read
    from. tests: the ids of all recorded tests. Raises SandboxError.
    """
    names = {case: name for case, name in reference.names.items() if name in tests}
    functions = {case.partition("[")[0] for case, name in names.items() if name in fail_to_pass}
    failing = {case: name for case, name in names.items() if case.partition("[")[0] in functions}
    if not failing:
        return None
    folder = "".join(secrets.choice(string.ascii_lowercase) for _ in range(_FOLDER_LENGTH))
    whole = replace(_plain_suite(reference.suite, run, names, failing), folder=folder, ahead_s=CENTURY_S)
    every = replace(reference, names=names)
    first = plain = _tried(runner, every, whole)
    if not failing.keys() <= plain.names.keys():
        # Other tests may break the process for those that matter most.
        plain = replace(reference, names={})
        for place, ahead_s in ((folder, CENTURY_S), (folder, 0), ("", CENTURY_S), ("", 0)):
            suite = replace(whole.only(functions), folder=place, ahead_s=ahead_s)
            tried = _tried(runner, replace(reference, names=failing), suite)
            if len(tried.names) > len(plain.names):
                plain, whole = tried, replace(whole, folder=place, ahead_s=ahead_s)
            if len(plain.names) == len(failing):
                break
        if not plain.names:
            return None
        if len(names) > len(failing):
            tried = first if whole == first.suite else _tried(runner, every, whole)
        else:
            tried = plain
        plain = tried if plain.names.keys() <= tried.names.keys() else plain
    suite = whole.only({case.partition("[")[0] for case in plain.names})
    buggy_lines, _ = suite.run(runner, buggy, only_copies=True) if suite.copies else (None, None)
    again = {case + AGAIN: name for case, name in plain.names.items() if case in suite.repeated}
    return replace(plain, suite=suite, names={**plain.names, **again}, buggy_lines=tuple(buggy_lines or ()))


def _tried(runner: Runner, reference: BlindReference, suite: PlainSuite) -> BlindReference:
    """Return the lines of two runs of a suite on the original, with the names of the tests that are fit for it."""
    runs = runner.together([partial(suite.run, runner, runner.original, hash_seed=seed) for seed in (0, 1)])
    lines = [tuple(written or ()) for written, _ in runs]
    is_complete = all(result.status is RunStatus.COMPLETED for _, result in runs)
    fit = _fit(reference, [read_records(each) for each in lines], suite.repeated) if is_complete else {}
    return replace(reference, names=fit, suite=suite, first_lines=lines[0], full_lines=lines[1])


def with_expected(plain: BlindReference, reference: BlindReference) -> BlindReference:
    """Return a reference whose full lines hold the expected values, which only runs under pytest have."""
    copies = [line for line in plain.full_lines if plain.suite.is_copy(json.loads(line)[0])]
    full = [line for line in map(json.loads, reference.full_lines) if line[0] in plain.names]
    own = [json.dumps([case + ending, *rest]) for case, *rest in full for ending in ("", AGAIN)]
    return replace(plain, full_lines=(*own, *copies))


def _plain_suite(suite: BlindSuite, run: SuiteRun, names: Collection[str], repeated: Collection[str]) -> PlainSuite:
    """Return a suite of some tests and their copies."""
    copied = (case for case in run.collected if suite.is_copy(case))
    others = (case for case in names if case not in repeated)
    cases = {case: dict(run.parameters.get(case, ())) for case in (*repeated, *others, *copied)}
    own = {field.name: getattr(suite, field.name) for field in fields(suite)}
    plain = PlainSuite(**{**own, "selects_tests": True}, cases=cases, repeated=frozenset(repeated))
    return plain.only({case.partition("[")[0] for case in names})


def _fit(reference: BlindReference, runs: Sequence[Records], repeated: Collection[str]) -> dict[str, str]:
    """Return the tests of functions of which each case writes as many lines as under pytest, in the same order."""
    unfit = {
        case.partition("[")[0]
        for case in reference.names
        for run in runs
        for ending in (("", AGAIN) if case in repeated else ("",))
        if not _is_alike(reference.first.get(case, {}), run.get(case + ending, {}))
    }
    return {case: name for case, name in reference.names.items() if case.partition("[")[0] not in unfit}


def _is_alike(one: Test, other: Test) -> bool:
    return bool(one) and not uncounted_sites(one, other)
