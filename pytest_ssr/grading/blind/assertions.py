"""Parse an assertion into its operands and the operators between them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from pytest_ssr.grading.blind.tables import called


def root_of(node: ast.AST) -> str:
    """Return the name at the beginning of `a.b[c].d`; an empty string if it has none."""
    while isinstance(node, ast.Attribute | ast.Subscript | ast.Call):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""


def parts_of(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the expressions that an expression is made of."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.expr | ast.keyword | ast.comprehension | ast.FormattedValue):
            yield child


def own_attribute(node: ast.AST) -> str:
    """Return the name of an attribute of `self`; empty for any other node."""
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
        return node.attr
    return ""


def first_attribute(node: ast.AST) -> str:
    """Return `b` of `self.b.c[d]`."""
    while not (name := own_attribute(node)):
        assert isinstance(node, ast.Attribute | ast.Subscript | ast.Call)
        node = node.func if isinstance(node, ast.Call) else node.value
    return name


def is_immutable(node: ast.expr) -> bool:
    """Return whether an expression is an immutable literal."""
    if isinstance(node, ast.Tuple):
        return all(map(is_immutable, node.elts))
    return isinstance(node, ast.Constant)


SYMBOLS: dict[type[ast.cmpop], str] = {
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.In: "in",
    ast.NotIn: "not in",
    ast.Is: "is",
    ast.IsNot: "is not",
}
_NEGATED = {"==": "!=", "!=": "==", "in": "not in", "not in": "in", "is": "is not", "is not": "is"}
_TEXT = ("startswith", "endswith")
_PATTERN = ("search", "match", "fullmatch")
TRUE, FALSE, SAME, NEAR, END = "true", "false", "same", "near", "end"
"""Operators of one operand, and of the end of a test."""
RAISES, RAISES_TEXT = "raises", "raises text"
"""Operators of a context that expects an exception: its message matches a pattern, or contains a text."""
_UNITTEST = {
    **dict.fromkeys(("assertEqual", "assertEquals", "assertListEqual", "assertTupleEqual", "assertSetEqual"), "=="),
    **dict.fromkeys(("assertDictEqual", "assertMultiLineEqual", "assertSequenceEqual"), "=="),
    "assertNotEqual": "!=",
    "assertIs": "is",
    "assertIsNot": "is not",
    "assertIn": "in",
    "assertNotIn": "not in",
    "assertGreater": ">",
    "assertGreaterEqual": ">=",
    "assertLess": "<",
    "assertLessEqual": "<=",
    "assertAlmostEqual": "almost",
    "assertCountEqual": "count",
    "assertRegex": "regex",
    "assertNotRegex": "no regex",
}
_ALONE = {"assertTrue": TRUE, "assertFalse": FALSE, "assertIsNone": "is", "assertIsNotNone": "is not"}
_MOCK = {
    **dict.fromkeys(("assert_called_once_with", "assert_called_with", "assert_called", "assert_called_once"), ""),
    **dict.fromkeys(("assert_not_called", "assert_awaited_once_with", "assert_awaited_once"), ""),
}
RAISING = (
    *("raises", "assertRaises", "assertRaisesRegex", "assertRaisesMessage"),
    *("warns", "assertWarns", "assertWarnsRegex", "assertWarnsMessage"),
)
_WITH_PATTERN = re.compile(r"(\w+)(Regex|Message)")
"""Names of calls whose second argument is the pattern, or in Django a part, of the message."""


class Site(NamedTuple):
    """One assertion of a blind test."""

    ops: tuple[str, ...]
    """The operators between its operands, or one operator for the whole assertion."""
    recorded: tuple[bool, ...]
    """Which operands the blind test writes; the others are expected values, which it does not contain."""
    choice: int = -1
    """The number of the first assertion in a group of which one must hold; -1: this one must hold."""

    @property
    def is_open(self) -> bool:
        """Whether the assertion does not fix the value itself."""
        return not set(self.ops) <= {"==", "is", SAME, "count"}


@dataclass(frozen=True, slots=True)
class Check:
    """One assertion as written."""

    ops: tuple[str, ...]
    operands: list[ast.expr]
    expected: int = 0
    """How many operands at the end are always expected values, whatever they depend on."""

    @property
    def is_compare(self) -> bool:
        """Whether it consists only of Python's comparison operators."""
        return set(self.ops) <= set(SYMBOLS.values())


def checks_of(test: ast.expr) -> list[Check]:
    """Return the checks of an expression that must be true; all of them must hold."""
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
        return [check for value in test.values for check in checks_of(value)]
    if isinstance(test, ast.Compare):
        return [Check(tuple(SYMBOLS[type(o)] for o in test.ops), [test.left, *test.comparators])]
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        inner = checks_of(test.operand)
        if len(inner) == 1 and len(inner[0].ops) == 1 and inner[0].ops[0] in _NEGATED:
            return [Check((_NEGATED[inner[0].ops[0]],), inner[0].operands)]
        return [Check((FALSE,), [test.operand])]
    if isinstance(test, ast.Call) and isinstance(test.func, ast.Attribute) and not test.keywords:
        name, owner = test.func.attr, test.func.value
        if name in _TEXT and len(test.args) == 1:
            return [Check((name,), [owner, test.args[0]])]
        if name in _PATTERN and isinstance(owner, ast.Name) and owner.id == "re" and len(test.args) == 2:
            return [Check((name,), [test.args[1], test.args[0]])]
    return [Check((TRUE,), [test])]


def choices_of(test: ast.expr) -> list[Check]:
    """Return the comparisons of which one must hold in `a or b`; empty for any other expression."""
    if not (isinstance(test, ast.BoolOp) and isinstance(test.op, ast.Or)):
        return []
    if any(isinstance(n, ast.NamedExpr | ast.Await | ast.Yield) for n in ast.walk(test)):
        return []
    alternatives = [checks_of(value) for value in test.values]
    plain = all(len(checks) == 1 and checks[0].ops not in ((TRUE,), (FALSE,)) for checks in alternatives)
    return [checks[0] for checks in alternatives] if plain else []


def unittest_check(call: ast.Call) -> list[Check]:
    """Return the checks of an assert method of TestCase; empty for any other call."""
    name, args = called(call), call.args
    is_method = isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Name)
    if not is_method or any(isinstance(a, ast.Starred) for a in args):
        return []
    keywords = {k.arg: k.value for k in call.keywords}
    if name in _ALONE and args:
        op = _ALONE[name]
        return [Check((op,), [args[0], ast.Constant(None)])] if op.startswith("is") else _true(op, args[0])
    if name in ("assertIsInstance", "assertNotIsInstance") and len(args) > 1:
        return _true(FALSE if "Not" in name else TRUE, ast.Call(ast.Name("isinstance", ast.Load()), args[:2], []))
    if name not in _UNITTEST or len(args) < 2:
        return []
    if name == "assertAlmostEqual":
        places = args[2] if len(args) > 2 else keywords.get("places", ast.Constant(None))
        return [Check(("almost",), [*args[:2], places, keywords.get("delta", ast.Constant(None))], 2)]
    return [Check((_UNITTEST[name],), args[:2])]


def _true(op: str, value: ast.expr) -> list[Check]:
    return [Check((op,), [value])] if op == FALSE else checks_of(value)


def mock_check(call: ast.Call) -> list[Check]:
    """Return the check of an assert method of a mock: its calls are compared with those on the original."""
    if not isinstance(call.func, ast.Attribute) or call.func.attr not in _MOCK:
        return []
    name = "await_args_list" if "awaited" in call.func.attr else "call_args_list"
    return [Check((SAME,), [ast.Attribute(call.func.value, name, ast.Load())])]


_PATTERNS = ("match", "expected_regex", "expected_message")


def raised_class(call: ast.Call) -> ast.expr | None:
    """Return the class, or the tuple of classes, of which `raises(E)` expects an exception; None for warnings."""
    return call.args[0] if "aises" in called(call) and call.args else None


def expects_text(call: ast.Call) -> bool:
    """Return whether the message that a call expects is a part of the text rather than a pattern."""
    return called(call).endswith("Message")


def without_pattern(call: ast.Call) -> tuple[ast.Call, list[ast.expr]]:
    """Split a call that expects an exception into one without its pattern and further arguments, and the pattern."""
    name, args = called(call), list(call.args)
    pattern = [k.value for k in call.keywords if k.arg in _PATTERNS]
    func = call.func
    if (form := _WITH_PATTERN.fullmatch(name)) and isinstance(func, ast.Attribute):
        pattern = pattern or args[1:2]
        args = args[:1]
        func = ast.Attribute(func.value, form[1], ast.Load())
    keywords = [k for k in call.keywords if k.arg not in (*_PATTERNS, "msg")]
    return ast.Call(func, args[:1], keywords), pattern


def called_in(call: ast.Call) -> tuple[ast.expr, list[ast.expr]] | None:
    """Return the function and arguments that `raises(E, f, x)` calls; None if it is used as a context."""
    first = 2 if _WITH_PATTERN.fullmatch(called(call)) else 1
    if len(call.args) <= first:
        return None
    return call.args[first], call.args[first + 1 :]


def compared(check: Check) -> ast.Lambda:
    """Return a lambda that compares its arguments with the operators of a check."""
    names = [f"x{n}" for n in range(len(check.operands))]
    kinds = {symbol: kind for kind, symbol in SYMBOLS.items()}
    values: Sequence[ast.expr] = [ast.Name(n, ast.Load()) for n in names]
    body = ast.Compare(values[0], [kinds[op]() for op in check.ops], list(values[1:]))
    arguments = ast.arguments([], [ast.arg(n) for n in names], None, [], [], None, [])
    return ast.Lambda(arguments, body)
