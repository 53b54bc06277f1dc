"""Pack a tree into the archive that is unpacked in a container."""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path

from pytest_ssr.sandbox.docker.container_spec import ContainerSpec


def pack_tree(tree: Path, spec: ContainerSpec) -> bytes:
    """Return an archive (tar) of a tree whose files belong to the commands' user."""

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
    return raw.getvalue()


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
