"""Sums of money keep their first digits, however small they are."""

from __future__ import annotations

import pytest

from harness.service.dashboard.rendering import cost, money


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "–"),
        (0.0, "0"),
        (0.00192, "0.0019"),
        (0.000012, "0.000012"),
        (1.2e-15, "1.2e-15"),
        (0.5, "0.5"),
        (0.999, "1"),
        (12.345, "12.35"),
        (-0.00192, "-0.0019"),
    ],
)
def test_small_sums_have_two_significant_digits(value: float | None, shown: str) -> None:
    assert money(value) == shown


def test_calls_without_a_price_are_counted_beside_the_cost() -> None:
    assert cost(0.0) == "0 USD"
    assert "1" in cost(0.0, 1).removeprefix(cost(0.0))
