"""Read task directories of Harbor as instances, as rows of a dataset are."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from harness.datasets.instance import Instance, RowError
from harness.harbor.reading import read_task, task_folders
from harness.harbor.task import HarborTask, TaskError
from pytest_ssr.patch import Patch
from pytest_ssr.records.reasons import ReasonCode

FAMILY = "harbor"
_REPOSITORY = re.compile(r"[\w.-]+/[\w.-]+")
_ARTIFACT = re.compile(r"[0-9a-f]{20,64}")


class UnsupportedTaskError(RowError):
    """A task directory cannot be used here."""

    code = ReasonCode.UNSUPPORTED_TASK


def holds_tasks(folder: Path) -> bool:
    """Return whether a folder is a task directory, or holds some."""
    return folder.is_dir() and bool(task_folders(folder))


def read_tasks(folder: Path) -> Iterator[tuple[str, Instance | RowError]]:
    """Yield the location of each task directory in a folder, with its instance or with the reason that it has none."""
    for path in task_folders(folder):
        location = str(path)
        try:
            yield location, _instance(read_task(path))
        except TaskError as error:
            yield location, UnsupportedTaskError(str(error))


def _instance(task: HarborTask) -> Instance:
    organisation, _, short = task.name.rpartition("/")
    metadata = task.metadata
    artifact, repository = metadata.get("artifact_id"), metadata.get("repository")
    is_repository = isinstance(repository, str) and _REPOSITORY.fullmatch(repository) is not None
    return Instance(
        id=short,
        repo=str(repository) if is_repository else f"{organisation or FAMILY}/{short}",
        base_commit="",
        patch=Patch(),
        test_patch=Patch(),
        fail_to_pass=(),
        pass_to_pass=(),
        statement=task.statement,
        family=FAMILY,
        named_image=task.place.image,
        created_at=_text(metadata.get("created_at")),
        licence=_text(metadata.get("license")),
        artifact_id=artifact if isinstance(artifact, str) and _ARTIFACT.fullmatch(artifact) else "",
        harbor=task,
    )


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
