"""Write recipes by `ssr recipe`, and record what their scripts call."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from harness.cli.app import parse
from harness.environments.adapters.pool import PoolSettings

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
