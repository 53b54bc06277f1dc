"""Read the tasks of a benchmark, with which those of an export are compared."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from harness.datasets.loading import read_dataset
from pytest_ssr.errors import SettingsError, os_error_advice

_TASK = "task.toml"


@dataclass(frozen=True, slots=True)
class BenchmarkTask:
    """A task of a benchmark."""

    id: str
    diff: bytes
    """The repair; empty if it is unknown."""
    statement: str


def benchmark_tasks(source: Path) -> Iterator[BenchmarkTask]:
    """Yield the tasks of a dataset, as `ssr eval` reads it, or of a folder of Harbor's tasks.

    A row that cannot be read has neither a diff nor a statement. Raises SettingsError if the source cannot be read.
    """
    folders = _harbor_tasks(source)
    if folders:
        yield from (_harbor_task(folder) for folder in folders)
        return
    for instance in read_dataset(str(source)):
        # The statement of a bug of ours is a diff of its tests, which other bugs in the same tests share.
        statement = "" if instance.artifact_id else instance.statement
        yield BenchmarkTask(instance.id, instance.patch.data, statement)


def _harbor_tasks(source: Path) -> list[Path]:
    if (source / _TASK).is_file():
        return [source]
    return sorted(path.parent for path in source.glob(f"*/{_TASK}")) if source.is_dir() else []


def _harbor_task(folder: Path) -> BenchmarkTask:
    """Return a task of Harbor; the diff of its solution may be in a file or in its script."""
    instruction = folder / "instruction.md"
    try:
        statement = instruction.read_text("utf-8", "replace") if instruction.is_file() else ""
        solutions = sorted(path for path in folder.glob("solution/*") if path.is_file())
        diff = b"\n".join(path.read_bytes() for path in solutions)
    except OSError as error:
        raise SettingsError(f"{folder} cannot be read: {os_error_advice(error)}", option="against") from None
    return BenchmarkTask(folder.name, diff, statement)
