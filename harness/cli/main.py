"""Provide the entry point of the command line `ssr`; what it exits with is an ExitCode."""

from __future__ import annotations

import io
import json
import logging
import os
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from harness.cli.exit_code import ExitCode
from pytest_ssr import __version__
from pytest_ssr.errors import (
    ArtifactError,
    MissingExtraError,
    ProjectError,
    SettingsError,
    SsrError,
    StoreError,
    StoreWriteError,
    os_error_advice,
)
from pytest_ssr.escaping import escaped
from pytest_ssr.interrupts import install_signal_handlers

if TYPE_CHECKING:
    from harness.settings.plan import Origin

_USAGE_ERRORS = (ArtifactError, MissingExtraError, ProjectError, SettingsError, StoreError)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; a usage error is one line on standard error."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115 - the parent process closed it
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115 - same reason
    argv = sys.argv[1:] if argv is None else argv
    if list(argv) == ["--version"]:
        print(f"ssr {__version__}")
        return ExitCode.DONE
    origins: Mapping[str, Origin] = {}
    try:
        os.getcwd()
    except FileNotFoundError:
        print("ssr: the current folder was removed; change to another one", file=sys.stderr)
        return ExitCode.USAGE
    try:
        from harness.cli.app import parse  # cyclopts, which `ssr --version` does not need
        from harness.cli.unknown_variables import name_unknown_variables

        if remark := name_unknown_variables():
            print(f"ssr: {escaped(remark)}", file=sys.stderr)
        parsed = parse(argv)
        if parsed is None:
            return ExitCode.DONE
        origins = parsed.settings.origins
        parsed.settings.check()
        install_signal_handlers()
        from harness.cli.terminal import NoteHandler, close_terminals

        handler, logger = NoteHandler(), logging.getLogger("harness")
        logger.addHandler(handler)
        try:
            return parsed.run(parsed.settings)
        finally:
            logger.removeHandler(handler)
            close_terminals()
    except SsrError as error:
        _report_error(error, origins, as_json="--json" in argv)
        is_usage = isinstance(error, _USAGE_ERRORS) and not isinstance(error, StoreWriteError)
        return ExitCode.USAGE if is_usage else ExitCode.BROKEN
    except KeyboardInterrupt:
        print("ssr: interrupted; what is finished is kept, run the same command to go on", file=sys.stderr)
        return ExitCode.BROKEN
    except MemoryError:
        print("ssr: there is not enough memory; what is finished is kept", file=sys.stderr)
        return ExitCode.BROKEN
    except OSError as error:
        # Standard output is closed or full: its reader has ended, or its disk has no space.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):
            print(
                f"ssr: {escaped(str(error.filename or 'standard output'))}: {os_error_advice(error)}", file=sys.stderr
            )
        return ExitCode.BROKEN


def _report_error(error: SsrError, origins: Mapping[str, Origin], *, as_json: bool) -> None:
    """Print the error, with the variable or the file that has set the option at fault."""
    message = str(error)
    origin = origins.get(error.option) if isinstance(error, SettingsError) else None
    if origin is not None:
        message += origin.suffix
    if as_json:
        print(json.dumps({"error": message, "kind": type(error).__name__}))
    print(f"ssr: {escaped(message)}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
