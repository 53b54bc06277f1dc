"""Encode values that blind tests compute as plain data: numbers, strings, containers, and objects by their attributes.

What it needs is bound here, before the project is imported; it is loaded before `blind_recorder`.
"""

import base64
import collections
import datetime
import decimal
import enum
import fractions
import hashlib
import itertools
import json
import os
import pathlib
import types
from builtins import (  # a project may replace them later
    BaseException,
    Exception,
    bool,
    bytearray,
    bytes,
    complex,
    dict,
    float,
    frozenset,
    getattr,
    hasattr,
    id,
    int,
    isinstance,
    issubclass,
    iter,
    len,
    list,
    min,
    object,
    range,
    set,
    slice,
    sorted,
    str,
    tuple,
    type,
    vars,
)
from collections.abc import Iterator, Mapping

_ROOTS = [p for p in {os.getcwd(), os.path.realpath(os.getcwd())} if len(p) > 1]
_sha256, encode = hashlib.sha256, json.JSONEncoder(ensure_ascii=True).encode
_b64, _islice = base64.b64encode, itertools.islice
_MOST_VALUE, _MOST_DEPTH, _MOST_NODES = 4000, 12, 5000
_MOST_ATTRIBUTE = 300
_LARGEST = 2**53
OPAQUE = ["?"]
# Names of classes that are subclasses of built-in types: only what the base type holds is encoded.
subclasses = set()
_BUILT_IN = frozenset((int, float, str, bytes, bytearray, tuple, list, dict, set, frozenset, bool))
# Sorts before the names of attributes.
_ITEMS = "()"


def _rounded(value):
    if isinstance(value, list):
        return [_rounded(v) for v in value]
    return float("%.8g" % value) if isinstance(value, float) else value


class _Encoder:
    """Encodes one value as plain data, and counts its parts."""

    def __init__(self):
        self.nodes, self.above = 0, set()

    def encode(self, value, depth=0):
        self.nodes += 1
        kind = type(value)
        if value is None or kind is bool:
            return value
        if kind not in _BUILT_IN and not _BUILT_IN.isdisjoint(kind.__mro__):
            subclasses.add(kind)
        if issubclass(kind, int):
            number = int.__add__(value, 0)
            return number if -_LARGEST < number < _LARGEST else ["i", "%x" % number]
        if issubclass(kind, float):
            return float.__add__(value, 0.0)
        if issubclass(kind, str):
            return _without_root(str.__str__(value))
        if issubclass(kind, (bytes, bytearray)):
            return ["b", _b64(bytes(value)).decode()]
        if depth > _MOST_DEPTH or self.nodes > _MOST_NODES or id(value) in self.above:
            return OPAQUE
        self.above.add(id(value))
        try:
            return self.composed(value, kind, depth + 1)
        finally:
            self.above.discard(id(value))

    def all(self, values, depth):
        encoded = []
        for value in values:
            if self.nodes > _MOST_NODES:
                return [*encoded, OPAQUE]
            encoded.append(self.encode(value, depth))
        return encoded

    def pairs(self, items, depth):
        return sorted((self.all(pair, depth) for pair in items), key=encode)

    def composed(self, value, kind, depth):
        if issubclass(kind, tuple):
            return ["t", *self.all(tuple.__iter__(value), depth)]
        if issubclass(kind, list):
            return ["l", *self.all(list.__iter__(value), depth)]
        if issubclass(kind, dict):
            return ["m", *self.pairs(dict.items(value), depth)]
        if issubclass(kind, (set, frozenset)):
            return ["s", *sorted(self.all(kind.__iter__(value), depth), key=encode)]
        return self.special(value, kind, depth)

    def special(self, value, kind, depth):
        if issubclass(kind, enum.Enum):
            return ["e", kind.__name__, str(getattr(value, "_name_", ""))]
        if kind is complex:
            return ["j", value.real, value.imag]
        if kind in (decimal.Decimal, fractions.Fraction):
            return self.number(value)
        if kind in (datetime.datetime, datetime.date, datetime.time):
            if kind is datetime.datetime and value.utcoffset() is not None:
                value = value.astimezone(datetime.timezone.utc)
            return ["d", kind.__name__, value.isoformat()]
        if kind is datetime.timedelta:
            return ["d", "timedelta", value.total_seconds()]
        if issubclass(kind, pathlib.PurePath) and kind.__module__.startswith("pathlib"):
            return ["p", _without_root(str(value))]
        if kind in (range, slice):
            return ["r", kind.__name__, _bounds(value)]
        if issubclass(kind, BaseException):
            return ["x", kind.__name__, *self.all(BaseException.args.__get__(value), depth)]
        if kind.__name__.startswith("Approx") and kind.__module__.startswith("_pytest"):
            return ["~", self.encode(value.expected, depth), value.rel, value.abs]
        if isinstance(value, type):
            return ["c", value.__name__]
        if kind in (types.FunctionType, types.BuiltinFunctionType, types.MethodType):
            return ["f", getattr(value, "__qualname__", "")]
        if kind.__module__ == "numpy" and hasattr(value, "tolist"):
            plain = value.tolist()
            return ["l", *self.all(plain, depth)] if isinstance(plain, list) else self.encode(plain, depth)
        if isinstance(value, Iterator):
            return ["it", kind.__name__]
        if isinstance(value, Mapping):
            return ["m", *self.pairs([(k, value[k]) for k in iter(value)], depth)]
        return self.state_of(value, kind, depth)

    def number(self, value):
        try:
            whole = int(value)
            return self.encode(whole if whole == value else float(value))
        except (ValueError, OverflowError):
            return float(value)

    def state_of(self, value, kind, depth):
        """Encode an object by its type and attributes; runs on the original show which of them are stable."""
        state = {}
        for base in kind.__mro__:
            for name in _names(vars(base).get("__slots__", ())):
                if hasattr(value, name):
                    state[name] = getattr(value, name)
        try:
            state.update(object.__getattribute__(value, "__dict__"))
        except AttributeError:
            pass
        items = self.items_of(value, kind) if depth == 1 else None
        if items is not None:
            state = collections.OrderedDict([(_ITEMS, items), *state.items()])
        if not state:
            return ["?", kind.__name__]
        return ["o", kind.__name__, *self.pairs([(n, v) for n, v in state.items() if isinstance(n, str)], depth)]

    def items_of(self, value, kind):
        """Return the items of an asserted collection, which may compute them only now; None for another value.

        Iterators, files among them, are none: to read their items changes them.
        """
        if not (hasattr(kind, "__iter__") and hasattr(kind, "__len__")) or hasattr(kind, "__next__"):
            return None
        try:
            return list(_islice(iter(value), _MOST_NODES))
        except Exception:
            return None


def _bounds(value):
    """Return the three numbers of a range or a slice."""
    return [value.start, value.stop, value.step]


def _names(slots):
    return [slots] if isinstance(slots, str) else [n for n in slots if isinstance(n, str)]


def _without_root(text):
    """Replace the path of the tree by one name in a string: sandboxes may have it at different paths."""
    for root in _ROOTS:
        if root in text:
            text = str.replace(text, root, "<tree>")
    return text


def plain_data(value):
    """Return a value as plain data, long parts as digests."""
    try:
        encoded = _Encoder().encode(value)
        text = encode(encoded)
    except Exception:
        return OPAQUE
    if len(text) > _MOST_VALUE and encoded[:1] == ["o"] and [n for n, _ in encoded[2:3]] == [_ITEMS]:
        # A query whose state is large: what it finds is what counts.
        encoded = encoded[:3]
        text = encode(encoded)
    if len(text) > _MOST_VALUE:
        encoded = _condensed(encoded)
        text = encode(encoded)
    return encoded if len(text) <= _MOST_VALUE else _digest(encoded)


def brief(encoded):
    """Return plain data, or its digest if that is shorter."""
    return min((_digest(encoded), encoded), key=lambda value: len(encode(value)))


def _digest(encoded):
    return ["z", _sha256(encode(_rounded(encoded)).encode()).hexdigest()]


def _condensed(encoded):
    """Return a value in which digests stand for the long attributes of objects, except those that hold objects.

    An attribute that differs from run to run, as a cache does, then hides no other.
    """
    if not isinstance(encoded, list) or encoded[:1] == ["m"]:
        return encoded
    if encoded[:1] != ["o"]:
        return [_condensed(part) for part in encoded]
    pairs = []
    for name, value in encoded[2:]:
        value = _condensed(value)
        holds_objects = isinstance(value, list) and value[:1] != ["m"] and '["o", ' in encode(value)
        if not holds_objects and len(encode(value)) > _MOST_ATTRIBUTE:
            value = _digest(value)
        pairs.append([name, value])
    return [*encoded[:2], *pairs]
