"""Pack the tree of an artifact into an archive, and unpack archives that others have made.

Who publishes an artifact chooses the hash of its tree, and so what an archive with that hash holds. An archive is
therefore read twice: first with little memory, to compare its hash and to refuse what a tree cannot hold, then to
write its files.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import shutil
import tarfile
import zlib
from collections.abc import Collection, Iterator
from pathlib import Path, PurePosixPath
from typing import IO

from pytest_ssr.errors import DamagedTreeError, StoreError, StoreWriteError, os_error_advice
from pytest_ssr.patch import FileEntry
from pytest_ssr.project.shared_files import SharedFiles
from pytest_ssr.project.snapshot import (
    MANIFEST,
    MAX_SNAPSHOT_BYTES,
    FileStamp,
    hash_of,
    is_complete,
    read_manifest,
    set_folder_times,
    staging_folder,
)

MAX_FILES = 250_000
_MAX_HEADER_BYTES = 64 << 10
"""A path and the target of a link have at most 4 KiB each."""
_MAX_NAME_BYTES, _MAX_PATH_BYTES = 255, 3_000
"""File systems refuse longer names, and the path of the store comes before these paths."""
_BLOCK_BYTES = 512
_CHUNK_BYTES = 1 << 20
_COMPRESSION = 6
_SYMLINK, _EXECUTABLE, _PLAIN = 0o120000, 0o100755, 0o100644


def archive_of(folder: Path) -> bytes | None:
    """Return a stored tree as an archive, equal bytes for equal trees.

    None if the tree is missing, incomplete or changed, or has more files than an archive may have. Raises StoreError
    if it cannot be read.
    """
    buffer = io.BytesIO()
    try:
        files = read_manifest(folder)
        if files is None or hash_of(files) != folder.name or len(files) > MAX_FILES:
            return None
        with (
            gzip.GzipFile(fileobj=buffer, mode="wb", compresslevel=_COMPRESSION, mtime=0) as packed,
            tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive,
        ):
            for path in sorted(files):
                if not _add(archive, path, folder / "tree" / path, files[path]):
                    return None
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StoreError(f"cannot read {error.filename or folder}: {os_error_advice(error)}") from None
    return buffer.getvalue()


def _add(archive: tarfile.TarFile, path: str, source: Path, stamp: FileStamp) -> bool:
    """Add a file; return whether it has the content that the manifest names."""
    member = tarfile.TarInfo(path)
    is_link = stamp.mode == _SYMLINK
    if is_link != source.is_symlink():
        return False
    data = os.fsencode(os.readlink(source)) if is_link else source.read_bytes()
    if hashlib.sha256(data).hexdigest() != stamp.sha256:
        return False
    if is_link:
        member.type, member.linkname = tarfile.SYMTYPE, os.fsdecode(data)
        archive.addfile(member)
    else:
        member.mode, member.size = stamp.mode & 0o777, len(data)
        archive.addfile(member, io.BytesIO(data))
    return True


def place_archive(data: bytes, trees: Path, tree_hash: str) -> None:
    """Write the tree of an archive to `trees/<hash>`, unless it is there.

    Raises DamagedTreeError if the archive is damaged or holds another tree, StoreWriteError if it cannot be written.
    """
    final = trees / tree_hash
    try:
        if is_complete(final):
            return
        stamps = stamps_in(data, tree_hash)
        trees.mkdir(parents=True, exist_ok=True)
        staging = staging_folder(trees)
        try:
            shared = SharedFiles(trees)
            for path, mode, content in _members(data):
                shared.place(path, FileEntry(content.read(), mode), staging / "tree" / path)
            manifest = {path: [stamp.mode, stamp.sha256] for path, stamp in stamps.items()}
            (staging / MANIFEST).write_text(json.dumps(manifest, sort_keys=True), encoding="utf-8")
            set_folder_times(staging / "tree")
            shutil.rmtree(final, ignore_errors=True)
            try:
                staging.rename(final)
            except OSError:
                # Another process may have written it in the meantime.
                if not is_complete(final):
                    raise
        finally:
            shutil.rmtree(staging, ignore_errors=True)
    except OSError as error:
        raise StoreWriteError(f"cannot write {final}: {os_error_advice(error)}") from None


def stamps_in(data: bytes, tree_hash: str) -> dict[str, FileStamp]:
    """Return the files of an archive; raises DamagedTreeError unless they are a tree with this hash."""
    stamps: dict[str, FileStamp] = {}
    try:
        for path, mode, content in _members(data):
            if path in stamps:
                raise ValueError(f"it holds {path!r} twice")
            digest = hashlib.sha256()
            while chunk := content.read(_CHUNK_BYTES):
                digest.update(chunk)
            stamps[path] = FileStamp(mode, digest.hexdigest())
        _require_folders(stamps)
    except (tarfile.TarError, OSError, EOFError, zlib.error, ValueError, OverflowError) as error:
        raise DamagedTreeError(f"the archive of the tree {tree_hash} is damaged: {error}") from None
    if hash_of(stamps) != tree_hash:
        raise DamagedTreeError(f"the archive of the tree {tree_hash} is damaged: it holds another tree")
    return stamps


def _members(data: bytes) -> Iterator[tuple[str, int, IO[bytes]]]:
    """Yield path, mode and content of the files of an archive; raises ValueError for what no tree has."""
    unpacked = _BoundedReader(data)
    unpacked.allow(_MAX_HEADER_BYTES)
    total = count = 0
    # A stream of its own, which refuses what headers say about sizes: tarfile believes them.
    with tarfile.open(fileobj=unpacked, mode="r:") as archive:  # type: ignore[call-overload]  # reads and seeks only
        while (member := archive.next()) is not None:
            _require_path(member.name)
            total, count = total + member.size, count + 1
            if member.size < 0 or total > MAX_SNAPSHOT_BYTES or count > MAX_FILES:
                raise ValueError(f"it has more than {MAX_FILES} files or {MAX_SNAPSHOT_BYTES >> 30} GiB")
            if member.issym():
                yield member.name, _SYMLINK, io.BytesIO(_target_of(member))
            elif member.isreg() and not member.issparse() and (content := archive.extractfile(member)) is not None:
                unpacked.allow(member.size)
                yield member.name, _EXECUTABLE if member.mode & 0o100 else _PLAIN, content
            else:
                raise ValueError(f"{member.name!r} is neither a file nor a symbolic link")
            unpacked.allow(member.size + _BLOCK_BYTES + _MAX_HEADER_BYTES)


class _BoundedReader:
    """The unpacked bytes of an archive, no more of which are read than were allowed."""

    def __init__(self, data: bytes) -> None:
        self._file = gzip.GzipFile(fileobj=io.BytesIO(data))
        self._end = 0

    def allow(self, count: int) -> None:
        """Allow to read so many bytes from the present position on."""
        self._end = self._file.tell() + count

    def tell(self) -> int:
        """Return the position."""
        return self._file.tell()

    def seek(self, position: int) -> int:
        """Skip bytes; raises ValueError if that is not allowed."""
        self._require(position)
        return self._file.seek(position)

    def read(self, size: int) -> bytes:
        """Return bytes; raises ValueError if that is not allowed."""
        self._require(self._file.tell() + size)
        return self._file.read(size)

    def _require(self, end: int) -> None:
        if not self._file.tell() <= end <= self._end:
            raise ValueError("a header names a size that no file of a tree has")


def _require_path(name: str) -> None:
    path = PurePosixPath(name)
    is_plain = path.parts and not path.is_absolute() and ".." not in path.parts and str(path) == name
    is_short = len(os.fsencode(name)) <= _MAX_PATH_BYTES and all(
        len(os.fsencode(part)) <= _MAX_NAME_BYTES for part in path.parts
    )
    if not is_plain or not is_short or "\0" in name:
        raise ValueError(f"{name[:100]!r} is not the path of a file")


def _target_of(member: tarfile.TarInfo) -> bytes:
    target = os.fsencode(member.linkname)
    if not target or b"\0" in target or len(target) > _MAX_PATH_BYTES:
        raise ValueError(f"the target of {member.name!r} is not a path")
    return target


def _require_folders(paths: Collection[str]) -> None:
    """Raise ValueError if a file or a link is also the folder of another."""
    for path in paths:
        for folder in PurePosixPath(path).parents:
            if str(folder) in paths:
                raise ValueError(f"{path!r} is below a file or a symbolic link")
