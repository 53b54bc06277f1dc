"""Compute the confidence interval of a rate, and round it for people to read."""

from __future__ import annotations

import math
from statistics import NormalDist


def interval(solved: float, graded: float, *, confidence: float = 0.95) -> tuple[float, float]:
    """Return the Wilson score interval of a rate; (0, 1) without any attempt. Attempts count as independent."""
    if not graded:
        return 0.0, 1.0
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    rate, spread = solved / graded, z * z / graded
    middle = (rate + spread / 2) / (1 + spread)
    half = z / (1 + spread) * math.sqrt(rate * (1 - rate) / graded + spread / (4 * graded))
    return (0.0 if not solved else max(0.0, middle - half)), (1.0 if solved == graded else min(1.0, middle + half))


def whole_percent(rate: float) -> int:
    """Return a rate as whole percent; only a rate of exactly 0 or 1 becomes 0 or 100."""
    return round(100 * rate) if rate in (0.0, 1.0) else min(99, max(1, round(100 * rate)))
