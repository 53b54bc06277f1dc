"""Tasks in real containers, and one store for all tests of a process."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from harbor_tasks import write_task

from harness.cli.main import main

IMAGE = os.environ.get("SSR_TEST_IMAGE", "python:3.12-slim")


class Tasks:
    """A folder of tasks and the commands on them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.tasks = folder / "tasks"

    def add(self, kind: str, name: str = "", changed: Mapping[str, str | None] | None = None) -> Path:
        """Write a task, under a name of its own if it is not the only one of its kind."""
        task = write_task(self.tasks if not name else self.folder / "others" / name, kind, IMAGE, changed)
        if name:
            toml = task / "task.toml"
            toml.write_text(toml.read_text().replace(f"acme/{kind}", f"acme/{Path(name).name}"))
        return task

    def command(self, name: str, tasks: Path, *options: str) -> tuple[int, dict[str, dict[str, Any]]]:
        """Run a command on tasks; return its status and the results by task."""
        out = self.folder / f"{name}-{len(list(self.folder.iterdir()))}"
        argv = [name, str(tasks), "--out", str(out), "--store", str(self.folder / "store"), *options]
        status = main(argv)
        lines = (out / "results.jsonl").read_text().splitlines()
        return status, {row["task"]: row for row in map(json.loads, lines)}

    def evaluated(self, tasks: Path, predictions: str = "gold") -> dict[str, dict[str, Any]]:
        """Return the results of predictions by task."""
        return self.command("eval", tasks, "--predictions", predictions)[1]

    def patched(self, task: Path, patch: str) -> dict[str, Any]:
        """Return the result of a patch on a task."""
        name = task.parent.name if task.parent.parent.name == "others" else task.name
        path = self.folder / "predictions.jsonl"
        path.write_text(json.dumps({"instance_id": name, "model_name_or_path": "m", "model_patch": patch}) + "\n")
        return self.evaluated(task, str(path))[name]

    def solved(self, tasks: Path, replies: list[str], *options: str) -> dict[str, dict[str, Any]]:
        """Return the results of a scripted solver by task."""
        script = self.folder / "replies.json"
        script.write_text(json.dumps(replies))
        return self.command("run", tasks, "--solver", f"scripted:{script}", *options)[1]


@pytest.fixture(scope="session")
def harbor(tmp_path_factory: pytest.TempPathFactory) -> Tasks:
    return Tasks(tmp_path_factory.mktemp("harbor"))
