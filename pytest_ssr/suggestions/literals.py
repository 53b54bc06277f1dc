"""Read and write values as source: literals, containers of them, ranges, dates, times, `Decimal` and `Fraction`.

Values of all these types are called literals here, and so is an `Expression`, which makes a value of any other type.
"""

from __future__ import annotations

import ast
import datetime
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import TypeAlias

Literal: TypeAlias = object
"""A value of exactly one of these types."""
MOST_CHARACTERS = 600


@dataclass(frozen=True, slots=True)
class Expression:
    """Source that makes a value, such as an object of the project, and the import statements that it needs."""

    source: str
    imports: frozenset[str] = frozenset()


ReadCall: TypeAlias = Callable[[ast.Call], Expression | None]
"""Returns what a call in the text of a value stands for; None if it stands for nothing."""
_ATOMS = (bool, int, str, bytes, type(None), datetime.date, datetime.timedelta, datetime.timezone, Fraction, range)
_CONTAINERS = (list, tuple, set, frozenset)
_TIMES = (datetime.datetime, datetime.time)
_LARGEST_EXPONENT = 400
_DATETIME = "import datetime"
_IMPORTS: Mapping[type, str] = {
    **dict.fromkeys((datetime.date, datetime.timedelta, datetime.timezone, *_TIMES), _DATETIME),
    Decimal: "from decimal import Decimal",
    Fraction: "from fractions import Fraction",
}
_MAKERS: Mapping[str, Callable[..., object]] = {
    "datetime.date": datetime.date,
    "datetime.time": datetime.time,
    "datetime.datetime": datetime.datetime,
    "datetime.timedelta": datetime.timedelta,
    "datetime.timezone": datetime.timezone,
    "Decimal": lambda text: Decimal(str(text)),
    # A text with an exponent could be a huge number.
    "Fraction": lambda numerator, denominator: Fraction(int(numerator), int(denominator)),
    "range": range,
    "frozenset": lambda items: frozenset({*items} if isinstance(items, set) else ()),
}


def parse_literal(text: object, read_call: ReadCall | None = None) -> tuple[Literal] | None:
    """Return the value in a tuple; None if the text, which is not trusted, is no literal or a long one.

    read_call: reads calls of other functions than those that make literals.
    """
    if not isinstance(text, str) or len(text) > MOST_CHARACTERS:
        return None
    try:
        value = value_of(ast.parse(text, mode="eval").body, read_call)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError, ArithmeticError):
        return None
    return (value,) if is_literal(value) else None


def value_of(node: ast.expr, read_call: ReadCall | None = None) -> Literal:
    """Return the value of an expression; raises ValueError and others for an expression that is no literal."""
    if isinstance(node, ast.List):
        return [value_of(item, read_call) for item in node.elts]
    if isinstance(node, ast.Tuple):
        return tuple(value_of(item, read_call) for item in node.elts)
    if isinstance(node, ast.Set):
        return {value_of(item, read_call) for item in node.elts}
    if isinstance(node, ast.Dict) and None not in node.keys:
        pairs = [(k, v) for k, v in zip(node.keys, node.values, strict=True) if k is not None]
        return {value_of(k, read_call): value_of(v, read_call) for k, v in pairs}
    if isinstance(node, ast.Attribute) and ast.unparse(node) == "datetime.timezone.utc":
        return datetime.timezone.utc  # noqa: UP017 # as it is written
    if not isinstance(node, ast.Call):
        return ast.literal_eval(node)
    made = read_call(node) if read_call is not None else None
    if made is not None:
        return made
    maker = _MAKERS.get(ast.unparse(node.func))
    if maker is None:
        return ast.literal_eval(node)
    named = {keyword.arg: value_of(keyword.value, read_call) for keyword in node.keywords if keyword.arg is not None}
    return maker(*(value_of(item, read_call) for item in node.args), **named)


def is_literal(value: object) -> bool:
    """Return whether a value can be written as a literal."""
    if type(value) is float:
        return math.isfinite(value)
    if type(value) is Decimal:
        return value.is_finite() and abs(value.adjusted()) < _LARGEST_EXPONENT
    if isinstance(value, _TIMES):
        return type(value) in _TIMES and (value.tzinfo is None or type(value.tzinfo) is datetime.timezone)
    if type(value) in _CONTAINERS:
        return all(map(is_literal, value))  # type: ignore[call-overload] # exactly one of these
    if isinstance(value, dict):
        return all(is_literal(key) and is_literal(item) for key, item in value.items())
    return type(value) in _ATOMS or isinstance(value, Expression)


def source_of(value: Literal) -> str:
    """Return a literal as formatters write it: strings in double quotes, sets sorted."""
    if isinstance(value, Expression):
        return value.source
    if isinstance(value, str | bytes):
        return _quoted(value)
    if isinstance(value, list):
        return f"[{', '.join(map(source_of, value))}]"
    if isinstance(value, tuple):
        return f"({', '.join(map(source_of, value))}{',' if len(value) == 1 else ''})"
    if isinstance(value, set):
        return f"{{{', '.join(sorted(map(source_of, value)))}}}" if value else "set()"
    if isinstance(value, frozenset):
        return f"frozenset({source_of(set(value))})" if value else "frozenset()"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{source_of(key)}: {source_of(item)}" for key, item in value.items()) + "}"
    if isinstance(value, Decimal):
        return f'Decimal("{value}")'
    return repr(value)


def imports_of(value: Literal) -> frozenset[str]:
    """Return the import statements that the source of a literal needs."""
    if isinstance(value, Expression):
        return value.imports
    parts: tuple[Literal, ...] = ()
    if isinstance(value, list | tuple | set | frozenset):
        parts = tuple(value)
    elif isinstance(value, dict):
        parts = (*value.keys(), *value.values())
    own = {_IMPORTS[type(value)]} if type(value) in _IMPORTS else set()
    return frozenset(own).union(*map(imports_of, parts))


def _quoted(value: str | bytes) -> str:
    text = repr(value)
    start = text.index("'") if "'" in text else -1
    # With a double quote in it, or with a single one and hence in double quotes already, it stays as it is.
    if '"' in text or start not in (0, 1) or "\\'" in text:
        return text
    return f'{text[:start]}"{text[start + 1 : -1]}"'


def differ(first: Literal, second: Literal) -> bool:
    """Return whether an assertion about the first value fails for the second one."""
    if isinstance(first, bool | None):
        return first is not second
    return first != second
