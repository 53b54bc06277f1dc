"""The skill is printed, and copied without overwriting anything."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest
import yaml

from harness.agent_tools.skill import FOLDER, skill_text
from harness.cli.app import COMMANDS
from harness.cli.exit_code import ExitCode
from harness.cli.main import main


def test_its_front_matter() -> None:
    _, front, _ = skill_text().split("---\n", 2)
    values = yaml.safe_load(front)
    assert values.keys() == {"name", "description"}
    assert values["name"] == FOLDER.name
    assert len(values["description"]) <= 1024


def test_it_names_commands_that_exist() -> None:
    named = {line.split()[0].strip("`") for line in skill_text().split("`ssr ")[1:]}
    assert named
    assert named <= COMMANDS.keys()


def test_it_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["skill"]) == ExitCode.DONE
    assert capsys.readouterr().out == skill_text()


def test_it_is_copied_and_overwrites_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["skill", "--out", str(tmp_path)]) == ExitCode.DONE
    copied = tmp_path / FOLDER.name / "SKILL.md"
    assert copied.read_text() == skill_text()
    assert main(["skill", "--out", str(tmp_path)]) == ExitCode.DONE, "the same file may stay"
    copied.write_text("mine")
    assert main(["skill", "--out", str(tmp_path)]) == ExitCode.USAGE
    assert copied.read_text() == "mine"
    copied.unlink()
    copied.symlink_to(tmp_path / "elsewhere")
    assert main(["skill", "--out", str(tmp_path)]) == ExitCode.USAGE
    assert not (tmp_path / "elsewhere").exists()


def test_it_is_not_copied_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "skills").mkdir()
    (tmp_path / "skills" / FOLDER.name).symlink_to(tmp_path / "elsewhere")
    assert main(["skill", "--out", str(tmp_path / "skills")]) == ExitCode.USAGE
    assert not list((tmp_path / "elsewhere").iterdir())


def test_without_the_extra_the_server_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if importlib.util.find_spec("mcp") is not None:
        monkeypatch.delitem(sys.modules, "harness.agent_tools.mcp_server", raising=False)
        monkeypatch.setitem(sys.modules, "mcp.server.mcpserver", None)
    assert main(["mcp", str(tmp_path)]) == ExitCode.USAGE
    captured = capsys.readouterr()
    assert not captured.out
    assert captured.err.count("\n") == 1
    assert "pytest-ssr[mcp]" in captured.err
