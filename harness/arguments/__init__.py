"""What `ssr` can be told: its commands with their options, each with a variable of the environment where that helps."""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Sequence

from harness.arguments.parsing import Parser, with_source
from pytest_ssr import __version__

__all__ = ["parser", "with_source"]

_HOMES = {
    **dict.fromkeys(("inject", "validate", "list", "show", "grade"), "artifacts"),
    **dict.fromkeys(("solve", "play"), "play"),
    **dict.fromkeys(("run", "eval", "assets"), "instances"),
    **dict.fromkeys(("leaderboard", "export"), "results"),
    "doctor": "artifacts",
}


def parser(words: Sequence[str] = ()) -> argparse.ArgumentParser:
    """Return the parser of the command line; `run` of what it reads is the command.

    words: what it will read. Where they begin with a command, it knows that one alone: each imports what it works with.
    """
    found = Parser(prog="ssr", description="Proven bugs from any pytest project, and what its tests miss.")
    found.add_argument("--version", action="version", version=f"ssr {__version__}")
    commands_of = found.add_subparsers(title="commands", required=True, metavar="COMMAND")
    chosen = words[:1] if set(words[:1]) & set(_HOMES) else [] if words[:1] == ["--version"] else _HOMES
    for name in chosen:
        home = importlib.import_module(f"harness.arguments.{_HOMES[name]}")
        getattr(home, f"add_{name}")(commands_of)
    return found
