"""Pack a tree into the archive that is unpacked in a container."""

from __future__ import annotations

import copy
import io
import os
import tarfile
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from pytest_ssr.sandbox.docker.container_spec import ContainerSpec
from pytest_ssr.sandbox.filesystem.built_files import BuiltFile, fitting


class Packed(NamedTuple):
    """A tree, ready to be unpacked in a container."""

    archive: bytes
    """A tar archive."""
    built: frozenset[str]
    """The paths of the files that come from the image."""


def pack_tree(tree: Path, spec: ContainerSpec, built: Iterable[BuiltFile] = ()) -> Packed:
    """Return an archive of a tree whose files belong to the commands' user.

    built: files of the image, which are added unless the tree has others at their paths.
    """

    def owned(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
        entry.uid, entry.gid, entry.uname, entry.gname = spec.user, spec.user, "", ""
        # Hard links become separate files: `add` would write the second name as a link.
        archive.inodes.clear()  # type: ignore[attr-defined] # not in its stubs
        supported = entry.isreg() or entry.isdir() or entry.issym()
        return entry if supported else None

    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for path in sorted(tree.iterdir()):
            archive.add(path, path.name, filter=owned)
        # Their names are needed only if the image has files.
        entries = archive.getmembers() if built else []
        folders = {entry.name for entry in entries if entry.isdir()}
        added = list(fitting(built, {entry.name for entry in entries} - folders, folders))
        for file in added:
            entry = owned(copy.copy(file.header))
            if entry is not None:
                entry.name = file.path
                archive.addfile(entry, io.BytesIO(file.data))
    return Packed(raw.getvalue(), frozenset(file.path for file in added))


def tree_stamp(tree: Path) -> int:
    """Return a number that differs after any change to the tree's metadata."""
    entries: list[tuple[object, ...]] = []
    os.lstat(tree)
    for folder, folders, names in os.walk(tree):
        folders.sort()
        for path in (os.path.join(folder, name) for name in sorted((*folders, *names))):
            status = os.lstat(path)
            entries.append((path, status.st_mode, status.st_size, status.st_mtime_ns, status.st_ino))
    return hash(tuple(entries))
