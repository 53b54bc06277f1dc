"""Interrupts, time budgets and stopped background work end threads without disturbing their clean-up."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future

import pytest

from pytest_ssr.interrupts import TimeBudgetError, background, is_stopped, raise_if_stopped, until, workers

pytestmark = pytest.mark.long

AT_MOST_S = 10
"""Seconds within which a thread stops: less than the minute that the work would take."""


def work() -> None:
    end = time.monotonic() + 60
    while time.monotonic() < end:
        time.sleep(0.01)
        raise_if_stopped()


@pytest.fixture
def interrupted() -> Iterator[None]:
    """Interrupt the main thread after 0.2 seconds."""
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("error", [None, ValueError("one has failed")])
@pytest.mark.usefixtures("interrupted")
def test_an_interrupt_while_waiting_for_workers_ends_them(error: Exception | None) -> None:
    futures: list[Future[None]] = []

    def run() -> None:
        with workers(1) as pool:
            futures.append(pool.submit(work))
            if error is not None:
                raise error

    with pytest.raises(KeyboardInterrupt):
        run()
    with pytest.raises(KeyboardInterrupt, match="the run was interrupted"):
        futures[0].result(AT_MOST_S)


def test_after_an_error_running_work_is_finished() -> None:
    futures: list[Future[None]] = []

    def short() -> None:
        time.sleep(0.05)
        raise_if_stopped()

    def run() -> None:
        with workers(1) as pool:
            futures.append(pool.submit(short))
            raise ValueError("one has failed")

    with pytest.raises(ValueError, match="one has failed"):
        run()
    assert futures[0].result() is None


def test_a_budget_ends_the_work_of_this_thread_and_its_workers() -> None:
    futures: list[Future[None]] = []

    def run() -> None:
        with until(time.monotonic() + 0.2), workers(1) as pool:
            futures.append(pool.submit(work))
            work()

    with pytest.raises(TimeBudgetError):
        run()
    with pytest.raises((TimeBudgetError, KeyboardInterrupt)):
        futures[0].result(AT_MOST_S)
    raise_if_stopped()
    assert not is_stopped(), "work after the budget is not limited"


def test_an_inner_budget_ends_no_later_than_an_outer_one() -> None:
    with until(time.monotonic() - 1), until(time.monotonic() + 60), pytest.raises(TimeBudgetError):
        raise_if_stopped()


def test_background_work_returns_its_result() -> None:
    with background(lambda: 6 * 7) as task:
        assert task.result() == 42
        assert task.is_done


def test_stopping_background_work_also_stops_its_pools() -> None:
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
    raise_if_stopped()


def test_the_result_of_failed_background_work_raises() -> None:
    def fail() -> None:
        raise ValueError("it has failed")

    with background(fail) as task, pytest.raises(ValueError, match="it has failed"):
        task.result()


SCRIPT = """
import os, signal, sys, time
from pytest_ssr.interrupts import background, install_signal_handlers, raise_if_stopped, uninterrupted, workers

def work():
    end = time.monotonic() + 60
    while time.monotonic() < end:
        time.sleep(0.01)
        raise_if_stopped()

def me(number):
    os.kill(os.getpid(), number)

def show(text):
    print(text, flush=True)

install_signal_handlers()
"""


def scripted(text: str) -> subprocess.CompletedProcess[str]:
    """Run a program that handles the signals; it would take a minute if they had no effect."""
    return subprocess.run(
        [sys.executable, "-c", SCRIPT + text], capture_output=True, text=True, check=False, timeout=50
    )


def test_a_signal_stops_background_work_before_the_process_ends() -> None:
    done = scripted("""
def cleaning():
    try:
        work()
    finally:
        show("cleaned")

task = background(cleaning)
time.sleep(0.2)
try:
    me(signal.SIGTERM)
    work()
except KeyboardInterrupt as error:
    show(error)
""")
    assert done.stdout.splitlines() == ["SIGTERM", "cleaned"]
    assert (done.returncode, done.stderr) == (0, "")


def test_a_second_signal_does_not_disturb_the_clean_up_and_a_third_exits() -> None:
    done = scripted("""
try:
    try:
        me(signal.SIGINT)
        work()
    finally:
        me(signal.SIGTERM)
        show("cleaned")
except KeyboardInterrupt as error:
    show(error)
me(signal.SIGINT)
show("never")
""")
    assert done.stdout.splitlines() == ["cleaned", "SIGINT"]
    assert done.returncode == 128 + signal.SIGINT


def test_an_uninterrupted_block_ends_before_a_signal_takes_effect() -> None:
    done = scripted("""
try:
    with uninterrupted():
        me(signal.SIGINT)
        show("whole")
    show("never")
except KeyboardInterrupt:
    show("interrupted")
""")
    assert done.stdout.splitlines() == ["whole", "interrupted"]


def test_waiting_inside_an_uninterrupted_block_raises() -> None:
    done = scripted("""
try:
    with uninterrupted():
        me(signal.SIGINT)
        try:
            raise_if_stopped()
        finally:
            show("put away")
except KeyboardInterrupt:
    show("interrupted")
with uninterrupted():
    show("and once only")
""")
    assert done.stdout.splitlines() == ["put away", "interrupted", "and once only"]


def test_a_signal_that_is_ignored_stays_ignored() -> None:
    done = scripted("""
signal.signal(signal.SIGINT, signal.SIG_IGN)
install_signal_handlers()
me(signal.SIGINT)
raise_if_stopped()
show("goes on")
""")
    assert done.stdout.splitlines() == ["goes on"], done.stderr


SIGNALLED_WHILE_LOCKED = """
import os, signal, sys, threading
from pytest_ssr import interrupts

def trace(frame, event, argument):
    if frame.f_code is threading.Condition.wait.__code__:
        sys.settrace(None)
        signal.raise_signal(signal.SIGTERM)

interrupts.install_signal_handlers()
# If no condition is waited for, there is nothing to hit.
threading.Timer(1, os.kill, (os.getpid(), signal.SIGTERM)).start()
try:
    sys.settrace(trace)
    interrupts.pause(60)
except KeyboardInterrupt:
    print("interrupted")
"""


def test_a_signal_that_arrives_while_the_main_thread_holds_a_lock_does_not_block() -> None:
    command = [sys.executable, "-c", SIGNALLED_WHILE_LOCKED]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert done.stdout == "interrupted\n"
