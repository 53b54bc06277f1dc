"""Check 5, `bug-validity`: tests that passed now fail, error or vanish; not too few of them, and not too many.

An artifact of others could break no code but the reports of some tests: asked blind, and where they allow it without
pytest, most of the failing tests must not compute what they ask for. Its script could look at the code's text: on the
original in other words, it must pass where pytest does.
"""

from __future__ import annotations

import random

from pytest_ssr.checks.blind_failures import blind_failures
from pytest_ssr.checks.case import Case, Finding
from pytest_ssr.checks.rewording import reworded
from pytest_ssr.execution.status_run import StatusRun
from pytest_ssr.outcomes import SuiteRun, some
from pytest_ssr.patch import FileEntry

NAME = "bug-validity"


def check(case: Case) -> Finding:
    """Establish FAIL_TO_PASS from the script's run, borne out by pytest's own."""
    run = case.script(case.buggy, "buggy")
    if run.fault:
        return Finding(False, f"on the buggy state: {run.fault}")
    if run.contradiction:
        return Finding(False, f"on the buggy state {run.contradiction}")
    failing = case.script_failing = case.stable - run.passing
    least = case.settings.min_failing_tests
    if len(failing) < least:
        return Finding(False, f"{len(failing)} tests go from pass to fail, {least} are required")
    share = len(failing) / len(case.stable)
    if share > case.settings.max_broken_fraction:
        most = case.settings.max_broken_fraction
        return Finding(False, f"{share:.0%} of the passing tests break, at most {most:.0%} may")

    def objection(evidence: SuiteRun) -> str:
        if evidence.fault:
            return f"pytest itself on the buggy state: {evidence.fault}"
        disputed = (failing & evidence.passing) | (case.stable - failing - evidence.passing)
        if disputed:
            return f"script and pytest disagree on the buggy state about {some(disputed)}"
        hidden = _left_out(case, run, evidence)
        return f"on the buggy state the parser leaves out failing tests: {some(hidden)}" if hidden else ""

    _, reason = case.judged(case.buggy, "buggy", objection)
    if reason:
        return Finding(False, reason)
    refused = _pretended(case, failing) or _hangs_on_words(case)
    if refused:
        return Finding(False, refused)
    case.fail_to_pass = failing
    return Finding(True, f"{len(failing)} of {len(case.stable)} passing tests break: {some(failing)}")


def _left_out(case: Case, run: StatusRun, evidence: SuiteRun) -> frozenset[str]:
    """Return tests that the bug breaks and the script runs, as its output names them, but the parser never reports."""
    assert case.original_script is not None
    broken = case.suite(case.original, "original").passing - evidence.passing
    unreported = broken - run.statuses.keys() - case.original_script.statuses.keys()
    named = {word.strip(b"\"',:") for word in run.output.split()} if unreported else set()
    return frozenset(name for name in unreported if name.encode("utf-8", "surrogatepass") in named)


def _pretended(case: Case, failing: frozenset[str]) -> str:
    """Return why the failures are not believed; those of our own operators are."""
    if case.bench.selection is not None:
        return ""
    files = [p for p in case.oracle_files(case.original) if p.endswith(".py")]
    found = blind_failures(case.bench, case.buggy, files, failing, random.SystemRandom())
    if not found.pretended:
        return ""
    passing = f"{len(found.as_asked)} of {len(found.asked)} failing tests pass"
    return f"on the buggy state {passing} without pytest and without what they expect: {some(found.as_asked)}"


def _hangs_on_words(case: Case) -> str:
    """Return why the script does not judge what the code does; an empty text where nothing speaks for that."""
    if case.bench.selection is not None:
        return ""
    entries = {p: e for p in case.artifact.bug.paths if p.endswith(".py") and (e := case.original.entry(p)) is not None}
    texts = {p: (text, e.mode) for p, e in entries.items() if (text := reworded(e.data)) is not None}
    state = case.original.replace({p: FileEntry(text, mode) for p, (text, mode) in texts.items()})
    if not state.changes:
        return ""
    lost = case.stable & case.suite(state, "reworded", whole=True).passing
    lost -= case.script(state, "reworded").passing if lost else frozenset()
    if lost:
        return f"script and pytest disagree on the original in other words about {some(lost)}"
    return ""
