"""Record which statements of the project each test reaches; the reporters announce the tests.

Modules of the project are compiled with one extra store before each statement inside a function or
class, `__ssr_hits__[k] = 1`; that costs a small fraction of a trace function and covers threads as well.

It also records what statements do not show: which of them run while modules are imported (they concern every test),
tests that start processes, find some running, or leave threads running, and tests that open files of the tree.

Input: `SSR_REACH` (the file to write), `SSR_REACH_FILES` (a file of relative paths of modules, separated by NUL).
Output: JSON, one object per line, written while the tests run, so that an interrupted run keeps what it has measured:

- `{"spots": [[path, line, column], ...]}`: more statements, numbered consecutively from 0
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
import contextlib
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
    """Insert a store before each statement of each block except the module's own."""
    for node in list(ast.walk(tree)):
        if isinstance(node, ast.Module):
            continue
        for name in _BLOCKS:
            block = getattr(node, name, None)
            if isinstance(block, list) and block and isinstance(block[0], ast.stmt):
                setattr(node, name, _marked(block, path, _has_docstring(node, name)))
    return tree


def _has_docstring(node, name):
    return (
        name == "body"
        and isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
        and ast.get_docstring(node, clean=False) is not None
    )


def _marked(block, path, docstring):
    result = [block[0]] if docstring else []
    for statement in block[1:] if docstring else block:
        index = ast.copy_location(ast.Constant(len(_spots)), statement)
        _spots.append((path, statement.lineno, statement.col_offset))
        name = ast.copy_location(ast.Name("__ssr_hits__", ast.Load()), statement)
        target = ast.copy_location(ast.Subscript(name, _index(index), ast.Store()), statement)
        one = ast.copy_location(ast.Constant(1), statement)
        result.append(ast.copy_location(ast.Assign([target], one, lineno=statement.lineno), statement))
        result.append(statement)
    return result


def _index(constant):
    return constant if sys.version_info >= (3, 9) else ast.copy_location(ast.Index(constant), constant)


def _assign_hits():
    """Assign the statements reached since the last call to the current holder."""
    index = _hits.find(1)
    if index < 0:
        return
    holders = [_reached.setdefault(_holder[-1], set())]
    if _holder[-1] != _IMPORT and _is_any_thread_busy():
        holders.append(_reached.setdefault(_ALL, set()))
    while index >= 0:
        for reached in holders:
            reached.add(index)
        index = _hits.find(1, index + 1)
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
    """Write the statements reached since the last call."""
    if len(_spots) > _written_spots[0]:
        _write(spots=_spots[_written_spots[0] :])
        _written_spots[0] = len(_spots)
    for holder, indices in _reached.items():
        key = frozenset(indices)
        if key not in _sets:
            _sets[key] = len(_sets)
            _write(set=sorted(key))
        _write(holder=holder, reaches=_sets[key])
    _reached.clear()


_caches = [None]


def _clear_caches():
    """Clear the caches of the project's functions, so that each test reaches what it would reach alone."""
    if _caches == [None]:
        kind = getattr(functools, "_lru_cache_wrapper", None)
        # Otherwise objects that the project has frozen would not be listed.
        getattr(gc, "unfreeze", int)()
        _caches[:] = [x for x in gc.get_objects() if type(x) is kind and _is_projects(x)]
    for cache in _caches:
        cache.cache_clear()
    linecache.clearcache()


def _is_projects(function):
    code = getattr(getattr(function, "__wrapped__", None), "__code__", None)
    return code is not None and ssr_system_calls.realpath(code.co_filename) in _TARGETS


# None until the first test: threads that started earlier do not belong to tests.
_first_threads = [None]
# Functions in which the workers of thread pools wait for work.
_POOLS = (
    ("concurrent/futures/thread.py", "_worker"),
    ("queue.py", "get"),
    ("trio/_core/_thread_cache.py", "_work"),
)


def _is_any_thread_busy():
    """Return whether a thread left by a test may run code that no later test requests."""
    if _first_threads[0] is None or threading.active_count() <= len(_first_threads[0]):
        return False
    frames = sys._current_frames()
    others = (thread for thread in threading.enumerate() if thread not in _first_threads[0])
    return any(not _waits_in_a_pool(frames.get(thread.ident)) for thread in others)


def _waits_in_a_pool(frame):
    """Return whether a thread waits for work: the test that submits the work reaches what the thread then runs."""
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


def while_importing(kind, method):
    """Count what a module runs during its execution as reached at import, whoever imports it."""
    execute = getattr(kind, method)

    def execute_module(self, module):
        _assign_hits()
        _holder.append(_IMPORT)
        try:
            return execute(self, module)
        finally:
            _assign_hits()
            _holder.pop()
            _caches[:] = [None]

    setattr(kind, method, execute_module)


while_importing(_loader, "exec_module")
for _module in list(sys.modules.values()):
    _path = getattr(_module, "__file__", None)
    if isinstance(_path, str) and os.path.realpath(_path) in _TARGETS:
        _write(early=os.path.realpath(_path)[len(_ROOT) :])

_PROCESSES = frozenset(
    ("subprocess.Popen", "os.fork", "os.forkpty", "os.exec", "os.posix_spawn", "os.spawn", "os.system", "pty.spawn")
)


# Programs that run no code of the project, and read its files only if they are passed a path in it.
_UNRELATED_PROGRAMS = (
    "cat clear date echo false file gzip hostname id ldconfig less locale mkdir more ps pwd sleep stty touch tput true "
    "tty uname which whoami"
)
# Commands of git that read its own files only; the version of a package may come from one.
_UNRELATED_GIT = ("log", "rev-parse", "--version")
_SHELL_SYNTAX = frozenset("\n\"'\\!#$&()*;<>?[]`{|}~")


def _is_unrelated(event, arguments):
    """Return whether a started program is known to be unrelated to the project."""
    if event not in ("subprocess.Popen", "os.posix_spawn", "os.exec"):
        return False
    try:
        argv = [os.fsdecode(argument) for argument in arguments[1]]
        program = argv[0] if arguments[0] is None else os.fsdecode(arguments[0])
        folder = os.fsdecode(arguments[2] or "") if event == "subprocess.Popen" else ""
        # Plugins that ask git, hg and others while they are loaded start nothing if there is no such program. In a
        # test, the function that a process calls first could run code of the project.
        if event == "subprocess.Popen" and _holder[-1] == _IMPORT and not _is_found(program, folder, arguments[3]):
            return True
    except (AttributeError, TypeError, ValueError, IndexError):
        return False
    if event == "subprocess.Popen" and argv[:2] == ["/bin/sh", "-c"] and not _SHELL_SYNTAX.intersection(argv[2]):
        argv = argv[2].split()
        program = argv[0] if argv else ""
    name = os.path.basename(program)
    if name not in _UNRELATED_PROGRAMS.split() and not (name == "git" and argv[1:2] and argv[1] in _UNRELATED_GIT):
        return False
    paths = (os.path.join(folder, path) for path in (program, *argv[1:]))
    paths = (ssr_system_calls.realpath(path) + "/" for path in paths if ssr_system_calls.exists(path))
    return not any(path.startswith(_ROOT) for path in paths)


def _is_found(program, folder, environment):
    """Return whether there is a program of this name, or a relative path, as seen from a folder."""
    entries = [""] if "/" in program else os.get_exec_path(environment)
    return any(ssr_system_calls.exists(os.path.join(folder, entry, program)) for entry in entries)


def _is_import_system():
    """Return whether the import system opens a file, and not code that requests its source from a loader."""
    frame = sys._getframe(2)
    while frame is not None and "pathlib" in frame.f_code.co_filename:
        frame = frame.f_back
    name = frame.f_code.co_filename if frame is not None else ""
    if frame is not None and frame.f_code.co_name == "get_data":
        return frame.f_back.f_code.co_name in ("get_code", "_instrumented")
    return name.startswith("<frozen importlib") or name.endswith("_pytest/assertion/rewrite.py")


# The file that is being collected, and the holder for its tests: its source decides which tests it has.
_collected = ["", _IMPORT]


def _audit(event, arguments):
    if event == "open":
        path = arguments[0]
        if isinstance(path, bytes):
            path = os.fsdecode(path)
        if isinstance(path, str):
            path = ssr_system_calls.realpath(path)
            # The import system reads code; any other reader of a file in the tree sees what changes in it.
            if path.startswith(_ROOT) and not (path.endswith((".py", ".pyc")) and _is_import_system()):
                holder = _collected[1] if path == _collected[0] else _holder[-1]
                _note(holder=holder, opens=path[len(_ROOT) :])
    elif event in _PROCESSES and not _is_unrelated(event, arguments):
        _note(holder=_holder[-1], starts_processes=True)


if sys.version_info >= (3, 8):
    sys.addaudithook(_audit)  # novm
else:
    # Nothing tells which tests open files or start processes: each may.
    _note(holder=_ALL, starts_processes=True)
try:
    # multiprocessing starts its helpers with this function, which raises no audit event.
    import _posixsubprocess

    _fork_exec = _posixsubprocess.fork_exec

    def _forking(*arguments):
        # The module subprocess raises an event, with the program that it starts.
        if sys._getframe(1).f_globals.get("__name__") != "subprocess":
            _note(holder=_holder[-1], starts_processes=True)
        return _fork_exec(*arguments)

    _posixsubprocess.fork_exec = _forking
except ImportError:
    pass


def _has_children():
    """Return whether a process started earlier still exists: it may run code for any test that gives it work."""
    tracker = getattr(sys.modules.get("multiprocessing.resource_tracker"), "_resource_tracker", None)
    children = set()
    try:
        threads = os.listdir("/proc/self/task")
    except OSError:
        return _has_any_child()
    for thread in threads:
        try:
            with open("/proc/self/task/" + thread + "/children") as file:
                children.update(file.read().split())
        except OSError:
            continue
    return bool(children - {str(getattr(tracker, "_pid", None))})


def _has_any_child():
    """Return whether this process has a child, on systems without /proc; True if that is not known."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    except AttributeError:
        # Python has it on macOS since 3.13.
        pass
    return True


def enter_file(path, holder_path):
    """Store which test file is being collected: its source decides which tests it has."""
    _collected[:] = [ssr_system_calls.realpath(path), "file " + holder_path]


def leave_file():
    """No test file is being collected from here on."""
    _collected[:] = ["", _IMPORT]


def begin_tests():
    """End the phase in which everything counts as import."""
    _assign_hits()
    _flush()
    _holder[-1] = _ALL
    _first_threads[0] = frozenset(threading.enumerate())


def start_test(name):
    """Assign to one test what is reached from here on."""
    _assign_hits()
    _clear_caches()
    _holder.append(name)
    if _has_children():
        _note(holder=name, starts_processes=True)


def end_test():
    """End the assignment to the test that was started last."""
    _assign_hits()
    _holder.pop()
    _flush()


@contextlib.contextmanager
def shared(path=""):
    """Assign what is reached meanwhile to all tests of a file; without a path, to all tests."""
    _assign_hits()
    _holder.append("file " + path if path else _ALL)
    try:
        yield
    finally:
        _assign_hits()
        _holder.pop()


def finish():
    """Write the rest; what is reached later concerns every test."""
    _finish()
    _holder[-1] = _ALL


def _finish():
    _assign_hits()
    _flush()
    _write(end=True)


atexit.register(_finish)
