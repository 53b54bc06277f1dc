"""`ssr recipe`: the folders are written whole, their scripts pass what the cluster needs, and real trainers take it."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from recipe_parts import SMALL, TRAINERS, Recipe
from rows import write_project, written

from harness.environments.adapters.pool import PoolSettings
from harness.environments.scores import OUTCOME, PROCESS
from pytest_ssr.errors import SettingsError


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    return write_project(tmp_path_factory.mktemp("instances"))[1]


@pytest.fixture
def dataset(rows: list[dict[str, Any]], tmp_path: Path) -> Path:
    return written(tmp_path / "rows.jsonl", rows)


def flags(call: list[str]) -> dict[str, str]:
    """Return the options of a command with one value."""
    return {a: b for a, b in itertools.pairwise(call) if a.startswith("--")}


@pytest.mark.parametrize("trainer", TRAINERS)
def test_the_prompts_and_episodes_are_of_the_dataset(trainer: str, dataset: Path, rows: list[dict[str, Any]]) -> None:
    recipe = Recipe(trainer, dataset, *SMALL)
    named = [row["label"] if trainer == "slime" else row["extra_info"]["task"] for row in recipe.prompts]
    assert named == [row["instance_id"] for row in rows]
    pool = recipe.pool()
    assert (pool.dataset, pool.store) == (str(dataset), str(recipe.folder / "store"))
    assert pool.environment().scores is None


@pytest.mark.parametrize("trainer", TRAINERS)
def test_a_judge_adds_its_score_to_the_outcome(trainer: str, dataset: Path) -> None:
    recipe = Recipe(trainer, dataset, *SMALL, "--judge", "scripted:x", "--process", "0.5")
    environment = recipe.pool().environment()
    assert (environment.scores, environment.judge) == ({OUTCOME: 1.0, PROCESS: 0.5}, "scripted:x")
    for wrong in ({"judge": "m"}, {"process": 0.5}):
        with pytest.raises(SettingsError):
            PoolSettings.read({"project": "p", **wrong})


@pytest.mark.parametrize("trainer", TRAINERS)
def test_sandboxes_are_on_servers_or_on_nodes_of_the_cluster(trainer: str, dataset: Path) -> None:
    recipe = Recipe(trainer, dataset, *SMALL)
    for arguments, resources in (
        (["head"], "--head"),
        (["worker", "10.0.0.1"], "10.0.0.1:6379"),
        (["sandboxes", "10.0.0.1"], json.dumps({"ssr_slots": 3})),
    ):
        called, variables = recipe.calls("node.sh", *arguments)[-1]
        assert called[:2] == ["ray", "start"]
        assert resources in called
        assert flags(called)["--num-gpus"] == ("0" if arguments[0] == "sandboxes" else "1")
        assert variables["SSR_EXECUTOR"] == "ray://auto"
        assert ("CUDA_DEVICE_MAX_CONNECTIONS" in variables) == (trainer == "slime")
    remote = Recipe(trainer, dataset, *SMALL, "--sandboxes", "http://a:1,http://b:2")
    assert remote.pool().sandbox == "remote:http://a:1,http://b:2"
    assert "SSR_EXECUTOR" not in remote.calls("node.sh", "head")[0][1]


def test_slime_begins_with_converted_weights_and_continues_with_its_checkpoints(dataset: Path) -> None:
    recipe = Recipe("slime", dataset, *SMALL)
    download, convert = (called for called, _ in recipe.calls("prepare.sh"))
    assert download[:3] == ["hf", "download", "owner/model"]
    [(called, _)] = recipe.calls("train.sh")
    given = flags(called)
    assert flags(convert)["--save"] == given["--ref-load"]
    assert flags(convert)["--hf-checkpoint"] == given["--hf-checkpoint"] == flags(download)["--local-dir"]
    assert given["--load"] == given["--save"] == str(recipe.folder / "checkpoints")
    assert (given["--actor-num-nodes"], given["--actor-num-gpus-per-node"], given["--num-layers"]) == ("2", "1", "2")
    assert given["--global-batch-size"] == "4"
    assert Path(given["--prompt-data"]).is_file()
    assert Path(given["--custom-config-path"]).is_file()


def test_verl_continues_with_its_checkpoints(dataset: Path, tmp_path: Path) -> None:
    recipe = Recipe("verl", dataset, *SMALL, "--checkpoints", str(tmp_path / "kept"))
    [(called, _)] = recipe.calls("train.sh")
    given = dict(word.split("=", 1) for word in called if "=" in word)
    assert (given["trainer.nnodes"], given["trainer.n_gpus_per_node"]) == ("2", "1")
    assert (given["trainer.default_local_dir"], given["trainer.resume_mode"]) == (str(tmp_path / "kept"), "auto")
    assert Path(given["data.train_files"]).is_file()
    # Each of its workers has sandboxes of its own.
    assert recipe.pool().sandboxes * int(given["actor_rollout_ref.rollout.agent.num_workers"]) == 64


@pytest.mark.parametrize(
    ("options", "mistake"),
    [
        (["--nodes", "2", "--tasks", "3", "--group", "5"], "tasks"),
        (["--gpus-per-node", "8", "--tensor-parallel", "3"], "tensor-parallel"),
        (["--gpus-per-node", "2", "--context-parallel", "3"], "context-parallel"),
        (["--context", "4096"], "context"),
        (["--sandboxes", "docker"], "sandboxes"),
        (["--sandboxes", "http://a:1", "--images", "docker"], "images"),
        (["--process", "0.1"], "process"),
        # The dataset has two rows.
        (["--nodes", "1", "--gpus-per-node", "8"], "tasks"),
    ],
)
def test_what_does_not_fit_the_cluster_is_refused(dataset: Path, options: list[str], mistake: str) -> None:
    with pytest.raises(SettingsError) as raised:
        Recipe("verl", dataset, *options)
    assert raised.value.option == mistake
