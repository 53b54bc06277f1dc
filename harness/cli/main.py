"""Provide the entry point of the command line `ssr`.

Exit codes: 0 success, 1 a negative result, 2 a usage error, 3 a failure.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import sys
from collections.abc import Callable, Sequence

from harness.cli.arguments import parser, with_source
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
    os_error_advice,
)
from pytest_ssr.escaping import escaped
from pytest_ssr.interrupts import install_signal_handlers

DONE, NO, USAGE, BROKEN = 0, 1, 2, 3


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; a usage error is one line on standard error."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115 - the parent process closed it
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115 - same reason
    argv = sys.argv[1:] if argv is None else argv
    arguments = parser(argv).parse_args(argv)
    run: Callable[[argparse.Namespace], int] = arguments.run
    install_signal_handlers()
    try:
        return run(arguments)
    except SsrError as error:
        _report_error(arguments, error, argv)
        usage_errors = (
            ArtifactError,
            MissingExtraError,
            ProjectError,
            SandboxUnavailableError,
            SettingsError,
            StoreError,
        )
        is_failure = isinstance(error, SandboxError | StoreWriteError)
        return USAGE if isinstance(error, usage_errors) and not is_failure else BROKEN
    except KeyboardInterrupt:
        print("ssr: interrupted; what is finished is kept, run the same command to go on", file=sys.stderr)
        return BROKEN
    except OSError as error:
        # Standard output is closed or full: its reader has ended, or its disk has no space.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):
            print(
                f"ssr: {escaped(str(error.filename or 'standard output'))}: {os_error_advice(error)}", file=sys.stderr
            )
        return BROKEN


def _report_error(arguments: argparse.Namespace, error: SsrError, argv: Sequence[str]) -> None:
    message = with_source(str(error), argv)
    if getattr(arguments, "json", False):
        print(json.dumps({"error": message, "kind": type(error).__name__}))
    print(f"ssr: {escaped(message)}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
