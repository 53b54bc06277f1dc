"""Load instances from JSONL, JSON and parquet files, folders of them, and datasets on the hub."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.datasets.families import invalid_row, read_row
from harness.datasets.harbor_rows import holds_tasks, read_tasks
from harness.datasets.instance import Instance, RowError
from pytest_ssr.errors import MissingExtraError, SettingsError

_SPLIT = "test"
_HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")
_Row = tuple[str, Mapping[str, Any] | Instance | RowError]
"""The location of a row, and its fields, the instance that it is already, or why it has neither."""


@dataclass(frozen=True, slots=True)
class Selection:
    """A selection of a dataset's instances; the fields apply in their order."""

    only: str = ""
    """A regular expression to search for in ids."""
    shuffle: int | None = None
    """The seed of a random order; None: the order of the dataset."""
    part: str = ""
    """A Python slice, such as `10:20`, `:5` or `::3`; empty: all."""

    def select(self, instances: Sequence[Instance]) -> list[Instance]:
        """Return the selected instances; raises SettingsError for an invalid field, or if none is selected."""
        try:
            pattern = re.compile(self.only)
        except re.error as error:
            raise SettingsError(f"--only {self.only!r} is not a regular expression: {error}", option="only") from None
        selected = [i for i in instances if pattern.search(i.id)]
        if self.shuffle is not None:
            random.Random(self.shuffle).shuffle(selected)
        selected = selected[self._slice()]
        if not selected:
            raise SettingsError(f"--only and --slice select none of the {len(instances)} instances", option="only")
        return selected

    def _slice(self) -> slice:
        if not self.part:
            return slice(None)
        parts = self.part.split(":")
        if not re.fullmatch(r"(-?\d*:){1,2}-?\d*", self.part) or parts[2:] == ["0"]:
            raise SettingsError(f"--slice {self.part!r} is not a slice; use 10:20, :5 or ::3", option="slice")
        return slice(*(int(p) if p else None for p in parts))


def is_saved(path: Path) -> bool:
    """Return whether `datasets` saved this folder."""
    return any((path / name).exists() for name in ("dataset_info.json", "dataset_dict.json"))


def has_form_of_dataset(path: Path) -> bool:
    """Return whether a file or a folder can be a dataset, by the names of files alone."""
    if path.is_dir():
        inner = (p for folder in (path, path / "data") if folder.is_dir() for p in folder.iterdir())
        return is_saved(path) or any(p.suffix in _READERS for p in inner) or holds_tasks(path)
    return path.is_file() and path.suffix in _READERS


def is_on_hub(source: str) -> bool:
    """Return whether a name can only be that of a dataset on the hub."""
    return not Path(source).exists() and _HUB_NAME.fullmatch(source) is not None


def read_instances(source: str, *, split: str = "") -> list[Instance]:
    """Read all instances of a dataset, as `read_dataset` does; raises RowError for an invalid row as well."""
    instances = read_dataset(source, split=split)
    for instance in instances:
        if instance.invalid:
            raise RowError(instance.invalid)
    return instances


def read_dataset(source: str, *, split: str = "") -> list[Instance]:
    """Read all rows of a dataset: a file, a folder, a task directory of Harbor, or a name on the hub (`owner/name`).

    split: of a dataset on the hub or a saved one (default test), or of a folder in the hub's layout (default all).
    A row that cannot be read gives an instance that states the reason in `invalid`. Raises RowError if no row is
    valid, and SettingsError if the dataset cannot be found or read.
    """
    instances: list[Instance] = []
    locations: dict[str, str] = {}
    for location, row in _rows(source, split):
        instance = _instance(location, row, locations)
        locations[instance.id] = location
        instances.append(instance)
    if not instances:
        raise SettingsError(f"{source} contains no instances")
    if all(i.invalid for i in instances):
        others = f"; none of the {len(instances)} rows is valid" if len(instances) > 1 else ""
        raise RowError(f"{instances[0].invalid}{others}")
    return instances


def _instance(location: str, row: Mapping[str, Any] | Instance | RowError, locations: Mapping[str, str]) -> Instance:
    """Return the instance of a row. locations: those of the rows before, by id."""
    if isinstance(row, RowError):
        return invalid_row({}, location, row, locations)
    try:
        instance = row if isinstance(row, Instance) else read_row(row, location)
        if first := locations.get(instance.id):
            raise RowError(f"{location}: {instance.id} occurs twice, first in {first}")
    except RowError as error:
        return invalid_row({} if isinstance(row, Instance) else row, location, error, locations)
    return instance


def _rows(source: str, split: str) -> Iterator[_Row]:
    path = Path(source)
    if holds_tasks(path):
        yield from read_tasks(path)
    elif path.is_dir() and not is_saved(path):
        for file in _files_in(path, split):
            yield from _rows_of(file)
    elif path.exists():
        yield from _rows_of(path) if path.is_file() else _saved(path, split)
    elif is_on_hub(source):
        yield from _from_hub(source, split)
    else:
        raise SettingsError(f"dataset {source} does not exist; name a file, a folder, or owner/name on the hub")


def _files_in(folder: Path, split: str) -> list[Path]:
    """Return a folder's dataset files; in the hub's layout, which `ssr export` writes, they are in `data`."""
    for directory in (folder, folder / "data"):
        files = sorted(p for p in directory.iterdir() if p.suffix in _READERS) if directory.is_dir() else []
        named = [p for p in files if re.split(r"[-.]", p.name)[0] == split]
        if files and directory != folder and split and not named:
            raise SettingsError(f"{folder} has no split {split}; its files are {', '.join(p.name for p in files)}")
        if files:
            return named if directory != folder and split else files
    raise SettingsError(f"{folder} contains no .jsonl, .json or .parquet file")


def _rows_of(path: Path) -> Iterator[_Row]:
    reader = _READERS.get(path.suffix)
    if reader is None:
        raise SettingsError(f"{path} is not a dataset; its name must end in .jsonl, .json or .parquet")
    try:
        yield from reader(path)
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path} cannot be read: {error}") from None


def _jsonl(path: Path) -> Iterator[_Row]:
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if line.strip():
                location = f"{path}: line {number}"
                yield location, _parsed(line, location)


def _json(path: Path) -> Iterator[_Row]:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise RowError(f"{path} is not JSON: {error}") from None
    rows = data if isinstance(data, list) else [data]
    for number, row in enumerate(rows, 1):
        location = f"{path}: row {number}"
        yield location, row if isinstance(row, dict) else RowError(f"{location} is not an object")


def _parquet(path: Path) -> Iterator[_Row]:
    for number, row in enumerate(_datasets().Dataset.from_parquet(str(path)), 1):
        yield f"{path}: row {number}", row


def _saved(path: Path, split: str) -> Iterator[_Row]:
    dataset = _datasets().load_from_disk(str(path))
    if hasattr(dataset, "keys"):
        name = split or _SPLIT
        if name not in dataset:
            raise SettingsError(f"{path} has no split {name}; choose among {', '.join(dataset)} with --split")
        dataset = dataset[name]
    for number, row in enumerate(dataset, 1):
        yield f"{path}: row {number}", row


def _from_hub(name: str, split: str) -> Iterator[_Row]:
    datasets = _datasets()
    try:
        dataset = datasets.load_dataset(name, split=split or _SPLIT)
    except Exception as error:
        lines = str(error).strip().splitlines()
        reason = lines[0] if lines else type(error).__name__
        raise SettingsError(f"{name} cannot be loaded from the hub: {reason}; name a file or a folder") from None
    for number, row in enumerate(dataset, 1):
        yield f"{name}: row {number}", row


def _datasets() -> Any:
    try:
        import datasets
    except ImportError:
        raise MissingExtraError("datasets", "datasets") from None
    return datasets


def _parsed(line: bytes, location: str) -> Mapping[str, Any] | RowError:
    try:
        row = json.loads(line.decode("utf-8"))
    except UnicodeDecodeError as error:
        return RowError(f"{location} is not UTF-8: {error}")
    except (ValueError, RecursionError) as error:
        return RowError(f"{location} is not JSON: {error}")
    return row if isinstance(row, dict) else RowError(f"{location} is not an object")


_READERS = {".jsonl": _jsonl, ".json": _json, ".parquet": _parquet}
