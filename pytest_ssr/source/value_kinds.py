"""Infer, from the text of a function alone, which built-in types its local names and expressions have."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Mapping

_Function = ast.FunctionDef | ast.AsyncFunctionDef
_UNDECIDED = "?"
"""The kind of a name whose bindings depend on each other, until the first of them is known."""
_NUMBERS = frozenset(("int", "float", "number"))
_INTEGER_OPERATORS = (ast.Add, ast.Sub, ast.Mult, ast.FloorDiv, ast.Mod, ast.BitAnd, ast.BitOr, ast.BitXor)
_ARITHMETIC = (ast.Add, ast.Sub, ast.Mult)
_CONSTANTS = {int: "int", float: "float", str: "str", bytes: "bytes", bool: "bool"}
_RESULTS = {
    **dict.fromkeys(("len", "ord", "hash", "id", "int"), "int"),
    **dict.fromkeys(("str", "repr", "chr", "hex", "bin", "oct", "ascii", "format"), "str"),
    **{name: name for name in ("float", "bytes", "list", "tuple", "dict", "set", "frozenset", "range", "bool")},
    "sorted": "list",
}
"""The types that calls of built-in functions return."""
BUILTIN_ANNOTATIONS: Mapping[str, str] = {
    **{name: name for name in ("int", "str", "bytes", "list", "tuple", "dict", "set", "frozenset", "bool")},
    # A parameter annotated so may also be an integer.
    "float": "number",
}
"""The kinds of values that have a built-in type as their annotation."""
_COLLECTIONS = ("Sequence", "Mapping", "Collection", "MutableSequence", "MutableMapping")
IMPORTED_ANNOTATIONS: Mapping[str, Mapping[str, str]] = {
    "typing": {
        **{name: name.lower() for name in ("List", "Tuple", "Dict", "Set", "FrozenSet")},
        **dict.fromkeys(_COLLECTIONS, "collection"),
    },
    "collections.abc": dict.fromkeys(_COLLECTIONS, "collection"),
}
"""Those of annotations by module and name."""
_DISPLAYS: dict[type[ast.expr], str] = {
    ast.JoinedStr: "str",
    ast.List: "list",
    ast.ListComp: "list",
    ast.Tuple: "tuple",
    ast.Dict: "dict",
    ast.DictComp: "dict",
    ast.Set: "set",
    ast.SetComp: "set",
}


def is_number(kind: str | None) -> bool:
    """Return whether a kind is that of integers or floating-point numbers."""
    return kind in _NUMBERS


def kind_of(node: ast.expr, kinds: Mapping[str, str | None], builtins: Collection[str]) -> str | None:
    """Return the type of an expression's value: `int`, `number` (int or float), `collection`, ...; None if unknown.

    kinds: those of local names. builtins: the names that have their built-in meaning here.
    """
    if isinstance(node, ast.Constant):
        return _CONSTANTS.get(type(node.value))
    if isinstance(node, ast.Name):
        return kinds.get(node.id)
    if type(node) in _DISPLAYS:
        return _DISPLAYS[type(node)]
    if isinstance(node, ast.IfExp):
        return joined((kind_of(node.body, kinds, builtins), kind_of(node.orelse, kinds, builtins)))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
        kind = kind_of(node.operand, kinds, builtins)
        return kind if is_number(kind) or kind == _UNDECIDED else None
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return "bool"
    if isinstance(node, ast.BinOp):
        return _kind_of_operation(node, kinds, builtins)
    if isinstance(node, ast.Call):
        function = node.func
        if isinstance(function, ast.Name) and function.id in builtins:
            return _RESULTS.get(function.id)
        if isinstance(function, ast.Attribute) and function.attr == "join":
            return kind_of(function.value, kinds, builtins) if isinstance(function.value, ast.Constant) else None
    return None


def _kind_of_operation(node: ast.BinOp, kinds: Mapping[str, str | None], builtins: Collection[str]) -> str | None:
    left, right = kind_of(node.left, kinds, builtins), kind_of(node.right, kinds, builtins)
    if _UNDECIDED in (left, right):
        return _UNDECIDED
    if left == right == "int" and isinstance(node.op, _INTEGER_OPERATORS):
        return "int"
    if is_number(left) and is_number(right):
        if isinstance(node.op, ast.Div) or (isinstance(node.op, _ARITHMETIC) and "float" in (left, right)):
            return "float"
        return "number" if isinstance(node.op, _ARITHMETIC) else None
    if left == "str" and isinstance(node.op, ast.Mod):
        return "str"
    return left if left == right and left in ("str", "bytes", "list") and isinstance(node.op, ast.Add) else None


def joined(kinds: Collection[str | None]) -> str | None:
    """Return the kind that all of several have; undecided ones agree with every other one."""
    known = set(kinds) - {_UNDECIDED}
    if not known:
        return _UNDECIDED
    if len(known) == 1:
        return known.pop()
    return "number" if known <= _NUMBERS else None


def local_kinds(
    function: _Function, names: Collection[str], builtins: Collection[str], annotations: Mapping[str, str]
) -> dict[str, str | None]:
    """Return the kinds of local names of a function, from all that is bound to each of them.

    names: the local names that no nested function uses. annotations: those of known types, as the file writes them.
    """
    bindings = [(name, value) for name, value in _bindings(function, builtins, annotations) if name in names]
    kinds: dict[str, str | None] = {name: _UNDECIDED for name, _ in bindings}
    for _ in range(len(kinds) + 2):
        found: dict[str, list[str | None]] = {}
        for name, value in bindings:
            kind = kind_of(value, kinds, builtins) if isinstance(value, ast.expr) else value
            found.setdefault(name, []).append(kind)
        following = {name: joined(several) for name, several in found.items()}
        if following == kinds:
            return {name: kind for name, kind in kinds.items() if kind != _UNDECIDED}
        kinds = following
    return {}


def _bindings(
    function: _Function, builtins: Collection[str], annotations: Mapping[str, str]
) -> Iterator[tuple[str, ast.expr | str | None]]:
    """Yield each name that a function binds with what is bound to it: an expression, a kind, or None for unknown."""
    arguments = function.args
    positional = [*arguments.posonlyargs, *arguments.args]
    defaults: dict[str, ast.expr | None] = {}
    if arguments.defaults:
        defaults.update(zip((a.arg for a in positional[-len(arguments.defaults) :]), arguments.defaults, strict=True))
    defaults.update(zip((a.arg for a in arguments.kwonlyargs), arguments.kw_defaults, strict=True))
    for argument in (*positional, *arguments.kwonlyargs):
        default = defaults.get(argument.arg)
        kind = _kind_of_annotation(argument.annotation, annotations)
        given = kind_of(default, {}, builtins) if default is not None else kind
        yield argument.arg, kind if given == kind or (is_number(given) and kind == "number") else None
    if arguments.vararg is not None:
        yield arguments.vararg.arg, "tuple"
    if arguments.kwarg is not None:
        yield arguments.kwarg.arg, "dict"
    handled: set[ast.expr] = set()
    for node in ast.walk(function):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    handled.add(target)
                    yield target.id, node.value
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
            handled.add(node.target)
            yield node.target.id, node.value
        elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            handled.add(node.target)
            yield node.target.id, ast.BinOp(ast.Name(node.target.id, ast.Load()), node.op, node.value)
        elif isinstance(node, ast.For):
            yield from _bound_by_loop(node, handled, builtins)
        elif isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load) and node not in handled:
            yield node.id, None
        elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name is not None:
            yield node.name, None
        elif isinstance(node, ast.MatchMapping) and node.rest is not None:
            yield node.rest, None
        elif isinstance(node, ast.alias):
            yield (node.asname or node.name).partition(".")[0], None
        elif isinstance(node, _Function | ast.ClassDef) and node is not function:
            yield node.name, None


def _bound_by_loop(
    loop: ast.For, handled: set[ast.expr], builtins: Collection[str]
) -> Iterator[tuple[str, ast.expr | str | None]]:
    iterated, target = loop.iter, loop.target
    if not isinstance(iterated, ast.Call) or not isinstance(iterated.func, ast.Name):
        return
    name = iterated.func.id
    if name == "enumerate" and isinstance(target, ast.Tuple) and len(iterated.args) == 1 and not iterated.keywords:
        target = target.elts[0]
    elif name != "range":
        return
    if name in builtins and isinstance(target, ast.Name):
        handled.add(target)
        yield target.id, "int"


def _kind_of_annotation(node: ast.expr | None, annotations: Mapping[str, str]) -> str | None:
    """Return the kind of values that have an annotated type."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        try:
            node = ast.parse(node.value, mode="eval").body
        except (SyntaxError, ValueError):
            return None
    if isinstance(node, ast.Subscript):
        node = node.value
    return annotations.get(ast.unparse(node)) if isinstance(node, ast.Name | ast.Attribute) else None
