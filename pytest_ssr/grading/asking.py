"""Tests that assert nothing and write what the real ones compare, as they stand or with an input changed."""

from __future__ import annotations

import ast
import copy
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple
from unittest import TestCase

from pytest_ssr.grading.recorder import END, EQUAL, HOLDS, NEAR, OPEN
from pytest_ssr.weakening.text import Definition

_LARGEST = 10**15
_NOT_ASKED = frozenset(("raises", "warns", "importorskip", "skip", "xfail", "getattr", "setattr", "isinstance", "open"))
_NOT_ASKED |= {"approx", "sleep", "wait", "join", "settimeout", "alarm", "exit", "kill"}
_ASSERTING = re.compile(r"_*(?:assert|check|expect|verify|ensure|compare)(?![a-z])")
_RAISING = ("raises", "assertRaises", "assertRaisesRegex")
_WAITING = (*_RAISING, "assertWarns", "assertLogs")
_EQUAL = frozenset(
    (
        *("assertEqual", "assertEquals", "assertListEqual", "assertTupleEqual", "assertSetEqual", "assertDictEqual"),
        *("assertMultiLineEqual", "assertSequenceEqual", "assertIs"),
    )
)
_ALMOST = "assertAlmostEqual"


def inputs_of(node: Definition) -> list[ast.Constant]:
    """Return the literals that a test computes from: of its calls, its variables and its parameters.

    What is only expected is none: another one would say nothing of the code.
    """
    expected = {name for name in {name for name, _ in _cells(node)} if _only_expected(node, name)}
    cells = [cell for name, cell in _cells(node) if name not in expected]
    return [*_literals(node.body), *_literals(cells)]


def _cells(node: Definition) -> Iterator[tuple[str, ast.expr]]:
    """Return what stands in the tables of `parametrize`: the parameter's name, the value."""
    for call in _tables(node):
        named, table = call.args[:2]
        names = _names_of(named)
        for row in getattr(table, "elts", ()):
            is_param = isinstance(row, ast.Call) and _called(row) == "param"
            cells = row.args if is_param else [row] if len(names) == 1 else getattr(row, "elts", ())
            yield from zip(names, cells, strict=False)


def _tables(node: Definition) -> list[ast.Call]:
    calls = [c for c in node.decorator_list if isinstance(c, ast.Call) and isinstance(c.func, ast.Attribute)]
    return [c for c in calls if _called(c) == "parametrize" and c.args[1:]]


def _names_of(named: ast.expr) -> list[str]:
    if isinstance(named, ast.Constant):
        return [n.strip() for n in str(named.value).split(",") if n.strip()]
    return [str(getattr(n, "value", "")) for n in getattr(named, "elts", ())]


def _only_expected(node: Definition, name: str) -> bool:
    """Tell whether a parameter is nothing but a side of comparisons."""
    used = [n for part in node.body for n in ast.walk(part) if isinstance(n, ast.Name) and n.id == name]
    sides = [side for part in node.body for n in ast.walk(part) for side in _sides(n) or ()]
    return bool(used) and all(any(n is side for side in sides) for n in used)


def _sides(node: ast.AST) -> Sequence[ast.expr] | None:
    """Return what a comparison, or a call that asserts, holds against each other; None of another node."""
    if isinstance(node, ast.Compare):
        return [node.left, *node.comparators]
    if isinstance(node, ast.Call) and _ASSERTING.match(name := _called(node)) and not name.startswith(_WAITING):
        return [a for a in node.args[: 2 if name in _EQUAL else None] if not isinstance(a, ast.Starred)]
    return None


def _is_written(node: ast.expr) -> bool:
    """Tell whether an expression stands in the test as it is: nothing in it is computed."""
    return not any(isinstance(n, ast.Call | ast.Name | ast.Attribute | ast.Await) for n in ast.walk(node))


def _literals(nodes: Sequence[ast.AST]) -> Iterator[ast.Constant]:
    for node in nodes:
        sides = _sides(node)
        if sides is not None:
            computed = [s for s in sides if not _is_written(s)]
            alone = len(sides) == 1
            further = [k.value for k in node.keywords] if isinstance(node, ast.Call) else []
            bounds = isinstance(node, ast.Compare) and not isinstance(node.ops[0], ast.Eq | ast.Is)
            # What the first is held against says where it has to lie, and not what it is computed from.
            yield from _literals([*(sides if alone else computed[:1] if bounds else computed), *further])
        elif isinstance(node, ast.Call):
            called = _called(node)
            if called in _NOT_ASKED and called not in _RAISING:
                continue
            # These call what is second with the rest.
            given = node.args[2:] if called in _RAISING else [*node.args, *(k.value for k in node.keywords)]
            yield from _literals([node.func, *given])
        elif isinstance(node, ast.Assert):
            yield from _literals([node.test])
        elif isinstance(node, ast.Constant):
            if _varies(node.value):
                yield node
        elif isinstance(node, ast.Subscript):
            yield from _literals([node.value])
        elif not isinstance(node, ast.JoinedStr) and not (
            isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        ):
            yield from _literals(list(ast.iter_child_nodes(node)))


def _varies(value: object) -> bool:
    if isinstance(value, bool):
        return False
    return isinstance(value, str | bytes | float) or (isinstance(value, int) and abs(value) < _LARGEST)


def _another(value: object, number: int) -> object:
    """Return another value of the same kind; a text keeps its shape where it has digits."""
    if isinstance(value, bytes):
        return value[: len(value) // 2] + b"ab"[number % 2 :][:1] + value[len(value) // 2 :]
    if isinstance(value, str):
        digits = [n for n, letter in enumerate(value) if letter.isascii() and letter.isdigit()]
        if digits:
            at = digits[number % len(digits)]
            return f"{value[:at]}{(int(value[at]) + 1 + number % 8) % 10}{value[at + 1 :]}"
        return value[: len(value) // 2] + "ab"[number % 2] + value[len(value) // 2 :]
    return value + number % 7 + 1  # type: ignore[operator] # a number


class Asked(NamedTuple):
    """A test that writes what it compares, and what in it hangs on the input that was changed."""

    text: str
    hangs: Mapping[int, frozenset[int]]
    """Number of an assertion to those of its sides, counted from 0, that the input stands in, itself or by a name."""
    computes: Mapping[int, frozenset[int]]
    """Likewise, the sides that are not written in the test as they are."""


def asking(
    definition: Definition,
    name: str,
    *,
    recorder: str = "",
    place: int | None = None,
    number: int = 0,
    helpers: Collection[str] = (),
) -> Asked:
    """Return a test that writes what it compares, with one input changed.

    helpers: functions that the tests have themselves.
    """
    node = copy.deepcopy(definition)
    node.name = name
    changed = inputs_of(node)[place] if place is not None else None
    if changed is not None:
        changed.value = _another(changed.value, number)  # type: ignore[assignment] # of the same kind
    visitor = _Asking(name, recorder, changed, _names_with(node, changed), helpers)
    if changed is not None:
        _leave_row_of(changed, node)
    body = ast.Module(node.body, [])
    visitor.visit(body)
    node.body = [*body.body, visitor.record(END)]
    return Asked(ast.unparse(ast.fix_missing_locations(node)), visitor.hangs, visitor.computes)


def _leave_row_of(changed: ast.Constant, node: Definition) -> None:
    """Take the other rows out of the table that an input stands in: nothing in them is changed."""
    for table in _tables(node):
        rows = getattr(table.args[1], "elts", [])
        mine = [row for row in rows if any(n is changed for n in ast.walk(row))]
        if mine and not any(k.arg == "ids" for k in table.keywords):
            rows[:] = mine


def _names_with(node: Definition, changed: ast.Constant | None) -> frozenset[str]:
    """Return the parameters and variables that a changed input gives their value to, one through another.

    A table that is one value, of which an input is a part, is none: the rest of it may be what is expected.
    """
    if changed is None:
        return frozenset()
    found = {name for name, cell in _cells(node) if _holds(cell, changed)}
    given = [pair for n in ast.walk(ast.Module(node.body, [])) for pair in _given(n)]
    grown = -1
    while grown < len(found):
        grown = len(found)
        found |= {name for name, value in given if _holds(value, changed) or _mentions(value, found)}
    return frozenset(found)


def _given(node: ast.AST) -> list[tuple[str, ast.expr]]:
    """Return the names that a statement or an expression gives a value, with the value."""
    if not isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign | ast.NamedExpr) or node.value is None:
        return []
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return [(t.id, node.value) for t in targets if isinstance(t, ast.Name)]


def _holds(value: ast.AST, changed: ast.Constant) -> bool:
    """Tell whether a literal stands in an expression, in no table but in what a call is given."""
    if value is changed:
        return True
    if isinstance(value, ast.Call):
        return any(n is changed for n in ast.walk(value))
    if isinstance(value, ast.Dict | ast.List | ast.Tuple | ast.Set):
        return False
    return any(_holds(child, changed) for child in ast.iter_child_nodes(value))


def _mentions(node: ast.AST, names: Collection[str]) -> bool:
    return any(isinstance(n, ast.Name) and n.id in names for n in ast.walk(node))


class _Asking(ast.NodeTransformer):
    """Puts a call that writes values in the place of each assertion, or beside it."""

    def __init__(
        self, name: str, recorder: str, changed: ast.Constant | None, names: Collection[str], helpers: Collection[str]
    ) -> None:
        """names: those that stand for the changed input."""
        self._name, self._recorder, self._changed, self._helpers = name, recorder, changed, helpers
        self._names, self._number = names, 0
        self.hangs: dict[int, frozenset[int]] = {}
        self.computes: dict[int, frozenset[int]] = {}

    def record(self, kind: str, *values: ast.expr) -> ast.Expr:
        """Return the call."""
        words = [ast.Constant(kind), ast.Constant(self._name), ast.Constant(self._number)]
        return ast.Expr(ast.Call(ast.Name(self._recorder, ast.Load()), [*words, *values], []))

    def _begin(self, *sides: ast.AST) -> None:
        """Give an assertion its number, and say what its sides hang on."""
        self._number += 1
        numbered = list(enumerate(sides))
        self.computes[self._number] = frozenset(
            n for n, s in numbered if not isinstance(s, ast.expr) or not _is_written(s)
        )
        if self._changed is not None:
            self.hangs[self._number] = frozenset(
                n for n, s in numbered if any(p is self._changed for p in ast.walk(s)) or _mentions(s, self._names)
            )

    def _held(self, statement: ast.stmt, exception: str, *after: ast.stmt) -> ast.Try:
        """Write whether a statement ends without an exception."""
        failed = ast.ExceptHandler(ast.Name(exception, ast.Load()), None, [self._holds(False), *after])
        return ast.Try([statement], [failed], [self._holds(True)], [])

    def _holds(self, held: bool) -> ast.Expr:
        return self.record(HOLDS, ast.Constant(held))

    def visit_Assert(self, node: ast.Assert) -> ast.stmt | list[ast.stmt]:
        """Write what is compared."""
        test = node.test
        if isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], ast.Eq | ast.Is):
            self._begin(test.left, test.comparators[0])
            if any(_is_approx(side) for side in (test.left, test.comparators[0])):
                return self._nearly(test)
            return self.record(EQUAL, test.left, test.comparators[0])
        self._begin(test)
        return self.record(HOLDS, test)

    def _nearly(self, test: ast.Compare) -> list[ast.stmt]:
        """Write two values of which the test knows how near each other is near enough, and whether they are."""
        sides = [test.left, test.comparators[0]]
        kept: list[ast.stmt] = []
        for place, side in enumerate(sides):
            approx = side if isinstance(side, ast.Call) and _is_approx(side) else None
            kept.append(self._keep(place, approx.args[0] if approx is not None else side))
            if approx is not None:
                approx.args[0] = self._kept(place)
            else:
                sides[place] = self._kept(place)
        values = self.record(OPEN, self._kept(0), self._kept(1))
        return [*kept, values, self.record(HOLDS, ast.Compare(sides[0], test.ops, sides[1:]))]

    def _keep(self, place: int, value: ast.expr) -> ast.Assign:
        return ast.Assign([ast.Name(f"{self._recorder}_{place}", ast.Store())], value)

    def _kept(self, place: int) -> ast.Name:
        return ast.Name(f"{self._recorder}_{place}", ast.Load())

    def visit_With(self, node: ast.With) -> ast.stmt:
        """Write whether an exception that is awaited comes."""
        names = [_called(i.context_expr) for i in node.items if isinstance(i.context_expr, ast.Call)]
        if not any(name in _RAISING for name in names):
            self.generic_visit(node)
            return node
        self._begin(node)
        number = self._number
        self.generic_visit(node)
        self._number, later = number, self._number
        held = self._held(node, "BaseException", ast.Raise())
        self._number = later
        return held

    def visit_Expr(self, node: ast.Expr) -> ast.stmt | list[ast.stmt]:
        """Likewise for the methods of unittest, and for functions that look like assertions by their name."""
        call = node.value
        if not isinstance(call, ast.Call):
            return node
        name = _called(call)
        if name in _RAISING and call.args[1:]:
            self._begin(node)
            return self._held(node, "BaseException", ast.Raise())
        if not _ASSERTING.match(name) or name.startswith(_WAITING) or not call.args:
            return node
        self._begin(*(_sides(call) or ()))
        if name in _EQUAL and call.args[1:]:
            return self.record(EQUAL, *call.args[:2])
        method = (
            isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Name) and name in dir(TestCase)
        )
        if method and name != _ALMOST:
            return self._held(node, "AssertionError")
        # It may do more than ask, so it is called. What a test's own helper asks of the values, it says by itself.
        kind = OPEN if method or name in self._helpers else NEAR
        kept = [self._keep(n, a) for n, a in enumerate(call.args) if not isinstance(a, ast.Starred)]
        places = [n for n, a in enumerate(call.args) if not isinstance(a, ast.Starred)]
        for place in places:
            call.args[place] = self._kept(place)
        return [*kept, self.record(kind, *map(self._kept, places)), self._held(node, "AssertionError")]

    def visit_Lambda(self, node: ast.Lambda) -> ast.Lambda:
        """Leave what is no statement as it is."""
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.ClassDef:
        """Leave inner classes as they are."""
        return node


def _is_approx(side: ast.expr) -> bool:
    return isinstance(side, ast.Call) and _called(side) == "approx" and bool(side.args)


def _called(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
