"""What stands in the way of a command is named at once, before the project's tests run."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from model_server import message, serving

from harness.cli.main import main
from harness.rollouts.player_factory import PlayerFactory
from pytest_ssr.storage.store import Store


@pytest.fixture
def watched(tmp_path: Path) -> tuple[Path, Path]:
    """A project, and a file that its tests write when they run."""
    project, ran = tmp_path / "project", tmp_path / "ran"
    project.mkdir()
    (project / "test_it.py").write_text(f"open({str(ran)!r}, 'w').close()\ndef test_it(): pass\n")
    return project, ran


@pytest.mark.parametrize("command", ["play", "solve"])
def test_all_obstacles_are_named_before_anything_is_measured(
    watched: tuple[Path, Path], command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    project, ran = watched
    with serving() as closed:
        gone = closed.url
    with serving() as refusing:
        refusing.refuses = 401
        options = ["--solver", f"vllm:{refusing.url}", "--judge", f"vllm:{gone}"]
        words = [str(project)] if command == "play" else ["a" * 24, "--repo", str(project)]
        assert main([command, *words, *options, "--sandbox", "process", "--json"]) == 2
        told = capsys.readouterr().err
        assert "the key is not valid" in told
        assert gone in told
        assert len(told.splitlines()) == 3
    assert not ran.exists()


def test_a_single_obstacle_is_one_line(watched: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    project, _ = watched
    assert main(["play", str(project), "--solver", "model:unknown"]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


@pytest.mark.parametrize(
    ("words", "option"),
    [
        ("play PROJECT --store PROJECT/new/store", "--store"),
        ("inject PROJECT --store PROJECT/new/store", "--store"),
        ("train grpo PROJECT --model PROJECT --out PROJECT/new/run", "--out"),
        ("train sft PROJECT/rows.jsonl --model PROJECT --out PROJECT/new/run", "--out"),
    ],
)
def test_a_full_disk_is_found_before_anything_is_measured(
    watched: tuple[Path, Path],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: str,
    option: str,
) -> None:
    project, ran = watched
    usage = shutil.disk_usage(project)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=1 << 20))
    assert main(words.replace("PROJECT", str(project)).split()) == 2
    assert f"no space left for results ({option})" in capsys.readouterr().err
    assert not ran.exists()
    assert not (project / "new").exists()


def test_a_judge_out_of_reach_is_found_before_a_policy_is_loaded(
    watched: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    project, _ = watched
    with serving() as closed:
        gone = closed.url
    words = ["train", "grpo", str(project), "--model", str(tmp_path), "--out", str(tmp_path / "run")]
    assert main([*words, "--score", "process=1", "--judge", f"vllm:{gone}"]) == 2
    assert gone in capsys.readouterr().err


def test_a_model_that_cannot_answer_is_no_obstacle_if_a_cache_may_have_its_replies(tmp_path: Path) -> None:
    with serving(message("hm")) as served:
        served.refuses = 401
        with PlayerFactory() as players:
            players.model(f"vllm:{served.url}")
            assert len(players.failures()) == 1
        with PlayerFactory(cache=Store(tmp_path / "cache")) as players:
            players.model(f"vllm:{served.url}")
            assert players.failures() == []


def test_a_server_that_is_busy_is_no_obstacle() -> None:
    with serving() as served:
        served.refuses = 503
        with PlayerFactory() as players:
            players.model(f"vllm:{served.url}")
            assert players.failures() == []
