"""`ssr plan` as its users run it."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest
from capacity_parts import bug_store

from harness.cli.exit_code import ExitCode
from harness.cli.main import main


@pytest.fixture
def store(tmp_path: Path) -> str:
    return str(bug_store(tmp_path / "s").root)


def planned(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert main(["plan", *arguments, "--json"]) == ExitCode.DONE
    data: dict[str, Any] = json.loads(capsys.readouterr().out)
    return data


def test_the_table_has_four_sizes(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", store, "--bugs", "1000"]) == ExitCode.DONE
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[-4:]] == ["1", "10", "100", "1,000"]
    data = planned(capsys, store, "--bugs", "1000")
    assert [cluster["nodes"] for cluster in data["clusters"]] == [1, 10, 100, 1000]
    assert all(cluster["simulation"] is None for cluster in data["clusters"])
    # Eight of ten candidates are valid, and they take 3.4 s on average.
    assert data["clusters"][0]["units"] == 1250
    assert data["clusters"][0]["seconds"] == pytest.approx(1250 * 3.4 / 8, rel=0.01)


def test_the_simulation_is_beside_the_closed_form(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    options = [store, "--bugs", "1000", "--nodes", "1", "3", "--failures-per-day", "20", "--replacement", "0"]
    options += ["--simulate"]
    for cluster in planned(capsys, *options)["clusters"]:
        assert cluster["simulation"]["finished"] == cluster["units"]
        assert cluster["simulation"]["seconds"] == pytest.approx(cluster["seconds"], rel=0.1)
    assert main(["plan", *options]) == ExitCode.DONE
    assert "simulated" in capsys.readouterr().out


def test_the_least_nodes_within_a_time(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    options = [store, "--bugs", "100000", "--writes", "100000"]
    data = planned(capsys, *options, "--within", "1")
    assert [cluster["nodes"] for cluster in data["clusters"]] == [data["least_nodes"]]
    assert data["clusters"][0]["seconds"] <= 3600
    assert main(["plan", *options, "--within", "0.0001"]) == ExitCode.NO


def test_without_simpy_there_is_the_closed_form(
    store: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "simpy" else found(name))
    assert main(["plan", store, "--bugs", "10"]) == ExitCode.DONE
    assert "pytest-ssr[plan]" in capsys.readouterr().out
    assert main(["plan", store, "--bugs", "10", "--simulate"]) != ExitCode.DONE
    assert "pytest-ssr[plan]" in capsys.readouterr().err


def test_the_picture(store: str, tmp_path: Path) -> None:
    pictures = [tmp_path / f"{name}.svg" for name in "ab"]
    for path in pictures:
        options = ["--nodes", "1", "10", "--simulate", "--plot", str(path)]
        assert main(["plan", store, "--bugs", "100", *options]) == ExitCode.DONE
    assert b"utilisation" in pictures[0].read_bytes()
    assert pictures[0].read_bytes() == pictures[1].read_bytes()


@pytest.mark.parametrize(
    "wrong",
    [
        [],
        ["--bugs", "10", "--rows", "10"],
        ["--bugs", "0"],
        ["--attempts", "10"],
        ["--bugs", "10", "--nodes", "0"],
        ["--bugs", "10", "--slots", "0"],
        ["--bugs", "10", "--stragglers", "2"],
        ["--bugs", "10", "--slowdown", "0.5"],
        ["--bugs", "10", "--within", "0"],
        ["--bugs", "10", "--plot", "p.txt"],
    ],
)
def test_wrong_usage(store: str, wrong: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", store, *wrong]) == ExitCode.USAGE
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_a_folder_that_is_not_a_store(tmp_path: Path) -> None:
    assert main(["plan", str(tmp_path), "--bugs", "10"]) == ExitCode.USAGE
    assert list(tmp_path.iterdir()) == []
