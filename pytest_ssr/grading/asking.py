"""Tests that assert nothing and write what the real ones compare, as they stand or with an input changed."""

from __future__ import annotations

import ast
import copy
import re
from collections.abc import Collection, Iterator, Sequence
from unittest import TestCase

from pytest_ssr.weakening.text import Definition

EQUAL, NEAR, OPEN, HOLDS, END = "equal", "near", "open", "holds", "end"
_MOST_CHARS = 2000
_NOT_ASKED = frozenset(("raises", "warns", "importorskip", "skip", "xfail", "getattr", "setattr", "isinstance", "open"))
_NOT_ASKED |= {"sleep", "wait", "join", "settimeout", "alarm", "exit", "kill"}
_ASSERTING = re.compile(r"_*(?:assert|check|expect|verify|ensure|compare)(?![a-z])")
_RAISING = ("raises", "assertRaises", "assertRaisesRegex")
_WAITING = (*_RAISING, "assertWarns", "assertLogs")
_EQUAL = frozenset(
    (
        *("assertEqual", "assertEquals", "assertListEqual", "assertTupleEqual", "assertSetEqual", "assertDictEqual"),
        *("assertMultiLineEqual", "assertSequenceEqual", "assertIs"),
    )
)
_RECORDER = """
def NAME(kind, name, number, *values):
    import collections.abc, numbers, os

    def plain(value, depth=0):
        for exact in (bool, int, float, str, bytes):
            if isinstance(value, exact):
                return value if type(value) is exact else exact.__add__(value, exact())
        if value is None or isinstance(value, complex) or depth > 20:
            return value
        if isinstance(value, numbers.Number):
            return int(value) if int(value) == value else float(value)
        if isinstance(value, collections.abc.Mapping):
            return {plain(k, depth + 1): plain(value[k], depth + 1) for k in value}
        for exact in (tuple, list):
            if isinstance(value, exact):
                return exact(plain(v, depth + 1) for v in value)
        if isinstance(value, collections.abc.Set):
            return {plain(v, depth + 1) for v in value}
        return value

    def text(value):
        try:
            return repr(plain(value))[:MOST]
        except Exception:
            return "?"

    if kind == "equal":
        try:
            holds = bool(values[0] == values[1])
        except Exception:
            holds = None
        values = (*values, holds)
    if kind == "holds":
        try:
            values = (bool(values[0]),)
        except Exception:
            values = (None,)
    with open(os.environ["SSR_VALUES"], "a", encoding="utf-8") as file:
        case = os.environ.get("PYTEST_CURRENT_TEST", "")
        file.write(ascii((name, case, number, kind, [text(v) for v in values])) + "\\n")
"""


def recorder_of(name: str) -> bytes:
    """Return the function, of this name, that writes what it is given; it goes to the end of a file of tests."""
    return _RECORDER.replace("NAME", name).replace("MOST", str(_MOST_CHARS)).encode()


def inputs_of(node: Definition) -> list[ast.Constant]:
    """Return the literals that a test computes from: of its calls, its variables and its parameters."""
    tables = [a for d in node.decorator_list if isinstance(d, ast.Call) and _is_table(d) for a in d.args[1:2]]
    return [*_literals(node.body), *_literals(tables)]


def _is_table(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Attribute) and call.func.attr == "parametrize"


def _literals(nodes: Sequence[ast.AST]) -> Iterator[ast.Constant]:
    for node in nodes:
        if isinstance(node, ast.Call):
            called = _called(node)
            if called in _NOT_ASKED and called not in _RAISING:
                continue
            # The second of these is what is expected; these call what is third with the rest.
            given = (
                node.args[2:]
                if called in _RAISING
                else node.args[:1]
                if called in _EQUAL
                else [*node.args, *(k.value for k in node.keywords)]
            )
            yield from _literals([node.func, *given])
        elif isinstance(node, ast.Assert):
            yield from _literals([node.test])
        elif isinstance(node, ast.Compare):
            yield from _literals([s for s in (node.left, *node.comparators) if not isinstance(s, ast.Constant)])
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
    return isinstance(value, str | bytes | float) or (isinstance(value, int) and abs(value) < 10_000)


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


def asking(
    definition: Definition,
    name: str,
    *,
    recorder: str = "",
    place: int | None = None,
    number: int = 0,
    helpers: Collection[str] = (),
) -> tuple[str, int | None]:
    """Return a test's text that writes what it compares, with one input changed.

    The second item is the number of the assertion that the input stands in, None for no one. helpers: functions that
    the tests have themselves.
    """
    node = copy.deepcopy(definition)
    node.name = name
    changed = inputs_of(node)[place] if place is not None else None
    if changed is not None:
        changed.value = _another(changed.value, number)  # type: ignore[assignment] # of the same kind
    visitor = _Asking(name, recorder, changed, helpers)
    body = ast.Module(node.body, [])
    visitor.visit(body)
    node.body = [*body.body, visitor.record(END)]
    return ast.unparse(ast.fix_missing_locations(node)), visitor.changed_in


class _Asking(ast.NodeTransformer):
    """Puts a call that writes values in the place of each assertion, or beside it."""

    def __init__(self, name: str, recorder: str, changed: ast.Constant | None, helpers: Collection[str]) -> None:
        self._name, self._recorder, self._changed, self._helpers = name, recorder, changed, helpers
        self._number = 0
        self.changed_in: int | None = None
        """The number of the assertion that holds the changed input."""

    def record(self, kind: str, *values: ast.expr) -> ast.Expr:
        """Return the call."""
        words = [ast.Constant(kind), ast.Constant(self._name), ast.Constant(self._number)]
        return ast.Expr(ast.Call(ast.Name(self._recorder, ast.Load()), [*words, *values], []))

    def _begin(self, statement: ast.stmt) -> None:
        """Give an assertion its number."""
        self._number += 1
        if self._changed is not None and any(part is self._changed for part in ast.walk(statement)):
            self.changed_in = self._number

    def _held(self, statement: ast.stmt, exception: str, *after: ast.stmt) -> ast.Try:
        """Write whether a statement ends without an exception."""
        failed = ast.ExceptHandler(ast.Name(exception, ast.Load()), None, [self._holds(False), *after])
        return ast.Try([statement], [failed], [self._holds(True)], [])

    def _holds(self, held: bool) -> ast.Expr:
        return self.record(HOLDS, ast.Constant(held))

    def visit_Assert(self, node: ast.Assert) -> ast.Expr:
        """Write what is compared."""
        self._begin(node)
        test = node.test
        if isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], ast.Eq | ast.Is):
            return self.record(EQUAL, test.left, test.comparators[0])
        return self.record(HOLDS, test)

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
        self._begin(node)
        if name in _EQUAL and call.args[1:]:
            return self.record(EQUAL, *call.args[:2])
        if isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Name) and name in dir(TestCase):
            return self._held(node, "AssertionError")
        # It may do more than ask, so it is called. What a test's own helper asks of the values, it says by itself.
        kind = OPEN if name in self._helpers else NEAR
        given = [f"{self._recorder}_{n}" for n, a in enumerate(call.args) if not isinstance(a, ast.Starred)]
        kept: list[ast.stmt] = []
        for place, argument in enumerate(call.args):
            if not isinstance(argument, ast.Starred):
                kept.append(ast.Assign([ast.Name(f"{self._recorder}_{place}", ast.Store())], argument))
                call.args[place] = ast.Name(f"{self._recorder}_{place}", ast.Load())
        values = self.record(kind, *(ast.Name(name, ast.Load()) for name in given))
        return [*kept, values, self._held(node, "AssertionError")]

    def visit_Lambda(self, node: ast.Lambda) -> ast.Lambda:
        """Leave inner functions as they are."""
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        """Likewise."""
        return node

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AsyncFunctionDef:
        """Likewise."""
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.ClassDef:
        """Likewise."""
        return node


def _called(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
