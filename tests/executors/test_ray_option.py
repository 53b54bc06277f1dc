"""All commands that do units take the address of a cluster, and so do the jobs of a service."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("ray", reason="tox -e ray installs it")

from plain import plain_python
from rows import write_project, written

from harness.cli.exit_code import ExitCode
from harness.cli.main import main

NOWHERE = "127.0.0.1:9"


@pytest.fixture
def rows(tmp_path: Path) -> list[str]:
    clones, rows = write_project(tmp_path)
    return [str(written(tmp_path / "rows.jsonl", rows)), "--repos", str(clones), "--sandbox", "process"]


@pytest.mark.parametrize(
    ("command", "is_variable"),
    [("inject", False), ("play", False), ("run", False), ("eval", False), ("eval", True), ("selfplay", False)],
)
def test_a_cluster_that_is_not_there_is_an_error(
    command: str,
    is_variable: bool,
    project: Path,
    rows: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    python, clone = ["--python", str(plain_python())], f"{rows[2]}/acme__shop"
    argv = {
        "inject": ["inject", str(project), "--store", str(tmp_path / "store"), *python],
        "play": ["play", str(project), "--store", str(tmp_path / "store"), *python],
        "run": ["run", *rows, "--solver", "search", "--out", str(tmp_path / "out"), *python],
        "eval": ["eval", *rows, "--predictions", "gold", "--out", str(tmp_path / "out"), *python],
        "selfplay": ["train", "selfplay", str(project), clone, "--out", str(tmp_path / "out"), *python],
    }[command]
    if is_variable:
        monkeypatch.setenv("SSR_EXECUTOR", f"ray://{NOWHERE}")
    else:
        argv += ["--ray", NOWHERE]
    assert main(argv) == ExitCode.USAGE
    assert NOWHERE in capsys.readouterr().err
