"""Find the functions of a file that a test can call by a name, and the literals in them."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from pytest_ssr.source.parsing import parse_module
from pytest_ssr.suggestions.literals import Literal, is_literal

_Definition = ast.FunctionDef | ast.AsyncFunctionDef


class FunctionKind(StrEnum):
    """How a function is called."""

    FUNCTION = "function"
    METHOD = "method"
    STATIC = "static"
    CLASS = "class"
    PROPERTY = "property"
    INIT = "init"
    """`__init__`, which is called by a call of its class."""


@dataclass(frozen=True, slots=True)
class Function:
    """A function of a module, or of a class in it."""

    path: str
    names: tuple[str, ...]
    """The classes it lies in, outermost first, and its own name."""
    kind: FunctionKind
    first: int
    """Its first line, decorators included."""
    last: int
    defaults: Mapping[str, Literal] = field(default_factory=dict, compare=False)
    """Parameter to its default, if that is a literal."""
    positional_only: frozenset[str] = frozenset()
    required: tuple[str, ...] = field(default=(), compare=False)
    """Parameters without a default, except the instance or the class; keyword-only ones end in `=`."""

    @property
    def name(self) -> str:
        """Its own name."""
        return self.names[-1]

    @property
    def is_public(self) -> bool:
        """Whether no part of its name, and of its module's, is private."""
        parts = (*self.path.removesuffix(".py").split("/"), *self.names)
        return not any(part.startswith("_") and not part.endswith("__") for part in parts)


def functions_of(path: str, source: bytes) -> tuple[Function, ...]:
    """Return the functions of a file that are not inside other functions; none if it cannot be parsed."""
    tree = _parsed(source)
    return tuple(_functions(path, tree.body, ())) if tree is not None else ()


def function_at(path: str, source: bytes, line: int) -> Function | None:
    """Return the function that holds a line; None outside of functions."""
    return next((f for f in functions_of(path, source) if f.first <= line <= f.last), None)


def raises_at(source: bytes, line: int) -> bool:
    """Return whether a statement `raise` is on a line: an exception from there is deliberate."""
    tree = _parsed(source)
    nodes = ast.walk(tree) if tree is not None else ()
    return any(isinstance(n, ast.Raise) and n.lineno <= line <= (n.end_lineno or n.lineno) for n in nodes)


def constants_in(source: bytes, lines: Sequence[int], function: Function) -> list[Literal]:
    """Return the literals of a function in a version of its file: those on the given lines first, without repeats."""
    tree = _parsed(source)
    same = [f for f in functions_of(function.path, source) if f.names == function.names]
    if tree is None or not same:
        return []
    first, last = same[0].first, same[0].last
    nodes = [n for n in ast.walk(tree) if isinstance(n, ast.Constant) and first <= n.lineno <= last]
    found = [(n.lineno not in lines, n.lineno, n.value) for n in nodes if is_literal(n.value)]
    ordered = [value for _, _, value in sorted(found, key=lambda item: item[:2])]
    return list({(type(value), value): value for value in ordered}.values())


def _functions(path: str, body: Sequence[ast.stmt], classes: tuple[str, ...]) -> Iterator[Function]:
    for node in body:
        if isinstance(node, ast.ClassDef):
            yield from _functions(path, node.body, (*classes, node.name))
        elif isinstance(node, _Definition):
            lines = [node.lineno, *(d.lineno for d in node.decorator_list)]
            last = node.end_lineno or node.lineno
            defaults, only = _defaults(node.args), frozenset(a.arg for a in node.args.posonlyargs)
            kind = _kind(node, classes)
            required = _required(node.args, is_bound=kind not in (FunctionKind.FUNCTION, FunctionKind.STATIC))
            yield Function(path, (*classes, node.name), kind, min(lines), last, defaults, only, required)
        elif isinstance(node, ast.If | ast.Try):
            # Such as a definition for one platform.
            for block in (node.body, node.orelse):
                yield from _functions(path, block, classes)


def _kind(node: _Definition, classes: Sequence[str]) -> FunctionKind:
    if not classes:
        return FunctionKind.FUNCTION
    if node.name == "__init__":
        return FunctionKind.INIT
    names = [d.id if isinstance(d, ast.Name) else d.attr for d in node.decorator_list if isinstance(d, _NAMES)]
    if "staticmethod" in names:
        return FunctionKind.STATIC
    if "classmethod" in names:
        return FunctionKind.CLASS
    if {"property", "cached_property"} & set(names):
        return FunctionKind.PROPERTY
    return FunctionKind.METHOD


def _required(arguments: ast.arguments, *, is_bound: bool) -> tuple[str, ...]:
    positional = [*arguments.posonlyargs, *arguments.args]
    needed = positional[int(is_bound) : len(positional) - len(arguments.defaults)]
    named = [a for a, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if default is None]
    return (*(a.arg for a in needed), *(f"{a.arg}=" for a in named))


_NAMES = (ast.Name, ast.Attribute)


def _defaults(arguments: ast.arguments) -> dict[str, Literal]:
    positional = [*arguments.posonlyargs, *arguments.args]
    pairs = list(zip(reversed(positional), reversed(arguments.defaults), strict=False))
    pairs += [(a, d) for a, d in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if d is not None]
    found = {}
    for argument, default in pairs:
        try:
            value = ast.literal_eval(default)
        except (ValueError, TypeError):
            continue
        if is_literal(value):
            found[argument.arg] = value
    return found


_parsed = functools.lru_cache(maxsize=64)(parse_module)
