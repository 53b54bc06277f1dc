"""Report the tests of `unittest`, however a project starts them, over the channel that `reporter.py` writes to.

Input: `SSR_ORDER_SEED`, `SSR_COLLECT_ONLY`, and the guest modules `selection` and `reach_probe` if they are loaded.
Ids are those that pytest gives to the same tests: file, classes and method, separated by `::`. The record `collected`
also holds `names`: what unittest's own verbose output calls each test.
"""

import os
import sys
import time
import types
import unittest

import ssr_channel

_ROOT = os.getcwd().rstrip("/") + "/"
_ORDER_SEED = os.environ.pop("SSR_ORDER_SEED", "")
_COLLECT_ONLY = bool(os.environ.pop("SSR_COLLECT_ONLY", ""))
_run = unittest.TextTestRunner.run
_monotonic = time.monotonic


class Item:
    """A test, with its id."""

    def __init__(self, test):
        """Create an item."""
        self.test, self.nodeid = test, node_id(test)


class Session:
    """The selected tests of this process, and the test that runs."""

    def __init__(self):
        """Start with no test."""
        self.selection = self.recorder = None
        self.shouldfail, self.failures = "", 0
        self.nodeid, self.outcome, self.begin = "", "", 0.0
        if "ssr_selection" in sys.modules:
            self.selection = sys.modules["ssr_selection"].requested()
            self.selection.session = self
        self.recorder = sys.modules.get("ssr_blind_recorder")
        self.probe = sys.modules.get("ssr_reach_probe")

    def prepare(self, suite):
        """Return a suite of the selected tests in the requested order, and report them."""
        items = [Item(test) for test in _tests_of(suite)]
        broken = [i for i in items if _load_error(i.test)]
        items = [i for i in items if not _load_error(i.test)]
        names = {i.nodeid: _names(i.test) for i in items}
        before = []
        if _ORDER_SEED:
            items = ssr_channel.shuffled(items, _ORDER_SEED)
        if self.selection is not None:
            self.selection.pytest_collection_modifyitems(items)
            before = self.selection.collected or []
        ids = [i.nodeid for i in items]
        for item in broken:
            lines = _load_error(item.test).strip().splitlines()
            ssr_channel.send("collect-error", id=str(item.test), reason=lines[-1][:500] if lines else "")
        ssr_channel.send(
            "collected", ids=ids, names=names, before_selection=before, parameters={}, modules=[], doctests=[]
        )
        if self.recorder is not None:
            self.recorder.share_among(len(ids))
        # A module that cannot be imported fails the run.
        tests = [] if _COLLECT_ONLY else [i.test for i in broken + items]
        if self.probe is None:
            return unittest.TestSuite(tests)
        self.probe.begin_tests()
        return _ProbedSuite(tests, self.probe)

    def start(self, test):
        """Report that a test starts."""
        if _load_error(test):
            return
        self.nodeid, self.outcome, self.begin = node_id(test), "", _monotonic()
        ssr_channel.send("start", id=self.nodeid)
        if self.recorder is not None:
            self.recorder.pytest_runtest_logstart(self.nodeid, None)

    def record(self, test, outcome, error=None):
        """Record an outcome; the worst of a test and its subtests counts."""
        if not self.nodeid:
            # A class or a module could not be set up or torn down; it may also skip its tests.
            lines = str(error[1]).strip().splitlines() if error else []
            if outcome in ("failed", "error"):
                ssr_channel.send("collect-error", id=str(test), reason=lines[0][:500] if lines else outcome)
        elif self.outcome not in ("failed", "error"):
            self.outcome = outcome

    def skip(self, test):
        """Record that a test is skipped; one with skipped subtests is not, as with pytest."""
        # Only subtests name the test that they belong to.
        if not hasattr(test, "test_case"):
            self.record(test, self.outcome or "skipped")

    def stop(self, result):
        """Report the outcome of the test that ends, and end the run if enough tests have failed."""
        if not self.nodeid:
            return
        name, outcome = self.nodeid, self.outcome or "passed"
        self.nodeid = self.outcome = ""
        if self.recorder is not None:
            self.recorder.pytest_runtest_logfinish(name, None)
        ssr_channel.send("done", id=name, outcome=outcome, duration=round(_monotonic() - self.begin, 6), setup=0.0)
        if self.selection is not None and outcome in ("failed", "error"):
            self.failures += 1
            report = types.SimpleNamespace(failed=True, nodeid=name)
            self.selection.pytest_runtest_logreport(report)
            of_all = self.selection.stop_after if self.selection.counted is None else 0
            if self.shouldfail or 0 < of_all <= self.failures:
                result.stop()


class _ProbedSuite(unittest.TestSuite):
    """Runs tests, and tells the probe when a test, a class or a module is set up."""

    def __init__(self, tests, probe):
        unittest.TestSuite.__init__(self, tests)
        self._probe, self._path, self._runs = probe, "", False

    def _tearDownPreviousClass(self, test, result):  # noqa: N802 - as in unittest
        if self._runs:
            self._runs = False
            self._probe.end_test()
        with self._probe.shared(self._path):
            unittest.TestSuite._tearDownPreviousClass(self, test, result)

    def _handleModuleFixture(self, test, result):  # noqa: N802 - as in unittest
        # The module of the test before is torn down here as well.
        with self._probe.shared(self._path), self._probe.shared(node_id(test).partition("::")[0]):
            unittest.TestSuite._handleModuleFixture(self, test, result)

    def _handleClassSetUp(self, test, result):  # noqa: N802 - as in unittest
        name = node_id(test)
        self._path = name.partition("::")[0]
        with self._probe.shared(self._path):
            unittest.TestSuite._handleClassSetUp(self, test, result)
        # Here and not when the result learns of it: a project may prepare a test before that.
        self._probe.start_test(name)
        self._runs = True


def _tests_of(suite):
    try:
        parts = iter(suite)
    except TypeError:
        return [suite] if suite is not None else []
    return [test for part in parts for test in _tests_of(part)]


def _load_error(test):
    """Return why a test stands for a module that cannot be imported; empty for a real test."""
    if type(test).__name__ not in ("_FailedTest", "ModuleImportFailure", "LoadTestsFailure"):
        return ""
    return str(getattr(test, "_exception", "") or "the module cannot be imported")


def _path(name):
    file = getattr(sys.modules.get(name), "__file__", None) or name
    file = os.path.abspath(file)
    return file[len(_ROOT) :] if file.startswith(_ROOT) else file


def node_id(test):
    """Return the id of a test, as pytest gives it."""
    kind = type(test)
    doctest = getattr(test, "_dt_test", None)
    if doctest is not None:
        return _path(getattr(doctest, "filename", None) or "") + "::" + doctest.name
    function = getattr(test, "_testFunc", None)
    if function is not None:
        return _path(getattr(function, "__module__", "")) + "::" + getattr(function, "__name__", "")
    method = getattr(test, "_testMethodName", "")
    return "::".join([_path(kind.__module__), *getattr(kind, "__qualname__", kind.__name__).split("."), method])


def _names(test):
    """Return what the verbose output of any version of unittest calls a test, its description included."""
    kind = type(test)
    method = getattr(test, "_testMethodName", "")
    owner = kind.__module__ + "." + getattr(kind, "__qualname__", kind.__name__)
    names = [str(test), "%s (%s)" % (method, owner), "%s (%s.%s)" % (method, owner, method), owner + "." + method]
    try:
        names.append(test.shortDescription() or "")
    except Exception:
        # A project may override it.
        pass
    unique = []
    for name in names:
        if name and name not in unique:
            unique.append(name)
    return unique


def _install(session):
    """Let every result report to the session, in addition to what it does."""
    kind = unittest.TestResult

    def extend(name, extra):
        original = getattr(kind, name)

        def method(self, *args, **kwargs):
            extra(self, *args, **kwargs)
            return original(self, *args, **kwargs)

        setattr(kind, name, method)

    extend("startTest", lambda result, test: session.start(test))
    extend("stopTest", lambda result, test: session.stop(result))
    extend("addSuccess", lambda result, test: session.record(test, session.outcome or "passed"))
    extend("addFailure", lambda result, test, err: session.record(test, "failed", err))
    extend("addError", lambda result, test, err: session.record(test, "error", err))
    extend("addSkip", lambda result, test, reason: session.skip(test))
    extend("addExpectedFailure", lambda result, test, err: session.record(test, "xfailed"))
    # An unexpected success fails the run.
    extend("addUnexpectedSuccess", lambda result, test: session.record(test, "failed"))
    extend("addSubTest", lambda result, test, subtest, err: err and session.record(test, "failed", err))

    def run(runner, suite):
        return _run(runner, session.prepare(suite))

    unittest.TextTestRunner.run = run


def main(program, arguments):
    """Run a program that runs tests by unittest, a path or `-m` and a module, and report how it ends."""
    import runpy

    ssr_channel.send("begin", addopts=[])
    session = Session()
    _install(session)
    code = 0
    try:
        if program == "-m":
            sys.argv = [arguments[0], *arguments[1:]]
            sys.path.insert(0, os.getcwd())
            runpy.run_module(arguments[0], run_name="__main__", alter_sys=True)
        else:
            sys.argv = [program, *arguments]
            sys.path.insert(0, os.path.dirname(os.path.abspath(program)))
            runpy.run_path(program, run_name="__main__")
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(bool(end.code))
        if isinstance(end.code, str):
            sys.stderr.write(end.code + "\n")
    if session.probe is not None:
        session.probe.finish()
    ssr_channel.send_end(_ROOT, code)
    sys.exit(code)
