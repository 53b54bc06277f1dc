"""Describe a failing test for the prompt of a model that writes repairs."""

from __future__ import annotations

from harness.solvers.search.workspace import SearchWorkspace
from harness.solvers.writer.prompt import Failure
from pytest_ssr.project.state import CodebaseState
from pytest_ssr.records.verdict import Verdict
from pytest_ssr.source.syntax_tree import parse, scopes, walk

_UNITTEST = b"self.assert"


def failure_of(workspace: SearchWorkspace) -> Failure:
    """Return the name of the fastest failing test, its assertions, and the first line of its failure.

    Which of its assertions fails is not recorded, so all are told, as far as there is room.
    """
    name = workspace.quick_tests[0]
    return Failure(name, assertions_of(workspace.original, name), workspace.baseline.messages.get(name, ""))


def failure_in(verdict: Verdict, original: CodebaseState) -> Failure:
    """Return the name and the assertions of a test that a valid bug breaks; its message is not in a verdict."""
    test = min(verdict.fail_to_pass, key=lambda each: (len(each), each))
    return Failure(test, assertions_of(original, test), "")


def assertions_of(state: CodebaseState, test: str) -> str:
    """Return the assertions of a test, in one line; empty if they cannot be found. test: its id."""
    path, _, rest = test.partition("::")
    entry = state.entry(path)
    source = parse(path, entry.data) if entry is not None else None
    if source is None:
        return ""
    qualname = rest.partition("[")[0].replace("::", ".")
    return "; ".join(
        source.text(node).decode(errors="replace")
        for scope in scopes(source)
        if scope.qualname == qualname
        for node in walk(scope.node)
        if node.type == "assert_statement"
        or (node.type == "expression_statement" and source.text(node).startswith(_UNITTEST))
    )
