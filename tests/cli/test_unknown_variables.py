"""A variable of the environment that nothing reads is named once."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from harness.cli.main import main
from harness.cli.unknown_variables import NAMED, UnknownVariable, unknown_variables

ROOT = Path(__file__).parents[2]
OURS = re.compile(r"""["'{](SSR_[A-Z0-9_]*[A-Z0-9])(?![A-Z0-9_])""")


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("SSR_TRYS", "SSR_TRIES"),
        ("SSR_ATTEMPT", "SSR_ATTEMPTS"),
        ("SSR_DATABSE", "SSR_DATABASE"),
        ("SSR_REWARD_ALPHA", "SSR_ALPHA"),
        ("SSR_OPENAI_API_KEY", "OPENAI_API_KEY"),
        ("SSR_TRAINING_LORA_R", "--lora-rank"),
        ("SSR_QQQQ", ""),
    ],
)
def test_the_nearest_name_is_suggested(name: str, nearest: str) -> None:
    environment = {name: "1", "SSR_COUNT": "3", "SSR_TEST_IMAGE": "x", "SSR_CHANNEL": "7", "HOME": "/"}
    assert unknown_variables(environment) == [UnknownVariable(name, nearest)]


def test_what_the_code_and_compose_read_is_known() -> None:
    files = [*ROOT.glob("harness/**/*.py"), *ROOT.glob("pytest_ssr/**/*.py"), ROOT / "compose.yaml"]
    others = {ROOT / "harness/other_systems.py", ROOT / "pytest_ssr/testing.py"}
    names = {name for path in files if path not in others for name in OURS.findall(path.read_text())}
    assert {"SSR_DATABASE", "SSR_PROMETHEUS_PORT", "SSR_CHANNEL"} <= names
    assert unknown_variables(dict.fromkeys(names, "1")) == []


def test_they_are_named_once_and_are_no_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(NAMED, "")
    monkeypatch.setenv("SSR_TRYS", "5")
    assert main(["completion", "bash"]) == 0
    written = capsys.readouterr()
    assert (written.err.count("SSR_TRYS"), written.err.count("\n")) == (1, 1)
    assert "SSR_TRIES" in written.err
    assert "SSR_TRYS" not in written.out
    assert main(["completion", "bash"]) == 0
    assert not capsys.readouterr().err, "nor does a command that this one starts repeat it"
