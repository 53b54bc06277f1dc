"""Define the commands on artifacts, inject, validate, list, show and grade, and the command doctor."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from harness.cli.arguments.parsing import add_rule, add_run_options, add_store, command, environment, interpreter
from harness.cli.commands import artifacts, inject
from pytest_ssr.campaign.factory import DEFAULT_COUNT, DEFAULT_INJECTORS
from pytest_ssr.sandbox import SANDBOXES


def add_inject(subparsers: Any) -> None:
    """Add `ssr inject`."""
    parser = command(
        subparsers,
        "inject",
        inject.inject,
        "inject bugs into a project and store those that pass validation",
        "ssr inject . --count 5 --jobs 2",
    )
    parser.add_argument("repo", type=Path, metavar="REPO", help="the project's top directory")
    parser.add_argument("--count", type=int, default=environment("count", str(DEFAULT_COUNT)), metavar="N")
    parser.add_argument(
        "--injector",
        default=environment("injector", DEFAULT_INJECTORS),
        metavar="NAMES",
        help=f"comma-separated (default {DEFAULT_INJECTORS}); also history, mutmut",
    )
    parser.add_argument("--seed", type=int, default=environment("seed", "0"), metavar="N")
    parser.add_argument(
        "--source", action="append", default=[], metavar="PATH", help="inject only below this file or folder"
    )
    parser.add_argument(
        "--tests", action="append", default=[], metavar="PATH", help="run only these tests (default: all)"
    )
    parser.add_argument(
        "--diff",
        default=environment("diff"),
        metavar="REV",
        help="inject only into functions that changed since this git revision",
    )
    parser.add_argument("--jobs", type=int, default=environment("jobs", "1"), metavar="N")
    parser.add_argument(
        "--time",
        default=environment("time"),
        metavar="BUDGET",
        help="stop after this time and keep the results so far: 90, 90s, 10m, 1h30m (default: no limit)",
    )
    parser.add_argument("--per-hunk", action="store_true", help="inverse mutation reverts hunks, not files")
    parser.add_argument("--diffs", action="store_true", help="show the diff of each change that no test detected")
    add_store(parser, "store for results (default REPO/.ssr)")
    add_run_options(parser)


def add_validate(subparsers: Any) -> None:
    """Add `ssr validate`."""
    parser = command(
        subparsers,
        "validate",
        artifacts.validate,
        "validate artifacts again, from their five files",
        "ssr validate .ssr/artifacts --repo .",
    )
    parser.add_argument("path", type=Path, metavar="PATH", help="an artifact, or a folder of artifacts")
    parser.add_argument("--repo", type=Path, default=Path(), metavar="REPO", help="default: here")
    parser.add_argument("--per-hunk", action="store_true", help="inverse mutation reverts hunks, not files")
    add_store(parser, "store for the copy of the project (default: a temporary folder)")
    add_run_options(parser)


def add_list(subparsers: Any) -> None:
    """Add `ssr list`."""
    parser = command(subparsers, "list", artifacts.list_store, "list the artifacts of a store", "ssr list .ssr")
    parser.add_argument("store", type=Path, metavar="STORE")


def add_show(subparsers: Any) -> None:
    """Add `ssr show`."""
    parser = command(
        subparsers,
        "show",
        artifacts.show,
        "show one artifact: its bug, its tests, its verdict",
        "ssr show 3f2a --store .ssr",
    )
    parser.add_argument("artifact", metavar="ARTIFACT", help="a directory, or an id (or its beginning) in the store")
    add_store(parser, "default: .ssr")


def add_grade(subparsers: Any) -> None:
    """Add `ssr grade`."""
    parser = command(
        subparsers,
        "grade",
        artifacts.grade,
        "grade a patch on an artifact's buggy code",
        "ssr grade 3f2a --repo . --patch fix.diff",
    )
    parser.add_argument("artifact", metavar="ARTIFACT", help="a directory, or an id (or its beginning) in the store")
    parser.add_argument("--repo", type=Path, default=Path(), metavar="REPO", help="default: here")
    parser.add_argument("--patch", type=Path, required=True, metavar="FILE", help="a git diff; - for standard input")
    parser.add_argument(
        "--test-changes",
        choices=("drop", "refuse"),
        default="drop",
        help="drop a patch's changes to tests, or refuse the patch (default: drop)",
    )
    parser.add_argument(
        "--full", action="store_true", help="run all tests, even after a recorded one has failed (default: stop there)"
    )
    add_rule(parser)
    add_store(parser, "default: REPO/.ssr")
    add_run_options(parser)


def add_doctor(subparsers: Any) -> None:
    """Add `ssr doctor`."""
    parser = command(
        subparsers,
        "doctor",
        artifacts.doctor,
        "report which sandboxes work here, and what to install; or test one against the whole contract",
        "ssr doctor --sandbox bubblewrap",
    )
    parser.add_argument(
        "--sandbox",
        default=None,
        metavar="NAME",
        help=f"test this sandbox against every clause of the contract: {', '.join(SANDBOXES)}",
    )
    parser.add_argument(
        "--python", type=interpreter, default=None, metavar="PATH", help="check this interpreter as well"
    )
