"""Models are created from their names; an unknown name is an error."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from harness.cli.commands.play import play
from harness.models.factory import is_model, is_started_late, open_model, suggestion
from harness.rollouts.player_factory import PlayerFactory
from harness.settings.commands import PlaySettings
from pytest_ssr.errors import MissingExtraError, SettingsError
from pytest_ssr.storage.store import Store


@pytest.mark.parametrize(
    ("name", "model", "late"),
    [
        ("openai/gpt", True, False),
        ("vllm:/models/a", True, True),
        ("vllm:http://127.0.0.1:8000/v1", True, False),
        ("scripted:a.json", True, False),
        ("search", False, False),
        ("replay:a/b", False, False),
        ("mutation", False, False),
    ],
)
def test_a_model_is_known_by_its_name(name: str, model: bool, late: bool) -> None:
    assert (is_model(name), is_started_late(name)) == (model, late)


@pytest.mark.parametrize(("name", "extra"), [("openai/gpt", "litellm"), ("vllm:http://127.0.0.1:9/v1", "vllm")])
def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch, name: str, extra: str) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda package: None)
    with pytest.raises(MissingExtraError, match=rf"pip install 'pytest-ssr\[{extra}\]'"):
        open_model(name)


@pytest.mark.parametrize(
    ("name", "variable", "other"),
    [
        ("openai/gpt-4o-mini", "OPENAI_API_KEY", "OPENAI_BASE_URL"),
        ("anthropic/claude-sonnet-4-5", "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"),
    ],
)
def test_a_missing_key_is_found_before_anything_is_measured(
    name: str, variable: str, other: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda package: package)
    monkeypatch.setattr(importlib, "import_module", lambda module: SimpleNamespace(LitellmModel=Opened))
    for each in (variable, other):
        monkeypatch.delenv(each, raising=False)
    with pytest.raises(SettingsError, match=variable):
        open_model(name)
    # Replies in a cache, and servers of one's own, may need none; so may a provider with other credentials.
    open_model(name, cache=Store(tmp_path))
    open_model(name, url="http://127.0.0.1:9/v1")
    open_model("bedrock/some-model")
    for each in (variable, other):
        monkeypatch.setenv(each, "x")
        open_model(name)
        monkeypatch.delenv(each)


class Opened:
    def __init__(self, name: str, **settings: object) -> None:
        self.name = name


def test_a_configured_window_applies_to_scripts(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("[]")
    name = f"scripted:{tmp_path}/a.json"
    for window, expected in ((9000, 9000), (0, 1_000_000)):
        model = open_model(name, context_tokens=window)
        assert (model.context_tokens, model.session("r").context_tokens) == (expected, expected)


def test_an_unknown_name_is_an_error() -> None:
    with pytest.raises(SettingsError, match="'gpt' is not a model; use PROVIDER/MODEL"):
        open_model("gpt")


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> None:
    """A table of litellm's that knows all models as those of openai."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda package: package)
    module = SimpleNamespace(with_provider=lambda name: f"openai/{name}")
    monkeypatch.setitem(sys.modules, "harness.models.litellm", module)


@pytest.mark.usefixtures("table")
def test_a_name_without_a_provider_gets_a_suggestion(tmp_path: Path) -> None:
    for open_by_name in (open_model, PlayerFactory().model, PlayerFactory().solver):
        with pytest.raises(SettingsError, match="openai/gpt-4-turbo"):
            open_by_name("gpt-4-turbo")
    with pytest.raises(SettingsError, match="openai/gpt-4-turbo"):
        PlayerFactory().solver("mini-swe-agent:gpt-4-turbo")
    with pytest.raises(SettingsError, match="openai/gpt-4-turbo"):
        play(PlaySettings(source=(tmp_path,), injector="gpt-4-turbo"))


def test_a_table_that_cannot_be_imported_suggests_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda package: package)
    monkeypatch.setitem(sys.modules, "harness.models.litellm", None)
    assert suggestion("gpt-4-turbo") == ""
