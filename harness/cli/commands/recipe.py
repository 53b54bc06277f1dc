"""Run `ssr recipe`: write a folder that trains a model with slime or verl on a cluster."""

from __future__ import annotations

import json
import shlex
import shutil
from collections.abc import Mapping
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

from harness.cli.exit_code import ExitCode
from harness.cli.terminal import Terminal
from harness.cli.write_errors import writing
from harness.datasets.loading import has_form_of_dataset, is_on_hub, read_instances
from harness.environments.adapters.pool import PoolSettings
from harness.environments.solve_tasks import StoreTasks
from harness.exporters.rl import VERL_AGENT, verl_row
from harness.exporters.sources import holds_store
from harness.settings.recipes import RecipeSettings, SlimeRecipeSettings, VerlRecipeSettings
from harness.storage.atomic_write import write_text
from pytest_ssr.errors import SettingsError

_PREFIX = "ssr_"
_PROMPTS = "prompts.jsonl"
LOOP = "harness.environments.adapters.verl.SsrAgentLoop"
_WORKERS_OF_NODE = 4
"""Workers of verl's agent loop on each node with GPUs; each has its own sandboxes."""


def recipe_slime(settings: SlimeRecipeSettings) -> int:
    """Write the folder for slime; return 0."""
    pool = _pool(settings, settings.slots)
    folder = Path(settings.model)
    is_here = folder.is_absolute() or folder.is_dir()
    out = settings.out.resolve()
    cluster = {
        **_cluster(settings),
        "SLIME": str(settings.slime),
        "SHAPE": settings.shape,
        "MODEL_FOLDER": str(folder.resolve() if is_here else out / "model"),
        "CONVERTED": str(out / "model_torch_dist"),
        "PYTHONPATH": f"{settings.megatron}:{settings.slime}",
        "CUDA_DEVICE_MAX_CONNECTIONS": "1",
    }
    rows = [{"prompt": task, "label": task} for task in _ids(settings)]
    given = {f"{_PREFIX}{name}": value for name, value in pool.items()}
    return _write(settings, "slime", cluster, rows, "settings.yaml", given)


def recipe_verl(settings: VerlRecipeSettings) -> int:
    """Write the folder for verl; return 0."""
    workers = _WORKERS_OF_NODE * settings.nodes
    pool = _pool(settings, max(1, settings.slots // workers))
    cluster = {**_cluster(settings), "AGENT_WORKERS": str(workers)}
    rows = [verl_row(task) for task in _ids(settings)]
    loop = [{"name": VERL_AGENT, "_target_": LOOP, **pool}]
    return _write(settings, "verl", cluster, rows, "agent.yaml", loop)


def _is_dataset(source: Path) -> bool:
    return (has_form_of_dataset(source) or is_on_hub(str(source))) and not holds_store(source)


def _ids(settings: RecipeSettings) -> list[str]:
    """Return the ids of the tasks; raises SettingsError if an update needs more."""
    if _is_dataset(settings.source):
        ids = [instance.id for instance in read_instances(str(settings.source))]
    else:
        ids = StoreTasks(settings.source, settings.store or "").ids()
    if len(ids) < settings.tasks_of_update:
        raise SettingsError(
            f"{settings.source} has {len(ids)} tasks, and an update needs {settings.tasks_of_update} (--tasks)",
            option="tasks",
        )
    return ids


def _pool(settings: RecipeSettings, sandboxes: int) -> dict[str, Any]:
    """Return the settings of the episodes that are not defaults. sandboxes: of one process."""
    source = str(settings.source.resolve() if settings.source.exists() else settings.source)
    is_dataset = _is_dataset(settings.source)
    store = settings.store or (settings.out / "store" if is_dataset else None)
    paths = {"store": store, "repos": settings.repos, "python": settings.python}
    given: dict[str, Any] = {
        "dataset" if is_dataset else "project": source,
        **{name: str(path.absolute()) for name, path in paths.items() if path is not None},
        **({"images": settings.images} if settings.images is not None else {}),
        **({"sandbox": f"remote:{settings.sandboxes}"} if settings.sandboxes != "ray" else {}),
        "steps": settings.steps,
        "sandboxes": sandboxes,
        **({"judge": settings.judge, "process": settings.process} if settings.judge else {}),
    }
    PoolSettings.read(given)
    return given


def _cluster(settings: RecipeSettings) -> dict[str, str]:
    """Return the variables of the scripts, which are also those of Ray's workers."""
    tensor, context = settings.parallel
    folder = Path(settings.model)
    numbers = {
        "NODES": settings.nodes,
        "GPUS_PER_NODE": settings.gpus_per_node,
        "TASKS": settings.tasks_of_update,
        "GROUP": settings.group,
        "UPDATES": settings.updates,
        "CONTEXT": settings.context,
        "TENSOR_PARALLEL": tensor,
        "CONTEXT_PARALLEL": context,
    }
    return {
        **{name: str(number) for name, number in numbers.items()},
        "MODEL": str(folder.resolve()) if folder.is_dir() else settings.model,
        "CHECKPOINTS": str((settings.checkpoints or settings.out / "checkpoints").resolve()),
        **({"SSR_EXECUTOR": "ray://auto"} if settings.sandboxes == "ray" else {}),
    }


def _write(
    settings: RecipeSettings,
    trainer: str,
    cluster: Mapping[str, str],
    rows: list[dict[str, Any]],
    name: str,
    episodes: object,
) -> int:
    """Write the files of a recipe. episodes: the content of the trainer's own file of settings, called `name`."""
    import yaml

    variables = "".join(f"export {key}={shlex.quote(value)}\n" for key, value in cluster.items())
    with writing(settings.out), as_file(files("harness.training") / "recipes") as recipes:
        settings.out.mkdir(parents=True, exist_ok=True)
        for file in (recipes / "node.sh", *sorted((recipes / trainer).iterdir())):
            shutil.copyfile(file, settings.out / file.name)
        write_text(settings.out / "cluster.env", variables)
        write_text(settings.out / name, yaml.safe_dump(episodes, sort_keys=False))
        write_text(settings.out / _PROMPTS, "".join(f"{json.dumps(row)}\n" for row in rows))
    if settings.json:
        print(json.dumps({"out": str(settings.out), "tasks": len(rows), "cluster": dict(cluster)}, indent=1))
    Terminal(quiet=settings.json).echo(f"{len(rows)} tasks; see {settings.out / 'README.md'}", "heading")
    return ExitCode.DONE
