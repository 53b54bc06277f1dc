"""Run calls in several processes, which end with this one."""

from __future__ import annotations

import concurrent.futures
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Mapping
from concurrent.futures.process import BrokenProcessPool
from typing import TypeVar

from pytest_ssr.errors import SsrError
from pytest_ssr.interrupts import uninterrupted

Name = TypeVar("Name")
Result = TypeVar("Result")


def run_calls(calls: Mapping[Name, Callable[[], Result]], jobs: int, finished: Callable[[Name, Result], None]) -> None:
    """Run calls in new processes, some at a time. finished: called with the name and the result of each, as they end.

    Raises SsrError if a process is killed, and whatever a call raises; the others end with it.
    """
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(jobs, context, _enter_worker) as pool:
        try:
            # Workers start here; one that an interrupt leaves half started would print a traceback.
            with uninterrupted():
                waiting = {pool.submit(call): name for name, call in calls.items()}
            for future in concurrent.futures.as_completed(waiting):
                finished(waiting[future], future.result())
        except BrokenProcessPool:
            raise SsrError("a process has ended, maybe for lack of memory; what is finished is kept") from None
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for process in multiprocessing.active_children():
                process.terminate()
            raise


def _enter_worker() -> None:
    """Leave Ctrl-C to the parent process, and end with it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
