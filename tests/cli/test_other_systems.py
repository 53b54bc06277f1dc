"""Who types what another system has is told what does the same here."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from harness.cli.app import COMMANDS, parse
from harness.other_systems import COMMANDS as THEIR_COMMANDS
from harness.other_systems import PREFIX, ROUTES, SERVER_ROUTES, VARIABLES, command_here, route_here
from pytest_ssr.errors import SettingsError

PAGE = Path(__file__).parents[2] / "docs" / "coming-from.md"
ROWS = [row.strip("| ").partition(" | ") for row in PAGE.read_text().splitlines() if row.startswith("| ")]
TABLE = {**THEIR_COMMANDS, **ROUTES, **SERVER_ROUTES, **VARIABLES}


@pytest.mark.parametrize(("there", "here"), TABLE.items())
def test_the_documentation_says_the_same(there: str, here: str) -> None:
    shown = [text.removeprefix(PREFIX) for text in (here, f"ssr {here}")]
    word = re.compile(rf"(?<![A-Za-z/]){re.escape(there)}(?![A-Za-z/])")
    rows = [mine for theirs, _, mine in ROWS if word.search(theirs) or word.search(theirs.replace("ssr-studio ", ""))]
    assert any(text.removeprefix("ssr ") in mine for mine in rows for text in shown), rows


def test_their_commands_have_one_of_ours() -> None:
    assert set(THEIR_COMMANDS.values()) <= set(COMMANDS)
    assert not {command_here(name) for name in COMMANDS} - {""}, "ours mean what they mean here"


@pytest.mark.parametrize(
    ("typed", "ours"),
    [("metrics", "stats"), ("init-db", "serve"), ("src/evaluate.py", "run"), ("swe_exec_server", "sandbox-server")],
)
def test_an_unknown_command(typed: str, ours: str) -> None:
    with pytest.raises(SettingsError, match=rf"did you mean {ours}\?"):
        parse([typed])


def test_a_route_with_an_id() -> None:
    assert route_here(f"{PREFIX}/episodes/3f-2a/validation/") == f"{PREFIX}/artifacts/ID/verdict"
    assert route_here(f"{PREFIX}/episodes//validation") == ""
    assert route_here("/container/exec", SERVER_ROUTES) == "/v1/sandboxes/ID/exec"
    assert route_here("/nothing") == ""
