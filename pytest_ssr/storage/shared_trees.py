"""Share the trees of artifacts and campaigns: one archive for each, whose content must have the hash in its name.

An artifact alone says little without the files it applies to: exports need them, on machines that never saw the
project, too. So does the page of a campaign, which shows the source.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import re
import shutil
import tarfile
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from pytest_ssr.errors import StoreError, StoreWriteError, os_error_advice
from pytest_ssr.patch import FileEntry
from pytest_ssr.project.shared_files import SharedFiles
from pytest_ssr.project.snapshot import MANIFEST, FileStamp, hash_of, is_complete, read_manifest, set_folder_times
from pytest_ssr.records.artifact import INFO
from pytest_ssr.records.decoding import json_object
from pytest_ssr.storage.shared import SharedRecords

TREES = "trees"
_NAME = re.compile(r"[0-9a-f]{40}")
_COMPRESSION = 6
_SYMLINK, _EXECUTABLE, _PLAIN = 0o120000, 0o100755, 0o100644


def path_of(tree_hash: str) -> str:
    """Return the path of a tree's archive among the shared files of a store."""
    return f"{TREES}/{tree_hash}/tree.tar.gz"


class SharedTrees:
    """The trees of a store's results, which machines that share the store exchange."""

    def __init__(self, trees: Path, shared: SharedRecords | None) -> None:
        """trees: the store's folder of trees; shared: None for a store that shares nothing."""
        self._trees, self._shared = trees, shared
        self._known: set[str] = set()

    def share(self, tree_hash: object) -> bool:
        """Share the tree of a result unless that was done; return whether it was done now.

        tree_hash: as the artifact or the campaign names it. Nothing happens if this machine does not have the tree.
        """
        if self._shared is None or not is_tree_hash(tree_hash) or tree_hash in self._known:
            return False
        path = path_of(str(tree_hash))
        is_shared = bool(self._shared.digests(path.rpartition("/")[0]))
        archive = None if is_shared else archive_of(self._trees / str(tree_hash))
        if archive is not None:
            self._shared.put({path: archive})
        if is_shared or archive is not None:
            self._known.add(str(tree_hash))
        return archive is not None

    def fetch(self, tree_hash: object) -> None:
        """Write a shared tree into the store, unless it is there or nobody has shared it; raises StoreError."""
        if self._shared is None or not is_tree_hash(tree_hash) or (self._trees / str(tree_hash)).is_dir():
            return
        data = self._shared.get(path_of(str(tree_hash)))
        if data is not None:
            place_archive(data, self._trees, str(tree_hash))


def trees_of_results(root: Path) -> list[str]:
    """Return the hashes of the trees of artifacts and campaigns in a store's folder, sorted; raises StoreError."""
    found = set()
    for pattern in (f"artifacts/*/{INFO}", f"spare/*/{INFO}", "campaigns/*.json"):
        for path in root.glob(pattern):
            try:
                name = (json_object(path.read_bytes()) or {}).get("tree_hash")
            except FileNotFoundError:
                # It is published or set aside just now.
                continue
            except OSError as error:
                raise StoreError(f"cannot read {path}: {error.strerror}") from None
            if is_tree_hash(name):
                found.add(str(name))
    return sorted(found)


def is_tree_hash(name: object) -> bool:
    """Return whether a value can be the hash of a tree."""
    return isinstance(name, str) and _NAME.fullmatch(name) is not None


def archive_of(folder: Path) -> bytes | None:
    """Return a stored tree as an archive, equal bytes for equal trees; None if the tree is missing or incomplete.

    Raises StoreError if it cannot be read.
    """
    buffer = io.BytesIO()
    try:
        files = read_manifest(folder)
        if files is None or hash_of(files) != folder.name:
            return None
        with (
            gzip.GzipFile(fileobj=buffer, mode="wb", compresslevel=_COMPRESSION, mtime=0) as packed,
            tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive,
        ):
            for path in sorted(files):
                _add(archive, path, folder / "tree" / path, files[path].mode)
    except OSError as error:
        raise StoreError(f"cannot read {error.filename or folder}: {os_error_advice(error)}") from None
    return buffer.getvalue()


def _add(archive: tarfile.TarFile, path: str, source: Path, mode: int) -> None:
    member = tarfile.TarInfo(path)
    if mode == _SYMLINK:
        member.type, member.linkname = tarfile.SYMTYPE, os.readlink(source)
        archive.addfile(member)
        return
    data = source.read_bytes()
    member.mode, member.size = mode & 0o777, len(data)
    archive.addfile(member, io.BytesIO(data))


def place_archive(data: bytes, trees: Path, tree_hash: str) -> None:
    """Write the tree of an archive to `trees/<hash>`, unless it is there.

    Raises StoreError if the archive is damaged or holds another tree, StoreWriteError if it cannot be written.
    """
    final = trees / tree_hash
    if is_complete(final):
        return
    try:
        entries = dict(_entries(data))
    except (tarfile.TarError, OSError, EOFError, zlib.error, ValueError) as error:
        raise StoreError(f"the archive of the tree {tree_hash} is damaged: {error}") from None
    stamps = {path: FileStamp(entry.mode, hashlib.sha256(entry.data).hexdigest()) for path, entry in entries.items()}
    if hash_of(stamps) != tree_hash:
        raise StoreError(f"the archive of the tree {tree_hash} is damaged: it holds another tree")
    try:
        trees.mkdir(parents=True, exist_ok=True)
        staging = Path(tempfile.mkdtemp(prefix=".tmp-", dir=trees))
        try:
            shared = SharedFiles(trees)
            for path, entry in entries.items():
                shared.place(path, entry, staging / "tree" / path)
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


def _entries(data: bytes) -> Iterator[tuple[str, FileEntry]]:
    """Yield the files of an archive; raises ValueError for a member that no tree has."""
    links: set[str] = set()
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:gz") as archive:
        for member in archive:
            path = PurePosixPath(member.name)
            if path.is_absolute() or ".." in path.parts or str(path) != member.name:
                raise ValueError(f"{member.name!r} is not the path of a file")
            if not links.isdisjoint(map(str, path.parents)):
                raise ValueError(f"{member.name!r} is below a symbolic link")
            if member.issym():
                links.add(member.name)
                yield member.name, FileEntry(os.fsencode(member.linkname), _SYMLINK)
            elif member.isreg() and (content := archive.extractfile(member)) is not None:
                yield member.name, FileEntry(content.read(), _EXECUTABLE if member.mode & 0o100 else _PLAIN)
            else:
                raise ValueError(f"{member.name!r} is neither a file nor a symbolic link")
