"""A pytest plugin that records what the statements of tests evaluate to.

Input: the file `SSR_SEEN`, one JSON object: `out` (a file to append to). The name of each test ends in the number of
its first statement; the tests call `__ssr_see__` with the number of a statement and its value, and run what should
raise in the context of `__ssr_raises__`. Output: one JSON list per statement, or several, as in `call_probe`: its
number, an attribute or an empty string, and the outcome; `other` for a statement without a value. An exception belongs
to the statement after the last one that was recorded.
"""

import builtins
import json
import os
import signal

import pytest
import ssr_call_probe as probe

_MOST_S, _MOST_BYTES = 2.0, 3000000


class _TooSlowError(BaseException):
    """A test takes too long."""


def _too_slow(number, frame):
    raise _TooSlowError


class Observer:
    """Writes what is seen."""

    def __init__(self, descriptor):
        """descriptor: of the file to write to."""
        self.descriptor, self.written, self.next = descriptor, 0, None
        self.pid, self.get_pid, self.write = os.getpid(), os.getpid, os.write
        self.encode = json.JSONEncoder().encode

    def see(self, place, *values):
        """Record a statement that has ended, and its value if there is one; return it."""
        outcomes = [["", ["other"]]]
        for value in values:
            try:
                outcomes = probe.described(value)
            except Exception:
                # Attributes may be properties of the project.
                outcomes = [["", ["other"]]]
        self.send(place, outcomes)
        return values[0] if values else None

    def send(self, place, outcomes):
        """Record the outcomes of a statement, unless this is a process that the tests have started."""
        if self.next is None:
            return
        self.next = place + 1
        data = "".join(self.encode([place, attribute, outcome]) + "\n" for attribute, outcome in outcomes).encode()
        self.written += len(data)
        if self.get_pid() == self.pid and self.written <= _MOST_BYTES:
            self.write(self.descriptor, data)


class Raises:
    """In the place of `pytest.raises`, which would end the test if nothing is raised."""

    def __init__(self, observer, place):
        """place: the number of the statement."""
        self.observer, self.place = observer, place
        self.value = self.exception = self.type = None

    def __enter__(self):
        """Return what has the exception afterwards."""
        return self

    def __exit__(self, kind, value, trace):
        """Record the exception, or that nothing was raised."""
        if isinstance(value, _TooSlowError):
            return False
        if value is None:
            self.observer.send(self.place, [["", ["value", "None"]]])
            return False
        self.value = self.exception = value
        self.type = kind
        self.observer.send(self.place, [["", probe.raised(value)]])
        return True

    def match(self, pattern):
        """Accept every message."""
        return True


class Plugin:
    """Follows the tests."""

    def __init__(self, observer):
        """Keep an observer."""
        self.observer = observer

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_call(self, item):
        """Run a test for a limited time."""
        # Others may be inherited; one with parameters would be seen several times.
        number = item.name.rpartition("_ssr_")[2]
        self.observer.next = int(number) if number.isdecimal() else None
        # Other tests, and plugins, may have taken the signal.
        signal.signal(signal.SIGALRM, _too_slow)
        signal.setitimer(signal.ITIMER_REAL, _MOST_S)
        yield
        signal.setitimer(signal.ITIMER_REAL, 0)

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_makereport(self, item, call):
        """Record the exception that ended a test; those of `unittest` are known only here."""
        yield
        if call.when == "call" and call.excinfo is not None and self.observer.next is not None:
            error = call.excinfo.value
            late = isinstance(error, (_TooSlowError, pytest.skip.Exception, pytest.xfail.Exception))
            self.observer.send(self.observer.next, [["", ["other"] if late else probe.raised(error)]])


def pytest_configure(config):
    """Read where to record."""
    with open(os.environ.pop("SSR_SEEN")) as file:
        out = os.open(json.load(file)["out"], os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
    observer = Observer(out)
    builtins.__ssr_see__ = observer.see
    builtins.__ssr_raises__ = lambda place: Raises(observer, place)
    # Such as that of `-x`: variants may fail.
    config.option.maxfail = 0
    config.pluginmanager.register(Plugin(observer), "ssr-seen")
