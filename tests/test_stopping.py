"""Interrupts, budgets of time and work that nobody needs any more: threads end, and nothing breaks into clean-up."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future

import pytest

from pytest_ssr.stopping import (
    TimeIsUpError,
    background,
    is_stopped,
    require_going_on,
    until,
    workers,
)

pytestmark = pytest.mark.long

AT_MOST_S = 10
"""Seconds in which a thread notices: less than the minute that the work would take."""


def work() -> None:
    end = time.monotonic() + 60
    while time.monotonic() < end:
        time.sleep(0.01)
        require_going_on()


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
    made: list[Future[None]] = []

    def run() -> None:
        with workers(1) as pool:
            made.append(pool.submit(work))
            if error is not None:
                raise error

    with pytest.raises(KeyboardInterrupt):
        run()
    with pytest.raises(KeyboardInterrupt, match="the run was interrupted"):
        made[0].result(AT_MOST_S)


def test_after_an_error_work_under_way_is_finished() -> None:
    made: list[Future[None]] = []

    def short() -> None:
        time.sleep(0.05)
        require_going_on()

    def run() -> None:
        with workers(1) as pool:
            made.append(pool.submit(short))
            raise ValueError("one has failed")

    with pytest.raises(ValueError, match="one has failed"):
        run()
    assert made[0].result() is None


def test_a_budget_ends_the_work_of_this_thread_and_of_those_that_it_starts() -> None:
    made: list[Future[None]] = []

    def run() -> None:
        with until(time.monotonic() + 0.2), workers(1) as pool:
            made.append(pool.submit(work))
            work()

    with pytest.raises(TimeIsUpError):
        run()
    with pytest.raises((TimeIsUpError, KeyboardInterrupt)):
        made[0].result(AT_MOST_S)
    require_going_on()
    assert not is_stopped(), "and what comes after it has all the time there is"


def test_an_inner_budget_ends_no_later_than_an_outer_one() -> None:
    with until(time.monotonic() - 1), until(time.monotonic() + 60), pytest.raises(TimeIsUpError):
        require_going_on()


def test_background_work_returns_what_it_found() -> None:
    with background(lambda: 6 * 7) as task:
        assert task.result() == 42
        assert task.is_done


def test_background_work_that_is_stopped_ends_with_the_pools_that_it_opened() -> None:
    inner: list[Future[None]] = []
    begun = threading.Event()

    def many() -> None:
        with workers(2) as pool:
            inner.extend(pool.submit(work) for _ in range(2))
            begun.set()

    task = background(many)
    assert begun.wait(AT_MOST_S)
    task.stop()
    assert task.is_done
    for each in inner:
        with pytest.raises(KeyboardInterrupt):
            each.result(AT_MOST_S)
    require_going_on()


def test_background_work_that_failed_raises_when_it_is_asked() -> None:
    def fail() -> None:
        raise ValueError("it has failed")

    with background(fail) as task, pytest.raises(ValueError, match="it has failed"):
        task.result()


SCRIPT = """
import os, signal, sys, time
from pytest_ssr.stopping import background, end_at_signals, require_going_on, uninterrupted, workers

def work():
    end = time.monotonic() + 60
    while time.monotonic() < end:
        time.sleep(0.01)
        require_going_on()

def me(number):
    os.kill(os.getpid(), number)

def say(text):
    print(text, flush=True)

end_at_signals()
"""


def scripted(text: str) -> subprocess.CompletedProcess[str]:
    """Run a program that has taken over the signals; it would take a minute if they did nothing."""
    return subprocess.run(
        [sys.executable, "-c", SCRIPT + text], capture_output=True, text=True, check=False, timeout=50
    )


def test_a_signal_stops_background_work_before_the_process_ends() -> None:
    done = scripted("""
def cleaning():
    try:
        work()
    finally:
        say("cleaned")

task = background(cleaning)
time.sleep(0.2)
try:
    me(signal.SIGTERM)
    work()
except KeyboardInterrupt as error:
    say(error)
""")
    assert done.stdout.splitlines() == ["SIGTERM", "cleaned"]
    assert (done.returncode, done.stderr) == (0, "")


def test_a_second_signal_does_not_break_into_the_clean_up_and_a_third_ends_at_once() -> None:
    done = scripted("""
try:
    try:
        me(signal.SIGINT)
        work()
    finally:
        me(signal.SIGTERM)
        say("cleaned")
except KeyboardInterrupt as error:
    say(error)
me(signal.SIGINT)
say("never")
""")
    assert done.stdout.splitlines() == ["cleaned", "SIGINT"]
    assert done.returncode == 128 + signal.SIGINT


def test_what_has_to_be_done_whole_is_done_before_a_signal_takes_effect() -> None:
    done = scripted("""
try:
    with uninterrupted():
        me(signal.SIGINT)
        say("whole")
    say("never")
except KeyboardInterrupt:
    say("interrupted")
""")
    assert done.stdout.splitlines() == ["whole", "interrupted"]


def test_what_waits_while_it_cannot_be_broken_into_ends_where_it_asks() -> None:
    done = scripted("""
try:
    with uninterrupted():
        me(signal.SIGINT)
        try:
            require_going_on()
        finally:
            say("put away")
except KeyboardInterrupt:
    say("interrupted")
with uninterrupted():
    say("and once only")
""")
    assert done.stdout.splitlines() == ["put away", "interrupted", "and once only"]


def test_a_signal_that_is_ignored_stays_ignored() -> None:
    done = scripted("""
signal.signal(signal.SIGINT, signal.SIG_IGN)
end_at_signals()
me(signal.SIGINT)
require_going_on()
say("goes on")
""")
    assert done.stdout.splitlines() == ["goes on"], done.stderr
