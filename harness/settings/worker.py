"""Declare the settings of `ssr worker`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from harness.settings.plan import CommandSettings
from pytest_ssr.options import AT_LEAST_1, option, required, shared


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSettings(CommandSettings):
    """Run jobs of the service until interrupted; any number of workers, on any machines, share a database."""

    example: ClassVar[str] = "ssr worker .ssr --jobs-at-once 4"
    store: Path = required("STORE", "the store of the service; created if it does not exist", is_argument=True)
    jobs_at_once: int = option(1, "N", "parallel jobs", bound=AT_LEAST_1)
    sandbox: str = shared("sandbox", help="where projects without an image run; see ssr doctor")
    database: str = option(
        "sqlite",
        "URL",
        "database of a store that has none: sqlite, or postgresql://USER@HOST/NAME",
        is_own=True,
        is_personal=True,
    )
    blobs: str = option(
        "",
        "URL",
        "files of a store without a database: s3://bucket/prefix (default: in the store)",
        is_own=True,
        is_personal=True,
    )
