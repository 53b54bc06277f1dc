"""What every command has: its place in the parser, and defaults from the environment."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

from pytest_ssr.execution.interpreter import named_interpreter
from pytest_ssr.reasons import Rule
from pytest_ssr.sandbox import SANDBOXES


class Parser(argparse.ArgumentParser):
    """Names the variable of the environment where a value that is refused comes from one."""

    def error(self, message: str) -> NoReturn:
        """Say what is wrong, and end."""
        variable = _variable_in(message.removeprefix("argument "))
        super().error(f"{message} (from {variable})" if repr(os.environ.get(variable)) in message else message)


def with_source(message: str, words: Sequence[str]) -> str:
    """Return a message about an option, with the variable that sets it where the command's words do not."""
    variable = _variable_in(message)
    option = message.split(" ", 1)[0]
    typed = any(word == option or word.startswith(f"{option}=") for word in words)
    return f"{message} (from {variable})" if os.environ.get(variable) and not typed else message


def _variable_in(message: str) -> str:
    """Return the variable of the option that a message begins with."""
    found = re.match(r"--([\w-]+)", message)
    return f"SSR_{found[1].upper().replace('-', '_')}" if found else ""


def command(
    commands_of: Any, name: str, run: Callable[[argparse.Namespace], int], text: str, example: str
) -> argparse.ArgumentParser:
    """Return the parser of a command that was added; `run` does it."""
    parser: argparse.ArgumentParser = commands_of.add_parser(
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
    """The default of an option: its `SSR_*` variable, else the given one."""
    return os.environ.get(f"SSR_{name.upper()}") or default


def interpreter(text: str) -> Path:
    """Return an interpreter as it was typed, a relative path as one from the current directory."""
    return named_interpreter(text, Path.cwd())


def add_running(parser: argparse.ArgumentParser) -> None:
    """Add what every command takes that runs tests."""
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
        help="for one run of the whole suite (default 1800)",
    )
    for name in ("passing-tests", "changed-files", "failing-tests"):
        variable = f"min_{name.replace('-', '_')}"
        parser.add_argument(
            f"--min-{name}", type=int, default=environment(variable, "1"), metavar="N", help="default 1"
        )


def add_rule(parser: argparse.ArgumentParser) -> None:
    """Add `--rule`, which verdict of a grade decides."""
    parser.add_argument(
        "--rule",
        choices=tuple(map(str, Rule)),
        default=environment("rule", str(Rule.STRICT)),
        help="strict: the recorded tests pass and the evidence holds; tests: they pass, no more (default strict)",
    )


def add_store(parser: argparse.ArgumentParser, text: str) -> None:
    """Add the store that results are kept in."""
    parser.add_argument("--store", type=Path, default=environment("store"), metavar="DIR", help=text)
