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

from harness.arguments import parser, with_source
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
    advice,
)
from pytest_ssr.escaping import escaped
from pytest_ssr.stopping import end_at_signals

DONE, NO, USAGE, BROKEN = 0, 1, 2, 3


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; a user's mistake is one line on standard error."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115 - it was closed by whoever started this
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115 - likewise
    words = sys.argv[1:] if argv is None else argv
    arguments = parser(words).parse_args(words)
    run: Callable[[argparse.Namespace], int] = arguments.run
    end_at_signals()
    try:
        return run(arguments)
    except SsrError as error:
        _say_error(arguments, error, words)
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
            print(f"ssr: {escaped(str(error.filename or 'standard output'))}: {advice(error)}", file=sys.stderr)
        return BROKEN


def _say_error(arguments: argparse.Namespace, error: SsrError, words: Sequence[str]) -> None:
    message = with_source(str(error), words)
    if getattr(arguments, "json", False):
        print(json.dumps({"error": message, "kind": type(error).__name__}))
    print(f"ssr: {escaped(message)}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
