"""An interrupt ends the work of other threads, whatever the main one waits for."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from concurrent.futures import Future

import pytest

from pytest_ssr.stopping import require_going_on, workers


@pytest.fixture
def interrupted() -> Iterator[None]:
    """An interrupt in a moment."""
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("error", [None, ValueError("one has failed")])
@pytest.mark.usefixtures("interrupted")
def test_an_interrupt_while_others_come_to_their_end_ends_them(error: Exception | None) -> None:
    late = threading.Event()

    def work() -> None:
        while not late.wait(0.01):
            require_going_on()

    made: list[Future[None]] = []

    def run() -> None:
        with workers(1) as pool:
            made.append(pool.submit(work))
            if error is not None:
                raise error

    with pytest.raises(KeyboardInterrupt):
        run()
    try:
        with pytest.raises(KeyboardInterrupt, match="the run was interrupted"):
            made[0].result(5)
    finally:
        late.set()
