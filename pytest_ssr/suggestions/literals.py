"""Read and write values as source: literals, containers of them, and dates, times, `Decimal` and `Fraction`.

Values of all these types are called literals here.
"""

from __future__ import annotations

import ast
import datetime
import math
from collections.abc import Callable, Mapping
from decimal import Decimal
from fractions import Fraction
from typing import TypeAlias

Literal: TypeAlias = object
"""A value of exactly one of these types."""
MOST_CHARACTERS = 600
_ATOMS = (bool, int, str, bytes, type(None), datetime.date, datetime.timedelta, datetime.timezone, Fraction)
_CONTAINERS = (list, tuple, set)
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
}


def parse_literal(text: object) -> tuple[Literal] | None:
    """Return the value in a tuple; None if the text, which is not trusted, is no literal or a long one."""
    if not isinstance(text, str) or len(text) > MOST_CHARACTERS:
        return None
    try:
        value = _value(ast.parse(text, mode="eval").body)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError, ArithmeticError):
        return None
    return (value,) if is_literal(value) else None


def _value(node: ast.expr) -> Literal:
    """Return the value of an expression; raises ValueError and others for an expression that is no literal."""
    if isinstance(node, ast.List):
        return [_value(item) for item in node.elts]
    if isinstance(node, ast.Tuple):
        return tuple(_value(item) for item in node.elts)
    if isinstance(node, ast.Set):
        return {_value(item) for item in node.elts}
    if isinstance(node, ast.Dict) and None not in node.keys:
        return {_value(k): _value(v) for k, v in zip(node.keys, node.values, strict=True) if k is not None}
    if isinstance(node, ast.Attribute) and ast.unparse(node) == "datetime.timezone.utc":
        return datetime.timezone.utc  # noqa: UP017 # as it is written
    maker = _MAKERS.get(ast.unparse(node.func)) if isinstance(node, ast.Call) else None
    if not isinstance(node, ast.Call) or maker is None:
        return ast.literal_eval(node)
    named = {keyword.arg: _value(keyword.value) for keyword in node.keywords if keyword.arg is not None}
    return maker(*map(_value, node.args), **named)


def is_literal(value: object) -> bool:
    """Return whether a value can be written as a literal."""
    if type(value) is float:
        return math.isfinite(value)
    if type(value) is Decimal:
        return value.is_finite() and abs(value.adjusted()) < _LARGEST_EXPONENT
    if isinstance(value, _TIMES):
        return type(value) in _TIMES and (value.tzinfo is None or type(value.tzinfo) is datetime.timezone)
    if type(value) in _CONTAINERS:
        return all(map(is_literal, value))  # type: ignore[call-overload] # exactly a list, a tuple or a set
    if isinstance(value, dict):
        return all(is_literal(key) and is_literal(item) for key, item in value.items())
    return type(value) in _ATOMS


def source_of(value: Literal) -> str:
    """Return a literal as formatters write it: strings in double quotes, sets sorted."""
    if isinstance(value, str | bytes):
        return _quoted(value)
    if isinstance(value, list):
        return f"[{', '.join(map(source_of, value))}]"
    if isinstance(value, tuple):
        return f"({', '.join(map(source_of, value))}{',' if len(value) == 1 else ''})"
    if isinstance(value, set):
        return f"{{{', '.join(sorted(map(source_of, value)))}}}" if value else "set()"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{source_of(key)}: {source_of(item)}" for key, item in value.items()) + "}"
    if isinstance(value, Decimal):
        return f'Decimal("{value}")'
    return repr(value)


def imports_of(value: Literal) -> frozenset[str]:
    """Return the import statements that the source of a literal needs."""
    parts: tuple[Literal, ...] = ()
    if isinstance(value, list | tuple | set):
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
