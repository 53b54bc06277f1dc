"""Write the rows of many projects to one file. Each project's part is kept until all are finished."""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import json
import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from harness.storage.atomic_write import write_text
from harness.training.search.processes import run_calls
from harness.training.search.sources import SourceFolder, unique_names
from harness.training.writer.role import Role
from harness.training.writer.static_rows import write_rows
from pytest_ssr.errors import ProjectError, SettingsError
from pytest_ssr.storage.store import code_hash, key_of


@dataclass(frozen=True, slots=True)
class RowSettings:
    """Which rows are made."""

    injectors: str
    """Comma-separated names."""
    per_project: int
    count: int
    """Rows in all; 0 for no limit."""
    seed: int
    jobs: int
    role: Role = Role.SOLVER
    """What the rows teach."""


@dataclass(frozen=True, slots=True)
class RowReport:
    """What was written."""

    rows: int
    projects: Mapping[str, int]
    """The number of rows of each project."""
    operators: Mapping[str, int]
    """The number of rows of each operator."""
    made: int
    """The number of rows that this run has made; an earlier run had made the others."""

    def to_json(self) -> dict[str, object]:
        """Return the report as JSON data."""
        return asdict(self)


def write_row_file(
    sources: Sequence[SourceFolder], out: Path, settings: RowSettings, watch: Callable[[str], None]
) -> RowReport:
    """Write the rows of the sources, in turn one of each project; return the report.

    watch: called with a line that says what is being done. Raises ProjectError if there is no row at all, SettingsError
    if another process writes the same file.
    """
    parts = out.with_name(f"{out.name}.parts")
    with _owned(parts, out):
        return _write_row_file(sources, out, parts, settings, watch)


@contextlib.contextmanager
def _owned(parts: Path, out: Path) -> Iterator[None]:
    """Keep other processes from the folder of parts: the first that ends removes it."""
    parts.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(parts, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SettingsError(f"another process is writing --out {out}", option="out") from None
        yield
    finally:
        os.close(descriptor)


def _write_row_file(
    sources: Sequence[SourceFolder], out: Path, parts: Path, settings: RowSettings, watch: Callable[[str], None]
) -> RowReport:
    names = unique_names(sources)
    paths = {source: parts / f"{_key(source, names[source.folder], settings)}.jsonl" for source in sources}
    calls = {
        source: partial(
            write_rows,
            source.folder,
            names[source.folder],
            settings.injectors,
            path,
            count=settings.per_project,
            seed=settings.seed,
            role=settings.role,
        )
        for source, path in paths.items()
        if not path.exists()
    }
    finished, made = len(sources) - len(calls), 0
    watch(f"making bugs: {finished} of {len(sources)} projects")

    def count(_: SourceFolder, rows: int) -> None:
        nonlocal finished, made
        finished, made = finished + 1, made + rows
        watch(f"making bugs: {finished} of {len(sources)} projects, {made} rows")

    run_calls(calls, settings.jobs, count)
    in_turn = itertools.zip_longest(*(path.read_text().splitlines() for path in paths.values()))
    lines = [line for turn in in_turn for line in turn if line is not None]
    lines = lines[: settings.count or None]
    if not lines:
        raise ProjectError("no bug is within a few lines of one function")
    write_text(out, "".join(f"{line}\n" for line in lines))
    shutil.rmtree(parts)
    rows = [json.loads(line) for line in lines]
    return RowReport(
        len(rows),
        dict(sorted(Counter(row["project"] for row in rows).items())),
        dict(Counter(row["operator"] for row in rows).most_common()),
        made,
    )


def _key(source: SourceFolder, name: str, settings: RowSettings) -> str:
    return key_of(name, source.key, settings.injectors, settings.per_project, settings.seed, settings.role, code_hash())
