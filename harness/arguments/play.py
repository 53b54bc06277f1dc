"""Commands of self-play: solve and play."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from harness import playing
from harness.arguments.choosing import add_places, add_selection
from harness.arguments.parsing import add_rule, add_running, add_store, command, environment
from harness.arguments.roles import add_models, add_solver
from harness.injectors.model import STRATEGIES
from harness.rewards import ALPHA, KINDS
from pytest_ssr.opening import DEFAULT_INJECTORS


def add_solve(commands_of: Any) -> None:
    """Add `ssr solve`."""
    parser = command(
        commands_of,
        "solve",
        playing.solve,
        "let a solver at an artifact, several times, and grade what it hands in",
        "ssr solve 3f2a --repo . --solver search --attempts 8",
    )
    parser.add_argument("artifact", metavar="ARTIFACT", help="a directory, or an id (or its beginning) in the store")
    parser.add_argument("--repo", type=Path, default=Path(), metavar="REPO", help="default: here")
    parser.add_argument(
        "--statement",
        type=Path,
        metavar="FILE",
        help="tell a model what is to be done in the words of this file (default: by the tests that were weakened)",
    )
    add_solver(parser)
    add_models(parser)
    add_rule(parser)
    add_store(parser, "default: REPO/.ssr")
    add_running(parser)


def add_play(commands_of: Any) -> None:
    """Add `ssr play`."""
    parser = command(
        commands_of,
        "play",
        playing.play,
        "self-play: inject, prove, solve, reward, round after round; run again to go on",
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
        "--count", type=int, default=environment("count", "4"), metavar="N", help="bugs of each project in each round"
    )
    parser.add_argument("--alpha", type=float, default=environment("alpha", str(ALPHA)), metavar="A")
    parser.add_argument("--reward", choices=KINDS, default=environment("reward", KINDS[0]), help="of the injector")
    parser.add_argument(
        "--fixed-mixture", action="store_true", help="draw operators in balance, whatever earlier rounds brought"
    )
    parser.add_argument(
        "--higher-order",
        type=int,
        default=environment("higher_order", "1"),
        metavar="N",
        help="failed repairs of each bug that are tried as bugs (default 1, 0: none)",
    )
    parser.add_argument(
        "--strategy",
        choices=STRATEGIES,
        default=environment("strategy"),
        help=f"of a model that injects (default {STRATEGIES[-1]}: one of both by the seed)",
    )
    parser.add_argument(
        "--rejections",
        type=int,
        default=environment("rejections"),
        metavar="N",
        help="times that a model may mend a rejected bug (default 2)",
    )
    add_selection(parser)
    add_places(parser)
    add_solver(parser)
    add_models(parser)
    add_rule(parser)
    add_store(parser, "default: SOURCE/.ssr, or .ssr here for several")
    add_running(parser)
