"""Ends what other threads do when the main one is interrupted: Python tells the main one only.

Whoever waits for long in a thread, for a command or for a model, asks `require_going_on` while it waits.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any, ParamSpec, TypeVar

_P = ParamSpec("_P")
_T = TypeVar("_T")
_stopping = threading.Event()


def require_going_on() -> None:
    """Raise KeyboardInterrupt in a thread for whose end the interrupted main one waits."""
    if _stopping.is_set() and threading.current_thread() is not threading.main_thread():
        raise KeyboardInterrupt("the run was interrupted")


@contextlib.contextmanager
def workers(jobs: int) -> Iterator[ThreadPoolExecutor]:
    """Give so many threads, and wait for their end.

    After an error no further work is begun and what runs comes to its end; after an interrupt, also one in that time,
    it is ended at once.
    """
    with _Pool(jobs) as pool:
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
            pool.shutdown(wait=False, cancel_futures=True)
            _stopping.set()
            pool.wait()
            _stopping.clear()
            raise


class _Pool(ThreadPoolExecutor):
    """Is waited for by its work: a thread counts as ended in Python 3.11 where an interrupt ends the wait for it."""

    def __init__(self, jobs: int) -> None:
        super().__init__(jobs)
        self._given: list[Future[Any]] = []

    def submit(self, work: Callable[_P, _T], /, *args: _P.args, **named: _P.kwargs) -> Future[_T]:
        """Do it in a thread."""
        future = super().submit(work, *args, **named)
        self._given.append(future)
        return future

    def wait(self) -> None:
        """Wait for all that was not cancelled."""
        wait([f for f in self._given if not f.cancelled()])
