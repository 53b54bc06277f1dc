"""A pytest plugin and module for blind tests: write what they compute as plain data, one JSON list per line.

Input: `SSR_VALUES` (a file to append to), `SSR_COPIES`, `SSR_COPY_S` and `SSR_TESTS` (see `CopyBound`).
Output: [id of the test, number of the assertion, truth or null, [values]].
What it needs is bound here, before the project is imported. Nothing in this process holds the expected values.
"""

import builtins
import faulthandler
import os
import signal
import sys
from builtins import (  # a project may replace them later
    AssertionError,
    BaseException,
    Exception,
    any,
    bool,
    float,
    getattr,
    int,
    isinstance,
    len,
    max,
    set,
    str,
    tuple,
    type,
)

import ssr_blind_values

_FD = os.open(os.environ.pop("SSR_VALUES"), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
_modules = sys.modules
_devnull = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
_write = os.write
_plain, _brief = ssr_blind_values.plain_data, ssr_blind_values.brief
_encode, _OPAQUE = ssr_blind_values.encode, ssr_blind_values.OPAQUE
_MOST_BYTES, _LEAST_LINE, _RAISED = 900000, 40, ["!"]
_case, _room, _share, _watched = [""], {}, [_MOST_BYTES], set()
_copies, _copy_s = os.environ.pop("SSR_COPIES", ""), float(os.environ.pop("SSR_COPY_S", "2"))
_tests = int(os.environ.pop("SSR_TESTS", "0"))
_stuck_s = max(2.0, 5 * _copy_s)


class _TooSlowError(BaseException):
    """A test with other inputs uses too much processor time."""


def pytest_collection_finish(session):
    """Divide the space for values among the tests."""
    share_among(len(session.items))


def share_among(tests):
    """Divide the space for values among a number of tests; if that of a whole run is known, among these."""
    _share[0] = max(600, _MOST_BYTES // max(1, _tests or tests))


def start(nodeid, location):
    """Store which test runs."""
    _case[0] = nodeid
    # As `--hypothesis-seed` does: the same code draws the same examples.
    hypothesis = _modules.get("hypothesis.core")
    if hypothesis is not None:
        hypothesis.global_force_seed = 0
    if _copies and _copies in nodeid:
        signal.signal(signal.SIGPROF, _too_slow)
        signal.setitimer(signal.ITIMER_PROF, _copy_s)
        # No handler runs while a function in C does, which may take hours with a larger input.
        faulthandler.dump_traceback_later(_stuck_s, exit=True, file=_devnull)


def finish(nodeid, location):
    """Write nothing until another test runs, and end the time limit of this one."""
    _case[0] = ""
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


def watch(number, value):
    """Keep the truth of a condition that a patch adds; return its value."""
    try:
        _watched.add((number, bool(value)))
    except Exception:
        _watched.update(((number, True), (number, False)))
    return value


# Where code that is imported as any module finds it.
builtins._ssr_watch = watch


def note(*values):
    """Write plain data that belongs to no test, and the truth of the conditions."""
    seen = ["%d%s" % (number, "+" if is_true else "-") for number, is_true in _watched]
    _write(_FD, (_encode(["", 0, None, [*values, seen]]) + "\n").encode())


def pytest_unconfigure(config):
    """Write what no single test has written."""
    note([], [], [], [], [])


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
    if not case:
        return
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
