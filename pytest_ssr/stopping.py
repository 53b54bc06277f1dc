"""Ends what other threads do when the main one is interrupted: Python tells the main one only.

Whoever waits for long in a thread, for a command or for a model, asks `require_going_on` while it waits.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

_stopping = threading.Event()


def require_going_on() -> None:
    """Raise KeyboardInterrupt in a thread for whose end the interrupted main one waits."""
    if _stopping.is_set() and threading.current_thread() is not threading.main_thread():
        raise KeyboardInterrupt("the run was interrupted")


@contextlib.contextmanager
def workers(jobs: int) -> Iterator[ThreadPoolExecutor]:
    """Give so many threads, and wait for their end.

    After an error no further work is begun and what runs comes to its end; after an interrupt it is ended at once.
    """
    with ThreadPoolExecutor(jobs) as pool:
        try:
            yield pool
        except Exception:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            _stopping.set()
            pool.shutdown()
            _stopping.clear()
            raise
