"""What a training reports of its speed, its rows and its curves."""

from __future__ import annotations

from typing import Any

import pytest

from harness.cli.commands.train_language import _row_meaning
from harness.cli.commands.train_language import _speed as line_of
from harness.training.language.plan import Method
from harness.training.language.training import _speed
from harness.training.plots import _training_figure


def metrics(*rows: tuple[int, float, int]) -> list[dict[str, Any]]:
    return [{"step": step, "seconds": seconds, "num_tokens": tokens} for step, seconds, tokens in rows]


def test_the_first_line_which_includes_what_is_done_once_does_not_count() -> None:
    lines = metrics((1, 60.0, 1000), (2, 2.0, 2000), (3, 4.0, 6000))
    lines[-1]["peak_gpu_gib"] = 7.5
    assert _speed(lines) == {"seconds_per_update": 3.0, "tokens_per_second": 750.0, "peak_gpu_gib": 7.5}


def test_a_line_for_several_updates_counts_for_each() -> None:
    assert _speed(metrics((10, 60.0, 0), (20, 30.0, 90_000)))["seconds_per_update"] == 3.0


def test_one_line_has_no_speed() -> None:
    assert set(_speed(metrics((1, 60.0, 1000))).values()) == {None}
    assert line_of({"seconds_per_update": None, "tokens_per_second": None, "peak_gpu_gib": None}) == ""


def test_large_numbers_are_shown_as_such() -> None:
    shown = line_of({"seconds_per_update": 2.077, "tokens_per_second": 23_409.2, "peak_gpu_gib": 10.25})
    assert "2.08 " in shown
    assert "23,409 " in shown


@pytest.mark.parametrize("method", list(Method))
def test_each_method_says_what_a_row_is(method: Method) -> None:
    assert _row_meaning({"method": str(method)}).startswith("a row is ")
    assert "3 tasks" in _row_meaning({"method": "grpo", "tasks": 3})


def test_the_mean_reward_is_seen_under_that_of_a_role_and_updates_are_whole_numbers() -> None:
    pytest.importorskip("matplotlib")
    points = [(1, -1.0), (2, 0.5)]
    figure = _training_figure({"reward": {"reward": points, "reward/solver": points, "reward/injector": []}})
    [axes] = figure.axes
    mean, solver = axes.get_lines()
    assert mean.get_linewidth() > 2 * solver.get_linewidth()
    assert mean.get_alpha() < 0.5
    figure.draw_without_rendering()
    assert all(float(tick).is_integer() for tick in axes.get_xticks())
