"""Take the results of a folder into its database, and compare both."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from harness.database.records import SHARED, DatabaseRecords, is_possible
from harness.records.usage import NAME
from pytest_ssr.errors import DamagedTreeError, StoreError, os_error_advice
from pytest_ssr.project.snapshot import is_complete
from pytest_ssr.storage.locks import is_locked
from pytest_ssr.storage.shared import DURABLE
from pytest_ssr.storage.shared_trees import TREES, SharedTrees, path_of, trees_of_results
from pytest_ssr.storage.tree_archives import archive_of, stamps_in


@dataclass(frozen=True, slots=True)
class Migration:
    """What a migration took over, or would take over."""

    files: int
    bytes: int
    present: int
    """Files that the database has already."""
    skipped: int
    """Files whose names no database can hold, and those that were removed meanwhile."""
    unfinished: int
    """Files of rollouts that a run is writing; a later migration takes them over."""
    trees: int
    """Trees of artifacts and campaigns."""


@dataclass(frozen=True, slots=True)
class Check:
    """The state of a store's files; a healthy store has only counts."""

    files: int
    bytes: int
    missing: tuple[str, ...]
    """Files of the database without their content."""
    damaged: tuple[str, ...]
    """Files whose content does not have the recorded hash, and archives that hold another tree than their names say."""
    unshared: tuple[str, ...]
    """Files of the folder that the database does not have; `ssr store migrate` takes them over."""


@dataclass(frozen=True, slots=True)
class _Files:
    """The result files of a store's folder."""

    by_path: Mapping[str, Path]
    skipped: int
    unfinished: int


def _stored_files(root: Path) -> _Files:
    """List the result files of a store's folder by their path in it."""
    folders = (root / kind for kind in sorted(DURABLE))
    found = [p for folder in folders for p in sorted(folder.rglob("*")) if p.is_file() and not p.is_symlink()]
    by_path = {path: local for local in found if is_possible(path := local.relative_to(root).as_posix())}
    running = {name for name in _rollouts(by_path) if is_locked(root, name)}
    finished = {path: local for path, local in by_path.items() if running.isdisjoint(_rollouts([path]))}
    return _Files(finished, len(found) - len(by_path), len(by_path) - len(finished))


def _rollouts(paths: Iterable[str]) -> set[str]:
    """Return the ids of the rollouts to which files belong; a run that writes one holds the lock of its id."""
    return {path.split("/")[1] for path in paths if path.startswith("rollouts/")}


def migrate(
    root: Path, records: DatabaseRecords | None, *, dry_run: bool = False, progress: Callable[[str], None]
) -> Migration:
    """Put the results of a folder into its database; interrupted at any point, a second call does the rest.

    records: None for a store that has no database yet, in a dry run. Files that the database has stay as they are.
    """
    known = _known(records) if records is not None else {}
    found = _stored_files(root)
    folders: dict[str, dict[str, Path]] = {}
    unshared = _unshared(found.by_path, known)
    for path in unshared:
        folders.setdefault(path.rpartition("/")[0], {})[path] = found.by_path[path]
    count = size = 0
    for folder, files in folders.items():
        try:
            taken = _take(root / folder, files, None if dry_run else records)
        except OSError as error:
            raise StoreError(f"cannot read {error.filename or folder}: {os_error_advice(error)}") from None
        count += len(taken)
        size += sum(taken)
        progress(f"{count} files")
    trees = _share_trees(root, records, known, dry_run=dry_run)
    skipped = found.skipped + len(unshared) - count
    return Migration(count, size, len(found.by_path) - len(unshared), skipped, found.unfinished, trees)


def _share_trees(root: Path, records: DatabaseRecords | None, known: Mapping[str, str], *, dry_run: bool) -> int:
    """Share the trees of artifacts and campaigns, unless a database has them; return how many."""
    unshared = _unshared_trees(root, known)
    if not dry_run:
        trees = SharedTrees(root / TREES, records)
        for name in unshared:
            trees.share(name)
    return len(unshared)


def _unshared_trees(root: Path, known: Mapping[str, str]) -> list[str]:
    """Return the trees of results that a database does not have and this machine has."""
    unshared = (name for name in trees_of_results(root) if path_of(name) not in known)
    return [name for name in unshared if is_complete(root / TREES / name)]


def _take(folder: Path, files: Mapping[str, Path], records: DatabaseRecords | None) -> list[int]:
    """Put files of a folder into the database, and return their sizes; those that were removed are left out."""
    while True:
        here = {path: local for path, local in files.items() if local.exists()}
        try:
            sizes = [local.stat().st_size for local in here.values()]
            if records is not None:
                # A rollout's trajectory names its task, which its grade alone does not.
                ordered = dict(sorted(here.items(), key=lambda item: not item[0].endswith(NAME)))
                records.put_folder(folder, ordered)
        except FileNotFoundError:
            if all(local.exists() for local in here.values()):
                raise
        else:
            return sizes


def _unshared(paths: Iterable[str], known: Mapping[str, str]) -> list[str]:
    """Return the files that a database does not have, sorted.

    It has those of an artifact that was published or set aside on another machine, under its other path.
    """
    others = {"artifacts": "spare", "spare": "artifacts"}
    folders = {path.rpartition("/")[0] for path in known}

    def is_known(path: str) -> bool:
        folder = path.rpartition("/")[0]
        kind, _, name = folder.partition("/")
        return path in known or (kind in others and folder not in folders and f"{others[kind]}/{name}" in folders)

    return sorted(path for path in paths if not is_known(path))


def check(root: Path, records: DatabaseRecords, *, progress: Callable[[str], None]) -> Check:
    """Read every file of a store, and compare it with its hash; raises StoreError if a part cannot be reached."""
    known = _known(records)
    missing, damaged, size = [], [], 0
    for number, path in enumerate(known, 1):
        # Not what was listed: a run may have replaced or removed it since.
        found = records.inspect(path)
        if found is not None:
            digest, data = found
            if data is None:
                missing.append(path)
            elif hashlib.sha256(data).hexdigest() != digest or not _holds_its_tree(path, data):
                damaged.append(path)
            else:
                size += len(data)
        progress(f"{number} of {len(known)} files")
    trees = map(path_of, _unshared_trees(root, known))
    unshared = (*_unshared(_stored_files(root).by_path, known), *trees)
    return Check(len(known), size, tuple(missing), tuple(damaged), unshared)


def repair(root: Path, records: DatabaseRecords, found: Check) -> tuple[str, ...]:
    """Write missing and damaged files again from a store's folder, if it has them; return which; raises StoreError."""
    repaired = []
    for path in (*found.missing, *found.damaged):
        entry = records.inspect(path)
        data = _local(root, path)
        is_tree = path.startswith(f"{TREES}/")
        if entry is None or data is None or not (is_tree or hashlib.sha256(data).hexdigest() == entry[0]):
            continue
        records.put_again(path, data)
        repaired.append(path)
    return tuple(repaired)


def _local(root: Path, path: str) -> bytes | None:
    """Return a file as a store's folder has it; None if it does not."""
    kind, name, *_ = path.split("/")
    if kind == TREES:
        return archive_of(root / TREES / name)
    try:
        return (root / path).read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StoreError(f"cannot read {root / path}: {os_error_advice(error)}") from None


def _holds_its_tree(path: str, archive: bytes) -> bool:
    """Return whether an archive holds the tree that its path names; True for other files."""
    kind, name, *_ = path.split("/")
    if kind != TREES:
        return True
    try:
        stamps_in(archive, name)
    except DamagedTreeError:
        return False
    return True


def _known(records: DatabaseRecords) -> dict[str, str]:
    """Return the hashes of all files in a database, by path."""
    return {path: digest for kind in sorted(SHARED) for path, digest in records.digests(kind).items()}
