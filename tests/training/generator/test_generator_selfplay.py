"""Self-play with a generator: its repairs are candidates in every round, and count as code that a model wrote."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tiny_projects import project

import pytest_ssr.campaign.factory
from harness.cli.main import main
from harness.solvers.search.policy import has_generator
from pytest_ssr.sandbox import choose


@pytest.mark.bubblewrap
def test_a_generator_plays_and_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    chosen: list[bool] = []

    def watched(name: str, *, model_written: bool = False, **options: Any) -> Any:
        chosen.append(model_written)
        return choose(name, model_written=model_written, **options)

    monkeypatch.setattr(pytest_ssr.campaign.factory, "choose", watched)
    one, two, other = (str(project(tmp_path, name)) for name in ("one", "two", "other"))
    out = tmp_path / "policy"
    arguments = ["train", "selfplay", one, two, "--held-out", other, "--out", str(out), "--generator", "--holes", "64"]
    arguments += ["--rounds", "1", "--count", "1", "--attempts", "1", "--tries", "5", "--bugs", "20", "--json"]
    arguments += ["--held-out-bugs", "1", "--held-out-attempts", "1", "--injector", "mutation"]
    assert main([*arguments, "--min-passing-tests", "1"]) == 0
    assert json.loads(capsys.readouterr().out)["bugs"] == 1
    assert has_generator(out)
    assert has_generator(out / "policies" / "round-001")
    assert chosen == [True] * 3
