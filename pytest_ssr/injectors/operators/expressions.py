"""Operators on expressions: constants, arithmetic, comparisons, conditions, calls, slices."""

from __future__ import annotations

from itertools import pairwise
from random import Random

from tree_sitter import Node

from pytest_ssr.injectors.operators.operator import Edits, Operator, operands, replaced, swapped
from pytest_ssr.injectors.python_source import Edit, ParsedSource

_ARITHMETIC = {
    b"+": b"-", b"-": b"+", b"*": b"//", b"/": b"*", b"//": b"/", b"%": b"//", b"**": b"*",
    b"<<": b">>", b">>": b"<<", b"&": b"|", b"|": b"&", b"^": b"&",
}  # fmt: skip
_AUGMENTED = {
    b"+=": b"-=",
    b"-=": b"+=",
    b"*=": b"/=",
    b"/=": b"*=",
    b"//=": b"/=",
    b"|=": b"&=",
    b"&=": b"|=",
}
_BOUNDARY = {b"<": b"<=", b"<=": b"<", b">": b">=", b">=": b">"}
_OPPOSITE = {
    b"==": b"!=", b"!=": b"==", b"<": b">=", b">=": b"<", b">": b"<=", b"<=": b">",
    b"is": b"is not", b"is not": b"is", b"in": b"not in", b"not in": b"in",
}  # fmt: skip
_KIN = {b"is": b"==", b"is not": b"!="}


def _signs(source: ParsedSource, node: Node) -> list[Node]:
    return [c for c in node.children if not c.is_named]


def change_operator(source: ParsedSource, node: Node, chance: Random) -> Edits:
    """Another arithmetic or bit operator; not on strings, where it could only crash."""
    left, right = operands(node)
    if left is None or right is None or b"string" in (left.type.encode(), right.type.encode()):
        return
    table = _AUGMENTED if node.type == "augmented_assignment" else _ARITHMETIC
    for sign in _signs(source, node):
        if source.text(sign) in table:
            yield replaced(sign, table[source.text(sign)])


def swap_operands(source: ParsedSource, node: Node, chance: Random) -> Edits:
    """Exchange the sides of an operator that minds their order."""
    left, right = operands(node)
    sign = node.child_by_field_name("operator")
    if left is not None and right is not None and sign is not None and source.text(left) != source.text(right):
        ordered = (b"-", b"/", b"//", b"%", b"**", b"<<", b">>")
        if source.text(sign) in ordered or left.type != right.type:
            yield swapped(source, left, right)


def swap_comparison(source: ParsedSource, node: Node, chance: Random) -> Edits:
    """Exchange the sides of an ordering or a membership test."""
    signs = [s for s in _signs(source, node) if source.text(s) in (*_BOUNDARY, b"in", b"not in")]
    sides = node.named_children
    if len(signs) == 1 and len(sides) == 2 and source.text(sides[0]) != source.text(sides[1]):
        yield swapped(source, sides[0], sides[1])


def boundary_comparison(source: ParsedSource, node: Node, chance: Random) -> Edits:
    """Include or leave out the boundary."""
    for sign in _signs(source, node):
        if source.text(sign) in _BOUNDARY:
            yield replaced(sign, _BOUNDARY[source.text(sign)])


def negate_comparison(source: ParsedSource, node: Node, chance: Random) -> Edits:
    """Test for the opposite."""
    for sign in _signs(source, node):
        if source.text(sign) in _OPPOSITE:
            yield replaced(sign, _OPPOSITE[source.text(sign)])


def identity_to_equality(source: ParsedSource, node: Node, chance: Random) -> Edits:
    """Compare values where identity is meant."""
    for sign in _signs(source, node):
        if source.text(sign) in _KIN:
            yield replaced(sign, _KIN[source.text(sign)])


def change_boolean(source: ParsedSource, node: Node, chance: Random) -> Edits:
    """Exchange `and` and `or`."""
    sign = node.child_by_field_name("operator")
    if sign is not None:
        yield replaced(sign, b"or" if source.text(sign) == b"and" else b"and")


def drop_condition_part(source: ParsedSource, node: Node, chance: Random) -> Edits:
    """Forget one side of `and` or `or`."""
    left, right = operands(node)
    if left is not None and right is not None:
        yield replaced(node, source.text(left))
        yield replaced(node, source.text(right))


def drop_not(source: ParsedSource, node: Node, chance: Random) -> Edits:
    """Forget a `not`."""
    inner = node.child_by_field_name("argument")
    if inner is not None:
        yield replaced(node, source.text(inner))


def change_constant(source: ParsedSource, node: Node, chance: Random) -> Edits:
    """Another number, the other truth value, an empty string for a full one."""
    text = source.text(node)
    if node.type == "integer":
        try:
            value = int(text, 0)
        except ValueError:
            return
        if node.parent is not None and node.parent.type == "slice":
            return
        for other in (value + 1, value - 1 if value else -1, 0 if value > 1 else value + 2):
            yield replaced(node, b"%d" % other)
    elif node.type == "float":
        yield replaced(node, text + b" + 1")
    elif node.type in ("true", "false"):
        yield replaced(node, b"False" if node.type == "true" else b"True")
    elif node.type == "string" and len(text) > 2 and node.named_child_count == 3 and b'"""' not in text:
        yield replaced(node, text[:1] * 2 if text[:1] in b"\"'" else text[: text.index(text[-1:]) + 1] + text[-1:])


def off_by_one(source: ParsedSource, node: Node, chance: Random) -> Edits:
    """One more or one less at a slice's bound, an index, or the bound of a range."""
    if node.type == "slice":
        for bound in node.named_children:
            yield replaced(bound, _shifted(source.text(bound), 1))
            yield replaced(bound, _shifted(source.text(bound), -1))
    elif node.type == "subscript":
        index = node.child_by_field_name("subscript")
        if index is not None and (index.type in ("integer", "binary_operator", "unary_operator")):
            yield replaced(index, _shifted(source.text(index), 1))
    elif node.type == "call":
        function, arguments = node.child_by_field_name("function"), node.child_by_field_name("arguments")
        if function is not None and arguments is not None and source.text(function) == b"range":
            for bound in arguments.named_children:
                if bound.type not in ("comment", "list_splat"):
                    yield replaced(bound, _shifted(source.text(bound), 1))
                    yield replaced(bound, _shifted(source.text(bound), -1))


def _shifted(text: bytes, by: int) -> bytes:
    bare = text.replace(b"_", b"")
    if bare.lstrip(b"-").isdigit():
        return b"%d" % (int(bare) + by)
    if by == 1 and text.endswith(b" - 1"):
        return text[:-4]
    if by == -1 and text.endswith(b" + 1"):
        return text[:-4]
    return b"%s %s 1" % (text, b"+" if by > 0 else b"-")


def break_chain(source: ParsedSource, node: Node, chance: Random) -> Edits:
    """Leave out one link of a chain of calls."""
    function = node.child_by_field_name("function")
    if function is None or function.type != "attribute":
        return
    inner = function.child_by_field_name("object")
    if inner is not None and inner.type == "call":
        yield replaced(node, source.text(inner))


def swap_arguments(source: ParsedSource, node: Node, chance: Random) -> Edits:
    """Exchange two adjacent arguments of like kind."""
    kinds = ("identifier", "integer", "string", "attribute", "call")
    found = [c for c in node.named_children if c.type != "comment"]
    for one, other in pairwise(found):
        if one.type == other.type and one.type in kinds and source.text(one) != source.text(other):
            yield swapped(source, one, other)


def drop_keyword(source: ParsedSource, node: Node, chance: Random) -> Edits:
    """Forget a keyword argument."""
    found = [c for c in node.named_children if c.type != "comment"]
    for position, argument in enumerate(found):
        if argument.type == "keyword_argument":
            if position + 1 < len(found):
                yield (Edit(argument.start_byte, found[position + 1].start_byte, b""),)
            elif position:
                yield (Edit(found[position - 1].end_byte, argument.end_byte, b""),)
            else:
                yield replaced(argument, b"")


def lost_copy(source: ParsedSource, node: Node, chance: Random) -> Edits:
    """Share what was to be copied: `x.copy()`, `list(x)`, `x[:]` become `x`."""
    if node.type == "subscript":
        value, index = node.child_by_field_name("value"), node.child_by_field_name("subscript")
        if value is not None and index is not None and source.text(index).strip() == b":":
            yield replaced(node, source.text(value))
        return
    function, arguments = node.child_by_field_name("function"), node.child_by_field_name("arguments")
    if function is None or arguments is None:
        return
    given = arguments.named_children
    if function.type == "attribute" and not given and source.text(function).endswith(b".copy"):
        inner = function.child_by_field_name("object")
        if inner is not None:
            yield replaced(node, source.text(inner))
    elif source.text(function) in (b"list", b"dict", b"set", b"tuple", b"copy", b"deepcopy", b"copy.copy"):
        if len(given) == 1 and given[0].type in ("identifier", "attribute", "subscript"):
            yield replaced(node, source.text(given[0]))


def swap_branches(source: ParsedSource, node: Node, chance: Random) -> Edits:
    """Exchange the two values of a conditional expression."""
    parts = [c for c in node.named_children if c.type != "comment"]
    if len(parts) == 3 and source.text(parts[0]) != source.text(parts[2]):
        yield swapped(source, parts[0], parts[2])


OPERATORS = (
    Operator("change-operator", ("binary_operator", "augmented_assignment"), change_operator,
             (("x = a + b\n", "x = a - b\n"), ("a += 1\n", "a -= 1\n")), "SWE-smith"),
    Operator("swap-operands", ("binary_operator",), swap_operands, (("x = a - b\n", "x = b - a\n"),), "SWE-smith"),
    Operator("swap-comparison", ("comparison_operator",), swap_comparison,
             (("x = a < b\n", "x = b < a\n"),), "SWE-smith"),
    Operator("boundary-comparison", ("comparison_operator",), boundary_comparison,
             (("x = a < b\n", "x = a <= b\n"), ("x = a >= b\n", "x = a > b\n")), "mistakes"),
    Operator("negate-comparison", ("comparison_operator",), negate_comparison,
             (("x = a == b\n", "x = a != b\n"), ("x = a not in b\n", "x = a in b\n")), "mistakes"),
    Operator("identity-to-equality", ("comparison_operator",), identity_to_equality,
             (("x = a is b\n", "x = a == b\n"),), "mistakes"),
    Operator("change-boolean", ("boolean_operator",), change_boolean, (("x = a and b\n", "x = a or b\n"),), "mistakes"),
    Operator("drop-condition-part", ("boolean_operator",), drop_condition_part,
             (("x = a and b\n", "x = a\n"), ("x = a or b\n", "x = b\n")), "mistakes"),
    Operator("drop-not", ("not_operator",), drop_not, (("x = not a\n", "x = a\n"),), "mistakes"),
    Operator("change-constant", ("integer", "float", "true", "false", "string"), change_constant,
             (("x = 3\n", "x = 4\n"), ("x = True\n", "x = False\n"), ("x = 'a'\n", "x = ''\n")), "SWE-smith"),
    Operator("off-by-one", ("slice", "subscript", "call"), off_by_one,
             (("x = a[1:n]\n", "x = a[2:n]\n"), ("for i in range(n): f(i)\n", "for i in range(n - 1): f(i)\n"),
              ("x = a[: n - 1]\n", "x = a[: n]\n")), "mistakes"),
    Operator("break-chain", ("call",), break_chain, (("x = a.b().c()\n", "x = a.b()\n"),), "SWE-smith"),
    Operator("swap-arguments", ("argument_list",), swap_arguments, (("f(a, b)\n", "f(b, a)\n"),), "mistakes"),
    Operator("drop-keyword", ("argument_list",), drop_keyword,
             (("f(a, k=1)\n", "f(a)\n"), ("f(k=1, m=2)\n", "f(m=2)\n")), "mistakes"),
    Operator("lost-copy", ("call", "subscript"), lost_copy,
             (("x = list(a)\n", "x = a\n"), ("x = a[:]\n", "x = a\n"), ("x = a.copy()\n", "x = a\n")), "mistakes"),
    Operator("swap-branch-values", ("conditional_expression",), swap_branches,
             (("x = a if c else b\n", "x = b if c else a\n"),), "mistakes"),
)  # fmt: skip
