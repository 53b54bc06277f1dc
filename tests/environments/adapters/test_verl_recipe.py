"""verl takes what a recipe passes."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import hydra
import pytest
from recipe_parts import SMALL, Recipe
from rows import write_project, written

from harness.exporters.rl import VERL_AGENT


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    return written(tmp_path / "rows.jsonl", write_project(tmp_path / "instances")[1])


def test_verl_composes_the_configuration(dataset: Path) -> None:
    recipe = Recipe("verl", dataset, *SMALL)
    [(called, _)] = recipe.calls("train.sh")
    spec = importlib.util.find_spec("verl")
    assert spec is not None
    assert spec.submodule_search_locations
    folder = Path(spec.submodule_search_locations[0]) / "trainer" / "config"
    with hydra.initialize_config_dir(str(folder), version_base=None):
        # It refuses the name of an option that verl does not have.
        config = hydra.compose("ppo_trainer", [word for word in called if "=" in word])
    assert config.trainer.nnodes == 2
    assert config.actor_rollout_ref.rollout.agent.default_agent_loop == VERL_AGENT == recipe.episodes["name"]
