"""Call a function that nothing calls: on instances as in examples, with values from the examples of its module."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Mapping, Sequence

from pytest_ssr.suggestions.calls import OPERATORS, Phrase, import_of
from pytest_ssr.suggestions.examples import module_name
from pytest_ssr.suggestions.expressions import literals_in
from pytest_ssr.suggestions.functions import Function, FunctionKind, functions_of
from pytest_ssr.suggestions.literals import Expression, Literal, source_of

_MOST_CALLS, _MOST_INSTANCES, _MOST_VALUES = 60, 4, 12
_MOST_PARAMETERS = 2
_PLAIN: tuple[Literal, ...] = (1, 2, "a", [1, 2])
"""Values to try if no example has any."""


def invented_calls(function: Function, examples: Sequence[Expression], sources: Mapping[str, bytes]) -> list[Phrase]:
    """Return calls of a public function with at most two parameters to give, the shortest first."""
    module = module_name(function.path)
    is_special = function.name.startswith("__") and function.name not in OPERATORS
    if not module or not function.is_public or len(function.required) > _MOST_PARAMETERS:
        return []
    if is_special and function.kind is not FunctionKind.INIT:
        return []
    about = [e for e in examples if any(statement.startswith(f"from {module} import ") for statement in e.imports)]
    values = _values(about)
    given = itertools.product(values, repeat=len(function.required))
    keywords = [name if name.endswith("=") else "" for name in function.required]
    named = [", ".join(map("".join, zip(keywords, texts, strict=True))) for texts in given]
    subjects = _subjects(function, module, about, sources)
    pairs = [(subject, texts) for texts in named for subject in subjects]
    found = [Phrase(function, Expression(_call(function, s.source, t), s.imports), steps=1) for s, t in pairs]
    return sorted(found, key=lambda p: (len(p.expression), p.expression))[:_MOST_CALLS]


def _values(examples: Sequence[Expression]) -> list[str]:
    """Return the sources of values to try, those of examples first."""
    inner = [value for example in examples for value in literals_in(example)]
    texts = dict.fromkeys(sorted(map(source_of, inner), key=len))
    return list(dict.fromkeys([*itertools.islice(texts, _MOST_VALUES), *map(source_of, _PLAIN)]))


def _subjects(
    function: Function, module: str, examples: Sequence[Expression], sources: Mapping[str, bytes]
) -> list[Expression]:
    """Return what is called: the function, the class, or instances of the class."""
    owner = ".".join(function.names[:-1])
    own = Expression(owner or function.name, frozenset((import_of(module, owner or function.name),)))
    if function.kind not in (FunctionKind.METHOD, FunctionKind.PROPERTY):
        return [own]
    made = sorted((e for e in examples if _makes(e, owner)), key=lambda e: len(e.source))[:_MOST_INSTANCES]
    init = (*function.names[:-1], "__init__")
    needed = next((f.required for f in functions_of(function.path, sources[function.path]) if f.names == init), ())
    return made if needed else [Expression(f"{owner}()", own.imports), *made]


def _makes(example: Expression, owner: str) -> bool:
    node = ast.parse(example.source, mode="eval").body
    return isinstance(node, ast.Call) and ast.unparse(node.func) == owner


def _call(function: Function, subject: str, arguments: str) -> str:
    if function.kind in (FunctionKind.FUNCTION, FunctionKind.INIT):
        return f"{subject}({arguments})"
    if function.kind is FunctionKind.PROPERTY:
        return f"{subject}.{function.name}"
    if function.name in OPERATORS:
        return OPERATORS[function.name].format(subject, arguments, "", arguments=arguments)
    return f"{subject}.{function.name}({arguments})"
