"""Datasets in, instances out: JSONL, JSON and parquet files, folders of them, and names on the hub."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.instances.families import read_row
from harness.instances.instance import Instance, RowError
from pytest_ssr.errors import MissingExtraError, SettingsError

_SPLIT = "test"


@dataclass(frozen=True, slots=True)
class Selection:
    """Which instances of a dataset are wanted, applied in the order of the fields."""

    only: str = ""
    """A regular expression that an id has to match somewhere."""
    shuffle: int | None = None
    """A seed; None: the order of the dataset."""
    part: str = ""
    """`10:20`, `:5`, `::3`: as Python slices; empty: all."""

    def of(self, instances: Sequence[Instance]) -> list[Instance]:
        """Return those that are wanted; raises SettingsError for what cannot be read, or where none is left."""
        try:
            pattern = re.compile(self.only)
        except re.error as error:
            raise SettingsError(f"--only {self.only!r} is no regular expression: {error}") from None
        found = [i for i in instances if pattern.search(i.id)]
        if self.shuffle is not None:
            random.Random(self.shuffle).shuffle(found)
        found = found[self._slice()]
        if not found:
            raise SettingsError(f"none of the {len(instances)} instances is left by --only and --slice")
        return found

    def _slice(self) -> slice:
        if not self.part:
            return slice(None)
        parts = self.part.split(":")
        if not re.fullmatch(r"(-?\d*:){1,2}-?\d*", self.part) or parts[2:] == ["0"]:
            raise SettingsError(f"--slice {self.part!r} is none; write 10:20, :5 or ::3")
        return slice(*(int(p) if p else None for p in parts))


def is_saved(path: Path) -> bool:
    """Tell whether `datasets` has saved a folder."""
    return any((path / name).exists() for name in ("dataset_info.json", "dataset_dict.json"))


def read_instances(source: str, *, split: str = "") -> list[Instance]:
    """Read all instances of a dataset: a file, a folder, or a name on the hub (`owner/name`).

    split: of a dataset on the hub or a saved one (default test), or of a folder in the hub's layout (default all).
    Raises RowError naming the row that is wrong, and SettingsError where there is no such dataset.
    """
    path = Path(source)
    if path.is_dir() and not is_saved(path):
        rows = [pair for file in _files_in(path, split) for pair in _rows_of(file)]
    elif path.exists():
        rows = list(_rows_of(path) if path.is_file() else _saved(path, split))
    elif re.fullmatch(r"[\w.-]+/[\w.-]+", source):
        rows = list(_from_hub(source, split))
    else:
        raise SettingsError(f"there is no dataset {source}; name a file, a folder, or owner/name on the hub")
    found = [read_row(row, where) for where, row in rows]
    seen: set[str] = set()
    for instance in found:
        if instance.id in seen:
            raise RowError(f"{source}: {instance.id} is there twice")
        seen.add(instance.id)
    if not found:
        raise SettingsError(f"{source} holds no instance")
    return found


def _files_in(folder: Path, split: str) -> list[Path]:
    """Return a folder's files; of one in the hub's layout, as `ssr export` writes it, those in `data`."""
    for place in (folder, folder / "data"):
        files = sorted(p for p in place.iterdir() if p.suffix in _READERS) if place.is_dir() else []
        named = [p for p in files if re.split(r"[-.]", p.name)[0] == split]
        if files and place != folder and split and not named:
            raise SettingsError(f"{folder} has no split {split}; there are {', '.join(p.name for p in files)}")
        if files:
            return named if place != folder and split else files
    raise SettingsError(f"{folder} holds no .jsonl, .json or .parquet file")


def _rows_of(path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    reader = _READERS.get(path.suffix)
    if reader is None:
        raise SettingsError(f"{path} is no dataset; its name ends in .jsonl, .json or .parquet")
    try:
        yield from reader(path)
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path} cannot be read: {error}") from None


def _jsonl(path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            if line.strip():
                where = f"{path}: line {number}"
                yield where, _object(line, where)


def _json(path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise RowError(f"{path} is not JSON: {error}") from None
    rows = data if isinstance(data, list) else [data]
    for number, row in enumerate(rows, 1):
        if not isinstance(row, dict):
            raise RowError(f"{path}: row {number} is no object")
        yield f"{path}: row {number}", row


def _parquet(path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for number, row in enumerate(_datasets().Dataset.from_parquet(str(path)), 1):
        yield f"{path}: row {number}", row


def _saved(path: Path, split: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    found = _datasets().load_from_disk(str(path))
    if hasattr(found, "keys"):
        wanted = split or _SPLIT
        if wanted not in found:
            raise SettingsError(f"{path} has no split {wanted}; choose among {', '.join(found)} with --split")
        found = found[wanted]
    for number, row in enumerate(found, 1):
        yield f"{path}: row {number}", row


def _from_hub(name: str, split: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    datasets = _datasets()
    try:
        found = datasets.load_dataset(name, split=split or _SPLIT)
    except Exception as error:
        first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise SettingsError(f"{name} cannot be had from the hub: {first}; name a file or a folder") from None
    for number, row in enumerate(found, 1):
        yield f"{name}: row {number}", row


def _datasets() -> Any:
    try:
        import datasets
    except ImportError:
        raise MissingExtraError("datasets", "datasets") from None
    return datasets


def _object(line: str, where: str) -> Mapping[str, Any]:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise RowError(f"{where} is not JSON: {error}") from None
    if not isinstance(row, dict):
        raise RowError(f"{where} is no object")
    return row


_READERS = {".jsonl": _jsonl, ".json": _json, ".parquet": _parquet}
