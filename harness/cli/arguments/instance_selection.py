"""Define the options that select instances of a dataset and the sources of their repositories."""

from __future__ import annotations

import argparse
from pathlib import Path

from harness.cli.arguments.parsing import environment


def add_selection(parser: argparse.ArgumentParser) -> None:
    """Add the options that select instances of a dataset."""
    parser.add_argument("--split", default="", metavar="NAME", help="split of a dataset on the hub (default test)")
    parser.add_argument(
        "--only", default="", metavar="PATTERN", help="only instances whose id matches this regular expression"
    )
    parser.add_argument("--shuffle", type=int, metavar="SEED", help="shuffle the instances with this seed")
    parser.add_argument("--slice", default="", metavar="A:B", help="slice of the instances: 10:20, :5, ::3")


def add_sources(parser: argparse.ArgumentParser) -> None:
    """Add the sources of repositories and environments."""
    parser.add_argument(
        "--repos",
        type=Path,
        default=environment("repos"),
        metavar="DIR",
        help="folder of local clones, named owner__name (default: clone and cache)",
    )
    parser.add_argument(
        "--images",
        choices=("docker", "apptainer"),
        help="run each instance in its own image: the row's, else the one named by its family's convention",
    )
