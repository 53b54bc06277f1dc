"""Pack files into archives that are equal for equal files."""

from __future__ import annotations

import functools
import gzip
import io
import os
import stat
import tarfile
from collections.abc import Iterable, Iterator
from importlib.resources import files
from pathlib import Path

from pytest_ssr.patch import FileEntry

_SYMLINK = 0o120000


def packed(entries: Iterable[tuple[str, FileEntry]]) -> bytes:
    """Return files as a compressed tar, in the order of their paths, with neither times nor owners."""
    buffer = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=buffer, mode="wb", compresslevel=6, mtime=0) as compressed,
        tarfile.open(fileobj=compressed, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for path, entry in sorted(entries, key=lambda item: item[0]):
            member = tarfile.TarInfo(path)
            if entry.mode == _SYMLINK:
                member.type, member.linkname = tarfile.SYMTYPE, os.fsdecode(entry.data)
                archive.addfile(member)
            else:
                member.mode, member.size = entry.mode & 0o777, len(entry.data)
                archive.addfile(member, io.BytesIO(entry.data))
    return buffer.getvalue()


def entries_of(folder: Path) -> Iterator[tuple[str, FileEntry]]:
    """Yield all files and links of a folder."""
    for path in sorted(folder.rglob("*")):
        status = path.lstat()
        if stat.S_ISLNK(status.st_mode):
            yield path.relative_to(folder).as_posix(), FileEntry(os.fsencode(os.readlink(path)), _SYMLINK)
        elif stat.S_ISREG(status.st_mode):
            mode = 0o100755 if status.st_mode & 0o100 else 0o100644
            yield path.relative_to(folder).as_posix(), FileEntry(path.read_bytes(), mode)


@functools.cache
def packed_package(name: str) -> bytes:
    """Return the source of an installed package as an archive, whose paths begin with the package's name."""
    root = Path(str(files(name)))
    sources = ((path, entry) for path, entry in entries_of(root) if "__pycache__" not in path.split("/"))
    return packed((f"{name}/{path}", entry) for path, entry in sources)
