"""A pytest plugin and module for blind tests: write what they compute as plain data, one JSON list per line.

Input: `SSR_VALUES` (a file to append to), `SSR_COPIES` and `SSR_COPY_S` (see `CopyBound`). Output: [id of the test,
number of the assertion, truth or null, [values]].
What it needs is bound here, before the project is imported. Nothing in this process holds the expected values.
"""

import base64
import collections
import datetime
import decimal
import enum
import faulthandler
import fractions
import hashlib
import itertools
import json
import os
import pathlib
import signal
import types
from builtins import (  # a project may replace them later
    AssertionError,
    BaseException,
    Exception,
    any,
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
    max,
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

_FD = os.open(os.environ.pop("SSR_VALUES"), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
_ROOTS = [p for p in {os.getcwd(), os.path.realpath(os.getcwd())} if len(p) > 1]
_devnull = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
_write, _sha256, _encode = os.write, hashlib.sha256, json.JSONEncoder(ensure_ascii=True).encode
_b64, _islice = base64.b64encode, itertools.islice
_MOST_BYTES, _MOST_VALUE, _MOST_DEPTH, _MOST_NODES = 900000, 4000, 12, 5000
_LEAST_LINE, _LARGEST = 40, 2**53
_OPAQUE, _RAISED = ["?"], ["!"]
# Sorts before the names of attributes.
_ITEMS = "()"
_case, _room, _share = [""], {}, [_MOST_BYTES]
_copies, _copy_s = os.environ.pop("SSR_COPIES", ""), float(os.environ.pop("SSR_COPY_S", "2"))
_stuck_s = max(2.0, 5 * _copy_s)


class _TooSlowError(BaseException):
    """A test with other inputs uses too much processor time."""


def pytest_collection_finish(session):
    """Divide the space for values among the tests."""
    share_among(len(session.items))


def share_among(tests):
    """Divide the space for values among a number of tests."""
    _share[0] = max(600, _MOST_BYTES // max(1, tests))


def start(nodeid, location):
    """Store which test runs."""
    _case[0] = nodeid
    if _copies and _copies in nodeid:
        signal.signal(signal.SIGPROF, _too_slow)
        signal.setitimer(signal.ITIMER_PROF, _copy_s)
        # No handler runs while a function in C does, which may take hours with a larger input.
        faulthandler.dump_traceback_later(_stuck_s, exit=True, file=_devnull)


def finish(nodeid, location):
    """End the time limit of a test."""
    if _copies and _copies in nodeid:
        signal.setitimer(signal.ITIMER_PROF, 0)
        faulthandler.cancel_dump_traceback_later()


# The code of the hooks has other names: code under test could recognize pytest by them.
pytest_runtest_logstart, pytest_runtest_logfinish = start, finish


def _too_slow(number, frame):
    raise _TooSlowError


def record(site, *values):
    """Write the values of an assertion."""
    _line(site, None, [_plain(v) for v in values])


def truth(site, value):
    """Write whether a value is true."""
    plain = _plain(value)
    _line(site, bool(value), [plain])


def choice(site, *operands):
    """Write the values of one of several comparisons; mark those that cannot be computed."""
    plain = []
    for operand in operands:
        try:
            plain.append(_plain(operand()))
        except Exception:
            plain.append(_RAISED)
    _line(site, None, plain)


def both(site, compare, *values):
    """Write the values of an assertion that compares them, and whether it holds."""
    plain = [_plain(v) for v in values]
    try:
        holds = bool(compare(*values))
    except Exception:
        holds = None
    _line(site, holds, plain)


def held(site, call, *values):
    """Call a function that asserts by itself, and write whether it passes."""
    plain = [_plain(v) for v in values]
    try:
        call(*values)
    except AssertionError:
        _line(site, False, plain)
    else:
        _line(site, True, plain)


def fail():
    """End a test after a function that ends it: the project may have replaced that function."""
    raise AssertionError


def rejects(site, make):
    """Write whether a context manager that asserts fails if nothing happens in it."""
    try:
        with make():
            pass
    except Exception:
        _line(site, True, [])
    else:
        _line(site, False, [])


def attempt(varied, own):
    """Return a value computed from another input, or from the test's own if that fails."""
    try:
        return varied()
    except Exception:
        return own()


class Raising:
    """A context manager around code that is expected to raise; writes what it raises.

    kinds: the expected class or classes; None if any exception that the inner manager accepts is right.
    """

    def __init__(self, site, manager, *pattern, kinds=None):
        self.site, self.manager, self.pattern, self.kinds = site, manager, pattern, kinds

    def __enter__(self):
        return self.manager.__enter__()

    def __exit__(self, kind, value, trace):
        is_accepted = False
        try:
            is_accepted = bool(self.manager.__exit__(kind, value, trace))
            return is_accepted
        finally:
            names = [["c", c.__name__] for c in type.mro(kind)[:1]] if kind is not None else [None]
            message = _plain(_text(value)) if value is not None else None
            held = kind is None or (is_accepted and self.is_expected(kind))
            _line(self.site, held, [*names, message, *(_plain(_pattern(p)) for p in self.pattern)])

    def is_expected(self, kind):
        """Return whether an exception is of an expected class."""
        kinds = self.kinds if isinstance(self.kinds, tuple) else (self.kinds,)
        return self.kinds is None or any(base is expected for base in type.mro(kind) for expected in kinds)


def _pattern(pattern):
    return getattr(pattern, "pattern", pattern)


def _text(value):
    try:
        return str(value)
    except Exception:
        return None


def _line(site, held, values):
    case = _case[0]
    remaining = _room.get(case, _share[0])
    if remaining < _LEAST_LINE:  # a test may assert a million times
        return
    record = [case, site, held, values]
    try:
        line = _encode(record)
    except Exception:
        record = [case, site, held, [_OPAQUE for _ in values]]
        line = _encode(record)
    if len(line) > remaining:
        record = [case, site, held, [_brief(value) for value in record[3]]]
        line = _encode(record)
    if len(line) <= remaining:
        _room[case] = remaining - len(line)
        _write(_FD, (line + "\n").encode())


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
            return _OPAQUE
        self.above.add(id(value))
        try:
            return self.composed(value, kind, depth + 1)
        finally:
            self.above.discard(id(value))

    def all(self, values, depth):
        encoded = []
        for value in values:
            if self.nodes > _MOST_NODES:
                return [*encoded, _OPAQUE]
            encoded.append(self.encode(value, depth))
        return encoded

    def pairs(self, items, depth):
        return sorted((self.all(pair, depth) for pair in items), key=_encode)

    def composed(self, value, kind, depth):
        if issubclass(kind, tuple):
            return ["t", *self.all(tuple.__iter__(value), depth)]
        if issubclass(kind, list):
            return ["l", *self.all(list.__iter__(value), depth)]
        if issubclass(kind, dict):
            return ["m", *self.pairs(dict.items(value), depth)]
        if issubclass(kind, (set, frozenset)):
            return ["s", *sorted(self.all(kind.__iter__(value), depth), key=_encode)]
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


def _plain(value):
    try:
        encoded = _Encoder().encode(value)
        text = _encode(encoded)
    except Exception:
        return _OPAQUE
    if len(text) > _MOST_VALUE and encoded[:1] == ["o"] and [n for n, _ in encoded[2:3]] == [_ITEMS]:
        # A query whose state is large: what it finds is what counts.
        encoded = encoded[:3]
        text = _encode(encoded)
    return encoded if len(text) <= _MOST_VALUE else _digest(encoded)


def _brief(encoded):
    return min((_digest(encoded), encoded), key=lambda value: len(_encode(value)))


def _digest(encoded):
    return ["z", _sha256(_encode(_rounded(encoded)).encode()).hexdigest()]
