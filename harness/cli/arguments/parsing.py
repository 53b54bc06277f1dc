"""Provide the parts that commands share: parsers, common options, and defaults from the environment."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

from pytest_ssr.project.interpreter import named_interpreter
from pytest_ssr.records.reasons import Rule
from pytest_ssr.sandbox import SANDBOXES


class Parser(argparse.ArgumentParser):
    """A parser that names the environment variable if an invalid value comes from one."""

    def error(self, message: str) -> NoReturn:
        """Print the error and exit."""
        variable = _variable_in(message.removeprefix("argument "))
        super().error(f"{message} (from {variable})" if repr(os.environ.get(variable)) in message else message)


def with_source(message: str, argv: Sequence[str]) -> str:
    """Return a message about an option, with its environment variable if that set it."""
    variable = _variable_in(message)
    option = message.split(" ", 1)[0]
    typed = any(argument == option or argument.startswith(f"{option}=") for argument in argv)
    return f"{message} (from {variable})" if os.environ.get(variable) and not typed else message


def _variable_in(message: str) -> str:
    """Return the environment variable of the option that a message starts with, or an empty string."""
    match = re.match(r"--([\w-]+)", message)
    return f"SSR_{match[1].upper().replace('-', '_')}" if match else ""


def command(
    subparsers: Any, name: str, run: Callable[[argparse.Namespace], int], text: str, example: str
) -> argparse.ArgumentParser:
    """Add a command that calls `run`, and return its parser."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        name,
        help=text,
        description=text,
        epilog=f"example: {example}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of text")
    parser.set_defaults(run=run)
    return parser


def environment(name: str, default: str | None = None) -> str | None:
    """Return the default of an option: the value of its `SSR_*` variable, else the given one."""
    return os.environ.get(f"SSR_{name.upper()}") or default


def interpreter(text: str) -> Path:
    """Return the path of an interpreter; a relative one is resolved from the current directory."""
    return named_interpreter(text, Path.cwd())


def add_run_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of all commands that run tests."""
    parser.add_argument(
        "--sandbox",
        default=environment("sandbox", "auto"),
        metavar="NAME",
        help=f"auto, {', '.join(SANDBOXES)}; apptainer, docker and gvisor take :IMAGE (default auto)",
    )
    parser.add_argument(
        "--python",
        type=interpreter,
        default=environment("python"),
        metavar="PATH",
        help="the interpreter whose environment runs the tests (default: the project's .venv, else this one)",
    )
    parser.add_argument(
        "--time-limit",
        type=float,
        default=environment("time_limit", "1800"),
        metavar="SECONDS",
        help="limit for one run of the whole suite (default 1800)",
    )
    for name in ("passing-tests", "changed-files", "failing-tests"):
        variable = f"min_{name.replace('-', '_')}"
        parser.add_argument(
            f"--min-{name}", type=int, default=environment(variable, "1"), metavar="N", help="default 1"
        )


def add_rule(parser: argparse.ArgumentParser) -> None:
    """Add `--rule`, which selects the deciding verdict of a grade."""
    parser.add_argument(
        "--rule",
        choices=tuple(map(str, Rule)),
        default=environment("rule", str(Rule.STRICT)),
        help="strict: the recorded tests pass and the evidence holds; tests: the recorded tests pass (default strict)",
    )


def add_store(parser: argparse.ArgumentParser, text: str) -> None:
    """Add `--store`, the store for results."""
    parser.add_argument("--store", type=Path, default=environment("store"), metavar="DIR", help=text)


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
