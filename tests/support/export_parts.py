"""Run `ssr export`, and read its report and its rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from harness.cli.main import main


def export(*argv: object) -> int:
    return main(["export", *map(str, argv)])


def report_of(capsys: pytest.CaptureFixture[str], *argv: object) -> dict[str, Any]:
    capsys.readouterr()
    export(*argv, "--json")
    data: dict[str, Any] = json.loads(capsys.readouterr().out)
    return data


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
