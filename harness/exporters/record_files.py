"""Read canonical records from files of records, from trajectories of ATIF, and from the job folders of Harbor."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from harness.exporters.atif_reader import Omission, is_atif, record_data
from harness.exporters.files import MOST_BYTES, lines_of, parsed, read_json
from harness.exporters.skipped import SkipCode, SkippedError, damaged
from harness.records.harbor_trials import read_trial, trial_folders
from harness.records.trajectory import SCHEMA
from pytest_ssr.errors import StoreError
from pytest_ssr.records.decoding import json_fields

_SCHEMAS = "ssr."
_TRAJECTORY = "agent/trajectory.json"


def holds_records(path: Path) -> bool:
    """Return whether a .jsonl or .json file, by its first object, has records of rollouts or trajectories.

    A file without an object counts: it is reported when it is read, as is a .json file that is a damaged object.
    """
    try:
        if path.suffix == ".json":
            with path.open("rb") as file:
                is_object = file.read(1024).lstrip().startswith(b"{")
            return is_object and _is_record(read_json(path))
        for _, line in lines_of(path):
            try:
                return _is_record(parsed(line))
            except SkippedError:
                continue
    except (OSError, SkippedError):
        pass  # What cannot be read is reported when it is indexed.
    return True


def _is_record(data: dict[str, Any]) -> bool:
    return str(data.get("schema")).startswith(_SCHEMAS) or is_atif(data)


def locations(path: Path) -> Iterator[tuple[str, str, bytes]]:
    """Yield the location of each record in a file or a folder of jobs, its name for messages, and its line, if any."""
    if path.is_dir():
        for folder in trial_folders(path):
            yield folder.relative_to(path).as_posix(), f"trial {folder.name}", b""
    elif path.suffix == ".json":
        yield "0", path.name, b""
    else:
        yield from ((str(offset), f"{path.name}, byte {offset}", line) for offset, line in lines_of(path))


@dataclass(frozen=True, slots=True)
class _Header:
    """The fields of a canonical record that the index needs; they are validated by whoever uses them."""

    schema: Any = None
    rollout_id: Any = None
    task_id: Any = None
    role: Any = None
    attempt: Any = None
    status: Any = None
    task: Any = None
    policy: Any = None
    verdict: Any = None


_HEADER_FIELDS = tuple(field.name for field in fields(_Header))


def read_header(path: Path, location: str, line: bytes) -> tuple[dict[str, Any], list[Omission]]:
    """Return the fields of a record that the index needs, and what is left out of it, as `read_record` does.

    line: that of `locations`. The messages and tokens of a canonical record are not decoded.
    """
    header = json_fields(_Header, line) if line else None
    if header is not None and header.schema == SCHEMA:
        return {name: getattr(header, name) for name in _HEADER_FIELDS}, []
    return read_record(path, location)


def read_record(path: Path, location: str) -> tuple[dict[str, Any], list[Omission]]:
    """Return a record as plain data, to be validated, and what is left out of it.

    Raises SkippedError if it is damaged, and OSError if the file cannot be read.
    """
    if path.is_dir():
        return _of_trial(path / location)
    if path.suffix == ".json":
        data = read_json(path)
    else:
        with path.open("rb") as file:
            file.seek(int(location))
            data = parsed(file.readline(MOST_BYTES))
    if not is_atif(data):
        return data, []
    return record_data(_continued(path, data) if path.suffix == ".json" else [data])


def _of_trial(folder: Path) -> tuple[dict[str, Any], list[Omission]]:
    try:
        trial = read_trial(folder)
    except StoreError as error:
        raise damaged(str(error).removeprefix(f"{folder}/")) from None
    # A task of several steps has a trajectory for each.
    paths = [path for path in (folder / _TRAJECTORY, *sorted(folder.glob(f"steps/*/{_TRAJECTORY}"))) if path.is_file()]
    if not paths:
        raise SkippedError(SkipCode.NO_TRAJECTORY)
    parts = [part for path in paths for part in _continued(path, read_json(path))]
    if trial is None:
        return record_data(parts, name=folder.name, is_cut_off=True)
    return record_data(parts, trial)


def _continued(path: Path, data: dict[str, Any]) -> list[dict[str, Any]]:
    """Return a trajectory and those that continue it, as far as they are in the same folder."""
    parts = [data]
    others = {other.name: other for other in path.parent.iterdir() if other.is_file() and other != path}
    while isinstance(name := parts[-1].get("continued_trajectory_ref"), str) and name in others:
        parts.append(read_json(others.pop(name)))
    return parts
