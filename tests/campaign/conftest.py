"""Run a command of the command line in this process."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from harness.cli.main import main

Run = Callable[..., tuple[int, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Return a function from arguments to the exit code and the standard output."""

    def start(*arguments: str) -> tuple[int, str]:
        try:
            code = main(arguments)
        except SystemExit as error:
            code = int(error.code or 0)
        return code, capsys.readouterr().out

    return start
