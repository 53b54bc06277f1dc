"""Report the tests of SymPy's own runner, `bin/test`, over the channel that `reporter.py` writes to.

The runner collects the functions of a file when it comes to that file, so the record `collected` is sent once for each
file, with all tests so far. Its order is kept: by file, then by line.
Input: `SSR_COLLECT_ONLY`, and the guest modules `selection` and `reach_probe` if they are loaded.
"""

import importlib
import os
import sys
import time
import types

import ssr_channel

_COLLECT_ONLY = bool(os.environ.pop("SSR_COLLECT_ONLY", ""))
_ROOT = os.getcwd().rstrip("/") + "/"
_MODULES = ("sympy.testing.runtests", "sympy.utilities.runtests")
_monotonic = time.monotonic


class _EnoughFailed(BaseException):
    """As many tests have failed as were asked for; not an error of a test."""


class Session:
    """The tests of this process, and the test that runs."""

    def __init__(self):
        """Start with no test."""
        self.path, self.nodeid, self.begin = "", "", 0.0
        self.collected, self.chosen = [], []
        self.shouldfail, self.failures = "", 0
        self.recorder = sys.modules.get("ssr_blind_recorder")
        self.probe = sys.modules.get("ssr_reach_probe")
        self.probed_tests = False
        self.selection = None
        if "ssr_selection" in sys.modules:
            self.selection = sys.modules["ssr_selection"].requested()
            self.selection.session = self

    def enter_file(self, filename):
        """Store the file whose functions are collected and run next."""
        path = os.path.abspath(filename)
        self.path = path[len(_ROOT) :] if path.startswith(_ROOT) else path
        if self.probe is not None:
            self.probe.enter_file(path, self.path)

    def is_wanted(self, function):
        """Return whether a function is selected, and record that it was collected."""
        name = self.path + "::" + function.__name__
        self.collected.append(name)
        wanted = self.selection is None or self.selection.is_wanted(name)
        if wanted:
            self.chosen.append(name)
        return wanted and not _COLLECT_ONLY

    def announce(self):
        """Report the tests that were collected so far."""
        names = {name: [name.rpartition("::")[2]] for name in self.collected}
        before = self.collected if self.selection is not None and self.selection.reports_collected else []
        ssr_channel.send(
            "collected", ids=self.chosen, names=names, before_selection=before, parameters={}, modules=[], doctests=[]
        )
        if self.recorder is not None:
            self.recorder.share_among(len(self.chosen))
        if self.probe is not None:
            self.probe.leave_file()
            if not self.probed_tests:
                self.probed_tests = True
                self.probe.begin_tests()

    def start(self, function):
        """Report that a test starts."""
        self.nodeid, self.begin = self.path + "::" + function.__name__, _monotonic()
        if self.probe is not None:
            self.probe.start_test(self.nodeid)
        ssr_channel.send("start", id=self.nodeid)
        if self.recorder is not None:
            self.recorder.pytest_runtest_logstart(self.nodeid, None)

    def end(self, outcome, error=None):
        """Report the outcome of the test that runs, and end the run if enough tests have failed."""
        name, self.nodeid = self.nodeid, ""
        if not name:
            self.fail_collection(error)
            return
        if self.recorder is not None:
            self.recorder.pytest_runtest_logfinish(name, None)
        if self.probe is not None:
            self.probe.end_test()
        ssr_channel.send("done", id=name, outcome=outcome, duration=round(_monotonic() - self.begin, 6), setup=0.0)
        if self.selection is not None and outcome in ("failed", "error"):
            self.failures += 1
            self.selection.pytest_runtest_logreport(types.SimpleNamespace(failed=True, nodeid=name))
            of_all = self.selection.stop_after if self.selection.counted is None else 0
            if self.shouldfail or 0 < of_all <= self.failures:
                raise _EnoughFailed

    def fail_collection(self, error):
        """Report that the current file cannot be collected."""
        reason = "%s: %s" % (error[0].__name__, error[1]) if error else "the file cannot be imported"
        ssr_channel.send("collect-error", id=self.path, reason=reason[:500])


def _before(kind, name, action):
    """Let a method of a class call an action first, with the same arguments."""
    original = getattr(kind, name)

    def method(self, *args, **kwargs):
        action(*args, **kwargs)
        return original(self, *args, **kwargs)

    setattr(kind, name, method)


def _after(kind, name, action):
    """Let a method of a class call an action last, with the same arguments."""
    original = getattr(kind, name)

    def method(self, *args, **kwargs):
        result = original(self, *args, **kwargs)
        action(*args, **kwargs)
        return result

    setattr(kind, name, method)


def _install(module, session):
    """Let SymPy's runner report to the session, in addition to what it does."""
    tests, reporter = module.SymPyTests, module.PyTestReporter
    _before(tests, "test_file", lambda filename, *args, **kwargs: session.enter_file(filename))
    matches = tests.matches
    tests.matches = lambda self, function: matches(self, function) and session.is_wanted(function)
    _before(reporter, "entering_filename", lambda *args: session.announce())
    _after(reporter, "entering_test", session.start)
    _after(reporter, "test_pass", lambda *args: session.end("passed"))
    _after(reporter, "test_skip", lambda *args: session.end("skipped"))
    _after(reporter, "test_xfail", lambda *args: session.end("xfailed"))
    _after(reporter, "test_xpass", lambda *args: session.end("xpassed"))
    _after(reporter, "test_fail", lambda error: session.end("failed", error))
    _after(reporter, "test_exception", lambda error: session.end("error", error))
    _after(reporter, "import_error", lambda filename, error: session.fail_collection(error))


def main(program, arguments):
    """Run `bin/test` with arguments, and report how it ends."""
    import runpy

    ssr_channel.send("begin", addopts=[])
    if "-C" in arguments:
        # SymPy reads it when it is imported.
        os.environ["SYMPY_USE_CACHE"] = "no"
    sys.argv = [program, *arguments]
    sys.path.insert(0, os.path.dirname(os.path.abspath(program)))
    code = 0
    session = Session()
    try:
        _install(_runtests(), session)
        runpy.run_path(program, run_name="__main__")
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(bool(end.code))
    except _EnoughFailed:
        code = 1
    if session.probe is not None:
        session.probe.finish()
    ssr_channel.send_end(_ROOT, code)
    sys.exit(code)


def _runtests():
    newer, older = _MODULES
    try:
        return importlib.import_module(newer)
    except ImportError:
        return importlib.import_module(older)
