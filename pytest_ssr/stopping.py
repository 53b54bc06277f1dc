"""Ends work early: at an interrupt, at the end of a budget of time, or when nobody needs the work any more.

Python raises KeyboardInterrupt in the main thread only, and waits for all other threads before it exits. So threads are
started here (`workers`, `background`), each belongs to a scope, and every loop that waits for a command, a model or a
lock calls `require_going_on` at least every `POLL_S` seconds. A scope inside another one ends with it.
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
"""Seconds that a loop may wait between two calls of `require_going_on`."""
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_SIGNALS_TO_EXIT = 3
_AT_EXIT_S = 5.0


class TimeIsUpError(BaseException):
    """The budget of time has ended: work under way is given up, what is finished is kept.

    Not an Exception, so that no handler takes it for a fault of what was going on.
    """


class _Scope:
    """Threads that are stopped together, with the scopes that they open."""

    def __init__(self, above: _Scope | None, deadline: float = math.inf) -> None:
        """deadline: on the clock of `time.monotonic`."""
        self._above = above
        self._event = threading.Event()
        self.deadline: float = deadline if above is None else min(deadline, above.deadline)

    def stop(self) -> None:
        self._event.set()

    def is_stopped(self) -> bool:
        scope: _Scope | None = self
        while scope is not None:
            if scope._event.is_set():
                return True
            scope = scope._above
        return False

    def wait(self, seconds: float) -> None:
        self._event.wait(seconds)

    def reopen(self) -> None:
        self._event.clear()


_process = _Scope(None)


class _Current(threading.local):
    scope = _process


_current = _Current()


def require_going_on() -> None:
    """Raise KeyboardInterrupt if this thread's work was stopped, TimeIsUpError if its budget of time has ended."""
    scope = _current.scope
    if scope.is_stopped():
        _signals.pending = False
        raise KeyboardInterrupt("the run was interrupted")
    if time.monotonic() >= scope.deadline:
        raise TimeIsUpError


def pause(seconds: float) -> None:
    """Sleep, unless this thread's work is stopped or its budget ends meanwhile; raises as `require_going_on` does."""
    until_s = time.monotonic() + seconds
    require_going_on()
    while (left := until_s - time.monotonic()) > 0:
        _current.scope.wait(min(POLL_S, left))
        require_going_on()


def is_stopped() -> bool:
    """Return whether the work of this thread is to end: clean-up need not be gentle then."""
    scope = _current.scope
    return scope.is_stopped() or time.monotonic() >= scope.deadline


@contextlib.contextmanager
def until(deadline: float) -> Iterator[None]:
    """Let `require_going_on` raise TimeIsUpError after a moment of `time.monotonic`, in new threads of this one too."""
    before = _current.scope
    _current.scope = _Scope(before, deadline)
    try:
        yield
    finally:
        _current.scope = before


@contextlib.contextmanager
def workers(jobs: int) -> Iterator[ThreadPoolExecutor]:
    """Give a pool of threads, and wait for the end of their work.

    After an Exception no further work is started, and work under way is finished. After an interrupt or at the end of
    the budget, also if it comes during that wait, work under way is stopped.
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
    """Waits for its work, not for its threads: in Python 3.11 an interrupted join takes a thread for ended."""

    def __init__(self, jobs: int, scope: _Scope) -> None:
        super().__init__(jobs, initializer=_enter, initargs=(scope,))
        self._scope = scope
        self._given: list[Future[Any]] = []

    def submit(self, work: Callable[_P, _T], /, *args: _P.args, **named: _P.kwargs) -> Future[_T]:
        """Run it in a thread."""
        future = super().submit(work, *args, **named)
        self._given.append(future)
        return future

    def wait(self) -> None:
        """Wait for all that was not cancelled."""
        wait([f for f in self._given if not f.cancelled()])

    def stop(self) -> None:
        """Start no more work, and stop work under way."""
        self.shutdown(wait=False, cancel_futures=True)
        self._scope.stop()
        self.wait()


class Background(Generic[_T]):
    """One piece of work in a thread of its own, until it ends or is stopped; a context manager that stops it."""

    def __init__(self, work: Callable[[], _T], *, name: str) -> None:
        self._scope = _Scope(_current.scope)
        self._future: Future[_T] = Future()
        self._thread = threading.Thread(target=self._run, args=(work,), name=f"ssr-{name}", daemon=True)
        _backgrounds.add(self)
        self._thread.start()

    @property
    def is_done(self) -> bool:
        """Whether the work has ended, by itself or because it was stopped."""
        return self._future.done()

    def result(self) -> _T:
        """Wait for the end of the work; return what it returned or raise what it raised.

        Raises KeyboardInterrupt if the work was stopped.
        """
        while not wait([self._future], POLL_S).done:
            require_going_on()
        return self._future.result()

    def stop(self) -> None:
        """Stop the work and wait for its end; what it raised is dropped. Idempotent."""
        self._scope.stop()
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
    """Start one piece of work beside this thread; whoever starts it calls `stop` when it is no longer needed."""
    return Background(work, name=name)


def _enter(scope: _Scope) -> None:
    _current.scope = scope


@atexit.register
def _stop_backgrounds() -> None:
    """Stop what nobody has stopped: the interpreter would cut these threads off in the middle of their clean-up."""
    left = [b for b in list(_backgrounds) if not b.is_done]
    for each in left:
        each._scope.stop()
    until_s = time.monotonic() + _AT_EXIT_S
    for each in left:
        each._thread.join(max(0.0, until_s - time.monotonic()))


class _Signals:
    """How this process takes requests to end."""

    def __init__(self) -> None:
        self.received = 0
        self.depth = 0
        self.pending = False

    def take(self, number: int, frame: object) -> None:
        """Interrupt at the first signal, leave the clean-up alone at the second, exit at once at the third."""
        self.received += 1
        _process.stop()
        if self.received >= _SIGNALS_TO_EXIT:
            os._exit(128 + number)
        if self.received > 1:
            return
        if self.depth:
            self.pending = True
            return
        raise KeyboardInterrupt(signal.Signals(number).name)


_signals = _Signals()


def end_at_signals() -> None:
    """Make SIGINT (Ctrl-C) and SIGTERM stop all work of this process and raise KeyboardInterrupt in the main thread.

    What was interrupted before is forgotten. A signal that this process was started to ignore stays ignored.
    """
    if threading.current_thread() is not threading.main_thread():
        return
    _process.reopen()
    _signals.received, _signals.pending = 0, False
    for number in _SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _signals.take)


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Keep a signal from breaking into what has to be done whole: starting a process, cleaning up after it.

    Inside, `require_going_on` still raises; a signal that it did not raise for takes effect at the end.
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
