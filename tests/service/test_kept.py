"""Sums that take long are kept for a time that follows from how long they took."""

from __future__ import annotations

import threading
import time

import pytest

from harness.service.kept import Kept
from pytest_ssr.errors import StoreError


class Counting:
    def __init__(self, seconds: float) -> None:
        self.seconds, self.calls = seconds, 0

    def __call__(self) -> int:
        time.sleep(self.seconds)
        self.calls += 1
        return self.calls


def test_what_is_fast_is_always_computed() -> None:
    kept, compute = Kept(), Counting(0.0)
    assert [kept.get("a", compute) for _ in range(3)] == [1, 2, 3]


def test_what_is_slow_is_computed_again_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    kept, compute = Kept(), Counting(0.06)
    assert [kept.get("a", compute) for _ in range(3)] == [1, 1, 1]
    assert kept.get("b", Counting(0.0)) == 1
    real = time.monotonic
    monkeypatch.setattr(time, "monotonic", lambda: real() + 3_600)
    assert kept.get("a", compute) == 2


def test_others_use_the_value_before_while_one_computes(monkeypatch: pytest.MonkeyPatch) -> None:
    kept, compute = Kept(), Counting(0.06)
    kept.get("a", compute)
    real = time.monotonic
    monkeypatch.setattr(time, "monotonic", lambda: real() + 3_600)
    slow = Counting(1.0)
    thread = threading.Thread(target=kept.get, args=("a", slow))
    thread.start()
    time.sleep(0.3)
    assert kept.get("a", slow) == 1
    thread.join()
    assert slow.calls == 1


def test_a_failure_is_not_kept() -> None:
    def fail() -> int:
        raise StoreError

    kept = Kept()
    for _ in range(2):
        with pytest.raises(StoreError):
            kept.get("a", fail)
    assert kept.get("a", lambda: 5) == 5


def test_names_do_not_accumulate() -> None:
    kept = Kept()
    for n in range(60):
        kept.get(f"gaps {n}", Counting(0.051))
    assert len(kept._values) <= 50
    assert kept._computing == {}
