"""Compare two runs of self-play: their sums, what rejected their bugs, and the bugs that both have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import hypot

from harness.service.dashboard.reading import Reads
from harness.service.dashboard.rendering import amount, money, percent, short_count
from harness.service.rows import RunRow
from pytest_ssr.records.rate_interval import interval


@dataclass(frozen=True, slots=True)
class ComparedRow:
    """A figure of two runs."""

    title: str
    left: str
    right: str
    difference: str = ""
    """Right minus left; with a 95 % interval for shares."""


@dataclass(frozen=True, slots=True)
class SharedBug:
    """A bug that both runs have, with the attempts at it."""

    artifact_id: str
    operator: str
    scope: str
    left: str
    right: str
    tone: str
    """good if more of the right run's attempts resolve it, bad if fewer do."""


@dataclass(frozen=True, slots=True)
class ComparisonPage:
    """Two runs beside each other."""

    left: str
    right: str
    rows: Sequence[ComparedRow]
    checks: Sequence[ComparedRow]
    """Bugs by the check that rejected them."""
    shared: Sequence[SharedBug]


def comparison_page(reads: Reads, left: str, right: str) -> ComparisonPage | None:
    """Return the comparison of two runs; None if one does not exist."""
    one, other = reads.run(left), reads.run(right)
    if one is None or other is None:
        return None
    rows = [
        ComparedRow("Project", one.project, other.project),
        ComparedRow("Rounds", str(one.rounds), str(other.rounds)),
        ComparedRow("Episodes", short_count(one.episodes), short_count(other.episodes)),
        _shares("Valid bugs", (one.valid, one.episodes), (other.valid, other.episodes)),
        _shares("Solve rate", (one.solved, one.graded), (other.solved, other.graded)),
        _rewards(one, other),
        ComparedRow("Tokens", short_count(one.tokens), short_count(other.tokens)),
        ComparedRow("USD", money(one.cost_usd), money(other.cost_usd), _signed(other.cost_usd - one.cost_usd)),
    ]
    rejected = [
        {row.check: row.bugs for row in Reads(reads.records, run=run).rejections() if row.check}
        for run in (left, right)
    ]
    checks = [
        ComparedRow(check, str(rejected[0].get(check, 0)), str(rejected[1].get(check, 0)))
        for check in sorted(rejected[0].keys() | rejected[1].keys())
    ]
    shared = [
        SharedBug(
            row.artifact_id,
            row.operator,
            row.scope,
            f"{row.left_solved} of {row.left_graded}",
            f"{row.right_solved} of {row.right_graded}",
            _tone(row.left_solved / max(1, row.left_graded), row.right_solved / max(1, row.right_graded)),
        )
        for row in reads.shared_bugs(left, right)
    ]
    return ComparisonPage(left, right, rows, checks, shared)


def _shares(title: str, left: tuple[int, int], right: tuple[int, int]) -> ComparedRow:
    """Return two shares, each a count and its total, and their difference with Newcombe's interval."""
    rates = [count / total if total else None for count, total in (left, right)]
    one, other = rates
    difference = ""
    if one is not None and other is not None:
        (low_one, high_one), (low_other, high_other) = interval(*left), interval(*right)
        change = other - one
        low = change - hypot(other - low_other, high_one - one)
        high = change + hypot(high_other - other, one - low_one)
        difference = f"{100 * change:+.1f} ({100 * low:+.1f} to {100 * high:+.1f}) points"
    shown = [f"{percent(rate)} of {total}" for rate, (_, total) in zip(rates, (left, right), strict=True)]
    return ComparedRow(title, shown[0], shown[1], difference)


def _rewards(left: RunRow, right: RunRow) -> ComparedRow:
    means = [run.rewards / run.rewarded if run.rewarded else None for run in (left, right)]
    one, other = means
    difference = f"{other - one:+.2f}" if one is not None and other is not None else ""
    return ComparedRow("Mean reward of the injector", amount(one), amount(other), difference)


def _signed(usd: float) -> str:
    return money(usd) if usd < 0 else f"+{money(usd)}"


def _tone(left: float, right: float) -> str:
    if left == right:
        return ""
    return "good" if right > left else "bad"
