"""Tests that assert nothing and write what the real ones compare, as they stand or with an input changed."""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator, Sequence
from unittest import TestCase

EQUAL, NEAR, HOLDS, END = "equal", "near", "holds", "end"
_MOST_CHARS = 2000
_NOT_ASKED = frozenset(("raises", "warns", "importorskip", "skip", "xfail", "getattr", "setattr", "isinstance", "open"))
_NOT_ASKED |= {"sleep", "wait", "join", "settimeout", "alarm", "exit", "kill"}
_ASSERTING = ("assert", "check", "expect", "verify", "ensure", "compare")
_WAITING = ("assertRaises", "assertWarns", "assertLogs")
_EQUAL = frozenset(
    (
        *("assertEqual", "assertEquals", "assertListEqual", "assertTupleEqual", "assertSetEqual", "assertDictEqual"),
        *("assertMultiLineEqual", "assertSequenceEqual", "assertIs"),
    )
)
_RECORDER = """
def NAME(kind, name, *values):
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
        file.write(ascii((name, kind, [text(v) for v in values])) + "\\n")
"""


def recorder_of(name: str) -> bytes:
    """Return the function, of this name, that writes what it is given; it goes to the end of a file of tests."""
    return _RECORDER.replace("NAME", name).replace("MOST", str(_MOST_CHARS)).encode()


def inputs_of(node: ast.FunctionDef | ast.AsyncFunctionDef) -> list[ast.Constant]:
    """Return the literals that a test computes from: of its calls, its variables and its parameters."""
    tables = [a for d in node.decorator_list if isinstance(d, ast.Call) and _is_table(d) for a in d.args[1:2]]
    return [*_literals(node.body), *_literals(tables)]


def _is_table(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Attribute) and call.func.attr == "parametrize"


def _literals(nodes: Sequence[ast.AST]) -> Iterator[ast.Constant]:
    for node in nodes:
        if isinstance(node, ast.Call):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if called in _NOT_ASKED:
                continue
            # The second of these is what is expected.
            given = node.args[:1] if called in _EQUAL else [*node.args, *(k.value for k in node.keywords)]
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
    node: ast.FunctionDef | ast.AsyncFunctionDef, recorder: str, place: int | None, number: int, name: str
) -> str:
    """Return a test's text that writes what it compares, with one input changed."""
    node = copy.deepcopy(node)
    node.name = name
    if place is not None:
        changed = inputs_of(node)[place]
        changed.value = _another(changed.value, number)  # type: ignore[assignment] # of the same kind
    visitor = _Asking(name, recorder)
    node.body = [visitor.visit(statement) for statement in node.body]
    node.body.append(visitor.record(END))
    return ast.unparse(ast.fix_missing_locations(node))


class _Asking(ast.NodeTransformer):
    """Puts a call that writes values in the place of each assertion."""

    def __init__(self, name: str, recorder: str) -> None:
        self._name, self._recorder = name, recorder

    def record(self, kind: str, *values: ast.expr) -> ast.Expr:
        """Return the call."""
        words = [ast.Constant(kind), ast.Constant(self._name)]
        return ast.Expr(ast.Call(ast.Name(self._recorder, ast.Load()), [*words, *values], []))

    def visit_Assert(self, node: ast.Assert) -> ast.Expr:
        """Write what is compared."""
        test = node.test
        if isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], ast.Eq | ast.Is):
            return self.record(EQUAL, test.left, test.comparators[0])
        return self.record(HOLDS, test)

    def visit_Expr(self, node: ast.Expr) -> ast.stmt:
        """Likewise for the methods of unittest, and for functions that look like assertions by their name."""
        call = node.value
        if not isinstance(call, ast.Call):
            return node
        name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
        if not name.lstrip("_").startswith(_ASSERTING) or name.startswith(_WAITING) or not call.args:
            return node
        if name in _EQUAL and call.args[1:]:
            return self.record(EQUAL, *call.args[:2])
        if isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Name) and name in dir(TestCase):
            failed = ast.ExceptHandler(
                ast.Name("AssertionError", ast.Load()), None, [self.record(HOLDS, ast.Constant(False))]
            )
            return ast.Try([node], [failed], [self.record(HOLDS, ast.Constant(True))], [])
        return self.record(NEAR, *(a for a in call.args if not isinstance(a, ast.Starred)))

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
