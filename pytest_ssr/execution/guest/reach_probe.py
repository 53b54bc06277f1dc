"""A pytest plugin that records which statements of the project each test reaches.

Modules of the project are compiled with one extra store before each statement inside a function or
class, `__ssr_hits__[k] = 1`; that costs a small share of what a trace function does and sees threads as well.

What no statement tells is recorded too: which statements run while modules are imported (they concern every test),
tests that start processes or find some running, or leave threads running, and tests that open files of the tree.

In: `SSR_REACH` (the file to write), `SSR_REACH_FILES` (a file of relative paths of modules, separated by NUL).
Out: JSON, one object a line, written as the tests go, so that a run that is cut off leaves what it has measured:

- `{"spots": [[path, line, column], ...]}`: more statements, numbered from 0 through the file
- `{"set": [number, ...]}`: a set of statements; sets are numbered from 0 as well
- `{"holder": name, "reaches": set}`
- `{"holder": name, "starts_processes": true}`
- `{"holder": name, "opens": path}`
- `{"early": path}`: a module that was loaded before it could be watched
- `{"end": true}`

A holder is a test's id, `file PATH` for all tests of a file, `all` or `import`.
"""

import ast
import atexit
import builtins
import functools
import gc
import importlib.machinery
import json
import linecache
import os
import sys
import threading

import ssr_system_calls

_OUT = os.open(os.environ.pop("SSR_REACH"), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
_ROOT = os.path.realpath(os.getcwd()).rstrip("/") + "/"
_PID = os.getpid()
with open(os.environ.pop("SSR_REACH_FILES"), encoding="utf-8", errors="surrogateescape") as _file:
    _TARGETS = frozenset(_ROOT + line for line in _file.read().split("\0") if line)

_hits = bytearray()
builtins.__ssr_hits__ = _hits
_spots = []
_IMPORT, _ALL = "import", "all"
_reached = {}
_sets = {}
_facts = set()
_written_spots = [0]
_holder = [_IMPORT]
_BLOCKS = ("body", "orelse", "finalbody")


def _mark(tree, path):
    """Put a store before each statement of each block but those of the module itself."""
    for node in list(ast.walk(tree)):
        if isinstance(node, ast.Module):
            continue
        for name in _BLOCKS:
            block = getattr(node, name, None)
            if isinstance(block, list) and block and isinstance(block[0], ast.stmt):
                setattr(node, name, _marked(block, path, _has_docstring(node, name, block)))
    return tree


def _has_docstring(node, name, block):
    return (
        name == "body"
        and isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
        and isinstance(block[0], ast.Expr)
        and isinstance(block[0].value, ast.Constant)
        and isinstance(block[0].value.value, str)
    )


def _marked(block, path, docstring):
    result = [block[0]] if docstring else []
    for statement in block[1:] if docstring else block:
        place = ast.copy_location(ast.Constant(len(_spots)), statement)
        _spots.append((path, statement.lineno, statement.col_offset))
        name = ast.copy_location(ast.Name("__ssr_hits__", ast.Load()), statement)
        target = ast.copy_location(ast.Subscript(name, _index(place), ast.Store()), statement)
        one = ast.copy_location(ast.Constant(1), statement)
        result.append(ast.copy_location(ast.Assign([target], one, lineno=statement.lineno), statement))
        result.append(statement)
    return result


def _index(constant):
    return constant if sys.version_info >= (3, 9) else ast.copy_location(ast.Index(constant), constant)


def _take():
    """Give what was reached since the last time to whoever holds it now."""
    place = _hits.find(1)
    if place < 0:
        return
    holders = [_reached.setdefault(_holder[-1], set())]
    if _holder[-1] != _IMPORT and _is_any_thread_busy():
        holders.append(_reached.setdefault(_ALL, set()))
    while place >= 0:
        for reached in holders:
            reached.add(place)
        place = _hits.find(1, place + 1)
    _hits[:] = bytes(len(_hits))


def _write(**record):
    if os.getpid() == _PID:
        ssr_system_calls.write(_OUT, (json.dumps(record) + "\n").encode("utf-8", "surrogatepass"))


def _note(**fact):
    """Write a fact once."""
    key = tuple(sorted(fact.items()))
    if key not in _facts:
        _facts.add(key)
        _write(**fact)


def _flush():
    """Write what was reached since the last time."""
    if len(_spots) > _written_spots[0]:
        _write(spots=_spots[_written_spots[0] :])
        _written_spots[0] = len(_spots)
    for holder, places in _reached.items():
        key = frozenset(places)
        if key not in _sets:
            _sets[key] = len(_sets)
            _write(set=sorted(key))
        _write(holder=holder, reaches=_sets[key])
    _reached.clear()


_caches = [None]


def _forget():
    """Empty the caches of the project's functions, so that each test reaches what it would reach alone."""
    if _caches == [None]:
        kind = getattr(functools, "_lru_cache_wrapper", None)
        # What the project has frozen is not listed otherwise.
        gc.unfreeze()
        _caches[:] = [x for x in gc.get_objects() if type(x) is kind and _is_projects(x)]
    for cache in _caches:
        cache.cache_clear()
    linecache.clearcache()


def _is_projects(function):
    code = getattr(getattr(function, "__wrapped__", None), "__code__", None)
    return code is not None and ssr_system_calls.realpath(code.co_filename) in _TARGETS


# None until the first test: threads that are there before have nothing to do with tests.
_first_threads = [None]
# Functions in which the workers of thread pools wait for work.
_POOLS = (
    ("concurrent/futures/thread.py", "_worker"),
    ("queue.py", "get"),
    ("trio/_core/_thread_cache.py", "_work"),
)


def _is_any_thread_busy():
    """Tell whether a thread that a test has left may run code that no later test asks for."""
    if _first_threads[0] is None or threading.active_count() <= len(_first_threads[0]):
        return False
    frames = sys._current_frames()
    others = (thread for thread in threading.enumerate() if thread not in _first_threads[0])
    return any(not _waits_in_a_pool(frames.get(thread.ident)) for thread in others)


def _waits_in_a_pool(frame):
    """Tell whether a thread waits for what somebody will give it: whoever does that reaches what it runs then."""
    while frame is not None and os.path.basename(frame.f_code.co_filename) == "threading.py":
        frame = frame.f_back
    if frame is None or not _is_in_a_pool(frame.f_code):
        return False
    while frame is not None:
        if ssr_system_calls.realpath(frame.f_code.co_filename) in _TARGETS:
            return False
        frame = frame.f_back
    return True


def _is_in_a_pool(code):
    return any(code.co_name == name and code.co_filename.endswith("/" + file) for file, name in _POOLS)


_loader = importlib.machinery.SourceFileLoader
_get_code = _loader.get_code


def _instrumented(self, fullname):
    real = ssr_system_calls.realpath(self.path)
    if real not in _TARGETS:
        return _get_code(self, fullname)
    tree = ast.parse(self.get_data(self.path), self.path)
    tree = _mark(tree, real[len(_ROOT) :])
    code = compile(tree, self.path, "exec", dont_inherit=True)
    _hits.extend(bytes(len(_spots) - len(_hits)))
    return code


_loader.get_code = _instrumented


def _while_importing(kind):
    """Count what a module runs when it is executed as reached at import, whoever imports it."""
    execute = kind.exec_module

    def exec_module(self, module):
        _take()
        _holder.append(_IMPORT)
        try:
            return execute(self, module)
        finally:
            _take()
            _holder.pop()
            _caches[:] = [None]

    kind.exec_module = exec_module


_while_importing(_loader)
for _module in list(sys.modules.values()):
    _path = getattr(_module, "__file__", None)
    if isinstance(_path, str) and os.path.realpath(_path) in _TARGETS:
        _write(early=os.path.realpath(_path)[len(_ROOT) :])

# Not before: what pytest imports may be what is tested.
import pytest  # noqa: E402
from _pytest.assertion.rewrite import AssertionRewritingHook  # noqa: E402

_while_importing(AssertionRewritingHook)

_PROCESSES = frozenset(
    ("subprocess.Popen", "os.fork", "os.forkpty", "os.exec", "os.posix_spawn", "os.spawn", "os.system", "pty.spawn")
)


# Programs that run no code of the project, and read none unless they are given its path.
_OTHERS = (
    "cat clear date echo false gzip hostname id ldconfig less locale mkdir more ps pwd sleep stty touch tput true "
    "tty uname which whoami"
)


def _is_other(event, arguments):
    """Tell whether a program that is started is known to have nothing to do with the project."""
    if event not in ("subprocess.Popen", "os.posix_spawn", "os.exec"):
        return False
    try:
        words = [os.fsdecode(word) for word in arguments[1]]
        program = words[0] if arguments[0] is None else os.fsdecode(arguments[0])
    except (TypeError, IndexError):
        return False
    if event == "subprocess.Popen" and arguments[2]:
        return False
    given = (ssr_system_calls.realpath(word) + "/" for word in words[1:] if ssr_system_calls.exists(word))
    return os.path.basename(program) in _OTHERS.split() and not any(path.startswith(_ROOT) for path in given)


def _is_import_system():
    """Tell whether a file is being opened by what imports modules, and not by who asks a loader for its text."""
    frame = sys._getframe(2)
    while frame is not None and "pathlib" in frame.f_code.co_filename:
        frame = frame.f_back
    name = frame.f_code.co_filename if frame is not None else ""
    if frame is not None and frame.f_code.co_name == "get_data":
        return frame.f_back.f_code.co_name in ("get_code", "_instrumented")
    return name.startswith("<frozen importlib") or name.endswith("_pytest/assertion/rewrite.py")


# The file that is being collected, and the holder that stands for its tests: they are what its text decides.
_collected = ["", _IMPORT]


def _audit(event, arguments):
    if event == "open":
        path = arguments[0]
        if isinstance(path, bytes):
            path = os.fsdecode(path)
        if isinstance(path, str):
            path = ssr_system_calls.realpath(path)
            # The import system reads code; whoever else reads a file of the tree sees what changes in it.
            if path.startswith(_ROOT) and not (path.endswith((".py", ".pyc")) and _is_import_system()):
                holder = _collected[1] if path == _collected[0] else _holder[-1]
                _note(holder=holder, opens=path[len(_ROOT) :])
    elif event in _PROCESSES and not _is_other(event, arguments):
        _note(holder=_holder[-1], starts_processes=True)


sys.addaudithook(_audit)
try:
    # multiprocessing starts its helpers by this, past every audit event.
    import _posixsubprocess

    _fork_exec = _posixsubprocess.fork_exec

    def _forking(*arguments):
        _note(holder=_holder[-1], starts_processes=True)
        return _fork_exec(*arguments)

    _posixsubprocess.fork_exec = _forking
except ImportError:
    pass


def _has_children():
    """Tell whether a process that was started before is still there: it may run code for whoever gives it work."""
    tracker = getattr(sys.modules.get("multiprocessing.resource_tracker"), "_resource_tracker", None)
    children = set()
    for thread in os.listdir("/proc/self/task"):
        try:
            with open("/proc/self/task/" + thread + "/children") as file:
                children.update(file.read().split())
        except OSError:
            continue
    return bool(children - {str(getattr(tracker, "_pid", None))})


class Probe:
    """Tells whose the statements are that were reached."""

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_make_collect_report(self, collector):
        """Know which file is being collected."""
        file = ssr_system_calls.realpath(str(getattr(collector, "path", collector.session.fspath)))
        _collected[:] = [file, "file " + collector.nodeid.partition("::")[0]]
        try:
            return (yield)
        finally:
            _collected[:] = ["", _IMPORT]

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self):
        """End the time in which everything counts as import."""
        _take()
        _flush()
        _holder[-1] = _ALL
        _first_threads[0] = frozenset(threading.enumerate())

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item):
        """Give one test what it reaches."""
        _take()
        _forget()
        _holder.append(item.nodeid)
        if _has_children():
            _note(holder=item.nodeid, starts_processes=True)
        try:
            return (yield)
        finally:
            _take()
            _holder.pop()
            _flush()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_fixture_setup(self, fixturedef, request):
        """Give what a fixture of a wider scope reaches to every test of that scope."""
        if fixturedef.scope == "function":
            return (yield)
        _take()
        file = request.node.nodeid.partition("::")[0]
        _holder.append("file " + file if fixturedef.scope in ("class", "module") and file else _ALL)
        try:
            return (yield)
        finally:
            _take()
            _holder.pop()

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self):
        """Write the rest; what is reached after this concerns every test."""
        _finish()
        _holder[-1] = _ALL


def _finish():
    _take()
    _flush()
    _write(end=True)


atexit.register(_finish)


def pytest_configure(config):
    """Register the probe proper."""
    config.pluginmanager.register(Probe(), "ssr-reach")
