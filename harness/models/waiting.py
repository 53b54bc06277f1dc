"""Questions that are waited for in another thread: a server that does not end its answer holds up nobody for ever."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import TypeVar

from pytest_ssr.errors import ModelError

TIMEOUT_S = 600.0
"""Until an answer is there whole, unless told otherwise."""
READY_S = 900.0
"""Until a server that is started here is ready, unless told otherwise."""
_T = TypeVar("_T")


def begun(ask: Callable[[], _T]) -> Future[_T]:
    """Ask in a thread of its own, which the end of this process does not wait for."""
    answer: Future[_T] = Future()

    def work() -> None:
        try:
            answer.set_result(ask())
        except BaseException as error:
            answer.set_exception(error)

    threading.Thread(target=work, name="ssr-model", daemon=True).start()
    return answer


def is_there(answer: Future[_T], seconds: float) -> bool:
    """Wait for an answer, or an error in its place, so long; tell whether it is there."""
    return bool(wait([answer], seconds).done)


def within(seconds: float, ask: Callable[[], _T], *, asked: str) -> _T:
    """Return the answer; raises ModelError, naming what was `asked`, when it is not there whole after so long."""
    answer = begun(ask)
    if not is_there(answer, seconds):
        raise ModelError(f"{asked} does not answer in time, {seconds:g} s", retry=True)
    return answer.result()
