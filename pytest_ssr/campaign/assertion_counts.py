"""Count the assertions of the tests that run a change: code that they run and hardly check needs a test most."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache

from pytest_ssr.campaign.artifact_builder import candidate_state
from pytest_ssr.execution.coverage_map import CoverageMap
from pytest_ssr.injectors.recorded import RecordedInjector
from pytest_ssr.project.snapshot import Snapshot
from pytest_ssr.records.candidate_result import CandidateResult
from pytest_ssr.source.parsing import parse_module
from pytest_ssr.weakening.weaken import key_of

_ASSERTING_CALL = re.compile(r"assert|fail(If|Unless|$)|(raises|warns|deprecated_call)$")
"""Names of functions of pytest, unittest, mock, numpy and the like, and of helpers that are named as they are."""


class AssertionCounts:
    """The assertions of the tests of a snapshot; its files are read as they are asked for."""

    def __init__(self, snapshot: Snapshot, reach: CoverageMap | None) -> None:
        """reach: which tests reach which statement; None if that was not measured."""
        self._snapshot, self._reach = snapshot, reach
        self._of_file = cache(self._read)

    def poverty(self, result: CandidateResult) -> float:
        """Return 1 / (1 + n) for n assertions in the mean of the tests that run a change; 0 if no test is known to."""
        tests = self._near(result)
        if not tests:
            return 0.0
        counts = [self._of_file(path).get(".".join(names), 0) for path, names in map(key_of, tests)]
        return 1 / (1 + sum(counts) / len(counts))

    def _near(self, result: CandidateResult) -> frozenset[str]:
        candidate = next(RecordedInjector([result]).candidates(self._snapshot, seed=0), None)
        if candidate is None or self._reach is None:
            return frozenset()
        return self._reach.near(candidate_state(self._snapshot, candidate))

    def _read(self, path: str) -> dict[str, int]:
        tree = parse_module(self._snapshot.read(path)) if path in self._snapshot.files else None
        return dict(_counts(tree, "")) if tree is not None else {}


def _counts(node: ast.AST, prefix: str) -> Iterator[tuple[str, int]]:
    """Yield the qualified names of functions with the assertions in them."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield f"{prefix}{child.name}", sum(map(_is_assertion, ast.walk(child)))
        elif isinstance(child, ast.ClassDef):
            yield from _counts(child, f"{prefix}{child.name}.")
        else:
            yield from _counts(child, prefix)


def _is_assertion(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call):
        return isinstance(node, ast.Assert)
    called = node.func
    name = called.attr if isinstance(called, ast.Attribute) else called.id if isinstance(called, ast.Name) else ""
    return _ASSERTING_CALL.match(name) is not None
