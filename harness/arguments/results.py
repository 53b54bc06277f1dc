"""Commands on what runs have left: leaderboard and export."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from harness import exporting, ranking
from harness.arguments.parsing import add_rule, command, environment
from harness.exporters.formats import FORMATS
from harness.exporters.writing import CONTAINERS, TARS
from harness.rewards import ALPHA, KINDS


def add_leaderboard(commands_of: Any) -> None:
    """Add `ssr leaderboard`."""
    parser = command(
        commands_of,
        "leaderboard",
        ranking.leaderboard,
        "compare solvers and injectors over any number of runs",
        "ssr leaderboard runs/search best=runs/other .ssr --html board.html",
    )
    parser.add_argument(
        "run_folder",
        nargs="+",
        metavar="RUN",
        help="a folder of ssr run or ssr eval, a report of SWE-bench, or a store of ssr play; NAME=RUN names it",
    )
    for name, text in (
        ("html", "one page with everything in it"),
        ("csv", "the solvers; further tables lie beside it, as FILE.tasks.csv"),
        ("markdown", "all tables"),
        ("save-pool", "keep the reference pool's abilities, for --pool"),
        ("pool", "measure by these abilities: a frozen reference pool"),
    ):
        parser.add_argument(f"--{name}", type=Path, metavar="FILE", help=text)
    parser.add_argument("--plots", type=Path, metavar="DIR", help="the plots for paper, as PDF and SVG")
    parser.add_argument("--title", default="Leaderboard", metavar="TEXT", help="of the page")
    parser.add_argument("--k", type=int, nargs="*", default=[], metavar="K", help="of pass@k (default: powers of two)")
    parser.add_argument("--seed", type=int, default=environment("seed", "0"), metavar="N", help="of the comparisons")
    parser.add_argument(
        "--reference",
        action="append",
        default=[],
        metavar="SOLVER",
        help="of the pool that injectors are measured by; can be repeated (default: all that met every injector)",
    )
    parser.add_argument(
        "--by",
        choices=("auto", "strategy", "operator", "run"),
        default="auto",
        help="what names an injector (default auto: a model's name, else the strategy)",
    )
    add_rule(parser)
    parser.add_argument("--alpha", type=float, default=environment("alpha", str(ALPHA)), metavar="A")
    parser.add_argument("--reward", choices=KINDS, default=environment("reward", KINDS[0]), help="of the injector")
    parser.add_argument(
        "--released",
        action="append",
        default=[],
        metavar="SOLVER=DAY",
        help="the day (2026-01-31) of a solver's model: older tasks are flagged; can be repeated",
    )
    parser.add_argument("--instances", default="", metavar="DATASET", help="where tasks say when they were made")
    parser.add_argument("--submission", type=Path, metavar="DIR", help="folders for other leaderboards")
    parser.add_argument("--date", default="", metavar="YYYYMMDD", help="of the submission (default: today)")
    parser.add_argument("--split", default="verified", metavar="NAME", help="of the submission (default verified)")
    parser.add_argument("--dataset", default="", metavar="OWNER/NAME", help="of the submission on Hugging Face")
    parser.add_argument("--task", default="", metavar="ID", help="what that dataset calls the figure")


def add_export(commands_of: Any) -> None:
    """Add `ssr export`."""
    parser = command(
        commands_of,
        "export",
        exporting.export,
        "write training data from stored rollouts and artifacts, with a card that says what is in it",
        "ssr export .ssr --format sft --out data/sft",
    )
    parser.add_argument(
        "source",
        type=Path,
        nargs="+",
        metavar="SOURCE",
        help="stores (.ssr), projects or runs that have one, .jsonl files of `--format rollouts`",
    )
    parser.add_argument("--format", required=True, choices=FORMATS, metavar="NAME", help=", ".join(FORMATS))
    parser.add_argument(
        "--out", required=True, metavar="PATH", help="a folder, a file by its ending, or a URL: s3://bucket/data"
    )
    parser.add_argument(
        "--as",
        dest="container",
        default="",
        choices=(*CONTAINERS, *TARS),
        metavar="KIND",
        help=f"of a folder's files: {', '.join(CONTAINERS)}; of artifacts {', '.join(TARS)} (default the first)",
    )
    parser.add_argument(
        "--splits", default="", metavar="SHARES", help="parts by project: train=0.9,test=0.1 (default: all is train)"
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of the splits (default 0)")
    parser.add_argument("--licence", action="append", default=[], metavar="PROJECT=SPDX", help="of a project")
    _add_export_filters(parser)
    parser.add_argument(
        "--samples", choices=("step", "segment"), default="step", help="of slime: for each reply, or sequence of tokens"
    )
    parser.add_argument(
        "--segment-reward",
        choices=("full", "split", "last"),
        default="full",
        help="of slime, where a rollout is several samples: each has its reward, its share, or the last alone",
    )
    parser.add_argument("--image", default="", metavar="NAME", help="of tasks: the container image with the project")
    parser.add_argument("--workdir", default="/testbed", metavar="PATH", help="where it lies there (default /testbed)")
    parser.add_argument("--owner", default="ssr", metavar="NAME", help="of projects, in rows of the SWE-bench family")
    parser.add_argument(
        "--repos", type=Path, metavar="DIR", help="also write there the repositories that rows of swe-bench start from"
    )


def _add_export_filters(parser: argparse.ArgumentParser) -> None:
    for name, kind, text in (
        ("role", str, "solver or injector (default: both)"),
        ("model", str, "rollouts of this model alone"),
        ("strategy", str, "of the bug, comma-separated: mutation,removal"),
        ("min-reward", float, "default: above 0 for what is imitated (sft, sft-tokens, bc), else any"),
        ("max-reward", float, ""),
        ("min-solve-rate", float, "of the attempts of the same model at the same bug"),
        ("max-solve-rate", float, ""),
        ("min-calls", int, "of the model, in one rollout"),
        ("max-calls", int, ""),
        ("max-tokens", int, "of the longest call, prompt and reply"),
    ):
        default = "" if kind is str else None
        metavar = "NAME" if kind is str else "N"
        parser.add_argument(f"--{name}", type=kind, default=default, metavar=metavar, help=text)
    parser.add_argument("--on-policy", action="store_true", help="rollouts alone whose tokens are all there")
    parser.add_argument("--no-flags", action="store_true", help="leave out rollouts whose grade has a flag")
