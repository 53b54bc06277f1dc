"""Sandboxes of several episodes wait at the same time: as many as this machine can run, and all of them on a cluster."""

from __future__ import annotations

import threading

import pytest

from harness.environments import remote_episodes
from harness.environments.remote_episodes import EXECUTOR, together


@pytest.mark.parametrize(("executor", "slots"), [("", 3), ("ray://127.0.0.1:6379", 1)])
def test_calls_run_at_the_same_time_and_keep_their_order(
    executor: str, slots: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(EXECUTOR, executor)
    monkeypatch.setattr(remote_episodes, "measured_slots", lambda: slots)
    barrier = threading.Barrier(3)

    def meet(number: int) -> int:
        barrier.wait(60)
        return 2 * number

    assert together(meet, [3, 1, 2]) == [6, 2, 4]


def test_no_more_calls_run_here_than_there_are_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(EXECUTOR, raising=False)
    monkeypatch.setattr(remote_episodes, "measured_slots", lambda: 1)
    running = threading.Lock()

    def alone(number: int) -> bool:
        if not running.acquire(blocking=False):
            return False
        threading.Event().wait(0.05)
        running.release()
        return True

    assert all(together(alone, range(4)))
    assert together(alone, []) == []
