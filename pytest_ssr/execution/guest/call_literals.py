"""Write values as source: literals, containers of them, and dates, times, `Decimal` and `Fraction` of Python itself.

Only values of exactly these types are written, so that no `__repr__` of the project runs; `equal_literal` also writes
values of subclasses that inherit their comparison. Other values are left to a function `other`, if there is one. What
it needs is bound here, before the project is imported.
"""

import datetime
import decimal
import fractions
from builtins import (  # a project may replace them later
    bool,
    bytes,
    dict,
    float,
    frozenset,
    int,
    isinstance,
    len,
    list,
    range,
    repr,
    set,
    sorted,
    str,
    tuple,
    type,
)

MOST_CHARACTERS = 600
_MOST_DEPTH = 6
_LARGEST_EXPONENT = 400
_NONE = type(None)
_DAY, _SPAN, _ZONE, _FRACTION = datetime.date, datetime.timedelta, datetime.timezone, fractions.Fraction
_TIMES, _DECIMAL = (datetime.datetime, datetime.time), decimal.Decimal
_BASES = (
    (str, str.__eq__, str.__str__),
    (int, int.__eq__, int.__index__),
    (tuple, tuple.__eq__, tuple.__iter__),
    (list, list.__eq__, list.__iter__),
    (dict, dict.__eq__, dict.items),
)


def literal(value, other=None, depth=0):
    """Return a value as source text; None if it has another type, or is too large.

    other: returns the text of a value of another type, given its depth in containers, or None. depth: the value's own.
    """
    text = _text(value, depth, False, other)
    return text if text is not None and len(text) <= MOST_CHARACTERS else None


def equal_literal(value):
    """Return the source text of a value that equals the given one, such as a tuple for a named tuple; None as above."""
    text = _text(value, 0, True, None)
    return text if text is not None and len(text) <= MOST_CHARACTERS else None


def _plain(value):
    """Return the value of a built-in type that a value equals, if its class inherits the comparison of that type."""
    kind = type(value)
    for base, compare, content in _BASES:
        if isinstance(value, base) and kind.__eq__ is compare:
            return base(content(value))
    return value


def _text(value, depth, equal, other):
    kind = type(value)
    if equal and kind is not bool:
        value = _plain(value)
        kind = type(value)
    if kind in (bool, _NONE):
        return repr(value)
    if kind is int:
        # Python refuses to write longer numbers.
        return repr(value) if value.bit_length() < 4 * MOST_CHARACTERS else None
    if kind is float:
        # Neither infinity nor "not a number" has a literal.
        return repr(value) if value - value == 0 else None
    if kind in (str, bytes):
        return repr(value) if len(value) <= MOST_CHARACTERS else None
    if kind is _DECIMAL:
        return repr(value) if value.is_finite() and -_LARGEST_EXPONENT < value.adjusted() < _LARGEST_EXPONENT else None
    if kind in (_DAY, _SPAN, _ZONE, _FRACTION, range) or (kind in _TIMES and type(value.tzinfo) in (_NONE, _ZONE)):
        return repr(value)
    if kind not in (list, tuple, dict, set, frozenset):
        return other(value, depth) if other is not None and depth <= _MOST_DEPTH else None
    if depth > _MOST_DEPTH or len(value) > MOST_CHARACTERS:
        return None
    if kind is dict:
        return _of_dict(value, depth, equal, other)
    items = [_text(item, depth + 1, equal, other) for item in value]
    if None in items:
        return None
    if kind in (set, frozenset):
        text = "{%s}" % ", ".join(sorted(items)) if items else "set()"
        return text if kind is set else "frozenset(%s)" % text
    joined = ", ".join(items)
    if kind is list:
        return "[%s]" % joined
    return "(%s,)" % joined if len(items) == 1 else "(%s)" % joined


def _of_dict(value, depth, equal, other):
    pairs = []
    for key, item in value.items():
        texts = _text(key, depth + 1, equal, other), _text(item, depth + 1, equal, other)
        if None in texts:
            return None
        pairs.append("%s: %s" % texts)
    return "{%s}" % ", ".join(pairs)
