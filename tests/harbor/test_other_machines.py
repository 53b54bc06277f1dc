"""Task directories are sent to other machines, which have none of the driver's files."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from harbor_tasks import write_task

from harness.datasets.environments import Environments
from harness.datasets.loading import read_dataset
from harness.datasets.repositories import Repositories
from harness.evaluation.grading import Grader
from harness.evaluation.rows_work import OpenRowsWork, Unit
from harness.evaluation.work import PredictionWork
from pytest_ssr.settings import RuleSettings
from pytest_ssr.storage.store import Store


class Cluster:
    """Holds what is sent."""

    def put(self, name: str, make: Callable[[], bytes]) -> Callable[[], bytes]:
        data = make()
        return lambda: data


class Seen(PredictionWork):
    """Notes the unit instead of grading it."""

    def run(self, unit: Unit) -> Any:
        return unit


def test_a_task_is_read_again_from_the_copy(tmp_path: Path) -> None:
    folder = write_task(tmp_path / "tasks", "steps-mean", "image:1")
    (instance,) = read_dataset(str(folder))
    store = Store(tmp_path / "node")
    grader = Grader(store, Repositories(store, None), Environments(store, None), RuleSettings())
    work = Seen(grader, [Unit(instance, "m")], [instance.id])
    sent = work.send(work.units[0], Cluster())  # type: ignore[arg-type]
    shutil.rmtree(folder)
    node: Any = SimpleNamespace(store=store, images=None, make_room=lambda: None)
    there: Any = OpenRowsWork(work, node).run(sent)
    assert there.instance.key == instance.key
    assert there.instance.harbor.folder.is_relative_to(store.root)
    assert (there.instance.harbor.steps[1].files / "numbers.txt").is_file()
