"""Represent calls of a function as expressions and the imports that they need.

A `Call` has the arguments that a test used, or others; a `Phrase` is an expression that stands in a test or an example.
"""

from __future__ import annotations

import ast
import keyword
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from pytest_ssr.suggestions.expressions import literals_in
from pytest_ssr.suggestions.functions import Function, FunctionKind
from pytest_ssr.suggestions.literals import Expression, Literal, imports_of, source_of

OPERATORS = {
    "__len__": "len({0})",
    "__str__": "str({0})",
    "__repr__": "repr({0})",
    "__bool__": "bool({0})",
    "__int__": "int({0})",
    "__float__": "float({0})",
    "__abs__": "abs({0})",
    "__iter__": "list({0})",
    "__getitem__": "{0}[{1}]",
    "__contains__": "{1} in {0}",
    "__eq__": "{0} == {1}",
    "__ne__": "{0} != {1}",
    "__lt__": "{0} < {1}",
    "__le__": "{0} <= {1}",
    "__gt__": "{0} > {1}",
    "__ge__": "{0} >= {1}",
    "__call__": "{0}({arguments})",
}


@dataclass(frozen=True, slots=True)
class Argument:
    """The value of one parameter."""

    name: str
    kind: str
    """As in a signature: `*`, `**`, `k` for a keyword-only parameter, otherwise empty."""
    value: Literal


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a function."""

    function: Function
    module: str
    """The module to import the function from, or the class that has it."""
    owner: str
    """The name of the class, with dots; empty for a function of a module."""
    init: tuple[Argument, ...]
    """What the instance is made with, if there is one."""
    given: tuple[Argument, ...]
    defaults: Mapping[str, Literal]
    """Defaults of the parameters in `init`."""
    steps: int = 0
    """How many of the values differ from those that a test used."""
    oddness: int = 0
    """How many of these are unusual; see `oddness_of`."""

    @property
    def imports(self) -> frozenset[str]:
        """The statements that import the function or the class, and what the arguments need."""
        own = import_of(self.module, self.owner or self.function.name)
        return frozenset((own,)).union(*(imports_of(argument.value) for argument in (*self.init, *self.given)))

    @property
    def is_private(self) -> bool:
        """Whether a part of the name, or of the module's, has a leading underscore."""
        return _is_private([*self.module.split("."), *self.owner.split("."), self.function.name])

    @property
    def named_values(self) -> list[tuple[str, Literal]]:
        """The arguments that are not defaults."""
        both = (*self.init, *self.given)
        return [(a.name, a.value) for a in both if self.function.defaults.get(a.name) != a.value]

    @property
    def subject(self) -> str:
        """What the call is of: the function, or the class whose `__init__` it is."""
        return _subject(self.owner if self.function.kind is FunctionKind.INIT else self.function.name)

    @property
    def expression(self) -> str:
        """The call as source."""
        function = self.function
        arguments = arguments_source(self.given, function.defaults, function.positional_only)
        if function.kind is FunctionKind.FUNCTION:
            return f"{function.name}({arguments})"
        if function.kind in (FunctionKind.STATIC, FunctionKind.CLASS):
            return f"{self.owner}.{function.name}({arguments})"
        instance = f"{self.owner}({arguments_source(self.init, self.defaults, frozenset())})"
        if function.kind is FunctionKind.INIT:
            return instance
        if function.kind is FunctionKind.PROPERTY:
            return f"{instance}.{function.name}"
        if function.name in OPERATORS:
            values = [source_of(argument.value) for argument in self.given]
            return OPERATORS[function.name].format(instance, *values, "", "", arguments=arguments)
        return f"{instance}.{function.name}({arguments})"


@dataclass(frozen=True, slots=True)
class Phrase:
    """An expression that calls a function, perhaps with others around it."""

    function: Function
    content: Expression
    steps: int = 0
    """How many of its literals differ from those that were written."""
    oddness: int = 0
    """How many of these are unusual."""

    @property
    def imports(self) -> frozenset[str]:
        """The import statements that the expression needs."""
        return self.content.imports

    @property
    def named_values(self) -> list[tuple[str, Literal]]:
        """Its numbers and texts, without names."""
        return [("", v) for v in literals_in(self.content) if v and type(v) in (int, float, str)]

    @property
    def is_private(self) -> bool:
        """Whether a name in it has a leading underscore."""
        return _is_private(re.findall(r"\w+", " ".join(self.imports)) + names_in(self.content))

    @property
    def subject(self) -> str:
        """The function, or the class whose special method it is."""
        names = self.function.names
        return _subject(names[-2] if len(names) > 1 and names[-1].startswith("__") else names[-1])

    @property
    def expression(self) -> str:
        """The source."""
        return self.content.source


AnyCall: TypeAlias = Call | Phrase


def import_of(module: str, name: str) -> str:
    """Return the statement that imports the first part of a dotted name."""
    return f"from {module} import {name.partition('.')[0]}"


def split_instance(expression: str) -> tuple[str, str]:
    """Return the source of the instance on which an expression calls a method, and the rest; both empty without one."""
    try:
        node = ast.parse(expression, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return "", ""
    is_method = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    instance = node.func.value if is_method else None  # type: ignore[attr-defined] # as above
    if not isinstance(instance, ast.Call) or instance.end_col_offset is None or node.end_lineno != 1:
        return "", ""
    source = expression.encode()
    return source[: instance.end_col_offset].decode(), source[instance.end_col_offset :].decode()


def names_in(expression: Expression) -> list[str]:
    """Return the names and the attributes that an expression mentions."""
    nodes = list(ast.walk(ast.parse(expression.source, mode="eval")))
    return [n.id for n in nodes if isinstance(n, ast.Name)] + [n.attr for n in nodes if isinstance(n, ast.Attribute)]


def _is_private(names: Iterable[str]) -> bool:
    return any(name.startswith("_") and not name.endswith("__") for name in names)


def _subject(name: str) -> str:
    return name.rpartition(".")[2].strip("_")


def arguments_source(
    given: Sequence[Argument], defaults: Mapping[str, Literal], positional_only: frozenset[str]
) -> str:
    """Return arguments as source, without those that equal their default.

    given: in any order, such as that of the interpreter, which has keyword-only parameters before `*args`.
    """
    after_these = any(a.kind == "*" and a.value for a in given)
    last = max(
        (n for n, a in enumerate(given) if a.name in positional_only and not _is_default(a, defaults)), default=-1
    )
    shown: list[str] = []
    named: list[str] = []
    for number, argument in enumerate(given):
        if argument.kind == "*":
            shown += map(source_of, argument.value) if isinstance(argument.value, tuple) else ()
        elif argument.kind == "**":
            pairs = argument.value.items() if isinstance(argument.value, dict) else ()
            named += [f"{name}={source_of(value)}" for name, value in pairs]
        elif argument.kind == "" and (after_these or number <= last or argument.name not in defaults):
            shown.append(source_of(argument.value))
        elif not _is_default(argument, defaults):
            named.append(f"{argument.name}={source_of(argument.value)}")
    return ", ".join((*shown, *named))


def _is_default(argument: Argument, defaults: Mapping[str, Literal]) -> bool:
    if argument.name not in defaults:
        return False
    default = defaults[argument.name]
    return type(default) is type(argument.value) and default == argument.value


def is_dotted_name(text: object) -> bool:
    """Return whether a text, which is not trusted, is a name or several with dots between them."""
    parts = text.split(".") if isinstance(text, str) and len(text) <= 200 else [""]
    return all(part.isidentifier() and not keyword.iskeyword(part) for part in parts)
