"""Read the proven bugs of stores, with the repairs that attempts submitted and the grader found resolved.

A store may come from a stranger: an artifact must have the files of its id, and a project those of its tree's hash.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from harness.exporters.index import Index
from harness.exporters.library import Library
from harness.exporters.protocol import Task
from harness.exporters.skipped import SkipCode, SkippedError, damaged
from harness.exporters.sources import find_sources, index_sources
from harness.exporters.tasks import snapshot_of
from harness.solvers.search.project_files import MAX_FILE_BYTES, ProjectFiles
from harness.solvers.writer.changed_function import changed_function
from harness.training.search.examples import Bug
from pytest_ssr.errors import ArtifactError
from pytest_ssr.patch import FileEntry, Patch, apply_patch
from pytest_ssr.project.snapshot import Snapshot
from pytest_ssr.records.artifact import BugArtifact, read_regular_file

_MOST_PROJECTS = 4
"""Most projects whose files are kept."""


@dataclass(frozen=True, slots=True)
class StoredBug:
    """A proven bug of a store."""

    project: str
    """The name of the project."""
    hashes: frozenset[str]
    """The SHA-256 hashes of the project's files without the bug."""
    bug: Bug


def stored_bugs(stores: Sequence[Path], report_skip: Callable[[str, SkippedError], None]) -> Iterator[StoredBug]:
    """Yield the first-order bugs of stores that are in one function.

    report_skip: called with the name of what cannot be read, and the error. Raises SettingsError for a path that has no
    store.
    """
    sources = find_sources(stores)
    snapshots: dict[str, Snapshot] = {}
    files_of_tree = functools.lru_cache(maxsize=_MOST_PROJECTS)(lambda tree_hash: _files(snapshots[tree_hash]))
    with Index() as index:
        index_sources(index, sources, report_skip)
        library = Library(sources, index)
        for task in library.tasks():
            try:
                stored = _stored_bug(library, task, snapshots) if task.order == 1 else None
            except (ArtifactError, OSError) as error:
                report_skip(f"artifact {task.id}", damaged(str(error)))
            except SkippedError as error:
                report_skip(f"artifact {task.id}", error)
            else:
                if stored is not None:
                    project = functools.partial(files_of_tree, task.tree_hash)
                    yield replace(stored, bug=replace(stored.bug, project=project))


def _stored_bug(library: Library, task: Task, snapshots: dict[str, Snapshot]) -> StoredBug | None:
    """Return the bug of an artifact; None if it is not in one function. Raises SkippedError or ArtifactError.

    snapshots: those of the trees, to which that of the task is added.
    """
    snapshot, artifact = snapshot_of(task), task.artifact()
    if artifact.content_id(task.tree_hash) != task.id:
        raise damaged("its files are not those that its id names")
    bug = bug_in_one_function(artifact, task.operator, lambda path: _file_of(snapshot, path))
    if bug is None or len(bug.original) > MAX_FILE_BYTES:
        return None
    hashes = frozenset(stamp.sha256 for stamp in snapshot.files.values())
    repairs = tuple(_repaired(library, task.id, bug))
    snapshots[task.tree_hash] = snapshot
    return StoredBug(task.repository, hashes, replace(bug, repairs=repairs))


def _files(snapshot: Snapshot) -> ProjectFiles:
    """Return the files of a project; a file that cannot be read, or is not that of its hash, is left out."""

    def read(path: str) -> bytes | None:
        try:
            entry = _file_of(snapshot, path)
        except (ArtifactError, SkippedError, OSError):
            return None
        return entry.data if entry is not None else None

    return ProjectFiles(snapshot.files, read)


def _file_of(snapshot: Snapshot, path: str) -> FileEntry | None:
    """Return a file of a stored tree; None if it has none. Raises SkippedError if it is not the file of its hash."""
    stamp = snapshot.files.get(path)
    if stamp is None:
        return None
    data = read_regular_file(snapshot.directory / path)
    if hashlib.sha256(data).hexdigest() != stamp.sha256:
        raise SkippedError(SkipCode.NO_TREE)
    return FileEntry(data, stamp.mode)


def _repaired(library: Library, task: str, bug: Bug) -> Iterator[bytes]:
    """Yield the file after each resolved attempt."""
    for location in library.index.rollouts(task, "solver"):
        try:
            record = library.record(location)
            if record.reward is None or record.reward <= 0 or record.data["patch"] is None:
                continue
            patch = Patch.parse(record.data["patch"].encode()).select([bug.path])
            entry = apply_patch(patch, {bug.path: FileEntry(bug.buggy)}.get).get(bug.path)
        except (SkippedError, ArtifactError):
            continue
        if entry is not None:
            yield entry.data


def bug_in_one_function(artifact: BugArtifact, operator: str, read: Callable[[str], FileEntry | None]) -> Bug | None:
    """Return the bug of an artifact; None unless all of it is in one function of one file.

    read: returns a file of the original; None if it does not exist. Raises ArtifactError if the bug does not apply.
    """
    if len(artifact.bug.paths) != 1:
        return None
    (path,) = artifact.bug.paths
    old = read(path)
    new = apply_patch(artifact.bug, lambda p: old if p == path else None)[path]
    if old is None or new is None:
        return None
    changed = changed_function(path, old.data, new.data)
    return Bug(operator, path, changed[1].scope.qualname, old.data, new.data) if changed is not None else None
