"""The scores, tools and judge of `ssr train grpo`."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from harness.agents.tools.bash import Bash
from harness.cli.app import parse
from harness.cli.commands.train_language import _environment
from harness.cli.players import limits_of
from harness.environments import StoreTasks, extensions
from harness.rollouts.player_factory import PlayerFactory
from harness.settings.training import TrainPolicySettings
from harness.training.language.policy_rollouts import PolicyEnvironment
from pytest_ssr.errors import SettingsError


class Hammer(Bash):
    """A tool of another package."""

    name = "hammer"


def environment_of(*options: str) -> PolicyEnvironment:
    parsed = parse(["train", "grpo", ".", "--model", "m", *options])
    assert parsed is not None
    assert isinstance(parsed.settings, TrainPolicySettings)
    return _environment(parsed.settings, limits_of(parsed.settings.limits))


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    point = EntryPoint("hammer", f"{__name__}:Hammer", extensions.TOOLS_GROUP)
    monkeypatch.setattr(extensions, "entry_points_of", lambda group: {"hammer": point})


def test_scores_and_tools_reach_the_environment() -> None:
    options = ("--score", "outcome=1", "--score", "tests=0.2", "--tool", "hammer", "--roles", "solver")
    options += ("--bundles", "repository")
    environment = environment_of(*options)
    assert environment.settings.scores == {"outcome": 1.0, "tests": 0.2}
    assert list(environment.settings.tools) == ["hammer"]
    assert list(environment.settings.bundles) == ["repository"]
    [tasks] = environment.solver.values()
    assert isinstance(tasks, StoreTasks)
    assert tasks.full_grades
    plain = environment_of()
    assert plain.settings.scores is None
    assert plain.outcome_weight == 1.0


def test_a_judge_scores_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr(PlayerFactory, "judge", lambda self, name: opened.append(name) or object())
    environment = environment_of("--score", "process=0.5", "--judge", "judge-model")
    assert opened == ["judge-model"]
    assert (environment.settings.judge, environment.outcome_weight) == ("judge-model", 0.0)


@pytest.mark.parametrize(
    ("options", "option"),
    [
        (("--score", "tests"), "score"),
        (("--score", "tests=much"), "score"),
        (("--score", "tests=0.5"), "score"),
        (("--score", "process=0.5"), "judge"),
        (("--judge", "vllm:absent"), "judge"),
        (("--score", "beauty=1"), ""),
        (("--score", "outcome=nan"), ""),
        (("--tool", "saw"), ""),
    ],
)
def test_what_has_no_effect_or_is_unknown_is_refused(options: tuple[str, ...], option: str) -> None:
    with pytest.raises(SettingsError) as raised:
        environment_of(*options)
    assert raised.value.option == option
