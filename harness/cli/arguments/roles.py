"""Define the options of solvers, and of models in any role."""

from __future__ import annotations

import argparse
from pathlib import Path

from harness.cli.arguments.parsing import environment


def add_solver(parser: argparse.ArgumentParser, *, attempts: str = "8") -> None:
    """Add the options of solvers; attempts: the default of `--attempts`."""
    parser.add_argument(
        "--solver",
        default=environment("solver", "search"),
        metavar="NAME",
        help="search (default), replay:PATH, mini-swe-agent:MODEL, or a model",
    )
    parser.add_argument(
        "--attempts",
        type=int,
        default=environment("attempts", attempts),
        metavar="G",
        help=f"attempts per bug (default {attempts})",
    )
    parser.add_argument(
        "--tries",
        type=int,
        default=environment("tries", "0"),
        metavar="N",
        help="candidates in one attempt of `search` (default 800)",
    )
    parser.add_argument("--seed", type=int, default=environment("seed", "0"), metavar="N")
    parser.add_argument(
        "--jobs", "-n", type=int, default=environment("jobs", "1"), metavar="N", help="parallel attempts"
    )


def add_models(parser: argparse.ArgumentParser) -> None:
    """Add the options of models in any role."""
    for name, kind, default, text in (
        ("steps", int, None, "replies in one rollout (default 100)"),
        ("rollout-limit", float, None, "seconds for one rollout (default 1800; 120 for `search`)"),
        ("rollout-tokens", int, None, "tokens in one rollout (default 2000000)"),
        ("rollout-usd", float, None, "cost of one rollout in USD, if prices are known (default 5)"),
        ("command-limit", float, None, "seconds for one command (default 180)"),
        ("format-errors", int, None, "replies in a row without a valid call (default 4)"),
        ("repeats", int, None, "repetitions of the same call with the same result, or of a cycle of a few (default 6)"),
        ("output-chars", int, None, "characters in one observation (default 10000)"),
        ("temperature", float, None, "sampling temperature (default 1.0)"),
        ("top-p", float, None, "sampling top-p (default 0.95)"),
        ("max-tokens", int, None, "tokens in one reply (default 4096)"),
        ("context", int, "0", "tokens of a prompt and its reply (default: the server's limit)"),
        ("model-timeout", float, None, "seconds until a reply is complete (default 600)"),
        ("vllm-ready", float, None, "seconds until a server started for vllm:PATH is ready (default 900)"),
        ("budget-usd", float, None, "cost of the whole run in USD (default: no limit)"),
        ("budget-tokens", int, None, "tokens of the whole run (default: no limit)"),
        ("budget-calls", int, None, "requests of the whole run (default: no limit)"),
        ("judge-votes", int, None, "votes of the judge per step (default 3)"),
        ("judge-temperature", float, None, "sampling temperature of the judge (default 1.0)"),
        ("judge-max-tokens", int, None, "tokens in one reply of the judge (default 1024)"),
        ("judge-coefficient", float, None, "weight of the judge's mean score in a solver's reward (default 1.0)"),
    ):
        variable = name.replace("-", "_")
        parser.add_argument(f"--{name}", type=kind, default=environment(variable, default), metavar="N", help=text)
    parser.add_argument(
        "--judge", default=environment("judge", ""), metavar="MODEL", help="model that scores the solver's steps"
    )
    parser.add_argument(
        "--url",
        default=environment("url", ""),
        metavar="URL",
        help="address of the server of a model PROVIDER/MODEL (default: its provider's)",
    )
    parser.add_argument(
        "--mini-python",
        type=Path,
        metavar="PATH",
        help="an interpreter with mini-swe-agent (default: SSR_MINI_PYTHON, else one is built in the store)",
    )
    parser.add_argument(
        "--vllm-args",
        default=environment("vllm_args", ""),
        metavar="WORDS",
        help="additional arguments of `vllm serve` for vllm:PATH: --vllm-args='--tensor-parallel-size 2'",
    )
    parser.add_argument(
        "--cache",
        type=Path,
        default=environment("cache"),
        metavar="FOLDER",
        help="cache replies in this folder, so that repeated requests cost nothing",
    )
    parser.add_argument(
        "--bundles",
        type=Path,
        action="append",
        default=[],
        metavar="FOLDER",
        help="additional tools for models, in the layout of SWE-agent: config.yaml, bin/, install.sh",
    )
    parser.add_argument(
        "--grade-unsubmitted", action="store_true", help="also grade the changes of attempts that a limit ended"
    )
