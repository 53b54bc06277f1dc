"""Run blind tests without pytest in charge: no capture, no plugins, no warning filters.

Input: `SSR_VALUES` and the like for the recorder; on standard input one JSON object: `cases` ([id, file,
{parameter: row}, rounds], ids of pytest), `pytest` (import it first), `ahead_s` (seconds by which the clocks are
ahead), `moved` (the tests were moved), `between_s` (CPU seconds for which tests are repeated between the rounds,
without being written), `seed` (for how many objects are created between the tests, so that others get other addresses)
and `checkpoint` (null, or a number of cases and what to print as soon as these have run). Output: what the recorder
writes. In the second round, ids end with `again`. Fixtures of the project and some of pytest's are made for each test;
tests that need others are skipped. Unless it is imported first, pytest is hidden from code that looks for it among the
modules.
"""

import builtins
import collections
import contextlib
import functools
import importlib
import inspect
import io
import json
import logging
import os
import pathlib
import random
import sys
import tempfile
import time
import types

import ssr_blind_provenance as provenance
import ssr_blind_recorder as recorder
import ssr_blind_values as values

# As with `python -m`; the first entry was the folder of this file.
sys.path[0] = os.getcwd()
_AGAIN = "again"
_MOST_SPARE, _MOST_REPEATS = 1000, 300
_STREAMS = sys.stdout, sys.stderr
_HIDDEN = ("pytest", "_pytest", "pluggy", "iniconfig")
_MODULE_SETUPS = ("setup_module", "setUpModule")
_SLOW_IMPORTS = {"asyncio": b"async", "unittest": b"unittest"}
"""Modules that only some tests need, with what their files then contain."""


class _UnfitError(Exception):
    """A test needs pytest."""


def _import_for(paths):
    """Import what the tests in some files need, so that its functions are known before the project can replace them."""
    texts = []
    for path in paths:
        with contextlib.suppress(OSError), open(path, "rb") as file:
            texts.append(file.read())
    for name, word in _SLOW_IMPORTS.items():
        if any(word in text for text in texts):
            importlib.import_module(name)


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


class _Hidden:
    """Serves pytest to those who import it, and keeps it out of `sys.modules` at all other times."""

    def __init__(self):
        self.modules, self.depth, self.original = {}, 0, builtins.__import__

    def imported(self, name, globals=None, locals=None, fromlist=(), level=0):
        importer = (globals or {}).get("__name__") or ""
        if not self.is_hidden(importer) and (level or not self.is_hidden(name)):
            return self.original(name, globals, locals, fromlist, level)
        with self.shown():
            return self.original(name, globals, locals, fromlist, level)

    def is_hidden(self, name):
        return name.partition(".")[0] in _HIDDEN

    @contextlib.contextmanager
    def shown(self):
        sys.modules.update(self.modules)
        self.depth += 1
        try:
            yield
        finally:
            self.depth -= 1
            if not self.depth:
                for name in [name for name in sys.modules if self.is_hidden(name)]:
                    self.modules[name] = sys.modules.pop(name)


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
        if name not in _FIXTURES:
            raise _UnfitError
        return _FIXTURES[name](self)

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


class _Sink(io.RawIOBase):
    """Keeps what is written to it; like a terminal or a pipe, it cannot be rewound."""

    def __init__(self):
        super().__init__()
        self.parts = []

    def writable(self):
        return True

    def write(self, data):
        self.parts.append(bytes(data))
        return len(data)


class _Captured:
    """What is written to the standard streams, as the fixture `capsys` of pytest gives it."""

    Result = collections.namedtuple("Result", "out err")

    def __init__(self):
        self.sinks = [_Sink(), _Sink()]
        self.streams = [
            io.TextIOWrapper(io.BufferedWriter(sink), encoding="utf-8", newline="", write_through=True)
            for sink in self.sinks
        ]

    def readouterr(self):
        texts = []
        for sink, stream in zip(self.sinks, self.streams):
            stream.flush()
            texts.append(b"".join(sink.parts).decode("utf-8", "replace"))
            del sink.parts[:]
        return self.Result(*texts)

    @contextlib.contextmanager
    def disabled(self):
        with _streams(*_STREAMS):
            yield


@contextlib.contextmanager
def _streams(out, err):
    """Exchange the standard streams, and what they were at first: code may see whether it is captured."""
    streams = {"stdout": out, "stderr": err, "__stdout__": out, "__stderr__": err}
    before = {name: getattr(sys, name) for name in streams}
    try:
        vars(sys).update(streams)
        yield
    finally:
        vars(sys).update(before)


def _capsys(fixtures):
    captured = _Captured()
    fixtures.enter_context(_streams(*captured.streams))
    return captured


class _Logged(logging.Handler):
    """The records that are logged, as the fixture `caplog` of pytest gives them."""

    def __init__(self):
        super().__init__(0)
        self.records, self.levels = [], {}
        self.setFormatter(logging.Formatter("%(levelname)-8s %(name)s:%(filename)s:%(lineno)d %(message)s"))

    handler = property(lambda self: self)
    messages = property(lambda self: [record.getMessage() for record in self.records])
    text = property(lambda self: "".join(self.format(record) + "\n" for record in self.records))
    record_tuples = property(lambda self: [(r.name, r.levelno, r.getMessage()) for r in self.records])

    def emit(self, record):
        self.records.append(record)

    def clear(self):
        del self.records[:]

    def set_level(self, level, logger=None):
        log = logging.getLogger(logger)
        self.levels.setdefault(logger, log.level)
        log.setLevel(level)
        self.setLevel(level)

    @contextlib.contextmanager
    def at_level(self, level, logger=None):
        log = logging.getLogger(logger)
        levels = log.level, self.level
        log.setLevel(level)
        self.setLevel(level)
        try:
            yield
        finally:
            log.setLevel(levels[0])
            self.setLevel(levels[1])

    def restore(self):
        logging.getLogger().removeHandler(self)
        for name, level in self.levels.items():
            logging.getLogger(name).setLevel(level)


def _caplog(fixtures):
    logged = _Logged()
    logging.getLogger().addHandler(logged)
    fixtures.callback(logged.restore)
    return logged


def _tmp_path_factory(fixtures):
    def mktemp(name, numbered=True):
        path = base / name
        if numbered:
            path = pathlib.Path(tempfile.mkdtemp(prefix=name, dir=str(base)))
        else:
            path.mkdir()
        return path

    base = pathlib.Path(tempfile.mkdtemp())
    return types.SimpleNamespace(mktemp=mktemp, getbasetemp=lambda: base)


def _monkeypatch(fixtures):
    import pytest

    return fixtures.enter_context(pytest.MonkeyPatch.context())


_FIXTURES = {
    "caplog": _caplog,
    "capsys": _capsys,
    "monkeypatch": _monkeypatch,
    "tmp_path": lambda fixtures: pathlib.Path(tempfile.mkdtemp()),
    "tmp_path_factory": _tmp_path_factory,
}


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


def _run_coroutine(coroutine):
    asyncio = importlib.import_module("asyncio")
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    try:
        loop.run_until_complete(coroutine)
    finally:
        loop.close()


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
        # A test can only be one of unittest if something has imported that.
        unittest = sys.modules.get("unittest")
        if unittest is not None and isinstance(holders[-1], type) and issubclass(holders[-1], unittest.TestCase):
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
                result = function(**values, **{n: provided[n] for n in _required(function) if n in provided})
                if inspect.iscoroutine(result):
                    _run_coroutine(result)
        finally:
            for teardown, argument in teardowns:
                _call(getattr(instance, teardown, None), argument)

    def values(self, function, marks, indices):
        """Return the arguments of a test that come from tables."""
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
    # Tests may exchange the streams.
    output = os.dup(1)
    rng = random.Random(job["seed"])
    spare_objects, exhausted, hidden = [], [], _Hidden()
    _import_for({path for _, path, _, _ in job["cases"]})
    if job["ahead_s"]:
        _set_ahead(job["ahead_s"])
    if job["pytest"]:
        importlib.import_module("pytest")
    else:
        builtins.__import__ = hidden.imported
    if job["moved"]:
        _remove_empty_folders()
    recorder.share_among(2 * len(job["cases"]))
    known, runner = provenance.Snapshot(), _Runner()

    def run(node_id, path, indices, ending):
        spare_objects.append([object() for _ in range(rng.randrange(_MOST_SPARE))])
        with contextlib.suppress(BaseException):
            runner.modules.of(path)
        recorder.start(node_id + ending, None)
        # A test that ends early writes nothing from here on.
        try:
            runner.run(node_id, path, indices)
        except (RecursionError, MemoryError):
            exhausted.append(node_id + ending)
        except BaseException:
            pass
        recorder.finish(node_id + ending, None)

    checkpoint, mark = job["checkpoint"] or (0, "")
    for number, (node_id, path, indices, _) in enumerate(job["cases"], 1):
        run(node_id, path, indices, "")
        if number == checkpoint:
            # A test may have closed it.
            with contextlib.suppress(OSError):
                os.write(output, mark.encode())
    repeated = [case for case in job["cases"] if case[3] > 1]
    end = time.process_time() + job["between_s"]
    for _ in range(_MOST_REPEATS):
        for node_id, path, indices, _ in repeated:
            if time.process_time() > end:
                break
            with contextlib.suppress(BaseException):
                runner.run(node_id, path, indices)
    for node_id, path, indices, _ in repeated:
        run(node_id, path, indices, _AGAIN)
    paths = {path for _, path, _, _ in repeated}
    test_modules = {path: module for path, module in runner.modules.modules.items() if path in paths and module}
    recorder.note(*known.note(hidden.modules, values.subclasses, test_modules), exhausted)
    # Threads of the tests may still run.
    os._exit(0)


if __name__ == "__main__":
    main()
