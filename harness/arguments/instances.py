"""Commands over the instances of a dataset: run and eval."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from harness import assets, evaluating
from harness.arguments.choosing import add_places, add_selection
from harness.arguments.parsing import add_rule, add_running, add_store, command, environment
from harness.arguments.roles import add_models, add_solver


def add_run(commands_of: Any) -> None:
    """Add `ssr run`."""
    parser = command(
        commands_of,
        "run",
        evaluating.evaluate,
        "let a solver at the instances of a dataset, and grade what it hands in; run again to go on",
        "ssr run rows.jsonl --solver search --repos clones --out runs/search -n 2",
    )
    _add_instances(parser)
    add_solver(parser, attempts="1")
    parser.add_argument(
        "--name", default="", metavar="NAME", help="of what solves, in predictions and leaderboards (default: its own)"
    )
    parser.add_argument(
        "--show-tests", action="store_true", help="tell a model what is to be done by the tests, not by the statement"
    )
    add_models(parser)
    add_running(parser)


def add_eval(commands_of: Any) -> None:
    """Add `ssr eval`."""
    parser = command(
        commands_of,
        "eval",
        evaluating.evaluate,
        "grade predictions over the instances of a dataset; run again to go on",
        "ssr eval rows.jsonl --predictions preds.jsonl --repos clones --out runs/mine",
    )
    _add_instances(parser)
    parser.add_argument(
        "--predictions", required=True, metavar="FILE", help="JSONL or JSON of predictions; or gold, or empty"
    )
    parser.add_argument("--jobs", "-n", type=int, default=environment("jobs", "1"), metavar="N", help="workers")
    add_running(parser)


def add_assets(commands_of: Any) -> None:
    """Add `ssr assets`."""
    parser = command(
        commands_of,
        "assets",
        assets.assets,
        "list what a run over a dataset will need, and pull its images",
        "ssr assets rows.jsonl --out assets --jobs 4 --mirror mirror.local/",
    )
    _add_dataset(parser)
    add_selection(parser)
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="where the lists go")
    parser.add_argument("--jobs", "-n", type=int, default=environment("jobs", "4"), metavar="N", help="pulls at a time")
    parser.add_argument("--no-pull", action="store_true", help="write the lists alone")
    parser.add_argument(
        "--mirror", default=environment("image_prefix", ""), metavar="PREFIX", help="put before each name to pull"
    )


def _add_dataset(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "dataset",
        metavar="DATASET",
        help="a .jsonl, .json or .parquet file, a folder of them, a store (.ssr), owner/name on the hub",
    )


def _add_instances(parser: argparse.ArgumentParser) -> None:
    """Add what every command takes that goes over a dataset."""
    _add_dataset(parser)
    add_selection(parser)
    add_places(parser)
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="where the files of the run go")
    parser.add_argument(
        "--dist", default="load", choices=("load", "worksteal"), help="how xdist shares work out (default load)"
    )
    parser.add_argument(
        "--no-logs", action="store_true", help="do not run the tests once more for a log in SWE-bench's form"
    )
    parser.add_argument(
        "--full",
        action="store_true",
        help="run all tests, also after a recorded one has failed (always so unless --no-logs is given)",
    )
    add_rule(parser)
    parser.add_argument("--run-id", default="ssr", metavar="NAME", help="of the logs' folder (default ssr)")
    add_store(parser, "what is kept between runs (default: OUT/.ssr)")
