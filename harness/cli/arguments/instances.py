"""Define the commands over the instances of a dataset: run, eval and assets."""

from __future__ import annotations

import argparse
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
from harness.cli.commands import assets, evaluate


def add_run(subparsers: Any) -> None:
    """Add `ssr run`."""
    parser = command(
        subparsers,
        "run",
        evaluate.evaluate,
        "run a solver on the instances of a dataset and grade its patches; run again to continue",
        "ssr run rows.jsonl --solver search --repos clones --out runs/search -n 2",
    )
    _add_instances(parser)
    add_solver(parser, attempts="1")
    parser.add_argument(
        "--name",
        default="",
        metavar="NAME",
        help="name of the solver in predictions and leaderboards (default: its own)",
    )
    parser.add_argument(
        "--show-tests", action="store_true", help="describe the task to a model by the tests, not by the statement"
    )
    add_models(parser)
    add_run_options(parser)


def add_eval(subparsers: Any) -> None:
    """Add `ssr eval`."""
    parser = command(
        subparsers,
        "eval",
        evaluate.evaluate,
        "grade predictions for the instances of a dataset; run again to continue",
        "ssr eval rows.jsonl --predictions preds.jsonl --repos clones --out runs/mine",
    )
    _add_instances(parser)
    parser.add_argument(
        "--predictions",
        required=True,
        metavar="FILE",
        help="a JSONL or JSON file of predictions, a folder of mini-swe-agent, gold or empty",
    )
    parser.add_argument("--jobs", "-n", type=int, default=environment("jobs", "1"), metavar="N", help="workers")
    add_run_options(parser)


def add_assets(subparsers: Any) -> None:
    """Add `ssr assets`."""
    parser = command(
        subparsers,
        "assets",
        assets.assets,
        "list what a run over a dataset needs, and pull its images",
        "ssr assets rows.jsonl --out assets --jobs 4 --mirror mirror.local/",
    )
    _add_dataset(parser)
    add_selection(parser)
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder for the lists")
    parser.add_argument("--jobs", "-n", type=int, default=environment("jobs", "4"), metavar="N", help="parallel pulls")
    parser.add_argument("--no-pull", action="store_true", help="only write the lists")
    parser.add_argument(
        "--mirror",
        default=environment("image_prefix", ""),
        metavar="PREFIX",
        help="prefix for the name of each image to pull",
    )


def _add_dataset(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "dataset",
        metavar="DATASET",
        help="a .jsonl, .json or .parquet file, a folder of them, a store (.ssr), owner/name on the hub",
    )


def _add_instances(parser: argparse.ArgumentParser) -> None:
    """Add the options of all commands that run over a dataset."""
    _add_dataset(parser)
    add_selection(parser)
    add_sources(parser)
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder for the files of the run")
    parser.add_argument(
        "--dist", default="load", choices=("load", "worksteal"), help="how xdist distributes the work (default load)"
    )
    parser.add_argument(
        "--no-logs", action="store_true", help="do not run the tests once more for a log in SWE-bench's format"
    )
    parser.add_argument(
        "--full",
        action="store_true",
        help="run all tests, even after a recorded one has failed (always on without --no-logs)",
    )
    add_rule(parser)
    parser.add_argument(
        "--run-id", default="ssr", metavar="NAME", help="name of the run in the logs' folder (default ssr)"
    )
    add_store(parser, "store that is kept between runs (default: OUT/.ssr)")
