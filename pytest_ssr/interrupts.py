"""Stop work early: on an interrupt, at the end of a time budget, or when its result is no longer needed.

Python raises KeyboardInterrupt in the main thread only, and waits for all other threads before it exits. So threads are
started here (`workers`, `background`), each belongs to a scope, and every loop that waits for a command, a model or a
lock calls `raise_if_stopped` at least every `POLL_S` seconds. A nested scope ends with the scope around it.
"""

from __future__ import annotations

import atexit
import contextlib
import math
import os
import signal
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any, Generic, ParamSpec, Self, TypeVar

_P = ParamSpec("_P")
_T = TypeVar("_T")
POLL_S = 0.2
"""Maximum number of seconds that a loop may wait between two calls of `raise_if_stopped`."""
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_SIGNALS_TO_EXIT = 3
_AT_EXIT_S = 5.0


class TimeBudgetError(BaseException):
    """The time budget has ended: unfinished work is abandoned, finished work is kept.

    Not an Exception, so that no handler mistakes it for a failure of the work itself.
    """


class _Scope:
    """A group of threads that are stopped together, along with the scopes they open."""

    def __init__(self, parent: _Scope | None, deadline: float = math.inf) -> None:
        """deadline: a time of `time.monotonic`."""
        self._parent = parent
        self._event = threading.Event()
        self._signalled = False
        self.deadline: float = deadline if parent is None else min(deadline, parent.deadline)

    def stop(self) -> None:
        self._event.set()

    def stop_by_signal(self) -> None:
        # Not by the event: the code that the signal has interrupted may hold its lock.
        self._signalled = True

    def is_stopped(self) -> bool:
        scope: _Scope | None = self
        while scope is not None:
            if scope._signalled or scope._event.is_set():
                return True
            scope = scope._parent
        return False

    def wait(self, seconds: float) -> None:
        if self._parent is None:
            # Only a signal stops the process, and that also ends a sleep.
            time.sleep(seconds)
        else:
            self._event.wait(seconds)

    def reopen(self) -> None:
        self._signalled = False


_process = _Scope(None)


class _Current(threading.local):
    scope = _process


_current = _Current()


def raise_if_stopped() -> None:
    """Raise KeyboardInterrupt if this thread's work was stopped, TimeIsUpError if its time budget has ended."""
    scope = _current.scope
    if scope.is_stopped():
        _signals.pending = False
        raise KeyboardInterrupt("the run was interrupted")
    if time.monotonic() >= scope.deadline:
        raise TimeBudgetError


def pause(seconds: float) -> None:
    """Sleep, unless this thread's work is stopped or its budget ends first; raises like `raise_if_stopped`."""
    deadline = time.monotonic() + seconds
    raise_if_stopped()
    while (remaining_s := deadline - time.monotonic()) > 0:
        _current.scope.wait(min(POLL_S, remaining_s))
        raise_if_stopped()


def is_stopped() -> bool:
    """Return whether this thread has to stop; clean-up may then kill instead of waiting."""
    scope = _current.scope
    return scope.is_stopped() or time.monotonic() >= scope.deadline


@contextlib.contextmanager
def until(deadline: float) -> Iterator[None]:
    """Make `raise_if_stopped` raise TimeIsUpError after `deadline` (`time.monotonic`), here and in new threads."""
    outer = _current.scope
    _current.scope = _Scope(outer, deadline)
    try:
        yield
    finally:
        _current.scope = outer


@contextlib.contextmanager
def workers(jobs: int) -> Iterator[ThreadPoolExecutor]:
    """Yield a thread pool, and wait for its work to end.

    After an Exception no further work is started, and running work is finished. After an interrupt or at the end of
    the budget, even during that wait, running work is stopped.
    """
    with _Pool(jobs, _Scope(_current.scope)) as pool:
        try:
            try:
                yield pool
            except Exception:
                pool.shutdown(wait=False, cancel_futures=True)
                pool.wait()
                raise
            pool.wait()
        except Exception:
            raise
        except BaseException:
            pool.stop()
            raise


class _Pool(ThreadPoolExecutor):
    """Wait for the work, not for the threads: in Python 3.11 an interrupted join marks a thread as ended."""

    def __init__(self, jobs: int, scope: _Scope) -> None:
        super().__init__(jobs, initializer=_enter, initargs=(scope,))
        self._scope = scope
        self._futures: list[Future[Any]] = []

    def submit(self, work: Callable[_P, _T], /, *args: _P.args, **named: _P.kwargs) -> Future[_T]:
        """Run `work` in a thread."""
        future = super().submit(work, *args, **named)
        self._futures.append(future)
        return future

    def wait(self) -> None:
        """Wait for all work that was not cancelled."""
        wait([f for f in self._futures if not f.cancelled()])

    def stop(self) -> None:
        """Start no more work, and stop running work."""
        self.shutdown(wait=False, cancel_futures=True)
        self._scope.stop()
        self.wait()


class Background(Generic[_T]):
    """A function that runs in a separate thread until it ends or is stopped; as a context manager, it stops on exit."""

    def __init__(self, work: Callable[[], _T], *, name: str) -> None:
        self._scope = _Scope(_current.scope)
        self._future: Future[_T] = Future()
        self._thread = threading.Thread(target=self._run, args=(work,), name=f"ssr-{name}", daemon=True)
        _backgrounds.add(self)
        self._thread.start()

    @property
    def is_done(self) -> bool:
        """Whether the work has ended, either by itself or because it was stopped."""
        return self._future.done()

    def result(self) -> _T:
        """Wait for the work to end; return its result or raise its exception.

        Raises KeyboardInterrupt if the work was stopped.
        """
        while not wait([self._future], POLL_S).done:
            raise_if_stopped()
        return self._future.result()

    def request_stop(self) -> None:
        """Stop the work without waiting for it to end. Idempotent."""
        self._scope.stop()

    def stop(self) -> None:
        """Stop the work and wait for it to end; its exception is discarded. Idempotent."""
        self.request_stop()
        self._thread.join()

    def _run(self, work: Callable[[], _T]) -> None:
        _enter(self._scope)
        try:
            self._future.set_result(work())
        except BaseException as error:
            self._future.set_exception(error)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.stop()


_backgrounds: weakref.WeakSet[Background[Any]] = weakref.WeakSet()


def background(work: Callable[[], _T], *, name: str = "background") -> Background[_T]:
    """Start a function in a separate thread; the caller calls `stop` once the work is no longer needed."""
    return Background(work, name=name)


def _enter(scope: _Scope) -> None:
    _current.scope = scope


@atexit.register
def _stop_backgrounds() -> None:
    """Stop the threads that still run: the interpreter would kill them in the middle of their clean-up."""
    running = [b for b in list(_backgrounds) if not b.is_done]
    for each in running:
        each._scope.stop()
    deadline = time.monotonic() + _AT_EXIT_S
    for each in running:
        each._thread.join(max(0.0, deadline - time.monotonic()))


class _Signals:
    """The handler of this process for SIGINT and SIGTERM."""

    def __init__(self) -> None:
        self.received = 0
        self.depth = 0
        self.pending = False

    def handle(self, number: int, frame: object) -> None:
        """Interrupt at the first signal, do not disturb the clean-up at the second, exit immediately at the third."""
        self.received += 1
        _process.stop_by_signal()
        if self.received >= _SIGNALS_TO_EXIT:
            os._exit(128 + number)
        if self.received > 1:
            return
        if self.depth:
            self.pending = True
            return
        raise KeyboardInterrupt(signal.Signals(number).name)


_signals = _Signals()


def install_signal_handlers() -> None:
    """Make SIGINT (Ctrl-C) and SIGTERM stop all work of this process and raise KeyboardInterrupt in the main thread.

    Earlier interrupts are forgotten. A signal that was ignored when this process started stays ignored, except SIGCHLD:
    while it is ignored, here or in a process that inherits that, exit statuses are lost, and each command looks like a
    success.
    """
    if threading.current_thread() is not threading.main_thread():
        return
    _process.reopen()
    _signals.received, _signals.pending = 0, False
    for number in _SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _signals.handle)
    if signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    atexit.unregister(_ignore_signals)
    atexit.register(_ignore_signals)


def _ignore_signals() -> None:
    """Ignore signals while the interpreter ends: it resets their handlers, and one more signal would kill it."""
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_IGN)


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Defer signals during an operation that must not be split: starting a process, cleaning up after it.

    Inside, `raise_if_stopped` still raises; a signal that it did not raise for takes effect at the end.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    _signals.depth += 1
    try:
        yield
    finally:
        _signals.depth -= 1
    if _signals.pending and not _signals.depth:
        _signals.pending = False
        raise KeyboardInterrupt("the run was interrupted")
