"""Entry points of tools and scores that cannot be used: an error that names them and the reason."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from harness.environments import EnvironmentSettings, StoreTasks, extensions, scores
from harness.environments.episodes import Episodes
from pytest_ssr.errors import SettingsError


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("absent_module:Hammer", "absent_module"),
        ("json:absent_name", "absent_name"),
        ("json:__name__", "json:__name__"),
    ],
)
@pytest.mark.parametrize("group", [extensions.TOOLS_GROUP, scores.GROUP])
def test_one_that_cannot_be_imported_or_called_is_named(
    group: str, value: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (extensions, scores):
        monkeypatch.setattr(module, "entry_points_of", lambda wanted: {"hammer": EntryPoint("hammer", value, wanted)})
    if group == extensions.TOOLS_GROUP:
        settings = EnvironmentSettings(tools=["hammer"])
    else:
        settings = EnvironmentSettings(scores={"hammer": 1.0})
    with pytest.raises(SettingsError) as raised:
        Episodes(StoreTasks(tmp_path), settings)
    assert all(part in str(raised.value) for part in ("hammer", value, group, reason))


def test_a_tool_that_cannot_be_made_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # It takes two arguments.
    point = EntryPoint("hammer", "operator:add", extensions.TOOLS_GROUP)
    monkeypatch.setattr(extensions, "entry_points_of", lambda wanted: {"hammer": point})
    with pytest.raises(SettingsError) as raised:
        Episodes(StoreTasks(tmp_path), EnvironmentSettings(tools=["hammer"]))
    assert "operator:add" in str(raised.value)
