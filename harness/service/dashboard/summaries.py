"""Compute what the pages of lists and sums show."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import TypeVar

from harness.models.registry import Registry
from harness.service.dashboard.charts import Chart, column_chart, line_chart
from harness.service.dashboard.reading import Reads
from harness.service.dashboard.rendering import amount, cost, percent, short_count
from harness.service.filters import EpisodeFilter
from harness.service.model_test import ModelTest
from harness.service.rows import EpisodeRow, Page, RoundRow, RunRow
from pytest_ssr.errors import SettingsError
from pytest_ssr.records.rate_interval import interval
from pytest_ssr.records.verdict import CHECK_NAMES, CONTROL_NAMES, REPEAT_NAMES

T = TypeVar("T")
Card = tuple[str, str]
_NEUTRAL_REWARD = 0.0


@dataclass(frozen=True, slots=True)
class CheckRow:
    """How many bugs a check let pass, of those that it saw."""

    check: str
    passed: int
    rejected: int

    @property
    def rate(self) -> float:
        """The share that passed."""
        return self.passed / max(1, self.passed + self.rejected)


@dataclass(frozen=True, slots=True)
class Overview:
    """The page that shows how everything goes."""

    cards: Sequence[Card]
    solve_rate: Chart | None
    reward: Chart | None
    difficulty: Chart | None
    checks: Sequence[CheckRow]
    is_empty: bool = False
    """Whether the store has no results yet."""


@dataclass(frozen=True, slots=True)
class ListedRun:
    """A run in a list."""

    run: str
    project: str
    rounds: int
    episodes: int
    valid: int
    solve_rate: float | None
    reward: float | None
    tokens: int
    cost_usd: float
    stored_at: float


@dataclass(frozen=True, slots=True)
class ListPage:
    """Rows, and the address of the next page; empty on the last."""

    rows: Sequence[object]
    next: str = ""


@dataclass(frozen=True, slots=True)
class ModelsPage:
    """What models achieved, and those that jobs can use."""

    rows: Sequence[ModelRow]
    registered: Registry | None = None
    """None on a page without a service."""
    can_change: bool = False
    entered: Mapping[str, str] = field(default_factory=dict)
    """What was entered in the form, by the name of the field."""
    error: str = ""
    tested: ModelTest | None = None
    """The result of a test that was asked for."""


@dataclass(frozen=True, slots=True)
class EpisodesPage:
    """Episodes that match a filter."""

    rows: Sequence[EpisodeRow]
    filters: Mapping[str, str]
    next: str = ""


@dataclass(frozen=True, slots=True)
class RunPage:
    """A run with its episodes."""

    run: str
    cards: Sequence[Card]
    solve_rate: Chart | None
    reward: Chart | None
    rows: Sequence[EpisodeRow]
    next: str = ""


@dataclass(frozen=True, slots=True)
class ModelRow:
    """What a solver did."""

    player: str
    attempts: int
    graded: int
    resolved: int
    rate: float | None
    """None without a graded attempt."""
    interval: tuple[float, float]
    tokens: int
    cost_usd: float
    unpriced: int
    """Calls whose price is unknown."""
    seconds: float

    @property
    def cost_per_attempt(self) -> float:
        """USD of an attempt."""
        return self.cost_usd / max(1, self.attempts)


def overview(reads: Reads) -> Overview:
    """Return the overview of a store."""
    totals, counts, found = reads.totals(), reads.counts(), reads.rounds()
    outside = reads.spent_outside_of_rounds()
    cards = [
        ("Episodes", short_count(totals.episodes)),
        ("Valid", percent(_share(totals.valid, totals.episodes))),
        ("Solve rate", percent(_share(totals.solved, totals.graded))),
        ("Mean reward", amount(_share(totals.rewards, totals.rewarded))),
        ("Artifacts", short_count(counts["artifacts"])),
        ("Attempts", short_count(counts["rollouts"])),
        ("Changes tried", short_count(counts["candidates"])),
        ("Tokens", short_count(totals.tokens + outside.tokens)),
        ("Cost", cost(totals.cost_usd + outside.cost_usd)),
    ]
    tenths = [(str(bucket.low), float(bucket.episodes)) for bucket in reads.difficulty()]
    return Overview(
        cards=cards,
        solve_rate=_solve_rates(found),
        reward=_rewards(found),
        difficulty=column_chart("Difficulty of the bugs", tenths),
        checks=check_rows({row.check: row.bugs for row in reads.validity()}),
        is_empty=not totals.episodes and not any(counts.values()),
    )


def check_rows(rejections: Mapping[str, int]) -> list[CheckRow]:
    """Return a row for each check, in the order in which they run: one sees what the earlier ones let pass."""
    known = (*CHECK_NAMES, *CONTROL_NAMES, *REPEAT_NAMES)
    names = [*known, *sorted(rejections.keys() - {*known, ""})]
    left, rows = sum(rejections.values()), []
    for name in names if left else ():
        rejected = rejections.get(name, 0)
        left -= rejected
        rows.append(CheckRow(name, left, rejected))
    return rows


def runs_page(reads: Reads, after: str, address: str) -> ListPage:
    """Return a page of runs."""
    found = page_after(reads.runs, after)
    return ListPage([_listed_run(row) for row in found.items], following(found, address))


def run_page(reads: Reads, run: str, after: str, address: str) -> RunPage | None:
    """Return the page of a run, or None if it does not exist."""
    found = reads.rounds(run)
    if not found:
        return None
    episodes = page_after(partial(reads.episodes, filters=EpisodeFilter(run=run)), after)
    total = {name: sum(getattr(row, name) for row in found) for name in ("episodes", "valid", "solved", "graded")}
    cards = [
        ("Project", found[0].project),
        ("Rounds", str(len(found))),
        ("Episodes", short_count(total["episodes"])),
        ("Valid", percent(_share(total["valid"], total["episodes"]))),
        ("Solve rate", percent(_share(total["solved"], total["graded"]))),
        ("Tokens", short_count(sum(row.tokens for row in found))),
        ("Cost", cost(sum(row.cost_usd for row in found))),
    ]
    return RunPage(run, cards, _solve_rates(found), _rewards(found), episodes.items, following(episodes, address))


def models_page(reads: Reads) -> ModelsPage:
    """Return the comparison of models, best first."""
    rows = [
        ModelRow(
            row.player,
            row.attempts,
            row.graded,
            row.resolved,
            row.solve_rate,
            interval(row.resolved, row.graded),
            row.tokens,
            row.cost_usd,
            row.unpriced,
            row.seconds / max(1, row.attempts),
        )
        for row in reads.models()
    ]
    rows.sort(key=lambda row: -row.rate if row.rate is not None else 1.0)
    return ModelsPage(rows)


def page_after(read: Callable[[str], Page[T]], after: str) -> Page[T]:
    """Return the page of a list after a position; the first one if it is not a position in this list."""
    try:
        return read(after)
    except SettingsError:
        return read("")


def following(page: Page[T], address: str) -> str:
    """Return the address of the page after another; empty after the last one. address: ends with `?` or `&`."""
    return f"{address}after={page.next}" if page.next and address else ""


def _listed_run(row: RunRow) -> ListedRun:
    return ListedRun(
        row.run,
        row.project,
        row.rounds,
        row.episodes,
        row.valid,
        _share(row.solved, row.graded),
        _share(row.rewards, row.rewarded),
        row.tokens,
        row.cost_usd,
        row.stored_at,
    )


def _solve_rates(rows: Sequence[RoundRow]) -> Chart | None:
    points = [(_day(row), row.solved / row.graded) for row in rows if row.graded]
    return line_chart("Solve rate over time", points)


def _rewards(rows: Sequence[RoundRow]) -> Chart | None:
    points = [(_day(row), row.rewards / row.rewarded) for row in rows if row.rewarded]
    return line_chart("Injector reward over time", points, low=-1.0, guide=_NEUTRAL_REWARD)


def _day(row: RoundRow) -> str:
    return f"{datetime.fromtimestamp(row.stored_at, UTC):%m-%d %H:%M}"


def _share(part: float, whole: float) -> float | None:
    return part / whole if whole else None
