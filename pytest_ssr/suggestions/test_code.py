"""Read a test function as statements to observe: what it compares is evaluated, and nothing is asserted."""

from __future__ import annotations

import ast
import copy
import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias, TypeVar

from pytest_ssr.suggestions.expressions import all_literals, written
from pytest_ssr.suggestions.literals import MOST_CHARACTERS, Literal, is_literal, source_of, value_of
from pytest_ssr.suggestions.nearby_values import values_near
from pytest_ssr.suggestions.oddness import oddness_of

Definition: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef
_Case = TypeVar("_Case")
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_MOST_CASES, _MOST_ODDNESS = 4, 1
_MOST_NODES, _MOST_DEPTH, _MOST_SOURCE = 3000, 60, 20_000
"""Of a test that is copied and written for each variant: parts, how deeply they are nested, and characters."""
_CONTENT_ONLY = frozenset(("all", "any", "bool", "dict", "isinstance", "len", "list", "set", "sorted", "str", "tuple"))
"""Functions whose argument tells more than their result."""
_RAISES = frozenset(("raises", "assertRaises", "assertRaisesRegex"))


@dataclass(frozen=True, slots=True)
class TestCode:
    """The statements of a test function, of one case if it has parameters."""

    __test__ = False
    path: str
    owner: str
    """The class it lies in, or an empty string."""
    definition: Definition
    """With these statements as its body."""
    steps: int = 0
    """How many literals differ from those of the test."""
    oddness: int = 0
    """How many of these are unusual; see `oddness_of`."""

    @property
    def name(self) -> str:
        """The name of the function."""
        return self.definition.name

    @property
    def key(self) -> tuple[str, ...]:
        """What distinguishes it from others."""
        return self.path, self.owner, ast.unparse(ast.fix_missing_locations(copy.deepcopy(self.definition)))

    @property
    def body(self) -> list[ast.stmt]:
        """The statements."""
        return self.definition.body

    def with_body(self, body: Sequence[ast.stmt], name: str) -> Definition:
        """Return a function with another name and other statements."""
        definition = copy.copy(self.definition)
        definition.name, definition.body = name, [*body] or [ast.Pass()]
        return definition


def test_code(path: str, tree: ast.Module, names: Iterable[str]) -> list[TestCode]:
    """Return the code of tests of a file.

    tree: of the file. names: of functions, `Class::function` for those of a class. A test whose parameters cannot be
    written, or that another library calls with values of its own, has no code, and neither has a very long one.
    """
    wanted = frozenset(names)
    found: list[TestCode] = []
    for node in tree.body:
        owner = node.name if isinstance(node, ast.ClassDef) else ""
        if isinstance(node, ast.ClassDef) and _parametrized(node.decorator_list):
            continue
        for item in node.body if isinstance(node, ast.ClassDef) else [node]:
            name = f"{owner}::{getattr(item, 'name', '')}".removeprefix("::")
            if isinstance(item, _DEFINITIONS) and name in wanted:
                cases = (definition for definition in _cases(item) if _is_small(definition))
                found += [TestCode(path, owner, definition) for definition in cases]
    return found


test_code.__test__ = False  # type: ignore[attr-defined] # pytest would collect it where it is imported


def _is_small(definition: Definition) -> bool:
    """Return whether a test can be copied and written often; one that is nested too deeply cannot be at all."""
    level: list[ast.AST] = [definition]
    size = depth = 0
    while level and size <= _MOST_NODES and depth <= _MOST_DEPTH:
        size, depth = size + len(level), depth + 1
        level = [child for node in level for child in ast.iter_child_nodes(node)]
    try:
        return not level and len(written(definition)) <= _MOST_SOURCE
    except ValueError:
        # An f-string that `ast` cannot write.
        return False


def near(code: TestCode, constants: Sequence[Literal]) -> Iterator[TestCode]:
    """Yield the code with one literal in the place of another, each place in turn. constants: values that matter."""
    places = [value for statement in code.body for _, value in all_literals(statement)]
    groups = [
        _others(code, number, value, constants)
        for number, value in enumerate(places)
        if len(source_of(value)) <= MOST_CHARACTERS
    ]
    for turn in itertools.zip_longest(*groups):
        yield from (other for other in turn if other is not None)


def leaves(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements to observe, in the order in which they run."""
    for statement in body:
        if isinstance(statement, ast.With) and not raises_in(statement):
            yield from leaves(statement.body)
        else:
            yield statement


def put(
    body: Sequence[ast.stmt], leaf: ast.stmt, others: Sequence[ast.stmt], *, is_last: bool = False
) -> list[ast.stmt]:
    """Return statements with others in the place of a leaf. is_last: whether to leave out what follows."""
    found: list[ast.stmt] = []
    for statement in body:
        if statement is leaf:
            found += others
        elif isinstance(statement, ast.With) and any(inner is leaf for inner in leaves([statement])):
            block = copy.copy(statement)
            block.body = put(statement.body, leaf, others, is_last=is_last)
            found.append(block)
        else:
            found.append(statement)
            continue
        if is_last:
            break
    return found


def without_observations(body: Sequence[ast.stmt], kept: Sequence[ast.stmt]) -> list[ast.stmt]:
    """Return statements without those that were made from assertions, except some."""
    found: list[ast.stmt] = []
    for statement in body:
        if isinstance(statement, ast.With) and raises_in(statement) is None:
            block = copy.copy(statement)
            block.body = without_observations(statement.body, kept) or [ast.Pass()]
            found.append(block)
        elif not _is_observation(statement) or any(statement is other for other in kept):
            found.append(statement)
    return found


def _is_observation(statement: ast.stmt) -> bool:
    """Return whether a statement was made from another one: it stands on no line of the file."""
    return isinstance(statement, ast.Expr) and not hasattr(statement, "lineno")


def raises_in(statement: ast.stmt) -> ast.expr | None:
    """Return the exceptions that a statement such as `with pytest.raises(...)` expects; None for another statement."""
    if not isinstance(statement, ast.With) or len(statement.items) != 1:
        return None
    call = statement.items[0].context_expr
    is_raises = isinstance(call, ast.Call) and _called(call) in _RAISES and bool(call.args)
    return call.args[0] if is_raises else None  # type: ignore[attr-defined] # a call


def _cases(node: Definition) -> Iterator[Definition]:
    """Yield a function for each case, with the parameters as assignments."""
    parametrized = _parametrized(node.decorator_list)
    others = [d for d in node.decorator_list if d not in parametrized]
    if any(_called(d) == "given" for d in others):
        return
    values = [_values(call) for call in parametrized]
    if None in values:
        return
    cases = list(itertools.product(*(_spread(v) for v in values if v is not None)))
    for case in _spread(cases):
        given = {name: value for pairs in case for name, value in pairs}
        definition = copy.copy(node)
        definition.decorator_list = others
        definition.args = copy.deepcopy(node.args)
        definition.args.args = [a for a in definition.args.args if a.arg not in given]
        definition.returns = None
        body: list[ast.stmt] = [_assignment(name, value) for name, value in given.items()]
        definition.body = [*body, *_statements(node.body)]
        yield definition


def _parametrized(decorators: Sequence[ast.expr]) -> list[ast.Call]:
    return [d for d in decorators if isinstance(d, ast.Call) and _called(d) == "parametrize"]


def _spread(cases: list[_Case]) -> list[_Case]:
    """Return some of the cases, evenly spaced: a test may have thousands."""
    return cases[:: max(1, len(cases) // _MOST_CASES)][:_MOST_CASES]


def _values(call: ast.Call) -> list[list[tuple[str, ast.expr]]] | None:
    """Return the cases of a decorator as pairs of parameters and values; None if they cannot be read."""
    if len(call.args) < 2 or any(k.arg != "ids" for k in call.keywords):
        return None
    names, rows = call.args[:2]
    if isinstance(names, ast.Constant) and isinstance(names.value, str):
        parameters = [name.strip() for name in names.value.split(",") if name.strip()]
    elif isinstance(names, ast.List | ast.Tuple):
        parameters = [n.value for n in names.elts if isinstance(n, ast.Constant) and isinstance(n.value, str)]
    else:
        return None
    if not isinstance(rows, ast.List | ast.Tuple):
        return None
    cases = []
    for row in rows.elts:
        if isinstance(row, ast.Call) and _called(row) == "param":
            if any(k.arg != "id" for k in row.keywords):
                continue
            given = row.args
        elif len(parameters) == 1:
            given = [row]
        elif isinstance(row, ast.Tuple | ast.List):
            given = row.elts
        else:
            continue
        if len(given) == len(parameters) and not any(isinstance(value, ast.Starred) for value in given):
            cases.append(list(zip(parameters, given, strict=True)))
    return cases or None


def _statements(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield what is observed in the place of statements."""
    for statement in body:
        if isinstance(statement, ast.Assert):
            yield from map(ast.Expr, _operands(statement.test))
        elif isinstance(statement, ast.Expr):
            yield from _of_expression(statement)
        elif isinstance(statement, ast.Assign | ast.AnnAssign | ast.AugAssign):
            yield statement
            yield from _targets(statement)
        elif isinstance(statement, ast.With) and raises_in(statement) is None:
            block = copy.copy(statement)
            block.body = list(_statements(statement.body)) or [ast.Pass()]
            yield block
        elif isinstance(statement, ast.For) and (rows := _rows(statement)):
            for row in _spread(rows):
                yield ast.Assign([statement.target], row)
                yield from _statements(copy.deepcopy(statement.body))
        elif isinstance(statement, ast.Return):
            return
        elif not isinstance(statement, ast.Pass):
            yield statement


def _rows(loop: ast.For) -> list[ast.expr]:
    """Return the items of a loop over a list that is written there; nothing if its turns depend on each other."""
    jumps = any(isinstance(node, ast.Break | ast.Continue) for part in loop.body for node in ast.walk(part))
    if loop.orelse or jumps or not isinstance(loop.iter, ast.List | ast.Tuple):
        return []
    return [] if any(isinstance(row, ast.Starred) for row in loop.iter.elts) else loop.iter.elts


def _of_expression(statement: ast.Expr) -> Iterator[ast.stmt]:
    call = statement.value
    if isinstance(call, ast.Constant):
        return
    name = _called(call) if isinstance(call, ast.Call) else ""
    if not isinstance(call, ast.Call):
        yield statement
    elif name in _RAISES:
        # Such as `self.assertRaises(ValueError, int, "a")`; a pattern may stand before the function.
        rest = call.args[2 if name.endswith("Regex") else 1 :]
        if rest:
            context = ast.Call(call.func, call.args[:1], [])
            inner = ast.Call(rest[0], rest[1:], call.keywords)
            yield ast.With([ast.withitem(context)], [ast.Expr(inner)])
    elif name.startswith("assert"):
        yield from (ast.Expr(part) for argument in call.args for part in _operands(argument))
    else:
        yield statement
        if isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Name):
            yield ast.Expr(call.func.value)


def _operands(node: ast.expr) -> Iterator[ast.expr]:
    """Yield the parts of a condition that tell more than whether it holds."""
    if isinstance(node, ast.BoolOp):
        for value in node.values:
            yield from _operands(value)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield from _operands(node.operand)
    elif isinstance(node, ast.Compare):
        for part in (node.left, *node.comparators):
            yield from _operands(part)
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _CONTENT_ONLY and node.args:
        yield from _operands(node.args[0])
    elif not _is_literal(node) and not isinstance(node, ast.Lambda | ast.Starred):
        yield node


def _targets(statement: ast.Assign | ast.AnnAssign | ast.AugAssign) -> Iterator[ast.stmt]:
    """Yield the variables that a statement assigns what is no literal."""
    if statement.value is None or _is_literal(statement.value):
        return
    targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
    for target in targets:
        for part in target.elts if isinstance(target, ast.Tuple) else [target]:
            if isinstance(part, ast.Name):
                yield ast.Expr(ast.Name(part.id, ast.Load()))
            elif isinstance(part, ast.Attribute):
                yield ast.Expr(ast.Attribute(part.value, part.attr, ast.Load()))


def _others(code: TestCode, number: int, value: Literal, constants: Sequence[Literal]) -> Iterator[TestCode]:
    """Yield the code with another value in the place of one literal."""
    seen = {source_of(value)}
    for other in values_near(value, constants):
        text, oddness = source_of(other), oddness_of(other, value)
        if text not in seen and oddness <= _MOST_ODDNESS and is_literal(other):
            seen.add(text)
            definition = _Replacing(number, ast.parse(text, mode="eval").body).in_function(code.definition)
            yield replace(code, definition=definition, steps=code.steps + 1, oddness=code.oddness + oddness)


class _Replacing:
    """Puts an expression in the place of one literal."""

    def __init__(self, number: int, other: ast.expr) -> None:
        self._number, self._other = number, other

    def in_function(self, definition: Definition) -> Definition:
        """Return a function with the other literal in its body."""
        changed = copy.copy(definition)
        changed.body = copy.deepcopy(definition.body)
        found = [node for statement in changed.body for node, _ in all_literals(statement)][self._number]
        for parent in (node for statement in changed.body for node in ast.walk(statement)):
            for field, child in ast.iter_fields(parent):
                if child is found:
                    setattr(parent, field, self._other)
                elif isinstance(child, list) and any(item is found for item in child):
                    setattr(parent, field, [self._other if item is found else item for item in child])
        return changed


def _assignment(name: str, value: ast.expr) -> ast.stmt:
    return ast.Assign([ast.Name(name, ast.Store())], value)


def _is_literal(node: ast.expr) -> bool:
    try:
        return is_literal(value_of(node))
    except (ValueError, TypeError, SyntaxError, ArithmeticError, RecursionError, MemoryError):
        return False


def _called(node: ast.expr) -> str:
    """Return the last name of what is called, or of a decorator."""
    function = node.func if isinstance(node, ast.Call) else node
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""
