"""Warnings about other people's source text are recorded, by one thread at a time."""

from __future__ import annotations

import threading
import warnings

from pytest_ssr.source.parsing import recorded_warnings


def test_threads_leave_the_filters_as_they_were() -> None:
    before, entered = list(warnings.filters), threading.Event()

    def other() -> None:
        with recorded_warnings():
            entered.set()

    with recorded_warnings() as recorded:
        thread = threading.Thread(target=other)
        thread.start()
        assert not entered.wait(0.2)
        warnings.warn("seen", stacklevel=1)
    thread.join()
    assert entered.is_set()
    assert [str(w.message) for w in recorded] == ["seen"]
    assert list(warnings.filters) == before
