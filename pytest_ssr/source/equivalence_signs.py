"""Recognise changes that tests can hardly observe: in logging, messages, annotations and similar places.

A sign says where a change lies in the original source, and little of what it does, so it marks a change as *probably*
equivalent. `__str__` counts in exceptions only, because the text of other objects is often their purpose.
How often the signs are right is in `benchmarks/results/2026-11-27-equivalence.md`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from enum import StrEnum
from functools import lru_cache

from tree_sitter import Node

from pytest_ssr.source.changed_spans import Span, changed_spans
from pytest_ssr.source.syntax_tree import ParsedSource, is_docstring, is_main_guard, is_type_checking_guard, parse


class EquivalenceSign(StrEnum):
    """The place of a change that makes it probably equivalent."""

    LOGGING = "logging"
    """Messages for developers: those of failures count as behaviour, and so does what a function for logging does."""
    REPRESENTATION = "repr"
    """The text of an object for developers, or of an exception, as long as it remains a text."""
    MESSAGE = "message"
    """The message of an exception, a warning or an assertion, as long as it remains a text."""
    HELP = "help"
    """The help of a command or of one of its options, as long as it remains a text."""
    TYPE_CHECK = "type-check"
    """A check that fails only for arguments of another type than the annotated one, and is removed."""
    TYPE_CHECKING = "type-checking"
    """Code behind `if TYPE_CHECKING`."""
    ANNOTATION = "annotation"
    """An annotation of a parameter, a return value or a local variable."""
    DOCSTRING = "docstring"
    EXPORTS = "exports"
    """`__all__`."""
    MAIN = "main"
    """Code behind `if __name__ == "__main__"`."""
    IDENTITY = "identity"
    """`is None` that becomes `== None`: they differ only for classes that compare themselves with it."""
    UNORDERED = "unordered"
    """Attributes, methods or operands in another order, which a class that is not known could make matter.

    It lacks a proof (`pytest_ssr.source.equivalence_proofs`), as does LIMIT.
    """
    LIMIT = "limit"
    """A comparison at a number that is the result then, with a value that may be a number of another type."""


_LOGGER = re.compile(rb"(?:.*[._])?log(?:ger|ging)?(?:\(\))?", re.IGNORECASE)
_LOGGING_METHODS = frozenset((b"debug",))
"""`info` is often meant for users: the progress of a command, statistics, that a mail was sent."""
_LOGGING_FUNCTION = re.compile(rb"(?:\w*_)?log(?:s|ged|ger|ging)?(?:_\w*)?", re.IGNORECASE)
_STRING_START = re.compile(rb"\(?\s*[rbfu]{0,2}[\"']", re.IGNORECASE)
_IDENTITY = {b"is": b"==", b"is not": b"!="}
_EXCEPTION = re.compile(rb"\w*(?:Error|Exception|Warning)")
_HELP_TEXTS = frozenset((b"help", b"short_help", b"epilog"))
_HAS_HELP = re.compile(
    rb"(?:add_)?(?:argument(?:_group)?|option|parser|subparsers|command|group)|addoption|addini|ArgumentParser|Option"
    rb"|Argument|Typer",
    re.IGNORECASE,
)
"""Functions of argparse, optparse, click, typer and pytest that take help."""
_HAS_DESCRIPTION = re.compile(rb"add_(?:parser|subparsers|argument_group)|ArgumentParser|OptionParser|OptionGroup")
"""Functions of argparse and optparse; elsewhere, as in `Group(description=...)`, a description is often data."""
_TYPE_ERRORS = frozenset((b"TypeError", b"AssertionError", b"NotImplementedError"))
_CLAUSES = ("else_clause", "elif_clause")


def sign_of(path: str, original: bytes, changed: bytes | None) -> EquivalenceSign | None:
    """Return why a change of a file is probably equivalent: every part of it has a sign, and this is the first.

    None if a part has no sign, if the file is deleted or the same, or if the original cannot be parsed.
    """
    source = _parsed(path, original)
    if source is None or changed is None:
        return None
    first: EquivalenceSign | None = None
    for span in changed_spans(original, changed):
        sign = _sign_of_span(source, span)
        if sign is None:
            return None
        first = first or sign
    return first


@lru_cache(maxsize=128)
def _parsed(path: str, data: bytes) -> ParsedSource | None:
    return parse(path, data)


def _sign_of_span(source: ParsedSource, span: Span) -> EquivalenceSign | None:
    node = source.root.descendant_for_byte_range(span.first, span.last)
    if node is None:
        return None
    sign = _sign_around(source, node, span)
    if sign is not None or span[0] == span[1]:
        return sign
    # The span may cover several whole statements.
    covered = [c for c in node.named_children if c.start_byte < span[1] and c.end_byte > span[0]]
    signs = [_sign_around(source, c, _overlap(c, span)) for c in covered if c.type != "comment"]
    return signs[0] if signs and None not in signs else None


def _overlap(node: Node, span: Span) -> Span:
    return Span(max(span.first, node.start_byte), min(span.last, node.end_byte), span.new)


def _sign_around(source: ParsedSource, node: Node, span: Span) -> EquivalenceSign | None:
    """Return the first sign that a node or one of its ancestors gives."""
    at: Node | None = node
    while at is not None:
        for sign, holds in _RULES:
            if holds(source, at, span):
                return sign
        at = at.parent
    return None


def _is_logging(source: ParsedSource, node: Node, span: Span) -> bool:
    """Return whether a statement does nothing but log: a call, or a compound statement of such calls."""
    return _only_logs(source, node) and not _is_in_logging_function(source, node)


def _is_in_logging_function(source: ParsedSource, node: Node) -> bool:
    """Return whether a function is for logging by its name, such as `_log`; logging is what it does, then."""
    names = (_name(source, n) for n in _ancestors(node) if n.type == "function_definition")
    return any(_LOGGING_FUNCTION.fullmatch(name) for name in names)


def _ancestors(node: Node) -> Iterator[Node]:
    while node.parent is not None:
        node = node.parent
        yield node


def _only_logs(source: ParsedSource, node: Node) -> bool:
    if node.type == "expression_statement":
        return node.named_child_count == 1 and _is_logging_call(source, node.named_children[0])
    if node.type not in ("if_statement", "else_clause", "elif_clause", "for_statement"):
        return False
    blocks = [c for c in node.named_children if c.type == "block"]
    others = [c for c in node.named_children if c.type in _CLAUSES]
    statements = [s for b in blocks for s in b.named_children if s.type != "comment"]
    return bool(statements) and all(_only_logs(source, s) for s in (*statements, *others))


def _is_logging_call(source: ParsedSource, node: Node) -> bool:
    function = node.child_by_field_name("function") if node.type == "call" else None
    if function is None or function.type != "attribute":
        return False
    receiver, method = function.child_by_field_name("object"), function.child_by_field_name("attribute")
    if receiver is None or method is None or source.text(method) not in _LOGGING_METHODS:
        return False
    return _LOGGER.fullmatch(source.text(receiver)) is not None


def _is_representation(source: ParsedSource, node: Node, span: Span) -> bool:
    """Return whether `__repr__` is removed, or a text in it becomes another text; other changes could let it fail."""
    if node.type == "function_definition":
        is_gone = _is_covered(node, span) and not span.new
        return is_gone and _is_representation_name(source, node)
    if not _is_text(node) or not _holds(node, span) or not _stays_text(source, span):
        return False
    function = next((n for n in _ancestors(node) if n.type == "function_definition"), None)
    return function is not None and _is_representation_name(source, function)


def _stays_text(source: ParsedSource, span: Span) -> bool:
    """Return whether a text becomes another one; what is computed for it could fail after the change."""
    at = source.root.descendant_for_byte_range(span.first, span.last)
    for node in (at, *_ancestors(at)) if at is not None else ():
        if node.type == "interpolation":
            return False
        if _is_formatted(source, node) and source.data[span.first : span.last].count(b"%") != span.new.count(b"%"):
            return False
        if node.type == "string":
            is_inside = node.start_byte < span.first and span.last < node.end_byte
            return is_inside or _STRING_START.match(span.new) is not None
        if node.type == "concatenated_string":
            return not span.new or _STRING_START.match(span.new) is not None
    return _STRING_START.match(span.new) is not None


def _is_formatted(source: ParsedSource, node: Node) -> bool:
    """Return whether a text is the left operand of `%`, which fails if the values do not fit."""
    parent = node.parent
    if node.type not in ("string", "concatenated_string") or parent is None or parent.type != "binary_operator":
        return False
    operator = parent.child_by_field_name("operator")
    return parent.child_by_field_name("left") == node and operator is not None and source.text(operator) == b"%"


def _is_representation_name(source: ParsedSource, function: Node) -> bool:
    name = _name(source, function)
    return name == b"__repr__" or (name == b"__str__" and _is_in_exception(source, function))


def _is_covered(node: Node, span: Span) -> bool:
    return span.first <= node.start_byte and node.end_byte <= span.last


def _name(source: ParsedSource, node: Node) -> bytes:
    name = node.child_by_field_name("name")
    return source.text(name) if name is not None else b""


def _is_in_exception(source: ParsedSource, node: Node) -> bool:
    owner = next((n for n in _ancestors(node) if n.type == "class_definition"), None)
    if owner is None:
        return False
    bases = owner.child_by_field_name("superclasses")
    names = [_name(source, owner), *(source.text(b) for b in (bases.named_children if bases else ()))]
    return any(_EXCEPTION.fullmatch(name.rpartition(b".")[2]) for name in names)


def _is_message(source: ParsedSource, node: Node, span: Span) -> bool:
    """Return whether a node is the text of a raised exception, of a warning or of an assertion."""
    parent = node.parent
    if parent is None or not _holds(node, span) or not _stays_text(source, span):
        return False
    if parent.type == "assert_statement":
        return node.prev_named_sibling is not None and parent.named_children[-1] == node
    if node.type == "argument_list" and parent.type == "call" and parent.parent is not None:
        arguments = node.named_children
        return parent.parent.type == "raise_statement" and bool(arguments) and all(map(_is_text, arguments))
    if not _is_text(node):
        return False
    if parent.type == "assignment":
        return _is_raised_later(source, parent)
    call = parent.parent if parent.type == "argument_list" else None
    if call is None or call.type != "call" or call.parent is None:
        return False
    function = call.child_by_field_name("function")
    name = source.text(function) if function is not None else b""
    if name in (b"warnings.warn", b"warn"):
        return parent.named_children[0] == node
    return call.parent.type == "raise_statement"


def _is_help(source: ParsedSource, node: Node, span: Span) -> bool:
    """Return whether a node is the help in a call that declares a command or an option."""
    keyword = node.parent
    call = keyword.parent.parent if keyword is not None and keyword.parent is not None else None
    if keyword is None or keyword.type != "keyword_argument" or call is None or call.type != "call":
        return False
    keyword_name, function = keyword.child_by_field_name("name"), call.child_by_field_name("function")
    if keyword_name is None or function is None:
        return False
    name, called = source.text(keyword_name), source.text(function).rpartition(b".")[2]
    is_help = name in _HELP_TEXTS and _HAS_HELP.fullmatch(called) is not None
    is_description = name == b"description" and _HAS_DESCRIPTION.fullmatch(called) is not None
    return (is_help or is_description) and _is_text(node) and _holds(node, span) and _stays_text(source, span)


def _holds(node: Node, span: Span) -> bool:
    return node.start_byte <= span[0] and span[1] <= node.end_byte


def _is_text(node: Node) -> bool:
    """Return whether an expression builds a text from a literal."""
    if node.type in ("string", "concatenated_string"):
        return True
    if node.type == "parenthesized_expression":
        return any(_is_text(c) for c in node.named_children)
    if node.type == "binary_operator":
        left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
        return (left is not None and _is_text(left)) or (right is not None and _is_text(right))
    function = node.child_by_field_name("function") if node.type == "call" else None
    receiver = function.child_by_field_name("object") if function is not None else None
    return receiver is not None and _is_text(receiver)


def _is_raised_later(source: ParsedSource, assignment: Node) -> bool:
    """Return whether the next statement raises an exception with the assigned name as an argument."""
    name, statement = assignment.child_by_field_name("left"), assignment.parent
    following = statement.next_named_sibling if statement is not None else None
    if name is None or following is None or following.type != "raise_statement" or not following.named_children:
        return False
    arguments = following.named_children[0].child_by_field_name("arguments")
    return arguments is not None and source.text(name) in [source.text(a) for a in arguments.named_children]


def _is_type_check(source: ParsedSource, node: Node, span: Span) -> bool:
    """Return whether a check of a type is replaced as a whole; one that is changed may fail for all types."""
    if not _is_covered(node, span):
        return False
    text = source.text(node)
    if node.type == "assert_statement":
        return text.startswith((b"assert isinstance(", b"assert not isinstance("))
    if node.type == "expression_statement":
        return re.match(rb"(?:typing\.|typing_extensions\.|t\.)?assert_never\(", text) is not None
    if node.type != "raise_statement" or not node.named_children:
        return False
    raised = node.named_children[0]
    raised = raised.child_by_field_name("function") or raised
    return source.text(raised) in _TYPE_ERRORS and _is_after_all_types(source, node)


def _is_after_all_types(source: ParsedSource, node: Node) -> bool:
    """Return whether a branch runs only if a parameter has none of the types of its annotation."""
    block = node.parent
    clause = block.parent if block is not None else None
    if clause is None:
        return False
    if clause.type == "if_statement":
        condition = clause.child_by_field_name("condition")
        match = re.fullmatch(rb"not isinstance\((\w+),\s*(.*)\)", _flat(source, condition))
        return match is not None and _covers(source, clause, match[1], _names(match[2]))
    if clause.type != "else_clause" or clause.parent is None:
        return False
    chain = clause.parent
    checked: dict[bytes, set[bytes]] = {}
    for branch in (chain, *(c for c in chain.named_children if c.type == "elif_clause")):
        match = re.fullmatch(rb"isinstance\((\w+),\s*(.*)\)", _flat(source, branch.child_by_field_name("condition")))
        if match is None:
            return False
        checked.setdefault(match[1], set()).update(_names(match[2]))
    return len(checked) == 1 and all(_covers(source, chain, name, types) for name, types in checked.items())


def _flat(source: ParsedSource, node: Node | None) -> bytes:
    return b" ".join(source.text(node).split()) if node is not None else b""


def _names(text: bytes) -> set[bytes]:
    return {name.rpartition(b".")[2] for name in re.findall(rb"[\w.]+", text)}


def _covers(source: ParsedSource, node: Node, parameter: bytes, types: set[bytes]) -> bool:
    """Return whether the annotation of a parameter of the enclosing function names only these types."""
    function = next((n for n in _ancestors(node) if n.type == "function_definition"), None)
    parameters = function.child_by_field_name("parameters") if function is not None else None
    for declared in parameters.named_children if parameters is not None else ():
        annotation = declared.child_by_field_name("type")
        name = declared.child_by_field_name("name") or (declared.named_children[0] if declared.named_children else None)
        if annotation is None or name is None or source.text(name) != parameter:
            continue
        # A generic type is checked without its arguments.
        outer = re.sub(rb"\[.*?\]", b"", source.text(annotation))
        return _names(outer) <= types
    return False


def _is_behind(guard: Callable[[Node], bool]) -> Callable[[ParsedSource, Node, Span], bool]:
    def holds(source: ParsedSource, node: Node, span: Span) -> bool:
        if not guard(node):
            return False
        body = node.child_by_field_name("consequence")
        return body is not None and _holds(body, span)

    return holds


def _is_annotation(source: ParsedSource, node: Node, span: Span) -> bool:
    """Return whether a node is an annotation inside a function; those of a class may define its fields."""
    if node.type != "type" or not _holds(node, span):
        return False
    scopes = (n.type for n in _ancestors(node) if n.type in ("function_definition", "class_definition"))
    return next(scopes, "") == "function_definition"


def _is_identity(source: ParsedSource, node: Node, span: Span) -> bool:
    if node.type != "comparison_operator" or source.text(node.named_children[-1]) != b"None":
        return False
    old = b" ".join(source.data[span.first : span.last].split())
    return len(node.named_children) == 2 and _IDENTITY.get(old) == span.new


def _is_exports(source: ParsedSource, node: Node, span: Span) -> bool:
    left = node.child_by_field_name("left") if node.type in ("assignment", "augmented_assignment") else None
    return left is not None and source.text(left) == b"__all__"


_RULES: tuple[tuple[EquivalenceSign, Callable[[ParsedSource, Node, Span], bool]], ...] = (
    (EquivalenceSign.DOCSTRING, lambda source, node, span: is_docstring(node)),
    (EquivalenceSign.ANNOTATION, _is_annotation),
    (EquivalenceSign.LOGGING, _is_logging),
    (EquivalenceSign.TYPE_CHECK, _is_type_check),
    (EquivalenceSign.MESSAGE, _is_message),
    (EquivalenceSign.HELP, _is_help),
    (EquivalenceSign.REPRESENTATION, _is_representation),
    (EquivalenceSign.EXPORTS, _is_exports),
    (EquivalenceSign.TYPE_CHECKING, _is_behind(is_type_checking_guard)),
    (EquivalenceSign.MAIN, _is_behind(is_main_guard)),
    (EquivalenceSign.IDENTITY, _is_identity),
)
