"""Operators on values: arithmetic, constants, and bounds that are one off."""

from __future__ import annotations

from random import Random

from tree_sitter import Node

from pytest_ssr.injectors.operators.operator import Edits, Operator, operands, replaced, swapped
from pytest_ssr.source.syntax_tree import ParsedSource

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
_ORDERED = (b"-", b"/", b"//", b"%", b"**", b"<<", b">>")


def change_operator(source: ParsedSource, node: Node, rng: Random) -> Edits:
    """Change an arithmetic or bit operator; not on strings, on which it could only crash."""
    left, right = operands(node)
    if left is None or right is None or b"string" in (left.type.encode(), right.type.encode()):
        return
    table = _AUGMENTED if node.type == "augmented_assignment" else _ARITHMETIC
    for sign in [c for c in node.children if not c.is_named]:
        if source.text(sign) in table:
            yield replaced(sign, table[source.text(sign)])


def swap_operands(source: ParsedSource, node: Node, rng: Random) -> Edits:
    """Exchange the operands of an operator for which their order matters."""
    left, right = operands(node)
    sign = node.child_by_field_name("operator")
    if left is None or right is None or sign is None or source.text(left) == source.text(right):
        return
    if source.text(sign) in _ORDERED or left.type != right.type:
        yield swapped(source, left, right)


def change_constant(source: ParsedSource, node: Node, rng: Random) -> Edits:
    """Change a number, invert a truth value, empty a string or fill an empty one."""
    text = source.text(node)
    if node.type == "integer":
        yield from _other_integers(node, text)
    elif node.type == "float":
        try:
            value = float(text)
        except ValueError:
            return
        for other in (value + 1, 0.0):
            yield replaced(node, repr(other).encode())
    elif node.type in ("true", "false"):
        yield replaced(node, b"False" if node.type == "true" else b"True")
    elif node.type == "string" and b'"""' not in text and b"'''" not in text:
        start, end = node.children[0], node.children[-1]
        full = start.end_byte < end.start_byte
        yield replaced(node, source.text(start) + (b"" if full else b" ") + source.text(end))


def _other_integers(node: Node, text: bytes) -> Edits:
    if node.parent is not None and node.parent.type == "slice":
        return
    try:
        value = int(text, 0)
    except ValueError:
        return
    for other in dict.fromkeys((value + 1, value - 1, 0, 1, -1)):
        if other != value:
            yield replaced(node, b"%d" % other)


def off_by_one(source: ParsedSource, node: Node, rng: Random) -> Edits:
    """Add or subtract one at a slice's bound, an index, or the bound of a range."""
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


OPERATORS = (
    Operator("change-operator", ("binary_operator", "augmented_assignment"), change_operator,
             (("x = a + b\n", "x = a - b\n"), ("a += 1\n", "a -= 1\n")), "SWE-smith"),
    Operator("swap-operands", ("binary_operator",), swap_operands, (("x = a - b\n", "x = b - a\n"),), "SWE-smith"),
    Operator("change-constant", ("integer", "float", "true", "false", "string"), change_constant,
             (("x = 3\n", "x = 4\n"), ("x = 3\n", "x = 0\n"), ("x = 1.5\n", "x = 2.5\n"), ("x = True\n", "x = False\n"),
              ("x = b'a'\n", "x = b''\n"), ("x = ''\n", "x = ' '\n")), "SWE-smith"),
    Operator("off-by-one", ("slice", "subscript", "call"), off_by_one,
             (("x = a[1:n]\n", "x = a[2:n]\n"), ("for i in range(n): f(i)\n", "for i in range(n - 1): f(i)\n"),
              ("x = a[: n - 1]\n", "x = a[: n]\n"), ("x = a[0]\n", "x = a[1]\n")), "mistakes"),
)  # fmt: skip
