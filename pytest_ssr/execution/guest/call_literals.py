"""Write values as Python literals: numbers, strings, bytes, booleans, None, and containers of these.

Only values of exactly these types are written, so that no `__repr__` of the project runs. What it needs is bound here,
before the project is imported.
"""

from builtins import (  # a project may replace them later
    bool,
    bytes,
    dict,
    float,
    int,
    len,
    list,
    repr,
    set,
    sorted,
    str,
    tuple,
    type,
)

MOST_CHARACTERS = 600
_MOST_DEPTH = 6
_NONE = type(None)


def literal(value):
    """Return a value as source text; None if it has another type, or is too large."""
    text = _text(value, 0)
    return text if text is not None and len(text) <= MOST_CHARACTERS else None


def _text(value, depth):
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
    if depth > _MOST_DEPTH or kind not in (list, tuple, dict, set) or len(value) > MOST_CHARACTERS:
        return None
    if kind is dict:
        return _of_dict(value, depth)
    items = [_text(item, depth + 1) for item in value]
    if None in items:
        return None
    if kind is set:
        return "{%s}" % ", ".join(sorted(items)) if items else "set()"
    joined = ", ".join(items)
    if kind is list:
        return "[%s]" % joined
    return "(%s,)" % joined if len(items) == 1 else "(%s)" % joined


def _of_dict(value, depth):
    pairs = []
    for key, item in value.items():
        texts = _text(key, depth + 1), _text(item, depth + 1)
        if None in texts:
            return None
        pairs.append("%s: %s" % texts)
    return "{%s}" % ", ".join(pairs)
