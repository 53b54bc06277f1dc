"""`ssr show` prints a rollout step by step."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from rollout_parts import keep, played, store

from harness.cli.commands.show import show
from harness.cli.exit_code import ExitCode
from harness.cli.main import main
from harness.records.messages import ASSISTANT, USER, Message, Reply
from harness.records.trajectory import REWARDS, ExitReason, Journal, ModelCall, Step, Trajectory
from harness.settings.commands import ShowSettings
from pytest_ssr.errors import SettingsError

CODE = "\x1b[31mred"


@pytest.fixture
def episode(tmp_path: Path) -> Path:
    """Return the trajectory of an episode of an environment, with replies in text, one of which cannot be read."""
    folder = tmp_path / "policy" / "trajectories" / "aa01"
    journal = Journal(Trajectory("aa01", "bug1", "solver", 0, "tiny"), folder / "trajectory.jsonl")
    journal.message(Message(USER, "repair bug1"))
    replies = ["I look.\n```bash\ncat calc.py\n```", "Hm.", "```submit\n{}\n```"]
    for number, text in enumerate(replies):
        index = journal.message(Message(ASSISTANT, text))
        journal.call(ModelCall.of(number, (0,), index, Reply(Message(ASSISTANT, text), "stop")))
        seen = journal.message(Message(USER, f"saw {number}\n{CODE}"))
        kind, tool = [("tool", "bash"), ("format-error", ""), ("submit", "submit")][number]
        arguments = {"command": "cat calc.py"} if tool == "bash" else {}
        journal.step(Step(number, number, kind, tool, arguments, seen, exit_code=0))
    journal.end(ExitReason.SUBMITTED)
    rewards = {"rewards": [0.0, 0.25, 1.0], "reward": 1.25, "success": True, "reason": "all tests pass"}
    (folder / REWARDS).write_text(json.dumps(rewards))
    return folder


def shown(capsys: pytest.CaptureFixture[str], *arguments: object) -> dict[str, Any]:
    assert main(["show", *map(str, arguments), "--json"]) == ExitCode.DONE
    data: dict[str, Any] = json.loads(capsys.readouterr().out)
    return data


def test_an_episode_has_thoughts_actions_observations_and_rewards(
    episode: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for path in (episode, episode / "trajectory.jsonl"):
        data = shown(capsys, path)
        look, odd, end = data["steps"]
        assert (look["thought"], look["tool"], look["arguments"]) == ("I look.", "bash", {"command": "cat calc.py"})
        assert look["observation"] == f"saw 0\n{CODE}"
        assert (odd["thought"], odd["kind"]) == ("Hm.", "format-error")
        assert (end["tool"], end["thought"]) == ("submit", "")
        assert [step["reward"] for step in data["steps"]] == [0.0, 0.25, 1.0]
        assert (data["reward"], data["success"], data["exit_reason"]) == (1.25, True, "submitted")


def test_the_text_is_escaped(episode: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", str(episode)]) == ExitCode.DONE
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert [line.strip() for line in out.splitlines()].count("\\x1b[31mred") == 3
    assert "    cat calc.py" in out.splitlines()
    assert out.count("reward: ") == 4


def test_a_rollout_of_a_store_is_found_by_the_beginning_of_its_id(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = store(tmp_path / "store")
    for name, resolved in (("ab1", True), ("ab2", False)):
        keep(folder, name.ljust(24, "0"), resolved, commands=("ls", "make"))
    data = shown(capsys, "ab1", "--store", folder)
    assert [step["arguments"] for step in data["steps"]] == [{"command": "ls"}, {"command": "make"}]
    assert (data["reward"], data["resolved"]) == (1.0, True)
    for name in ("ab", "ac"):
        assert main(["show", name, "--store", str(folder)]) == ExitCode.USAGE
        assert str(folder) in capsys.readouterr().err


@pytest.mark.parametrize("text", ["", "{}", "no json"])
def test_what_is_no_trajectory_is_one_line(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text(text)
    assert main(["show", str(tmp_path / "file")]) == ExitCode.USAGE
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_a_trajectory_without_steps_or_with_a_wrong_index_is_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "trajectory.jsonl"
    played(path=path)
    assert len(shown(capsys, path)["steps"]) == 2
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for line in lines:
        line.update({"assistant_index": 99} if line["event"] == "call" else {})
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert [step["tool"] for step in shown(capsys, path)["steps"]] == ["", ""]


def test_steps_are_found_by_a_regular_expression(episode: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert [step["number"] for step in shown(capsys, episode)["steps"]] == [1, 2, 3]
    for pattern, numbers in (("^cat .*py$", [1]), ("H.\\.", [2]), ("saw [02]", [1, 3]), ("submit", [3])):
        assert [step["number"] for step in shown(capsys, episode, "--grep", pattern)["steps"]] == numbers
    assert main(["show", str(episode), "--grep", "saw 1"]) == ExitCode.DONE
    out = capsys.readouterr().out
    assert "step 2" in out.splitlines()
    assert "step 1" not in out.splitlines()
    assert main(["show", str(episode), "--grep", "nothing like it"]) == ExitCode.NO


def test_a_pattern_that_cannot_be_used(episode: Path, tmp_path: Path) -> None:
    with pytest.raises(SettingsError) as caught:
        show(ShowSettings(artifact=str(episode), grep="("))
    assert caught.value.option == "grep"
    with pytest.raises(SettingsError) as caught:
        show(ShowSettings(artifact=str(tmp_path), grep="x"))
    assert caught.value.option == "grep"
