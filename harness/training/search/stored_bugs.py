"""Read the proven bugs of stores, with the repairs that attempts submitted and the grader found resolved."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from harness.exporters.index import Index
from harness.exporters.library import Library
from harness.exporters.protocol import Task
from harness.exporters.skipped import SkipCode, SkippedError, damaged
from harness.exporters.sources import find_sources, index_sources
from harness.training.search.examples import Bug
from harness.training.search.sources import SourceFolder
from pytest_ssr.errors import ArtifactError, ProjectError
from pytest_ssr.patch import Patch
from pytest_ssr.project.snapshot import Snapshot, is_complete, read_manifest
from pytest_ssr.project.state import CodebaseState
from pytest_ssr.records.artifact import BugArtifact
from pytest_ssr.source.syntax_tree import parse, scopes


@dataclass(frozen=True, slots=True)
class StoredBug:
    """A proven bug of a store."""

    project: str
    """The name of the project."""
    code: SourceFolder
    """The project's files without the bug."""
    bug: Bug


def stored_bugs(stores: Sequence[Path], report_skip: Callable[[str, SkippedError], None]) -> Iterator[StoredBug]:
    """Yield the first-order bugs of stores that are in one function.

    report_skip: called with the name of what cannot be read, and the error. Raises SettingsError for a path that has no
    store.
    """
    sources = find_sources(stores)
    with Index() as index:
        index_sources(index, sources, report_skip)
        library, folders = Library(sources, index), dict[Path, SourceFolder]()
        for task in library.tasks():
            if task.order > 1:
                continue
            try:
                original, artifact = _original(task), task.artifact()
                code = folders.setdefault(task.tree, SourceFolder(task.tree / "tree"))
                for bug in proven_bugs(original, artifact, task.operator):
                    repairs = tuple(_repaired(library, task, original, artifact, bug.path))
                    yield StoredBug(task.repository, code, replace(bug, repairs=repairs))
            except (ArtifactError, ProjectError) as error:
                report_skip(f"artifact {task.id}", damaged(str(error)))
            except SkippedError as error:
                report_skip(f"artifact {task.id}", error)


def _original(task: Task) -> CodebaseState:
    """Return the code without the bug; raises SkippedError if the store no longer has it."""
    files = read_manifest(task.tree) if task.tree.is_dir() and is_complete(task.tree) else None
    if files is None:
        raise SkippedError(SkipCode.NO_TREE)
    return CodebaseState(Snapshot(task.tree / "tree", files, task.tree_hash, task.tree / "tree"))


def _repaired(
    library: Library, task: Task, original: CodebaseState, artifact: BugArtifact, path: str
) -> Iterator[bytes]:
    """Yield the file after each resolved attempt."""
    weakened = original.apply(artifact.bug).apply(artifact.weaken)
    for location in library.index.rollouts(task.id, "solver"):
        try:
            record = library.record(location)
            if record.reward is None or record.reward <= 0 or record.data["patch"] is None:
                continue
            entry = weakened.apply(Patch.parse(record.data["patch"].encode())).entry(path)
        except (SkippedError, ArtifactError):
            continue
        if entry is not None:
            yield entry.data


def proven_bugs(original: CodebaseState, artifact: BugArtifact, operator: str) -> Iterator[Bug]:
    """Yield the bug of an artifact if all of it is in one function of one file."""
    buggy = original.apply(artifact.bug)
    entries = [(path, original.entry(path), buggy.entry(path)) for path in artifact.bug.paths]
    if len(entries) != 1:
        return
    ((path, before, after),) = entries
    if before is None or after is None:
        return
    sources = parse(path, before.data), parse(path, after.data)
    if None in sources:
        return
    texts = [
        {s.qualname: source.text(s.node) for s in scopes(source) if s.kind == "function"}
        for source in sources
        if source is not None
    ]
    changed = [name for name, text in texts[0].items() if texts[1].get(name, text) != text]
    if len(changed) == 1:
        yield Bug(operator, path, changed[0], before.data, after.data)
