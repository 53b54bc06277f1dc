"""Declare the settings of `ssr train METHOD`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from harness.settings.commands import CommandSettings
from harness.settings.sections import jobs_option
from pytest_ssr.options import AT_LEAST_1, FRACTION, option, required, shared


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainSearchSettings(CommandSettings):
    """Train a policy for the solver `search` from bugs in source code, without running tests."""

    example: ClassVar[str] = "ssr train search ~/projects/* --held-out ../mine --out policy"
    source: tuple[Path, ...] = required(
        "SOURCE", "projects or packages; site-packages counts as one project per package", is_argument=True
    )
    out: Path = option(Path("policy"), "FOLDER", "folder for the policy; a run that was ended continues there")
    held_out: tuple[Path, ...] = option((), "SOURCE", "measure the policy on this project; can be repeated")
    bugs: int = option(200, "N", "bugs per project", bound=AT_LEAST_1)
    injector: str = option("mutation,removal", "NAMES", "comma-separated injectors that make the bugs")
    share: float = option(
        0.5, "N", "share of the learned ranker; the rest is for the patterns' weights", bound=FRACTION
    )
    seed: int = shared("seed")
    jobs: int = jobs_option("projects at a time")
