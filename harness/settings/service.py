"""Define the settings of the commands about databases and reports."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from harness.settings.plan import CommandSettings
from pytest_ssr.options import NOT_NEGATIVE, option, required, shared, switch

_STORE = "a store; a folder that does not exist becomes one"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreMigrateSettings(CommandSettings):
    """Give a store a database that processes and machines share, and take its results over."""

    example: ClassVar[str] = "ssr store migrate .ssr --dry-run"
    store: Path = required("STORE", _STORE, is_argument=True)
    database: str = option("", "URL", "sqlite, for a file in the store (default), or postgresql://USER@HOST/NAME")
    blobs: str = option("", "URL", "where large files are kept, such as s3://BUCKET/FOLDER (default: in the store)")
    dry_run: bool = switch("only report what would be taken over")


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreCheckSettings(CommandSettings):
    """Read every result of a store with a database, and report what is missing or damaged."""

    example: ClassVar[str] = "ssr store check .ssr --repair"
    store: Path = required("STORE", "a store", is_argument=True)
    repair: bool = switch("write what is missing or damaged again, if this machine's folder has it")


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreGcSettings(CommandSettings):
    """Remove files that nothing in a store with a database refers to, such as those of interrupted writes."""

    example: ClassVar[str] = "ssr store gc .ssr --dry-run"
    store: Path = required("STORE", "a store", is_argument=True)
    grace: float = option(24.0, "HOURS", "keep files that are younger", bound=NOT_NEGATIVE, is_own=True)
    dry_run: bool = switch("only report what would be removed")


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSizeSettings(CommandSettings):
    """Report what a store holds, by kind."""

    example: ClassVar[str] = "ssr store size .ssr"
    store: Path = required("STORE", "a store", is_argument=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportSettings(CommandSettings):
    """Write what a run found as a page that needs no server and no network.

    For a project, or a run of ssr inject: the score of its tests, the changes that they missed, and the proven bugs.
    For a store: everything in it, also the attempts and episodes of self-play.
    """

    example: ClassVar[str] = "ssr report . --html report"
    path: Path = option(Path(".ssr"), "PATH", "a project, or a store", is_argument=True)
    html: Path = option(
        Path("ssr-report.html"),
        "PATH",
        "the page, or the folder of its index.html; a report there is replaced",
        is_own=True,
    )
    store: Path | None = shared("store", help="the store of the project's results (default: PATH/.ssr)")
    run: str = option(
        "", "ID", "of a store: only this run of ssr play or ssr inject, by the beginning of its id", is_own=True
    )
