"""`ssr recipe`: the folders are written whole, their scripts pass what the cluster needs, and real trainers take it."""

from __future__ import annotations

import importlib.util
import itertools
import json
import os
import re
import subprocess
import sys
from argparse import ArgumentParser
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml
from rows import write_project, written

from harness.cli.app import parse
from harness.environments.adapters.pool import PoolSettings
from harness.environments.scores import OUTCOME, PROCESS
from harness.exporters.rl import VERL_AGENT
from pytest_ssr.errors import SettingsError

TRAINERS = {"slime": "settings.yaml", "verl": "agent.yaml"}
SMALL = ("--gpus-per-node", "1", "--tasks", "2", "--group", "2", "--nodes", "2")
PROGRAMS = ("hf", "python3", "ray", "ssr", "torchrun")
RECORD = """\
#!{python}
import json, os, sys
with open({log!r}, "a") as file:
    names = ("CUDA_DEVICE_MAX_CONNECTIONS", "PYTHONPATH", "SSR_EXECUTOR")
    called = [os.path.basename(sys.argv[0]), *sys.argv[1:]]
    file.write(json.dumps([called, {{n: os.environ[n] for n in names if n in os.environ}}]) + "\\n")
print(3)
"""


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    return write_project(tmp_path_factory.mktemp("instances"))[1]


@pytest.fixture
def dataset(rows: list[dict[str, Any]], tmp_path: Path) -> Path:
    return written(tmp_path / "rows.jsonl", rows)


class Recipe:
    """A recipe that was written, and what its scripts call."""

    def __init__(self, trainer: str, dataset: Path, *options: str) -> None:
        self.folder, self.slime = dataset.parent / "run of mine", dataset.parent / "slime"
        models = self.slime / "scripts" / "models"
        models.mkdir(parents=True, exist_ok=True)
        (models / "tiny.sh").write_text("MODEL_ARGS=(--num-layers 2)\n")
        own = ("--shape", "tiny", "--slime", str(self.slime)) if trainer == "slime" else ()
        argv = ["recipe", trainer, str(dataset), "--model", "owner/model", "--out", str(self.folder), *own, *options]
        parsed = parse(argv)
        assert parsed is not None
        parsed.settings.check()
        assert parsed.run(parsed.settings) == 0
        self.prompts = [json.loads(line) for line in (self.folder / "prompts.jsonl").read_text().splitlines()]
        loaded = yaml.safe_load((self.folder / TRAINERS[trainer]).read_text())
        self.episodes: dict[str, Any] = loaded[0] if trainer == "verl" else loaded

    def pool(self) -> PoolSettings:
        given = {name.removeprefix("ssr_"): value for name, value in self.episodes.items()}
        return PoolSettings.read({n: v for n, v in given.items() if n not in ("name", "_target_")})

    def calls(self, script: str, *arguments: str) -> list[tuple[list[str], dict[str, str]]]:
        """Run a script of the recipe, and return the programs that it calls with their variables."""
        log, programs = self.folder / "calls", self.folder / "programs"
        programs.mkdir(exist_ok=True)
        log.unlink(missing_ok=True)
        for name in PROGRAMS:
            (programs / name).write_text(RECORD.format(python=sys.executable, log=str(log)))
            (programs / name).chmod(0o755)
        path = f"{programs}:{os.environ['PATH']}"
        subprocess.run(["bash", str(self.folder / script), *arguments], check=True, env={"PATH": path})
        return [(called, variables) for called, variables in map(json.loads, log.read_text().splitlines())]


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


@pytest.mark.skipif(importlib.util.find_spec("verl") is None, reason="needs verl")
def test_verl_composes_the_configuration(dataset: Path) -> None:
    hydra = pytest.importorskip("hydra")
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


@pytest.mark.skipif("SSR_TEST_SLIME" not in os.environ, reason="SSR_TEST_SLIME names a checkout of slime")
def test_slime_has_the_flags(dataset: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkout = Path(os.environ["SSR_TEST_SLIME"])
    monkeypatch.syspath_prepend(checkout)
    # The parser of slime's own flags does not use what it imports.
    for name in ("ray", "sglang.srt.server_args", "sglang_router.launch_router", "wandb"):
        stub: Any = ModuleType(name)
        stub.ServerArgs = stub.RouterArgs = None
        monkeypatch.setitem(sys.modules, name, stub)
    from slime.utils.arguments import get_slime_extra_args_provider

    parser = get_slime_extra_args_provider()(ArgumentParser(allow_abbrev=False))
    [(called, _)] = Recipe("slime", dataset, *SMALL).calls("train.sh")
    args, others = parser.parse_known_args(called[2:])
    assert (args.actor_num_nodes, args.load, args.n_samples_per_prompt) == (2, args.save, 2)
    # Those of Megatron and SGLang: slime's own scripts pass them, too.
    scripts = "".join(path.read_text() for path in checkout.glob("scripts/**/*.sh"))
    known = set(re.findall(r"(?<!\S)--[a-z0-9-]+", scripts))
    assert {flag for flag in others if flag.startswith("--")} <= known
