"""Define the command line of `ssr`: its commands and options, many with an environment variable as default."""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Iterable, Sequence

from harness.cli.arguments.parsing import Parser, with_source
from pytest_ssr import __version__

__all__ = ["parser", "with_source"]

_MODULES = {
    **dict.fromkeys(("inject", "validate", "list", "show", "grade"), "artifacts"),
    **dict.fromkeys(("solve", "play"), "play"),
    **dict.fromkeys(("run", "eval", "assets"), "instances"),
    **dict.fromkeys(("leaderboard", "export"), "results"),
    "doctor": "artifacts",
}


def parser(argv: Sequence[str] = ()) -> argparse.ArgumentParser:
    """Return the parser of the command line; the parsed arguments have the command's function as `run`.

    argv: the arguments to parse. If they start with a command, only that one is added and its modules are imported.
    """
    top = Parser(prog="ssr", description="Proven bugs from any pytest project, and what its tests miss.")
    top.add_argument("--version", action="version", version=f"ssr {__version__}")
    subparsers = top.add_subparsers(title="commands", required=True, metavar="COMMAND")
    names: Iterable[str] = _MODULES
    if set(argv[:1]) & set(_MODULES):
        names = argv[:1]
    elif argv[:1] == ["--version"]:
        names = []
    for name in names:
        module = importlib.import_module(f"harness.cli.arguments.{_MODULES[name]}")
        getattr(module, f"add_{name}")(subparsers)
    return top
