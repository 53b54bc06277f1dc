"""Make the smallest body of a function with which its module can still be imported and its callers can call it.

The result of a decorator must be callable, and what a class calls during its definition must work; otherwise the
modules that use them fail at import, and every test with them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from tree_sitter import Node

from pytest_ssr.injectors.protocol import SourceTree
from pytest_ssr.source.bindings import local_names, own_nodes
from pytest_ssr.source.syntax_tree import ParsedSource

_RESULTS = {
    b"__enter__": b"return self",
    b"__aenter__": b"return self",
    b"__aiter__": b"return self",
    b"__iter__": b"return iter(())",
    b"__reversed__": b"return iter(())",
    b"__get__": b"return self",
    b"__class_getitem__": b"return self",
    b"__prepare__": b"return {}",
    b"__subclasshook__": b"return NotImplemented",
    b"__instancecheck__": b"return False",
    b"__subclasscheck__": b"return False",
    b"__eq__": b"return NotImplemented",
    b"__ne__": b"return NotImplemented",
    b"__lt__": b"return NotImplemented",
    b"__le__": b"return NotImplemented",
    b"__gt__": b"return NotImplemented",
    b"__ge__": b"return NotImplemented",
    b"__hash__": b"return 0",
    b"__len__": b"return 0",
    b"__index__": b"return 0",
    b"__int__": b"return 0",
    b"__float__": b"return 0.0",
    b"__bool__": b"return False",
    b"__str__": b"return ''",
    b"__repr__": b"return ''",
    b"__format__": b"return ''",
    b"__bytes__": b"return b''",
    b"__dir__": b"return []",
}
_CHAINED = frozenset((b"__init__", b"__new__", b"__init_subclass__", b"__set_name__", b"__post_init__"))
_DECORATION = re.compile(rb"^[ \t]*@[ \t]*([A-Za-z_][\w.]*)[ \t]*(\(?)", re.MULTILINE)
_TOP_LINE = re.compile(rb"^[A-Za-z_][^\n]*", re.MULTILINE)
_HEAD = re.compile(rb"^(?:async )?def \w+|^class \w+")
_CALL = re.compile(rb"(\.?)\b([A-Za-z_]\w*)\(")


@dataclass(frozen=True, slots=True)
class ImportUse:
    """Names of functions that run while modules are imported, whatever module they belong to."""

    bare: frozenset[bytes] = frozenset()
    """Used as `@name`."""
    called: frozenset[bytes] = frozenset()
    """Used as `@name(...)`."""
    functions: frozenset[bytes] = frozenset()
    """Called on the top level of a module, with or without a dot before the name."""
    methods: frozenset[bytes] = frozenset()
    """Called there with a dot before the name."""


NOTHING_USED = ImportUse()


def import_use(tree: SourceTree) -> ImportUse:
    """Read all Python files of the tree once; whatever looks like a call on a top-level line counts as one."""
    bare: set[bytes] = set()
    called: set[bytes] = set()
    functions: set[bytes] = set()
    methods: set[bytes] = set()
    for path in tree.paths():
        if not path.endswith(".py"):
            continue
        try:
            data = tree.read(path)
        except OSError:
            continue
        for name, call in _DECORATION.findall(data):
            (called if call else bare).add(name.rpartition(b".")[2])
        for line in _TOP_LINE.findall(data):
            for dot, name in _CALL.findall(_HEAD.sub(b"", line)):
                functions.add(name)
                if dot:
                    methods.add(name)
    return ImportUse(frozenset(bare), frozenset(called), frozenset(functions), frozenset(methods))


def called_on_import(source: ParsedSource) -> frozenset[bytes]:
    """Return the names that a module calls outside its functions: in class bodies, conditions and defaults."""
    names: set[bytes] = set()
    stack = [source.root]
    while stack:
        node = stack.pop()
        if node.type == "call":
            function = node.child_by_field_name("function")
            if function is not None and function.type == "identifier":
                names.add(source.text(function))
        elif node.type == "if_statement" and b"__name__" in source.text(node.named_children[0]):
            continue
        body = node.child_by_field_name("body") if node.type in ("function_definition", "lambda") else None
        stack.extend(c for c in node.named_children if c != body)
    return frozenset(names)


def stub_body(source: ParsedSource, function: Node, logic: list[Node], use: ImportUse) -> list[bytes] | None:
    """Return the lines of the smallest body; None if the body must stay for the module to be imported."""
    name_node = function.child_by_field_name("name")
    name = source.text(name_node) if name_node is not None else b""
    own = list(own_nodes(function))
    decorators = decorators_of(source, function)
    if decorators & {b"contextmanager", b"asynccontextmanager"}:
        return [b"yield"]
    if any(n.type == "yield" for n in own):
        return [b"return", b"yield"]
    method = _is_method(function)
    parameters = _positional(source, function)
    if name == b"__getattr__" and not method and parameters:
        return [b"raise AttributeError(" + parameters[0][0] + b")"]
    if method and not decorators & {b"staticmethod"}:
        if name in _CHAINED:
            return [_chained(source, function, logic, name, parameters)]
        if name in (b"__getattr__", b"__getattribute__", b"__getitem__", b"__missing__") and len(parameters) > 1:
            kind = b"KeyError" if name in (b"__getitem__", b"__missing__") else b"AttributeError"
            return [b"raise " + kind + b"(" + parameters[1][0] + b")"]
        if name in _RESULTS and parameters:
            return [_RESULTS[name].replace(b"return self", b"return " + parameters[0][0])]
        parameters = parameters[1:]
    if name in use.bare | use.called and not method:
        return [_decorator(name, parameters, use)]
    if name in (use.methods if method else use.functions):
        return None
    returns = any(n.type == "return_statement" and n.named_child_count for n in own)
    return [b"return None" if returns else b"pass"]


def decorators_of(source: ParsedSource, function: Node) -> frozenset[bytes]:
    """Return the last parts of the names of a function's decorators: `wraps` for `@functools.wraps(f)`."""
    parent = function.parent
    if parent is None or parent.type != "decorated_definition":
        return frozenset()
    texts = [source.text(c)[1:].partition(b"(")[0].strip() for c in parent.children if c.type == "decorator"]
    return frozenset(t.rpartition(b".")[2] for t in texts)


def _is_method(function: Node) -> bool:
    outer = function.parent
    if outer is not None and outer.type == "decorated_definition":
        outer = outer.parent
    while outer is not None and outer.type in ("block", "if_statement", "else_clause", "elif_clause"):
        outer = outer.parent
    return outer is not None and outer.type == "class_definition"


def _positional(source: ParsedSource, function: Node) -> list[tuple[bytes, bool]]:
    """Return the names of the positional parameters, and whether each has a default."""
    result: list[tuple[bytes, bool]] = []
    parameters = function.child_by_field_name("parameters")
    for child in parameters.named_children if parameters is not None else ():
        name = child.child_by_field_name("name") or child
        if name.type == "typed_parameter" and name.named_children:
            name = name.named_children[0]
        if name.type in ("list_splat_pattern", "dictionary_splat_pattern", "keyword_separator"):
            break
        if name.type == "identifier":
            result.append((source.text(name), child.child_by_field_name("value") is not None))
    return result


def _decorator(name: bytes, parameters: list[tuple[bytes, bool]], use: ImportUse) -> bytes:
    """Return the body of a decorator that does nothing, for the ways in which it is used."""
    if not parameters or (name in use.called and name not in use.bare and not parameters[0][1]):
        return b"return lambda decorated: decorated"
    first, optional = parameters[0]
    if name in use.called and optional:
        return b"return (lambda decorated: decorated) if " + first + b" is None else " + first
    return b"return " + first if name in use.bare else b"return lambda decorated: decorated"


def _chained(
    source: ParsedSource, function: Node, logic: list[Node], name: bytes, parameters: list[tuple[bytes, bool]]
) -> bytes:
    """Keep the call of the base class if it needs nothing that is removed."""
    base_call = next(_base_calls(source, function, logic, name), None)
    if name != b"__new__":
        return source.text(base_call) if base_call is not None else b"pass"
    if base_call is not None:
        return b"return " + source.text(base_call)
    if not parameters:
        return b"pass"
    first = parameters[0][0]
    rest = parameters if first in (b"mcs", b"mcls", b"meta", b"metacls") or len(parameters) == 4 else parameters[:1]
    return b"return super().__new__(" + b", ".join(n for n, _ in rest) + b")"


def _base_calls(source: ParsedSource, function: Node, logic: list[Node], name: bytes) -> Iterator[Node]:
    names = local_names(source, function)
    starts = logic[0].start_byte
    removed = {n for n, at in names.first_bound.items() if at >= starts}
    for node in own_nodes(function):
        callee = node.child_by_field_name("function") if node.type == "call" else None
        if callee is None or callee.type != "attribute":
            continue
        owner, attribute = callee.child_by_field_name("object"), callee.child_by_field_name("attribute")
        if owner is None or attribute is None or source.text(attribute) != name:
            continue
        if owner.type == "call" and not source.text(owner).startswith(b"super("):
            continue
        if not any(source.text(i) in removed for i in _identifiers(node)):
            yield node


def _identifiers(node: Node) -> Iterator[Node]:
    stack = [node]
    while stack:
        current = stack.pop()
        if current.type == "identifier":
            yield current
        stack.extend(current.named_children)
