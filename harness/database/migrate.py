"""Take the results of a folder into its database, and compare both."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from harness.database.records import DatabaseRecords
from harness.records.usage import NAME
from pytest_ssr.errors import StoreError
from pytest_ssr.storage.shared import DURABLE


@dataclass(frozen=True, slots=True)
class Migration:
    """What a migration took over, or would take over."""

    files: int
    bytes: int
    present: int
    """Files that the database has already."""


@dataclass(frozen=True, slots=True)
class Check:
    """The state of a store's files; a healthy store has only counts."""

    files: int
    bytes: int
    missing: tuple[str, ...]
    """Files of the database without their content."""
    damaged: tuple[str, ...]
    """Files whose content does not have the recorded hash."""
    unshared: tuple[str, ...]
    """Files of the folder that the database does not have; `ssr store migrate` takes them over."""


def stored_files(root: Path) -> dict[str, Path]:
    """Return the result files of a store's folder by their path in it."""
    folders = (root / kind for kind in sorted(DURABLE))
    found = (p for folder in folders for p in sorted(folder.rglob("*")) if p.is_file() and not p.is_symlink())
    return {str(path.relative_to(root)): path for path in found}


def migrate(
    root: Path, records: DatabaseRecords | None, *, dry_run: bool = False, progress: Callable[[str], None]
) -> Migration:
    """Put the results of a folder into its database; interrupted at any point, a second call does the rest.

    records: None for a store that has no database yet, in a dry run. Files that the database has stay as they are.
    """
    known = _known(records) if records is not None else {}
    folders: dict[str, dict[str, Path]] = {}
    present = 0
    for path, local in stored_files(root).items():
        if path in known:
            present += 1
        else:
            folders.setdefault(path.rpartition("/")[0], {})[path] = local
    count = size = 0
    # A rollout's trajectory names its task, which its grade alone does not.
    for folder, files in folders.items():
        count += len(files)
        size += sum(local.stat().st_size for local in files.values())
        if records is not None and not dry_run:
            ordered = dict(sorted(files.items(), key=lambda item: not item[0].endswith(NAME)))
            records.put_folder(root / folder, ordered)
            progress(f"{count} files")
    return Migration(count, size, present)


def check(root: Path, records: DatabaseRecords, *, progress: Callable[[str], None]) -> Check:
    """Read every file of a store, and compare it with its hash."""
    known = _known(records)
    missing, damaged, size = [], [], 0
    for number, (path, digest) in enumerate(known.items(), 1):
        try:
            data = records.get(path)
        except StoreError:
            data = None
        if data is None:
            missing.append(path)
        elif hashlib.sha256(data).hexdigest() != digest:
            damaged.append(path)
        else:
            size += len(data)
        progress(f"{number} of {len(known)} files")
    unshared = tuple(sorted(stored_files(root).keys() - known.keys()))
    return Check(len(known), size, tuple(missing), tuple(damaged), unshared)


def _known(records: DatabaseRecords) -> dict[str, str]:
    """Return the hashes of all files in a database, by path."""
    return {path: digest for kind in sorted(DURABLE) for path, digest in records.digests(kind).items()}
