"""Run `ssr train` for language models, and read what a run leaves."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from harness.cli.main import main

SHORT = (
    "--updates",
    "50",
    "--accumulation",
    "1",
    "--batch",
    "2",
    "--learning-rate",
    "0.02",
    "--checkpoint-every",
    "25",
)


def lines(folder: Path) -> list[dict[str, Any]]:
    """Return the metrics of a run."""
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def report(folder: Path) -> dict[str, Any]:
    """Return the report of a run."""
    loaded: dict[str, Any] = json.loads((folder / "report.json").read_text())
    return loaded


def train(method: str, source: Path, model: Path, out: Path, *options: str) -> int:
    """Run `ssr train`."""
    return main(["train", method, str(source), "--model", str(model), "--out", str(out), *options])
