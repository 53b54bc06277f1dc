"""Rows are evaluated in sandboxes of a server."""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from plain import plain_python
from remote_hosts import served_host
from rows import write_project, written

from harness.cli.main import main
from harness.remote_sandboxes.host import HostSettings
from pytest_ssr.sandbox import load_provider

PAGE = Path(__file__).parents[2] / "docs" / "coming-from.md"


@pytest.fixture
def url() -> Iterator[str]:
    settings = HostSettings(python=plain_python(), readable=[Path(sys.base_prefix)])
    with served_host(load_provider("bubblewrap"), settings) as (address, _):
        yield address


@pytest.fixture
def clones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of clones; the file of a row that needs one of them is in the current directory."""
    found, rows = write_project(tmp_path)
    written(tmp_path / "rows.jsonl", rows[:1])
    monkeypatch.chdir(tmp_path)
    return found


def results(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / "results.jsonl").read_text().splitlines()]


@pytest.mark.bubblewrap
def test_predictions_are_graded_by_an_interpreter_of_the_server(url: str, clones: Path, tmp_path: Path) -> None:
    argv = ["eval", "rows.jsonl", "--predictions", "gold", "--out", "out", "--repos", str(clones), "--no-logs"]
    argv += ["--sandbox", f"remote:{url}"]
    assert main([*argv, "--dry-run"]) == 0
    assert main(argv) == 0
    assert [result["status"] for result in results(tmp_path / "out")] == ["resolved"]


@pytest.mark.bubblewrap
def test_the_line_for_users_of_other_systems_runs(url: str, clones: Path, tmp_path: Path) -> None:
    (line,) = re.findall(r"`--env-server-url` \| `ssr (.+?)`", PAGE.read_text())
    argv = [*shlex.split(line.replace("http://node-1:8701", url)), "--repos", str(clones)]
    assert main([*argv, "--dry-run"]) == 0
    assert main(argv) == 0
    assert [result["status"] for result in results(tmp_path / "runs" / "mine")] == ["resolved"]
