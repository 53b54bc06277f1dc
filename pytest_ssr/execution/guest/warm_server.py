"""A server that forks a child for each test run, so that runs share the cost of start, imports and collection.

It communicates over its standard input: two lengths, a JSON object and bytes; in both directions if that is a socket.
If it is a pipe, as in a container, answers go to descriptor 3.

In mode `import` it holds what the tests import from outside of the tree, pytest included unless that imports the tree;
the child imports the project. In mode `swap` it holds a collected session; the child exchanges the code objects of the
changed functions. Each child has its own mounts over the tree and over the scratch directory, so that no other child
sees what it writes.
"""

import atexit
import ctypes
import gc
import json
import mmap
import os
import random
import signal
import stat
import struct
import sys
import threading
import time

import ssr_evidence
from ssr_selection import selection
from ssr_warm_preload import already_imported, preload
from ssr_warm_shared import empty_captures, is_capture, open_files, shares_memory
from ssr_warm_swap import live_functions, swap
from ssr_warm_view import mounts_below, own_view, write_changes

_ROOT = os.getcwd()
_FOLDER = os.path.dirname(os.path.abspath(__file__))
_RANDOM = random.getstate()
_SUBREAPER, _PDEATHSIG = 36, 1
_TICK_S, _LOOK_S = 0.05, 0.5
_libc = ctypes.CDLL(None, use_errno=True)


class Connection:
    """Exchanges framed messages over a socket or a pair of pipes."""

    def __init__(self):
        """Move the socket away from standard input and output, so that no test can use it by accident."""
        self.fd = self.answers = os.dup(0)
        if not stat.S_ISSOCK(os.fstat(0).st_mode):
            self.answers = os.dup(3)
            os.close(3)
        null = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1, 2):
            os.dup2(null, number)
        os.close(null)

    def receive(self):
        """Return the next request, or None at the end of the input."""
        head = self._exactly(8)
        if head is None:
            return None
        text, raw = struct.unpack("!II", head)
        body = self._exactly(text + raw)
        return None if body is None else json.loads(body[:text].decode("utf-8", "surrogatepass"))

    def send(self, record, raw=b""):
        """Send a record and some bytes."""
        text = json.dumps(record).encode()
        data = memoryview(struct.pack("!II", len(text), len(raw)) + text + raw)
        while data:
            data = data[os.write(self.answers, data) :]

    def close(self):
        """Close the descriptors, in a child; the server keeps its own."""
        for number in {self.fd, self.answers}:
            os.close(number)

    def _exactly(self, count):
        parts = []
        while count:
            part = os.read(self.fd, min(count, 1 << 20))
            if not part:
                return None
            parts.append(part)
            count -= len(part)
        return b"".join(parts)


class Server:
    """Forks children and watches them."""

    def __init__(self, settings):
        """Take over the connection."""
        self.settings = settings
        self.connection = Connection()
        self.mask = None
        self.random = _RANDOM
        self.deadline = None

    def refuse(self, reason, **more):
        """Report that this server cannot serve, and exit."""
        self.connection.send(dict(more, ready=False, reason=reason))
        os._exit(0)

    def start(self, **facts):
        """Report that the server is ready."""
        if not os.path.isdir("/proc/self/task"):
            self.refuse("the system has no /proc")
        if len(os.listdir("/proc/self/task")) > 1:
            self.refuse("threads are running after all imports")
        if not hasattr(_libc, "memfd_create"):
            self.refuse("the C library has no memfd_create")
        _libc.prctl(_SUBREAPER, 1, 0, 0, 0)
        os.makedirs(self.settings["scratch"] + "/ssr-view", exist_ok=True)
        if shares_memory():
            self.refuse("memory that forks would share is mapped after all imports")
        mounts = mounts_below(self.settings["private"])
        for directory in self.settings["private"]:
            for name in os.listdir(directory):
                path = os.path.join(directory, name)
                if not any((mount + "/").startswith(path + "/") for mount in mounts):
                    self.refuse(f"{path} exists after all imports")
        self._try_view()
        self.deadline = Deadline()
        self.mask = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
        self.random = random.getstate()
        gc.collect()
        getattr(gc, "freeze", int)()
        self.connection.send(dict(facts, ready=True))

    def _try_view(self):
        """Refuse to serve if a child cannot have its own view."""
        reading, writing = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                own_view(self.settings)
                with open(".ssr-trial", "w") as file:
                    file.write("seen by nobody else")
            except BaseException as error:
                os.write(writing, str(error).encode()[:1000])
            os._exit(0)
        os.close(writing)
        fault = os.read(reading, 1000).decode()
        os.close(reading)
        os.waitpid(pid, 0)
        if fault or os.path.exists(".ssr-trial"):
            self.refuse("a run cannot have its own view of the tree here: " + (fault or "it is seen outside"))

    def next_child(self):
        """Serve requests; return only in a child, with its request."""
        while True:
            request = self.connection.receive()
            if request is None:
                os._exit(0)
            channel = _libc.memfd_create(b"ssr-channel", 0)  # `os` has it since Python 3.8
            self.deadline.set(request["start_s"])
            pid = os.fork()
            if pid == 0:
                self._become_fresh(channel, request)
                return request
            self._watch(pid, channel, request)
            os.close(channel)

    def _become_fresh(self, channel, request):
        """Make this fork equivalent to a fresh process."""
        request["channel"] = channel
        try:
            os.setsid()
            _libc.prctl(_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            self.connection.close()
            signal.pthread_sigmask(signal.SIG_SETMASK, self.mask)
            own_view(self.settings)
            write_changes(request["changes"])
            ssr_evidence.watch(request["changes"])
            if self.random != _RANDOM:
                # Forking reseeds the generator, even if the project has set a seed.
                random.setstate(self.random)
        except BaseException as error:
            unfit(channel, error)
        try:
            reporter().begin_child(channel, request.get("order_seed"))
        except BaseException:
            # It imports pytest, which may import what the change has broken; a fresh process would end so, too.
            os._exit(1)

    def _watch(self, pid, channel, request):
        begin = time.monotonic()
        extra = 0.0
        status, timed_out = None, False
        while True:
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                break
            remaining = min(begin + request["wall_s"], self.deadline.get()) + extra - time.monotonic()
            if remaining <= 0:
                # Time spent waiting for a core does not count: other work on the machine must not decide a verdict.
                queued = min(_queued_s(), request["most_s"] - request["wall_s"])
                if queued > extra + _TICK_S:
                    extra = queued
                    continue
                timed_out = True
                os.kill(pid, signal.SIGKILL)
                _, status = os.waitpid(pid, 0)
                break
            signal.sigtimedwait([signal.SIGCHLD], min(remaining, _LOOK_S))
        seconds = time.monotonic() - begin
        self._kill_descendants()
        code = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
        size = os.lseek(channel, 0, os.SEEK_END)
        raw = os.pread(channel, min(size, 256 << 20), 0)
        self.connection.send({"exit": code, "timed_out": timed_out, "seconds": seconds}, raw)

    @staticmethod
    def _kill_descendants():
        """Kill processes that the child left behind; orphans are children of this process."""
        while True:
            try:
                done, _ = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if done:
                continue
            for name in os.listdir("/proc"):
                if name.isdigit() and _parent(name) == os.getpid():
                    try:
                        os.kill(int(name), signal.SIGKILL)
                    except ProcessLookupError:
                        pass
            time.sleep(0.001)


def _parent(pid):
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            raw = file.read()
        return int(raw[raw.rindex(b")") + 2 :].split()[1])
    except (OSError, ValueError, IndexError):
        return 0


def _queued_s():
    """Return how long the descendants of this process waited for a core, in seconds: the longest wait of one thread.

    Zero if the kernel does not report it.
    """
    parents = {int(name): _parent(name) for name in os.listdir("/proc") if name.isdigit()}
    longest_ns = 0
    for name in parents:
        above = parents[name]
        while above not in (0, os.getpid()):
            above = parents.get(above, 0)
        if not above:
            continue
        try:
            for thread in os.listdir(f"/proc/{name}/task"):
                with open(f"/proc/{name}/task/{thread}/schedstat", "rb") as file:
                    longest_ns = max(longest_ns, int(file.read().split()[1]))
        except (OSError, ValueError, IndexError):
            continue
    return longest_ns / 1e9


def reporter():
    """Import the reporter, which imports pytest."""
    sys.path.insert(0, _FOLDER)
    try:
        import ssr_reporter
    finally:
        sys.path.remove(_FOLDER)
    return ssr_reporter


def guests(arguments):
    """Return the reporter, and the plugin that names parameter sets by position if the arguments load it."""
    found = [reporter()]
    if "ssr_identities" in arguments:
        sys.path.insert(0, _FOLDER)
        try:
            import ssr_identities
        finally:
            sys.path.remove(_FOLDER)
        found.append(ssr_identities)
    return found


def unfit(channel, error):
    """Exit from a child that cannot make its run, and report the reason."""
    record = {"kind": "unfit", "reason": f"{type(error).__name__}: {error}"}
    os.write(channel, (json.dumps(record) + "\n").encode())
    os._exit(0)


class Deadline:
    """The monotonic time at which a child is killed; each test moves it forward."""

    def __init__(self):
        """Map memory that the server and its children share."""
        self._memory = mmap.mmap(-1, 8)

    def set(self, seconds):
        """Set it to a number of seconds from now."""
        self._memory[:] = struct.pack("d", time.monotonic() + seconds)

    def get(self):
        """Return it."""
        return struct.unpack("d", self._memory[:])[0]


class Pace:
    """A plugin that gives each test of a child its own time limit."""

    def __init__(self, deadline, request):
        """Read the limits of single tests, and the limit of all others."""
        self.deadline, self.limits = deadline, request["limits"]
        self.usual_s, self.end_s = request["test_s"], request["start_s"]

    def pytest_runtest_logstart(self, nodeid):
        """Start the time limit of a test."""
        self.deadline.set(self.limits.get(nodeid, self.usual_s))

    def pytest_sessionfinish(self):
        """Allow time for the end of the process."""
        self.deadline.set(self.end_s)


def leave(code):
    """Exit from a child as the interpreter exits, without tearing down every module."""
    try:
        threading._shutdown()
    finally:
        try:
            atexit._run_exitfuncs()
        finally:
            for stream in (sys.stdout, sys.stderr):
                try:
                    stream.flush()
                except Exception:
                    pass
            os._exit(int(code))


def serve_imports(settings, arguments):
    """Serve in mode `import`."""
    server = Server(settings)
    preload(settings["modules"], settings["skipped"], server)
    if "pytest" in sys.modules:
        reporter()
    server.start()
    request = server.next_child()
    try:
        import pytest

        plugins = [*guests(arguments), Pace(server.deadline, request)]
        if request["tests"] is not None or request["first"] or request["stop_after"]:
            plugins.append(selection(request))
        code = pytest.main([*arguments, *already_imported(pytest), *request["targets"]], plugins=plugins)
    except BaseException as error:
        code = error.code if isinstance(error, SystemExit) and isinstance(error.code, int) else 1
    leave(code)


class Holder:
    """Holds a collected session, and forks from where its tests would run."""

    def __init__(self, settings):
        """Take over the connection."""
        self.server = Server(settings)
        self.files = open_files()

    def pytest_runtestloop(self, session):
        """Serve; in a child, continue with the selected tests."""
        shared = [n for n in open_files() - self.files if not is_capture(n, session.config)]
        if shared:
            self.server.refuse("a file, pipe or socket is open after collection")
        live = live_functions()
        self.server.start(collected=[item.nodeid for item in session.items])
        request = self.server.next_child()
        try:
            for path, functions in request["swap"].items():
                if swap(path, functions, live):
                    ssr_evidence.add(path)
        except BaseException as error:
            unfit(request["channel"], error)
        chosen = selection(request)
        chosen.pytest_collection_modifyitems(session.items)
        session.items = reporter().ordered(session.items)
        session.testscollected = len(session.items)
        reporter().announce(session.items)
        chosen.pytest_collection_finish(session)
        empty_captures(session.config)
        session.config.pluginmanager.register(Pace(self.server.deadline, request), "ssr-pace")


def serve_swaps(settings, arguments):
    """Serve in mode `swap`."""
    holder = Holder(settings)
    import pytest

    pytest.hookimpl(tryfirst=True)(Holder.pytest_runtestloop)

    code = 1
    pid = os.getpid()
    try:
        code = pytest.main([*arguments, *settings["targets"]], plugins=[*guests(arguments), holder])
    except BaseException as error:
        code = error.code if isinstance(error, SystemExit) and isinstance(error.code, int) else 1
    if os.getpid() == pid:
        holder.server.refuse(f"the tests cannot be collected: pytest ended with {code}")
    leave(code)


def serve(path, arguments):
    """Serve with the settings in a file."""
    with open(path, encoding="utf-8") as file:
        settings = json.load(file)
    {"import": serve_imports, "swap": serve_swaps}[settings["mode"]](settings, arguments)
