"""Check 5, `bug-validity`: tests that passed now fail, error or vanish; not too few of them, and not too many.

An external artifact could break only the reports of some tests, and no code: when most of the failing tests run blind,
and if possible without pytest, their values must not satisfy their assertions. Its script could look at the code's
text: on the paraphrased original it must pass the tests that pytest passes.
"""

from __future__ import annotations

import ast
import io
import random
import string
import tokenize
from itertools import count

from pytest_ssr.checks.blind_failures import blind_failures
from pytest_ssr.checks.context import Finding, ValidationContext, failed, passed, suite_fault
from pytest_ssr.execution.identities import renamed_tests
from pytest_ssr.execution.script import StatusRun
from pytest_ssr.patch import FileEntry
from pytest_ssr.records.check_reasons import CheckCode, CheckReason
from pytest_ssr.records.test_run import SuiteRun
from pytest_ssr.source.parsing import parse_module
from pytest_ssr.source.portable import unparse


def paraphrase(data: bytes) -> bytes | None:
    """Return a module with other spaces, no comments, and each returned value named first; None if it is not Python.

    Its behaviour stays the same, except for code that reads its own text or line numbers.
    """
    tree = parse_module(data)
    if tree is None:
        return None
    taken = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)}
    try:
        return _spaced(unparse(_ReturnSplitter(taken).visit(tree))).encode()
    except (RecursionError, ValueError, tokenize.TokenError, SyntaxError):
        return None


class _ReturnSplitter(ast.NodeTransformer):
    """Splits a return into two statements: the value is assigned to a name, and the name is returned."""

    def __init__(self, taken: set[str]) -> None:
        # Drawn for each call: a script that knows the names could accept exactly these.
        letters = random.SystemRandom().choices(string.ascii_lowercase, k=6)
        self._names = (name for n in count() if (name := f"{''.join(letters)}_{n}") not in taken)

    def visit_Return(self, node: ast.Return) -> ast.stmt | list[ast.stmt]:
        if node.value is None:
            return node
        name = next(self._names)
        assigned = ast.Assign([ast.Name(name, ast.Store())], node.value)
        return [ast.copy_location(assigned, node), ast.Return(ast.Name(name, ast.Load()))]


def _spaced(text: str) -> str:
    """Double the space before each operator, outside of strings."""
    lines = io.StringIO(text).readlines()
    positions, depth = [], 0
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        kind = tokenize.tok_name[token.type]
        depth += (kind in ("FSTRING_START", "TSTRING_START")) - (kind in ("FSTRING_END", "TSTRING_END"))
        row, column = token.start
        before = lines[row - 1][:column] if kind == "OP" and not depth else ""
        if before.endswith(" ") and before.strip():
            positions.append((row - 1, column))
    for row, column in reversed(positions):
        lines[row] = f"{lines[row][:column]} {lines[row][column:]}"
    return "".join(lines)


NAME = "bug-validity"


def check(context: ValidationContext) -> Finding:
    """Establish FAIL_TO_PASS from the script's run, confirmed by pytest's own."""
    run = context.script(context.buggy, "buggy")
    unproven = context.unproven(run)
    if unproven is not None:
        return Finding(False, unproven.on("buggy"))
    failing = context.script_failing = context.stable - run.passing
    least = context.settings.min_failing_tests
    if len(failing) < least:
        return failed(CheckCode.TOO_FEW_BREAK, count=len(failing), required=least)
    share = len(failing) / len(context.stable)
    most = context.settings.max_broken_fraction
    if share > most:
        return failed(CheckCode.TOO_MANY_BREAK, share=share, most=most)

    def objection(evidence: SuiteRun) -> CheckReason | None:
        fault = suite_fault(evidence, context.runner.test_runner)
        if fault is not None:
            return fault.on("buggy")
        if renamed := renamed_tests(failing, context.suite(context.original, "original"), evidence):
            return CheckReason.of(CheckCode.IDS_CHANGE, tests=renamed, **context.runner_detail)
        disputed = (failing & evidence.passing) | (context.stable - failing - evidence.passing)
        if disputed:
            return CheckReason.of(CheckCode.RUNS_DISAGREE, tests=disputed, state="buggy", **context.runner_detail)
        hidden = _unreported_failures(context, run, evidence)
        return CheckReason.of(CheckCode.FAILURES_UNREPORTED, tests=hidden, state="buggy") if hidden else None

    _, reason = context.judged(context.buggy, "buggy", objection)
    reason = reason or _pretended(context, failing) or _depends_on_text(context)
    if reason is not None:
        return Finding(False, reason)
    context.fail_to_pass = failing
    return passed(CheckCode.TESTS_BREAK, count=len(failing), total=len(context.stable), tests=failing)


def _unreported_failures(context: ValidationContext, run: StatusRun, evidence: SuiteRun) -> frozenset[str]:
    """Return tests that the bug breaks and that the output names, but that the parser never reports."""
    assert context.original_script is not None
    broken = context.suite(context.original, "original").passing - evidence.passing
    unreported = broken - run.statuses.keys() - context.original_script.statuses.keys()
    named = {word.strip(b"\"',:") for word in run.output.split()} if unreported else set()
    return frozenset(name for name in unreported if name.encode("utf-8", "surrogatepass") in named)


def _pretended(context: ValidationContext, failing: frozenset[str]) -> CheckReason | None:
    """Return why the failures are not trusted; None if they are, as for our own operators."""
    if context.runner.selection is not None or context.by_script:
        return None
    files = [p for p in context.oracle_files(context.original) if p.endswith(".py")]
    failures = blind_failures(context.runner, context.buggy, files, failing, random.SystemRandom())
    if not failures.pretended:
        return None
    return CheckReason.of(
        CheckCode.FAILURES_PRETENDED,
        count=len(failures.satisfied),
        total=len(failures.runnable),
        tests=failures.satisfied,
        state="buggy",
        **context.runner_detail,
    )


def _depends_on_text(context: ValidationContext) -> CheckReason | None:
    """Return why the script does not judge what the code does; None if nothing indicates that."""
    if context.runner.selection is not None or context.by_script:
        return None
    entries: dict[str, FileEntry | None] = {}
    for path in context.artifact.bug.paths:
        entry = context.original.entry(path) if path.endswith(".py") else None
        text = paraphrase(entry.data) if entry is not None else None
        if entry is not None and text is not None:
            entries[path] = FileEntry(text, entry.mode)
    state = context.original.replace(entries)
    if not state.changes:
        return None
    lost = context.stable & context.suite(state, "reworded", whole=True).passing
    lost -= context.script(state, "reworded").passing if lost else frozenset()
    return (
        CheckReason.of(CheckCode.RUNS_DISAGREE, tests=lost, state="paraphrased", **context.runner_detail)
        if lost
        else None
    )
