"""Run queries in separate threads with a timeout, so that a server that never finishes its reply blocks nobody."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import TypeVar

from pytest_ssr.errors import ModelUnavailableError

TIMEOUT_S = 600.0
"""Default number of seconds until a reply must be complete."""
READY_S = 900.0
"""Default number of seconds until a server that is started here must be ready."""
_T = TypeVar("_T")


def start_query(query: Callable[[], _T]) -> Future[_T]:
    """Run a query in a daemon thread and return its future; the end of the process does not wait for it."""
    future: Future[_T] = Future()

    def work() -> None:
        try:
            future.set_result(query())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=work, name="ssr-model", daemon=True).start()
    return future


def is_ready(future: Future[_T], seconds: float) -> bool:
    """Wait at most this many seconds, and return whether the query has finished or failed."""
    return bool(wait([future], seconds).done)


def run_within(seconds: float, query: Callable[[], _T], *, target: str) -> _T:
    """Return the query's result.

    Raises ModelUnavailableError, naming `target`, if it is not complete within these seconds.
    """
    future = start_query(query)
    if not is_ready(future, seconds):
        raise ModelUnavailableError(f"{target} did not answer within {seconds:g} s", retry=True)
    return future.result()
