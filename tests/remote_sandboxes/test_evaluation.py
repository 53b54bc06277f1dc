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
from remote_hosts import TOKEN, served_host
from rows import write_project, written

from harness.cli.main import main
from harness.evaluation.plan import EnvironmentKind, Obstacle
from harness.remote_sandboxes.host import HostSettings
from harness.remote_sandboxes.http_transport import TOKEN_VARIABLE
from pytest_ssr.sandbox import load_provider
from pytest_ssr.sandbox.process import ProcessProvider

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


@pytest.mark.parametrize("token", [TOKEN, "another-token-of-the-tests"])
@pytest.mark.parametrize("command", [["eval", "--predictions", "gold"], ["run", "--solver", "search"]])
def test_a_dry_run_asks_the_server(
    clones: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    command: list[str],
    token: str,
) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    monkeypatch.setenv(TOKEN_VARIABLE, token)
    argv = [command[0], "rows.jsonl", *command[1:], "--out", "out", "--repos", str(clones), "--dry-run", "--json"]
    expected = (0, None) if token == TOKEN else (1, Obstacle.NO_SANDBOX)
    with served_host(ProcessProvider(), token=TOKEN) as (address, _):
        for python, kind in (([], EnvironmentKind.SYSTEM), (["--python", "python3"], EnvironmentKind.GIVEN)):
            code = main([*argv, "--sandbox", f"remote:{address}", *python])
            (row,) = json.loads(capsys.readouterr().out)["rows"]
            assert (code, row["blocked"] and row["blocked"]["obstacle"]) == expected
            assert (row["environment"], row["image"]) == (kind, "")


def test_a_dry_run_refuses_what_is_no_address(clones: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["eval", "rows.jsonl", "--predictions", "gold", "--out", "out", "--repos", str(clones), "--dry-run"]
    assert main([*argv, "--sandbox", "remote:node-1:8701"]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


@pytest.mark.bubblewrap
def test_results_do_not_depend_on_which_servers_a_run_uses(
    url: str, clones: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ["run", "rows.jsonl", "--solver", "search", "--out", "out", "--repos", str(clones), "--jobs", "1"]
    settings = HostSettings(python=plain_python(), readable=[Path(sys.base_prefix)])
    with served_host(load_provider("bubblewrap"), settings) as (other, _):
        assert main([*argv, "--sandbox", f"remote:{url},{other}"]) == 0
    first = results(tmp_path / "out")
    assert first[0]["fail_to_pass"]
    capsys.readouterr()
    assert main([*argv, "--sandbox", f"remote:{url}"]) == 0
    assert "1 of 1 are from an earlier run" in capsys.readouterr().out
    assert results(tmp_path / "out") == first
    assert not (tmp_path / "out" / "results.earlier.jsonl").exists()


@pytest.mark.bubblewrap
def test_the_line_for_users_of_other_systems_runs(url: str, clones: Path, tmp_path: Path) -> None:
    (line,) = re.findall(r"`--env-server-url` \| `ssr (.+?)`", PAGE.read_text())
    argv = [*shlex.split(line.replace("http://node-1:8701", url)), "--repos", str(clones)]
    assert main([*argv, "--dry-run"]) == 0
    assert main(argv) == 0
    assert [result["status"] for result in results(tmp_path / "runs" / "mine")] == ["resolved"]
