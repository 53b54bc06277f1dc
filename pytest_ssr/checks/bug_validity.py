"""Check 5, `bug-validity`: tests that passed now fail, error or vanish; not too few of them, and not too many.

An external artifact could break only the reports of some tests, and no code: when most of the failing tests run blind,
and if possible without pytest, their values must not satisfy their assertions. Its script could look at the code's
text: on the paraphrased original it must pass the tests that pytest passes.
"""

from __future__ import annotations

import random

from pytest_ssr.checks.blind_failures import blind_failures
from pytest_ssr.checks.context import Finding, ValidationContext
from pytest_ssr.checks.paraphrase import paraphrase
from pytest_ssr.execution.script import StatusRun
from pytest_ssr.patch import FileEntry
from pytest_ssr.records.test_run import SuiteRun, abbreviate

NAME = "bug-validity"


def check(context: ValidationContext) -> Finding:
    """Establish FAIL_TO_PASS from the script's run, confirmed by pytest's own."""
    run = context.script(context.buggy, "buggy")
    if run.fault:
        return Finding(False, f"on the buggy state: {run.fault}")
    if run.contradiction:
        return Finding(False, f"on the buggy state {run.contradiction}")
    failing = context.script_failing = context.stable - run.passing
    least = context.settings.min_failing_tests
    if len(failing) < least:
        return Finding(False, f"{len(failing)} tests go from pass to fail, {least} are required")
    share = len(failing) / len(context.stable)
    if share > context.settings.max_broken_fraction:
        most = context.settings.max_broken_fraction
        return Finding(False, f"{share:.0%} of the passing tests break, at most {most:.0%} may")

    def objection(evidence: SuiteRun) -> str:
        if evidence.fault:
            return f"pytest itself on the buggy state: {evidence.fault}"
        disputed = (failing & evidence.passing) | (context.stable - failing - evidence.passing)
        if disputed:
            return f"script and pytest disagree on the buggy state about {abbreviate(disputed)}"
        hidden = _unreported_failures(context, run, evidence)
        return f"on the buggy state the parser leaves out failing tests: {abbreviate(hidden)}" if hidden else ""

    _, reason = context.judged(context.buggy, "buggy", objection)
    if reason:
        return Finding(False, reason)
    refused = _pretended(context, failing) or _depends_on_text(context)
    if refused:
        return Finding(False, refused)
    context.fail_to_pass = failing
    return Finding(True, f"{len(failing)} of {len(context.stable)} passing tests break: {abbreviate(failing)}")


def _unreported_failures(context: ValidationContext, run: StatusRun, evidence: SuiteRun) -> frozenset[str]:
    """Return tests that the bug breaks and that the output names, but that the parser never reports."""
    assert context.original_script is not None
    broken = context.suite(context.original, "original").passing - evidence.passing
    unreported = broken - run.statuses.keys() - context.original_script.statuses.keys()
    named = {word.strip(b"\"',:") for word in run.output.split()} if unreported else set()
    return frozenset(name for name in unreported if name.encode("utf-8", "surrogatepass") in named)


def _pretended(context: ValidationContext, failing: frozenset[str]) -> str:
    """Return why the failures are not trusted; an empty string if they are, as for our own operators."""
    if context.runner.selection is not None:
        return ""
    files = [p for p in context.oracle_files(context.original) if p.endswith(".py")]
    failures = blind_failures(context.runner, context.buggy, files, failing, random.SystemRandom())
    if not failures.pretended:
        return ""
    passing = f"{len(failures.satisfied)} of {len(failures.runnable)} failing tests pass"
    names = abbreviate(failures.satisfied)
    return f"on the buggy state {passing} without pytest and without their expected values: {names}"


def _depends_on_text(context: ValidationContext) -> str:
    """Return why the script does not judge what the code does; an empty string if nothing indicates that."""
    if context.runner.selection is not None:
        return ""
    entries: dict[str, FileEntry | None] = {}
    for path in context.artifact.bug.paths:
        entry = context.original.entry(path) if path.endswith(".py") else None
        text = paraphrase(entry.data) if entry is not None else None
        if entry is not None and text is not None:
            entries[path] = FileEntry(text, entry.mode)
    state = context.original.replace(entries)
    if not state.changes:
        return ""
    lost = context.stable & context.suite(state, "reworded", whole=True).passing
    lost -= context.script(state, "reworded").passing if lost else frozenset()
    if lost:
        return f"script and pytest disagree on the paraphrased original about {abbreviate(lost)}"
    return ""
