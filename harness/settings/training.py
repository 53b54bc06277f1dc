"""Declare the settings of `ssr train METHOD`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from harness.records.rewards import ALPHA
from harness.settings.plan import CommandSettings, section
from harness.settings.sections import ExecutionSettings, jobs_option, ray_option
from pytest_ssr.options import AT_LEAST_1, FRACTION, INNER_FRACTION, option, required, shared, switch

_LESSON = option(
    "both",
    "NAME",
    "what is learned from a proven bug: its reverse (supervised), the grades of attempts (policy gradient), or both",
    choices=lambda: ("reverse", "grades", "both"),
)
_GENERATOR = switch("also train a network that writes repairs which no pattern gives; needs torch")
_HOLES = option(60_000, "N", "holes in code that the network is trained on", bound=AT_LEAST_1)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainSearchSettings(CommandSettings):
    """Train a policy for the solver `search` from bugs in source code, without running tests."""

    example: ClassVar[str] = "ssr train search ~/projects/* --held-out ../mine --out policy"
    source: tuple[Path, ...] = required(
        "SOURCE", "projects or packages; site-packages counts as one project per package", is_argument=True
    )
    out: Path = option(Path("policy"), "FOLDER", "folder for the policy; a run that was ended continues there")
    held_out: tuple[Path, ...] = option((), "SOURCE", "measure the policy on this project; can be repeated")
    episodes: tuple[Path, ...] = option(
        (), "STORE", "also learn from the proven bugs and the attempts in this store; can be repeated"
    )
    lesson: str = _LESSON
    bugs: int = option(200, "N", "bugs per project", bound=AT_LEAST_1)
    injector: str = option("mutation,removal", "NAMES", "comma-separated injectors that make the bugs")
    share: float = option(
        0.5, "N", "share of the learned ranker; the rest is for the patterns' weights", bound=FRACTION
    )
    generator: bool = _GENERATOR
    holes: int = _HOLES
    seed: int = shared("seed")
    jobs: int = jobs_option("projects at a time")


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainSelfPlaySettings(CommandSettings):
    """Train a policy for the solver `search` by self-play, and measure it on held-out projects after every round."""

    example: ClassVar[str] = "ssr train selfplay a b c --held-out d --rounds 6 --out policy"
    source: tuple[Path, ...] = required("PROJECT", "projects whose bugs are drawn and repaired", is_argument=True)
    held_out: tuple[Path, ...] = option((), "PROJECT", "measure the policy on bugs of this project; can be repeated")
    pretrain: tuple[Path, ...] = option(
        (), "SOURCE", "also learn from static bugs of these projects or packages; can be repeated"
    )
    out: Path = option(Path("policy"), "FOLDER", "folder for the policy, its report and its plot")
    rounds: int = option(3, "N", "rounds of self-play", bound=AT_LEAST_1)
    count: int = shared("count", default=4, help="bugs per project and round")
    attempts: int = shared("attempts", help="attempts per bug")
    tries: int = option(100, "N", "candidates in one attempt", bound=AT_LEAST_1)
    held_out_bugs: int = option(20, "N", "bugs per held-out project", bound=AT_LEAST_1)
    held_out_attempts: int = option(3, "N", "attempts per held-out bug", bound=AT_LEAST_1)
    bugs: int = option(200, "N", "static bugs per project", bound=AT_LEAST_1)
    injector: str = option("mutation,removal", "NAMES", "comma-separated injectors")
    lesson: str = _LESSON
    generator: bool = _GENERATOR
    holes: int = _HOLES
    fixed_mixture: bool = switch("draw bugs in balance, regardless of the results of earlier rounds")
    alpha: float = option(ALPHA, "A", "weight of the solve rate in the injector's reward", bound=INNER_FRACTION)
    share: float = option(
        0.5, "N", "share of the learned ranker; the rest is for the patterns' weights", bound=FRACTION
    )
    seed: int = shared("seed")
    jobs: int = jobs_option("parallel attempts")
    ray: str = ray_option()
    store: Path | None = shared("store", help="store for results (default: FOLDER/store)")
    execution: ExecutionSettings = section(ExecutionSettings)
