"""Read the contents of an export's files: lines for a search, rows for figures."""

from __future__ import annotations

import importlib
import json
import tarfile
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from pytest_ssr.errors import MissingExtraError

TASK = "task.toml"
"""The file that marks a folder as a task of Harbor."""


class Line(NamedTuple):
    """A line of a file."""

    place: str
    data: bytes
    is_packed: bool
    """Whether it is in an archive, which holds the code of a project as it is."""


def lines_of(folder: Path, name: str) -> Iterator[Line]:
    """Yield the lines of a file of an export; those of the members of an archive, and the rows of a parquet file."""
    path = folder / name
    if name.endswith((".tar", ".tar.gz", ".tar.zst")):
        for member, file in _members(path):
            yield from _numbered(f"{name}: {member}", file, is_packed=True)
    elif name.endswith(".parquet"):
        rows = (json.dumps(row, ensure_ascii=False, default=str).encode() for row in _parquet_rows(path))
        yield from _numbered(name, rows)
    else:
        with _opened(path) as file:
            yield from _numbered(name, file)


def rows_of(folder: Path, names: Iterable[str]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the rows of an export with their parts. The row of a task of Harbor has its metadata and instruction."""
    for name in sorted(names):
        path = folder / name
        if path.name == TASK:
            instruction = path.with_name("instruction.md").read_text(encoding="utf-8")
            yield Path(name).parts[0], {**tomllib.loads(path.read_text(encoding="utf-8")), "instruction": instruction}
        elif not name.startswith("data/"):
            continue
        elif name.endswith((".tar", ".tar.zst")):
            for member, file in _members(path):
                if member.endswith(("/artifact.json", f"/{TASK}")):
                    data = file.read().decode()
                    is_json = member.endswith(".json")
                    yield _part(name), {"task_id": member.split("/")[0], **(json if is_json else tomllib).loads(data)}
        elif name.endswith(".parquet"):
            yield from ((_part(name), row) for row in _parquet_rows(path))
        else:
            with _opened(path) as file:
                yield from ((_part(name), json.loads(line)) for line in file)


def _part(name: str) -> str:
    return Path(name).name.partition(".")[0]


def _numbered(name: str, lines: Iterable[bytes], *, is_packed: bool = False) -> Iterator[Line]:
    for number, line in enumerate(lines, 1):
        yield Line(f"{name}:{number}", line, is_packed)


def _members(path: Path) -> Iterator[tuple[str, Any]]:
    with _opened(path) as stream, tarfile.open(fileobj=stream, mode="r|gz" if path.suffix == ".gz" else "r|") as tar:
        for member in tar:
            if member.isfile():
                yield member.name, tar.extractfile(member)


def _opened(path: Path) -> BinaryIO:
    if path.suffix != ".zst":
        return path.open("rb")
    try:
        zstd: Any = importlib.import_module("harness.exporters.zstd")
    except ImportError:
        raise MissingExtraError("zstandard", "export") from None
    opened: BinaryIO = zstd.opened(path)
    return opened


def _parquet_rows(path: Path) -> Iterator[Mapping[str, Any]]:
    try:
        parquet: Any = importlib.import_module("harness.exporters.parquet")
    except ImportError:
        raise MissingExtraError("pyarrow", "parquet") from None
    yield from parquet.rows_of(path)
