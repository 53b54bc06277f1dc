"""The command line `ssr`: arguments in, text or JSON out.

Exit codes: 0 done, 1 the answer is no, 2 wrong usage, 3 something broke.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from harness import commands, injecting
from pytest_ssr import __version__
from pytest_ssr.errors import (
    ArtifactError,
    MissingExtraError,
    ProjectError,
    SandboxError,
    SandboxUnavailableError,
    SettingsError,
    SsrError,
    StoreError,
    StoreWriteError,
)
from pytest_ssr.opening import DEFAULT_COUNT, DEFAULT_INJECTORS, end_like_an_interrupt
from pytest_ssr.sandbox import SANDBOXES

DONE, NO, USAGE, BROKEN = 0, 1, 2, 3


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; a user's mistake is one line on standard error."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115 - it was closed by whoever started this
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115 - likewise
    arguments = _parser().parse_args(argv)
    run: Callable[[argparse.Namespace], int] = arguments.run
    end_like_an_interrupt()
    try:
        return run(arguments)
    except SsrError as error:
        _say_error(arguments, error)
        wrong = (
            ArtifactError,
            MissingExtraError,
            ProjectError,
            SandboxUnavailableError,
            SettingsError,
            StoreError,
        )
        broke = isinstance(error, SandboxError | StoreWriteError)
        return USAGE if isinstance(error, wrong) and not broke else BROKEN
    except KeyboardInterrupt:
        print("ssr: interrupted; what is finished is kept, run the same command to go on", file=sys.stderr)
        return BROKEN
    except OSError as error:
        # Standard output is gone or full: nobody reads on, or the disk behind it has no room.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):
            print(f"ssr: {error.strerror or error}: {error.filename or 'standard output'}", file=sys.stderr)
        return BROKEN


def _say_error(arguments: argparse.Namespace, error: SsrError) -> None:
    if getattr(arguments, "json", False):
        print(json.dumps({"error": str(error), "kind": type(error).__name__}))
    print(f"ssr: {error}", file=sys.stderr)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="ssr", description="Proven bugs from any pytest project, and what its tests miss."
    )
    parser.add_argument("--version", action="version", version=f"ssr {__version__}")
    commands_of = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    _add_inject(commands_of)
    _add_validate(commands_of)
    _add_list(commands_of)
    _add_show(commands_of)
    _add_grade(commands_of)
    _add_doctor(commands_of)
    return parser


def _command(
    commands_of: Any, name: str, run: Callable[[argparse.Namespace], int], text: str, example: str
) -> argparse.ArgumentParser:
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


def _environment(name: str, default: str | None = None) -> str | None:
    """The default of an option: its `SSR_*` variable, else the given one."""
    return os.environ.get(f"SSR_{name.upper()}") or default


def _add_running(parser: argparse.ArgumentParser) -> None:
    """Add what every command takes that runs tests."""
    parser.add_argument(
        "--sandbox",
        default=_environment("sandbox", "auto"),
        metavar="NAME",
        help="auto, bubblewrap, process (default auto)",
    )
    parser.add_argument(
        "--python",
        type=Path,
        default=_environment("python"),
        metavar="PATH",
        help="the interpreter whose environment runs the tests (default: the project's .venv, else this one)",
    )
    parser.add_argument(
        "--time-limit",
        type=float,
        default=_environment("time_limit", "600"),
        metavar="SECONDS",
        help="for one run of the whole suite (default 600)",
    )
    for name in ("passing-tests", "changed-files", "failing-tests"):
        variable = f"min_{name.replace('-', '_')}"
        parser.add_argument(
            f"--min-{name}", type=int, default=_environment(variable, "1"), metavar="N", help="default 1"
        )


def _add_store(parser: argparse.ArgumentParser, text: str) -> None:
    parser.add_argument("--store", type=Path, default=_environment("store"), metavar="DIR", help=text)


def _add_inject(commands_of: Any) -> None:
    parser = _command(
        commands_of,
        "inject",
        injecting.inject,
        "inject bugs into a project and keep those that are proven",
        "ssr inject . --count 5 --jobs 2",
    )
    parser.add_argument("repo", type=Path, metavar="REPO", help="the project's top directory")
    parser.add_argument("--count", type=int, default=_environment("count", str(DEFAULT_COUNT)), metavar="N")
    parser.add_argument(
        "--injector",
        default=_environment("injector", DEFAULT_INJECTORS),
        metavar="NAMES",
        help=f"comma-separated (default {DEFAULT_INJECTORS}); also history, mutmut",
    )
    parser.add_argument("--seed", type=int, default=_environment("seed", "0"), metavar="N")
    parser.add_argument(
        "--source", action="append", default=[], metavar="PATH", help="inject only below this file or folder"
    )
    parser.add_argument(
        "--tests", action="append", default=[], metavar="PATH", help="run only these tests (default: all)"
    )
    parser.add_argument("--jobs", type=int, default=_environment("jobs", "1"), metavar="N")
    parser.add_argument("--per-hunk", action="store_true", help="inverse mutation reverts hunks, not files")
    parser.add_argument("--diffs", action="store_true", help="show the diff of each change no test noticed")
    _add_store(parser, "where results are kept (default REPO/.ssr)")
    _add_running(parser)


def _add_validate(commands_of: Any) -> None:
    parser = _command(
        commands_of,
        "validate",
        commands.validate,
        "prove artifacts again, from their five files",
        "ssr validate .ssr/artifacts --repo .",
    )
    parser.add_argument("path", type=Path, metavar="PATH", help="an artifact, or a folder that holds some")
    parser.add_argument("--repo", type=Path, default=Path(), metavar="REPO", help="default: here")
    parser.add_argument("--per-hunk", action="store_true", help="inverse mutation reverts hunks, not files")
    _add_store(parser, "where the copy of the project is kept (default: a temporary folder)")
    _add_running(parser)


def _add_list(commands_of: Any) -> None:
    parser = _command(commands_of, "list", commands.list_store, "list the artifacts of a store", "ssr list .ssr")
    parser.add_argument("store", type=Path, metavar="STORE")


def _add_show(commands_of: Any) -> None:
    parser = _command(
        commands_of,
        "show",
        commands.show,
        "show one artifact: its bug, its tests, its verdict",
        "ssr show 3f2a --store .ssr",
    )
    parser.add_argument("artifact", metavar="ARTIFACT", help="a directory, or an id (or its beginning) in the store")
    _add_store(parser, "default: .ssr")


def _add_grade(commands_of: Any) -> None:
    parser = _command(
        commands_of,
        "grade",
        commands.grade,
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
        help="what a patch changes of the tests is dropped, or the patch is refused (default: drop)",
    )
    _add_store(parser, "default: REPO/.ssr")
    _add_running(parser)


def _add_doctor(commands_of: Any) -> None:
    parser = _command(
        commands_of,
        "doctor",
        commands.doctor,
        "say which sandboxes work here, and what to install; or try one against the whole contract",
        "ssr doctor --sandbox bubblewrap",
    )
    parser.add_argument(
        "--sandbox",
        default=None,
        metavar="NAME",
        help=f"try every promise of the contract on this one and say what it contains: {', '.join(SANDBOXES)}",
    )
    parser.add_argument("--python", type=Path, default=None, metavar="PATH", help="also look at this interpreter")


if __name__ == "__main__":
    sys.exit(main())
