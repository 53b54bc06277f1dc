"""The order of tasks."""

from __future__ import annotations

from random import Random

import pytest

from harness.environments.episodes import TaskOrder
from pytest_ssr.errors import SettingsError

IDS = ["a", "b", "c"]


def test_in_order_begins_again() -> None:
    order = TaskOrder("in-order")
    assert [order.choose(IDS, Random(0)) for _ in range(4)] == ["a", "b", "c", "a"]
    order.restart()
    assert order.choose(IDS, Random(0)) == "a"


def test_random_order_depends_on_the_generator_alone() -> None:
    def drawn() -> list[str]:
        order, draws = TaskOrder("random"), Random(3)
        return [order.choose(IDS, draws) for _ in range(20)]

    assert drawn() == drawn()
    assert set(drawn()) == set(IDS)


def test_the_curriculum_prefers_what_is_solved_sometimes() -> None:
    order, draws = TaskOrder("curriculum"), Random(1)
    for _ in range(20):
        order.record("a", True)
        order.record("b", False)
        order.record("c", None)
    for success in [True, False] * 10:
        order.record("c", success)
    chosen = [order.choose(IDS, draws) for _ in range(100)]
    assert chosen.count("c") > 90
    assert order.counts == {"a": (20, 0), "b": (0, 20), "c": (10, 10)}


def test_an_unknown_order_is_an_error() -> None:
    with pytest.raises(SettingsError):
        TaskOrder("best")
