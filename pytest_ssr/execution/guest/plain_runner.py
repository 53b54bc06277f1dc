"""Run blind tests without pytest in charge: no capture, no plugins, no warning filters.

Input: `SSR_VALUES` for the recorder; on standard input one JSON object: `cases` ([id, file, {parameter: row}], ids of
pytest), `pytest` (import it first), `ahead_s` (seconds by which the clocks are ahead), `moved` (the tests
were moved) and `seed` (for how many objects are created between the tests, so that others get other addresses).
Output: what the recorder writes. Each test runs twice; the second time its id ends with `again`. Fixtures of the
project, `monkeypatch`, `request` and `tmp_path` are made for each test; tests that need others of pytest are skipped.
"""

import contextlib
import functools
import importlib
import inspect
import json
import os
import pathlib
import random
import sys
import tempfile
import time
import types
import unittest

import ssr_blind_recorder as recorder

# As with `python -m`; the first entry was the folder of this file.
sys.path[0] = os.getcwd()
_AGAIN = "again"
_MOST_SPARE = 1000
_MODULE_SETUPS = ("setup_module", "setUpModule")


class _UnfitError(Exception):
    """A test needs pytest."""


def _set_ahead(seconds):
    """Set the clocks of `time` ahead, for the standard library as well."""
    clocks = {n: getattr(time, n) for n in ("time", "monotonic", "perf_counter")}
    fine = {n: getattr(time, n) for n in ("time_ns", "monotonic_ns", "perf_counter_ns") if hasattr(time, n)}
    for name, clock in clocks.items():
        setattr(time, name, lambda clock=clock: clock() + seconds)
    for name, clock in fine.items():
        setattr(time, name, lambda clock=clock: clock() + seconds * 10**9)
    for name in ("gmtime", "localtime", "ctime"):
        original = getattr(time, name)
        setattr(time, name, lambda secs=None, original=original: original(time.time() if secs is None else secs))
    asctime, strftime = time.asctime, time.strftime
    time.asctime = lambda t=None: asctime(time.localtime() if t is None else t)
    time.strftime = lambda form, t=None: strftime(form, time.localtime() if t is None else t)


class _Modules:
    """Imports test modules as pytest does by default, with the first folder that is not a package on the path."""

    def __init__(self):
        self.modules, self.conftests = {}, {}

    def of(self, path):
        if path not in self.modules:
            self.modules[path] = None
            folders = []
            folder = os.path.dirname(os.path.abspath(path))
            while folder.startswith(os.getcwd()):
                folders.insert(0, folder)
                folder = os.path.dirname(folder)
            files = [os.path.join(folder, "conftest.py") for folder in folders]
            self.conftests[path] = [self.imported(file) for file in files if os.path.exists(file)]
            self.modules[path] = self.imported(os.path.abspath(path))
            _rename_functions(self.modules[path])
            for name in _MODULE_SETUPS:
                _call(getattr(self.modules[path], name, None), self.modules[path])
        if self.modules[path] is None:
            raise _UnfitError
        return self.modules[path]

    def imported(self, path):
        folder, name = os.path.dirname(path), os.path.basename(path)[: -len(".py")]
        while os.path.exists(os.path.join(folder, "__init__.py")):
            folder, package = os.path.split(folder)
            name = package + "." + name
        if folder not in sys.path:
            sys.path.insert(0, folder)
        module = sys.modules.get(name)
        if module is not None and getattr(module, "__file__", None) != path:
            # Another file of this name, in a folder that is not a package either.
            del sys.modules[name]
        return importlib.import_module(name)


def _rename_functions(module):
    """Rename the code of the functions of a test file: code under test may look for a test among its callers."""
    own = [v for v in vars(module).values() if getattr(v, "__module__", None) == module.__name__]
    for holder in [module, *(v for v in own if isinstance(v, type))]:
        for value in vars(holder).values():
            if isinstance(value, types.FunctionType) and value.__module__ == module.__name__:
                value.__code__ = _renamed(value.__code__, "check")


def _renamed(code, name):
    if hasattr(code, "replace"):
        return code.replace(**{n: name for n in ("co_name", "co_qualname") if hasattr(code, n)})
    # Python < 3.8
    fields = ["argcount", "kwonlyargcount", "nlocals", "stacksize", "flags", "code", "consts", "names", "varnames"]
    fields += ["filename", "name", "firstlineno", "lnotab", "freevars", "cellvars"]
    return types.CodeType(*(name if f == "name" else getattr(code, "co_" + f) for f in fields))


class _Fixtures(contextlib.ExitStack):
    """Makes the fixtures of one test: those of its class, its file and the conftest files, and some of pytest."""

    def __init__(self, holders, indices):
        super().__init__()
        # The innermost first.
        self.holders, self.indices, self.values = holders, indices, {}

    def use_automatic(self):
        for holder in reversed(self.holders):
            for name in dir(holder):
                marker, _ = _fixture(holder, name)
                if marker is not None and marker.autouse:
                    self.value(marker.name or name)

    def value(self, name):
        if name not in self.values:
            self.values[name] = self.created(name)
        return self.values[name]

    def created(self, name):
        for holder in self.holders:
            for attribute in [name, *dir(holder)]:
                marker, function = _fixture(holder, attribute)
                if marker is not None and (marker.name or attribute) == name:
                    return self.result(function, self.request(name, marker.params))
        if name == "tmp_path":
            return pathlib.Path(tempfile.mkdtemp())
        if name == "monkeypatch":
            return self.enter_context(importlib.import_module("pytest").MonkeyPatch.context())
        raise _UnfitError

    def request(self, name, params):
        request = types.SimpleNamespace(getfixturevalue=self.value, addfinalizer=self.callback)
        if params is not None:
            param = params[self.indices[name]]
            request.param = param.values[0] if hasattr(param, "marks") else param
        return request

    def result(self, function, request):
        """Call the function of a fixture; it may be a generator that is resumed after the test."""
        arguments = {n: request if n == "request" else self.value(n) for n in _required(function)}
        result = function(**arguments)
        if inspect.isawaitable(result) or inspect.isasyncgen(result):
            raise _UnfitError
        if not inspect.isgenerator(result):
            return result
        value = next(result)
        self.callback(next, result, None)
        return value


def _fixture(holder, name):
    """Return the marker and the function of a fixture, or None twice; both are attributes of its definition."""
    definition = inspect.getattr_static(holder, name, None)
    marker = getattr(definition, "_fixture_function_marker", None)
    function = getattr(definition, "_fixture_function", None)
    if marker is None and isinstance(definition, types.FunctionType):
        # pytest < 8.4
        marker = vars(definition).get("_pytestfixturefunction")
        function = getattr(vars(definition).get("__pytest_wrapped__"), "obj", None)
    if marker is None or function is None:
        return None, None
    return marker, function if isinstance(holder, types.ModuleType) else functools.partial(function, holder)


def _required(function):
    """Return the names of the parameters of a function that have no default."""
    parameters = inspect.signature(function).parameters.values()
    return [p.name for p in parameters if p.default is p.empty and p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]


def _call(function, argument):
    """Call a setup or teardown function, which may take an argument."""
    if function is not None:
        function(*([argument] if inspect.signature(function).parameters else []))


class _Runner:
    """Runs cases of tests by their ids."""

    def __init__(self):
        self.modules, self.rows = _Modules(), {}

    def run(self, node_id, path, indices):
        _, *names = node_id.partition("[")[0].split("::")
        module = self.modules.of(path)
        holders = [module]
        for name in names[:-1]:
            holders.append(getattr(holders[-1], name))
        if isinstance(holders[-1], type) and issubclass(holders[-1], unittest.TestCase):
            self.run_unit(holders[-1], names[-1])
        else:
            self.run_function(holders, names[-1], self.modules.conftests[path], indices)

    def run_unit(self, kind, name):
        kind.setUpClass()
        try:
            kind(name).debug()
        finally:
            kind.tearDownClass()

    def run_function(self, holders, name, conftests, indices):
        module, holder = holders[0], holders[-1]
        instance = holder if holder is module else holder()
        function = getattr(instance, name)
        marks = _marks(function) + [m for h in reversed(holders) for m in _marks(h)]
        values = self.values(function, marks, indices)
        fixtures = _Fixtures([*([instance] if holder is not module else []), module, *reversed(conftests)], indices)
        setups, teardowns = [("setup_function", function)], [("teardown_function", function)]
        if holder is not module:
            setups = [("setup_class", holder), ("setup_method", function)]
            teardowns = [("teardown_method", function), ("teardown_class", holder)]
        try:
            for setup, argument in setups:
                _call(getattr(instance, setup, None), argument)
            with fixtures:
                fixtures.use_automatic()
                names = [n for m in marks if m.name == "usefixtures" for n in m.args] + _required(function)
                provided = {n: fixtures.value(n) for n in names if n not in values}
                function(**values, **{n: provided[n] for n in _required(function) if n in provided})
        finally:
            for teardown, argument in teardowns:
                _call(getattr(instance, teardown, None), argument)

    def values(self, function, marks, indices):
        """Return the arguments of a test that come from tables."""
        if inspect.iscoroutinefunction(function):
            raise _UnfitError
        values = {}
        for mark in marks:
            if mark.name == "parametrize":
                values.update(self.row(mark, indices))
        return values

    def row(self, mark, indices):
        """Return the values of one row of a `parametrize` mark."""
        names, rows, indirect = (list(mark.args) + [None] * 3)[:3]
        names = mark.kwargs.get("argnames", names)
        if mark.kwargs.get("indirect", indirect):
            raise _UnfitError
        alone = isinstance(names, str) and "," not in names
        names = [n.strip() for n in names.split(",") if n.strip()] if isinstance(names, str) else list(names)
        # The values may be an iterator, which can be read only once.
        rows = self.rows.setdefault(id(mark), list(mark.kwargs.get("argvalues", rows)))
        row = rows[indices[names[0]]]
        if hasattr(row, "marks") and hasattr(row, "values"):
            row = row.values
        elif alone:
            row = (row,)
        return dict(zip(names, row))


def _remove_empty_folders():
    """Remove the folders that the tests were in."""
    for folder, _, _ in os.walk(".", topdown=False):
        with contextlib.suppress(OSError):
            os.rmdir(folder)


def _marks(holder):
    """Return the marks of a module, a class with its bases, or a function."""
    kinds = reversed(holder.__mro__) if isinstance(holder, type) else [holder]
    values = [vars(k).get("pytestmark", []) if isinstance(holder, type) else _own(k) for k in kinds]
    lists = [v if isinstance(v, (list, tuple)) else [v] for v in values]
    return [getattr(m, "mark", m) for marks in lists for m in marks]


def _own(holder):
    return getattr(holder, "pytestmark", [])


def main():
    """Run the cases twice."""
    job = json.loads(sys.stdin.read())
    rng = random.Random(job["seed"])
    spare_objects = []
    if job["ahead_s"]:
        _set_ahead(job["ahead_s"])
    if job["pytest"]:
        importlib.import_module("pytest")
    if job["moved"]:
        _remove_empty_folders()
    recorder.share_among(2 * len(job["cases"]))
    runner = _Runner()
    for ending in ("", _AGAIN):
        for node_id, path, indices in job["cases"]:
            spare_objects.append([object() for _ in range(rng.randrange(_MOST_SPARE))])
            recorder.start(node_id + ending, None)
            try:
                runner.run(node_id, path, indices)
            except BaseException:
                # The test ended early; it writes nothing from here on.
                pass
            recorder.finish(node_id + ending, None)
    # Threads of the tests may still run.
    os._exit(0)


if __name__ == "__main__":
    main()
