"""Find the reads of local names that surely have a value: removing them, or what they are part of, changes nothing."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence

_State = frozenset[str] | None
"""The names that have a value on every way to a place; None for a place that no way leads to."""
_LAZY = (ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def definite_reads(function: ast.FunctionDef | ast.AsyncFunctionDef) -> set[ast.Name]:
    """Return the reads of a function's own names that have a value, and the targets of `+=` that have one.

    What is not certain is left out: what a `with` or a loop binds counts only inside, and nothing counts that an
    expression binds. Names that are deleted, or that are those of exceptions, are not looked at in particular.
    """
    reads = _Reads()
    reads.block(function.body, frozenset(n.arg for n in ast.walk(function.args) if isinstance(n, ast.arg)))
    return reads.found


class _Reads:
    def __init__(self) -> None:
        self.found: set[ast.Name] = set()

    def block(self, statements: Iterable[ast.stmt], state: _State) -> _State:
        """Look at statements in order, and return the state after them."""
        for statement in statements:
            state = self._statement(statement, state)
        return state

    def _statement(self, statement: ast.stmt, state: _State) -> _State:
        self._note(_expressions(statement), state)
        match statement:
            case ast.Return() | ast.Raise() | ast.Break() | ast.Continue():
                return None
            case ast.If():
                return _both(self.block(statement.body, state), self.block(statement.orelse, state))
            case ast.For() | ast.AsyncFor():
                self.block(statement.body, _with(state, _targets([statement.target])))
                self.block(statement.orelse, state)
            case ast.While():
                self.block(statement.body, state)
                self.block(statement.orelse, state)
            case ast.With() | ast.AsyncWith():
                # It may go on after an exception.
                targets = [item.optional_vars for item in statement.items if item.optional_vars is not None]
                self.block(statement.body, _with(state, _targets(targets)))
            case ast.Try() | ast.TryStar():
                return self._try(statement, state)
            case ast.Match():
                for case in statement.cases:
                    if case.guard is not None:
                        self._note([case.guard], state)
                    self.block(case.body, state)
            case ast.Assign():
                return _with(state, _targets(statement.targets))
            case ast.AnnAssign():
                return _with(state, _targets([statement.target])) if statement.value is not None else state
            case ast.AugAssign():
                return _with(state, _targets([statement.target]))
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                return _with(state, [statement.name])
            case ast.Import() | ast.ImportFrom():
                return _with(state, [(name.asname or name.name).partition(".")[0] for name in statement.names])
        return state

    def _try(self, statement: ast.Try | ast.TryStar, state: _State) -> _State:
        after = self.block(statement.orelse, self.block(statement.body, state))
        for handler in statement.handlers:
            if handler.type is not None:
                self._note([handler.type], state)
            after = _both(after, self.block(handler.body, state))
        finally_ = self.block(statement.finalbody, state)
        if after is None or finally_ is None:
            return None
        return after | finally_

    def _note(self, expressions: Iterable[ast.AST], state: _State) -> None:
        pending = list(expressions)
        while pending:
            node = pending.pop()
            if isinstance(node, ast.Name) and (state is None or node.id in state):
                self.found.add(node)
            if not isinstance(node, _LAZY):
                pending += ast.iter_child_nodes(node)


def _expressions(statement: ast.stmt) -> Iterator[ast.AST]:
    """Yield what a statement evaluates itself, before it binds a name."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return
    for node in ast.iter_child_nodes(statement):
        if isinstance(node, ast.expr | ast.withitem):
            yield node


def _targets(nodes: Sequence[ast.expr]) -> list[str]:
    stores = (n for node in nodes for n in ast.walk(node) if isinstance(n, ast.Name))
    return [n.id for n in stores if isinstance(n.ctx, ast.Store)]


def _with(state: _State, names: Iterable[str]) -> _State:
    return state if state is None else state | frozenset(names)


def _both(one: _State, other: _State) -> _State:
    if one is None or other is None:
        return other if one is None else one
    return one & other
