"""Define the commands of self-play: solve and play."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from harness.cli.arguments.parsing import (
    add_rule,
    add_run_options,
    add_selection,
    add_sources,
    add_store,
    command,
    environment,
)
from harness.cli.arguments.roles import add_models, add_solver
from harness.cli.commands import play
from harness.injectors.model import STRATEGIES
from harness.records.rewards import ALPHA, KINDS
from pytest_ssr.campaign.factory import DEFAULT_INJECTORS


def add_solve(subparsers: Any) -> None:
    """Add `ssr solve`."""
    parser = command(
        subparsers,
        "solve",
        play.solve,
        "run a solver on an artifact several times and grade its patches",
        "ssr solve 3f2a --repo . --solver search --attempts 8",
    )
    parser.add_argument("artifact", metavar="ARTIFACT", help="a directory, or an id (or its beginning) in the store")
    parser.add_argument("--repo", type=Path, default=Path(), metavar="REPO", help="default: here")
    parser.add_argument(
        "--statement",
        type=Path,
        metavar="FILE",
        help="describe the task to a model by this file (default: by the weakened tests)",
    )
    add_solver(parser)
    add_models(parser)
    add_rule(parser)
    add_store(parser, "default: REPO/.ssr")
    add_run_options(parser)


def add_play(subparsers: Any) -> None:
    """Add `ssr play`."""
    parser = command(
        subparsers,
        "play",
        play.play,
        "self-play: inject, validate, solve and reward, in rounds; run again to continue",
        "ssr play . --injector mutation --solver search --rounds 3",
    )
    parser.add_argument(
        "source", type=Path, nargs="+", metavar="SOURCE", help="projects' top directories, or datasets of instances"
    )
    parser.add_argument(
        "--injector",
        default=environment("injector", DEFAULT_INJECTORS),
        metavar="NAMES",
        help=f"comma-separated (default {DEFAULT_INJECTORS}); or a model, replay:PATH, or artifacts:PATH",
    )
    parser.add_argument("--rounds", type=int, default=environment("rounds", "1"), metavar="N")
    parser.add_argument(
        "--count", type=int, default=environment("count", "4"), metavar="N", help="bugs per project and round"
    )
    parser.add_argument("--alpha", type=float, default=environment("alpha", str(ALPHA)), metavar="A")
    parser.add_argument(
        "--reward", choices=KINDS, default=environment("reward", KINDS[0]), help="reward of the injector"
    )
    parser.add_argument(
        "--fixed-mixture",
        action="store_true",
        help="sample operators in balance, regardless of the results of earlier rounds",
    )
    parser.add_argument(
        "--higher-order",
        type=int,
        default=environment("higher_order", "1"),
        metavar="N",
        help="failed repairs of each bug that are tried as new bugs (default 1, 0: none)",
    )
    parser.add_argument(
        "--strategy",
        choices=STRATEGIES,
        default=environment("strategy"),
        help=f"strategy of a model that injects (default {STRATEGIES[-1]}: one of the two, by the seed)",
    )
    parser.add_argument(
        "--rejections",
        type=int,
        default=environment("rejections"),
        metavar="N",
        help="how often a model may revise a rejected bug (default 2)",
    )
    add_selection(parser)
    add_sources(parser)
    add_solver(parser)
    add_models(parser)
    add_rule(parser)
    add_store(parser, "default: SOURCE/.ssr, or .ssr here for several")
    add_run_options(parser)
