"""`ssr episodes` and `ssr stats` read the rounds of a store."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from board_parts import episode, store

from harness.cli.main import main


@pytest.fixture
def played(tmp_path: Path) -> Path:
    rounds = [episode(1, solvers={"s": "ru"}), episode(2, valid=False)], [episode(3, solvers={"s": "uu"})]
    folder = store(tmp_path / "store", *rounds, run="abc1")
    return store(folder, [episode(4, solvers={"s": "ri"})], run="abd2")


def told(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, dict]:
    code = main([*map(str, arguments), "--json"])
    return code, json.loads(capsys.readouterr().out)


def test_all_episodes_are_listed_in_the_order_of_their_runs(played: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, data = told(capsys, "episodes", played)
    assert code == 0
    listed = [(row["run"], row["artifact_id"]) for row in data["episodes"]]
    assert listed == [("abc1", "bug001"), ("abc1", ""), ("abc1", "bug003"), ("abd2", "bug004")]
    assert [row["artifact_id"] for row in told(capsys, "episodes", played, "--last", 1)[1]["episodes"]] == ["bug004"]
    assert len(told(capsys, "episodes", played, "--run", "abc")[1]["episodes"]) == 3
    assert main(["episodes", str(played)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 5
    assert "resolved 1 of 2" in lines[0]
    assert "resolved 1 of 1" in lines[3]


def test_stats_sum_up_what_was_played(played: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, data = told(capsys, "stats", played)
    (total,) = data["tables"]["all"]
    assert (code, data["episodes"]) == (0, 4)
    assert (total["tried"], total["valid"], total["attempts"], total["solved"], total["ungraded"]) == (4, 3, 5, 2, 1)
    assert told(capsys, "stats", played, "--run", "abd2")[1]["episodes"] == 1
    assert main(["stats", str(played)]) == 0
    capsys.readouterr()
    played.rename(played.with_name(".ssr"))
    assert told(capsys, "stats", played.parent)[1]["episodes"] == 4


def test_what_is_no_store_or_no_run_is_a_usage_error(played: Path, tmp_path: Path) -> None:
    assert main(["episodes", str(tmp_path)]) == 2
    assert main(["stats", str(played), "--run", "ab"]) == 2
    assert main(["stats", str(played), "--run", "x"]) == 2
    (played / "episodes" / "abc1" / "round-001-001.json").write_text("{")
    assert main(["episodes", str(played)]) == 2


def test_a_store_without_episodes_has_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = store(tmp_path / "store")
    assert told(capsys, "episodes", folder) == (1, {"episodes": []})
    assert told(capsys, "stats", folder)[0] == 1
