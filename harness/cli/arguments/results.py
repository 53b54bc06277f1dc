"""Define the commands on the results of runs: leaderboard and export."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from harness.cli.arguments.parsing import add_rule, command, environment
from harness.cli.commands import export, leaderboard
from harness.exporters.dataset_writer import CONTAINERS, TARS
from harness.exporters.formats import FORMATS
from harness.records.rewards import ALPHA, KINDS


def add_leaderboard(subparsers: Any) -> None:
    """Add `ssr leaderboard`."""
    parser = command(
        subparsers,
        "leaderboard",
        leaderboard.leaderboard,
        "compare solvers and injectors over any number of runs",
        "ssr leaderboard runs/search best=runs/other .ssr --html board.html",
    )
    parser.add_argument(
        "run_folder",
        nargs="+",
        metavar="RUN",
        help="a folder of ssr run or ssr eval, a report of SWE-bench, or a store of ssr play; NAME=RUN sets its name",
    )
    for name, text in (
        ("html", "a single HTML page with everything"),
        ("csv", "the solvers; other tables are written beside it, as FILE.tasks.csv"),
        ("markdown", "all tables"),
        ("save-pool", "save the reference pool's abilities, for --pool"),
        ("pool", "use these saved abilities: a frozen reference pool"),
    ):
        parser.add_argument(f"--{name}", type=Path, metavar="FILE", help=text)
    parser.add_argument("--plots", type=Path, metavar="DIR", help="folder for the plots for papers, as PDF and SVG")
    parser.add_argument("--title", default="Leaderboard", metavar="TEXT", help="title of the page")
    parser.add_argument(
        "--k", type=int, nargs="*", default=[], metavar="K", help="values of k for pass@k (default: powers of two)"
    )
    parser.add_argument(
        "--seed", type=int, default=environment("seed", "0"), metavar="N", help="seed of the comparisons"
    )
    parser.add_argument(
        "--reference",
        action="append",
        default=[],
        metavar="SOLVER",
        help="solver of the pool that measures injectors; can be repeated (default: all that attempted every injector)",
    )
    parser.add_argument(
        "--by",
        choices=("auto", "strategy", "operator", "run"),
        default="auto",
        help="how injectors are named (default auto: by the model, else by the strategy)",
    )
    add_rule(parser)
    parser.add_argument("--alpha", type=float, default=environment("alpha", str(ALPHA)), metavar="A")
    parser.add_argument(
        "--reward", choices=KINDS, default=environment("reward", KINDS[0]), help="reward of the injector"
    )
    parser.add_argument(
        "--released",
        action="append",
        default=[],
        metavar="SOLVER=DAY",
        help="release date (2026-01-31) of a solver's model: older tasks are flagged; can be repeated",
    )
    parser.add_argument("--instances", default="", metavar="DATASET", help="dataset with the creation dates of tasks")
    parser.add_argument("--submission", type=Path, metavar="DIR", help="folder for submissions to other leaderboards")
    parser.add_argument("--date", default="", metavar="YYYYMMDD", help="date of the submission (default: today)")
    parser.add_argument(
        "--split", default="verified", metavar="NAME", help="split of the submission (default verified)"
    )
    parser.add_argument("--dataset", default="", metavar="OWNER/NAME", help="dataset of the submission on Hugging Face")
    parser.add_argument("--task", default="", metavar="ID", help="id of the metric in that dataset")


def add_export(subparsers: Any) -> None:
    """Add `ssr export`."""
    parser = command(
        subparsers,
        "export",
        export.export,
        "write training data from stored rollouts and artifacts, with a card that documents it",
        "ssr export .ssr --format sft --out data/sft",
    )
    parser.add_argument(
        "source",
        type=Path,
        nargs="+",
        metavar="SOURCE",
        help="stores (.ssr), projects or runs that contain one, or .jsonl files of `--format rollouts`",
    )
    parser.add_argument("--format", required=True, choices=FORMATS, metavar="NAME", help=", ".join(FORMATS))
    parser.add_argument(
        "--out", required=True, metavar="PATH", help="a folder, a file (by its suffix), or a URL: s3://bucket/data"
    )
    parser.add_argument(
        "--as",
        dest="container",
        default="",
        choices=(*CONTAINERS, *TARS),
        metavar="KIND",
        help=f"format of a folder's files: {', '.join(CONTAINERS)}; for artifacts {', '.join(TARS)} (default: first)",
    )
    parser.add_argument(
        "--splits", default="", metavar="SHARES", help="split by project: train=0.9,test=0.1 (default: only train)"
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="seed of the splits (default 0)")
    parser.add_argument("--licence", action="append", default=[], metavar="PROJECT=SPDX", help="licence of a project")
    _add_export_filters(parser)
    parser.add_argument(
        "--samples",
        choices=("step", "segment"),
        default="step",
        help="samples of slime: one per reply, or per token sequence",
    )
    parser.add_argument(
        "--segment-reward",
        choices=("full", "split", "last"),
        default="full",
        help="slime, if a rollout has several samples: each gets the full reward, a share, or only the last gets it",
    )
    parser.add_argument("--image", default="", metavar="NAME", help="container image with the project of a task")
    parser.add_argument(
        "--workdir", default="/testbed", metavar="PATH", help="path of the project in the image (default /testbed)"
    )
    parser.add_argument(
        "--owner", default="ssr", metavar="NAME", help="owner of projects, in rows of the SWE-bench family"
    )
    parser.add_argument(
        "--repos",
        type=Path,
        metavar="DIR",
        help="folder to write the repositories to that rows of swe-bench start from",
    )


def _add_export_filters(parser: argparse.ArgumentParser) -> None:
    for name, kind, text in (
        ("role", str, "solver or injector (default: both)"),
        ("model", str, "only rollouts of this model"),
        ("strategy", str, "strategies of the bug, comma-separated: mutation,removal"),
        ("min-reward", float, "default: above 0 for imitation (sft, sft-tokens, bc), else any"),
        ("max-reward", float, ""),
        ("min-solve-rate", float, "solve rate of the same model on the same bug"),
        ("max-solve-rate", float, ""),
        ("min-calls", int, "model calls in one rollout"),
        ("max-calls", int, ""),
        ("max-tokens", int, "tokens of the longest call, prompt and reply"),
    ):
        default = "" if kind is str else None
        metavar = "NAME" if kind is str else "N"
        parser.add_argument(f"--{name}", type=kind, default=default, metavar=metavar, help=text)
    parser.add_argument("--on-policy", action="store_true", help="only rollouts with all their tokens")
    parser.add_argument("--no-flags", action="store_true", help="leave out rollouts whose grade has a flag")
