"""Represent a call of a function with literal arguments as an expression and the imports that it needs."""

from __future__ import annotations

import keyword
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pytest_ssr.suggestions.functions import Function, FunctionKind
from pytest_ssr.suggestions.literals import Literal, imports_of, source_of

_OPERATORS = {
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

    @property
    def imports(self) -> str:
        """The statement that imports the function or the class."""
        return f"from {self.module} import {(self.owner or self.function.name).partition('.')[0]}"

    @property
    def value_imports(self) -> frozenset[str]:
        """The statements that import what the arguments need, such as `import datetime`."""
        return frozenset().union(*(imports_of(argument.value) for argument in (*self.init, *self.given)))

    @property
    def subject(self) -> str:
        """What the call is of: the function, or the class whose `__init__` it is."""
        name = self.owner if self.function.kind is FunctionKind.INIT else self.function.name
        return name.rpartition(".")[2].strip("_")

    @property
    def expression(self) -> str:
        """The call as source."""
        function = self.function
        arguments = _arguments(self.given, function.defaults, function.positional_only)
        if function.kind is FunctionKind.FUNCTION:
            return f"{function.name}({arguments})"
        if function.kind in (FunctionKind.STATIC, FunctionKind.CLASS):
            return f"{self.owner}.{function.name}({arguments})"
        instance = f"{self.owner}({_arguments(self.init, self.defaults, frozenset())})"
        if function.kind is FunctionKind.INIT:
            return instance
        if function.kind is FunctionKind.PROPERTY:
            return f"{instance}.{function.name}"
        if function.name in _OPERATORS:
            values = [source_of(argument.value) for argument in self.given]
            return _OPERATORS[function.name].format(instance, *values, "", "", arguments=arguments)
        return f"{instance}.{function.name}({arguments})"


def _arguments(given: Sequence[Argument], defaults: Mapping[str, Literal], positional_only: frozenset[str]) -> str:
    """Return arguments as source, without those that equal their default."""
    after_these = any(a.kind == "*" and a.value for a in given)
    last = max(
        (n for n, a in enumerate(given) if a.name in positional_only and not _is_default(a, defaults)), default=-1
    )
    shown: list[str] = []
    for number, argument in enumerate(given):
        if argument.kind == "*":
            shown += map(source_of, argument.value) if isinstance(argument.value, tuple) else ()
        elif argument.kind == "**":
            pairs = argument.value.items() if isinstance(argument.value, dict) else ()
            shown += [f"{name}={source_of(value)}" for name, value in pairs]
        elif argument.kind == "" and (after_these or number <= last or argument.name not in defaults):
            shown.append(source_of(argument.value))
        elif not _is_default(argument, defaults):
            shown.append(f"{argument.name}={source_of(argument.value)}")
    return ", ".join(shown)


def _is_default(argument: Argument, defaults: Mapping[str, Literal]) -> bool:
    if argument.name not in defaults:
        return False
    default = defaults[argument.name]
    return type(default) is type(argument.value) and default == argument.value


def is_dotted_name(text: object) -> bool:
    """Return whether a text, which is not trusted, is a name or several with dots between them."""
    parts = text.split(".") if isinstance(text, str) and len(text) <= 200 else [""]
    return all(part.isidentifier() and not keyword.iskeyword(part) for part in parts)
