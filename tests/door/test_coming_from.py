"""The tables of the page for users of other systems: each command and each option of `ssr` in them exists.

Its examples run with the packages that they need: `tests/service`, `tests/remote_sandboxes`, `tests/training/language`.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from harness.cli.app import COMMANDS, parse
from harness.settings.plan import leaves_of

DOCS = Path(__file__).parents[2] / "docs"
ROWS = re.findall(r"^\| (.+?) \| (.+) \|$", (DOCS / "coming-from.md").read_text(), re.MULTILINE)
HERE = {there: re.findall("`([^`]+)`", here) for there, here in ROWS}


def command_of(span: str) -> str:
    """Return the command of `ssr` that a code span begins with, empty if it is another text."""
    words = span.split()
    names = (" ".join(words[1 : 1 + count]) for count in (3, 2, 1))
    return next((name for name in names if name in COMMANDS), "") if words[0] == "ssr" else ""


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The files that commands of the page name."""
    (tmp_path / "docs").symlink_to(DOCS)
    (tmp_path / "play.yaml").touch()
    monkeypatch.chdir(tmp_path)


def test_the_tables_are_read() -> None:
    assert len(ROWS) > 100
    assert sum(bool(command_of(span)) for spans in HERE.values() for span in spans) > 60
    assert {command_of("ssr serve token create x"), command_of("ssr train sft x")} == {
        "serve token create",
        "train sft",
    }


@pytest.mark.parametrize(
    "span", sorted({s for spans in HERE.values() for s in spans if s.startswith("ssr ") and len(s.split()) > 1})
)
def test_each_command_is_accepted(span: str) -> None:
    """An unknown option, a missing argument or an impossible value raises an error."""
    command = command_of(span)
    assert command, f"{span} is not a command"
    if span != f"ssr {command}":
        parse(shlex.split(span)[1:])


@pytest.mark.parametrize(
    ("there", "flag"), [(there, s.split()[0]) for there, spans in HERE.items() for s in spans if s.startswith("--")]
)
def test_each_option_alone_is_one_of_the_commands_of_its_row(there: str, flag: str) -> None:
    named = [COMMANDS[command] for span in HERE[there] if (command := command_of(span))]
    assert flag in {f"--{leaf.flag}" for command in named for leaf in leaves_of(command.load_settings())}
