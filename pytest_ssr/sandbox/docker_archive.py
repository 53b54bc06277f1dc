"""A tree as the archive that a container is filled with."""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path

from pytest_ssr.sandbox.docker_recipe import Recipe


def archived(tree: Path, recipe: Recipe) -> bytes:
    """Return a tree as an archive whose files belong to the commands' user."""

    def owned(found: tarfile.TarInfo) -> tarfile.TarInfo | None:
        found.uid, found.gid, found.uname, found.gname = recipe.user, recipe.user, "", ""
        # Two names of one file become two files: `add` would write the second as a link.
        archive.inodes.clear()  # type: ignore[attr-defined] # not in its stubs
        usual = found.isreg() or found.isdir() or found.issym()
        return found if usual else None

    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for path in sorted(tree.iterdir()):
            archive.add(path, path.name, filter=owned)
    return raw.getvalue()


def stamped(tree: Path) -> int:
    """Return what differs when a tree was changed."""
    found: list[tuple[object, ...]] = []
    os.lstat(tree)
    for folder, folders, names in os.walk(tree):
        folders.sort()
        for path in (os.path.join(folder, name) for name in sorted((*folders, *names))):
            status = os.lstat(path)
            found.append((path, status.st_mode, status.st_size, status.st_mtime_ns, status.st_ino))
    return hash(tuple(found))
