"""Declare the settings of the commands about survivors; a class's docstring is the command's description."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import ClassVar

from harness.settings.plan import CommandSettings, section
from harness.settings.sections import ExecutionSettings
from pytest_ssr.errors import SettingsError
from pytest_ssr.options import AT_LEAST_1, option, shared, switch
from pytest_ssr.settings import budget_seconds

KINDS = ("accepted", "equivalent", "not-useful")


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptSettings(CommandSettings):
    """Accept survivors of the last run: .ssr-accepted.toml keeps them, and gates do not count them."""

    example: ClassVar[str] = 'ssr accept 3f9a1c-5d6071 --reason "the cache is an optimisation"'
    ids: tuple[str, ...] = option(
        (), "ID", "the id of a survivor as a run shows it, or its beginning; without any, list", is_argument=True
    )
    reason: str = option("", "TEXT", "why", is_own=True)
    kind: str = option(
        "accepted",
        "KIND",
        "accepted, equivalent, or not-useful: then all changes by its operator come last",
        choices=lambda: KINDS,
        is_own=True,
    )
    until: str | None = option(None, "DATE", "the last day on which it is accepted, as in 2027-06-30", is_own=True)
    remove: bool = switch("remove the entries of these ids instead", is_own=True)
    prune: bool = switch("remove the entries whose code has changed", is_own=True)
    repo: Path = option(Path(), "REPO", "the project's top directory")
    store: Path | None = shared("store", help="store of the run (default: REPO/.ssr)")

    @property
    def until_date(self) -> date | None:
        """The last day as a date."""
        return date.fromisoformat(self.until) if self.until is not None else None

    def check(self) -> None:
        """Refuse options that contradict each other, and a date that cannot be read."""
        if self.ids and not self.reason.strip() and not self.remove:
            raise SettingsError("give the reason, as in --reason TEXT", option="reason")
        if self.remove and not self.ids:
            raise SettingsError("--remove needs the ids of entries", option="remove")
        try:
            _ = self.until_date
        except ValueError:
            raise SettingsError(f"--until {self.until} is not a date such as 2027-06-30", option="until") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewSettings(CommandSettings):
    """Review what has changed since a revision: what the tests would not notice there, within a minute."""

    example: ClassVar[str] = "ssr review main"
    rev: str = option(
        "",
        "REV",
        "review functions that have changed since this git revision (default: since the branch left the main one)",
        is_argument=True,
    )
    repo: Path = option(Path(), "REPO", "the project's top directory")
    source: tuple[str, ...] = shared("source", help="review only below this file or folder; can be repeated")
    tests: tuple[str, ...] = option((), "PATH", "run only these tests (default: all); can be repeated")
    fail_on: str | None = shared("fail_on")
    changes: int = shared("changes", help="changes to try")
    time: str | None = shared("time", help="time for changes and tests, after the tests have been measured (60s)")
    jobs: int = option(1, "N", "parallel changes", bound=AT_LEAST_1)
    seed: int = shared("seed")
    html: Path | None = shared("html")
    sarif: Path | None = shared("sarif")
    stryker: Path | None = shared("stryker")
    annotations: str = shared("annotations")
    store: Path | None = shared("store", help="store for results (default: REPO/.ssr)")
    execution: ExecutionSettings = section(ExecutionSettings)

    def check(self) -> None:
        """Refuse a time that cannot be read."""
        if self.time:
            budget_seconds(self.time, option="--time")


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchSettings(CommandSettings):
    """Review the functions that each save changes, until Ctrl-C; after a save of tests, the last ones again."""

    example: ClassVar[str] = "ssr watch . --time 20s"
    repo: Path = option(Path(), "REPO", "the project's top directory", is_argument=True)
    source: tuple[str, ...] = shared("source", help="review only below this file or folder; can be repeated")
    tests: tuple[str, ...] = option((), "PATH", "run only these tests (default: all); can be repeated")
    changes: int = shared("changes", help="changes to try after a save")
    time: str = shared("time", default="10s", help="time for changes and tests after a save (10s)")
    jobs: int = option(1, "N", "parallel changes", bound=AT_LEAST_1)
    seed: int = shared("seed")
    store: Path | None = shared("store", help="store for results (default: REPO/.ssr)")
    execution: ExecutionSettings = section(ExecutionSettings)

    @property
    def budget_s(self) -> float:
        """The time for one save in seconds."""
        return budget_seconds(self.time, option="--time")

    def check(self) -> None:
        """Refuse a time that cannot be read."""
        _ = self.budget_s


@dataclass(frozen=True, slots=True, kw_only=True)
class ProveSettings(CommandSettings):
    """Make artifacts of changes that the tests noticed in the last run of a gate or a review."""

    example: ClassVar[str] = "ssr prove --count 5"
    ids: tuple[str, ...] = option(
        (), "ID", "the id of a noticed change as --list shows it, or its beginning; default: any", is_argument=True
    )
    list: bool = switch("list the noticed changes with their ids, and prove nothing", is_own=True)
    count: int = shared("count", help="number of valid artifacts to make, if no ids are given")
    repo: Path = option(Path(), "REPO", "the project's top directory")
    tests: tuple[str, ...] = option((), "PATH", "run only these tests, as in the run; can be repeated")
    jobs: int = option(1, "N", "parallel changes", bound=AT_LEAST_1)
    store: Path | None = shared("store", help="store of the run (default: REPO/.ssr)")
    execution: ExecutionSettings = section(ExecutionSettings)

    def check(self) -> None:
        """Refuse a number of artifacts beside ids, and either with a list of all changes."""
        if self.list and (self.ids or "count" in self.typed):
            raise SettingsError("--list shows all noticed changes, and takes neither ids nor --count", option="list")
        if self.ids and "count" in self.typed:
            raise SettingsError("--count has no effect on changes that are named by their ids", option="count")


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedbackSettings(CommandSettings):
    """Print what was decided about survivors as JSON lines without any source code, to share it."""

    example: ClassVar[str] = "ssr feedback > feedback.jsonl"
    repo: Path = option(Path(), "REPO", "the project's top directory", is_argument=True)
