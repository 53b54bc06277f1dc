"""Declare the settings of the commands about survivors; a class's docstring is the command's description."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import ClassVar

from harness.settings.plan import CommandSettings
from pytest_ssr.errors import SettingsError
from pytest_ssr.options import option, shared, switch

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
        return date.fromisoformat(self.until) if self.until else None

    def check(self) -> None:
        """Refuse options that contradict each other, and a date that is none."""
        if self.ids and not self.reason.strip() and not self.remove:
            raise SettingsError("give the reason, as in --reason TEXT", option="reason")
        if self.remove and not self.ids:
            raise SettingsError("--remove needs the ids of entries", option="remove")
        try:
            _ = self.until_date
        except ValueError:
            raise SettingsError(f"--until {self.until} is not a date such as 2027-06-30", option="until") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedbackSettings(CommandSettings):
    """Print what was decided about survivors as JSON lines without any source code, to share it."""

    example: ClassVar[str] = "ssr feedback > feedback.jsonl"
    repo: Path = option(Path(), "REPO", "the project's top directory", is_argument=True)
