"""Read what an image has in its project folder besides the files that git tracks, and show it in a sandbox's tree.

Images in SWE-bench's layout have the project in `/testbed`, installed in place: compiled extensions, generated modules
and metadata lie among the sources, and git does not track them. The tree of a sandbox covers that folder, so these
files are read once and added to each tree. Nothing of git is read but the index, which names the tracked files.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import re
import stat
import struct
import tarfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from pytest_ssr.errors import SandboxError
from pytest_ssr.sandbox.protocol import MIB, ExecResult, Limit, Limits

TESTBED = "/testbed"
MAX_BYTES = 1024 * MIB
"""The largest size of these files, which are copied into memory for each sandbox."""
_LIMITS = Limits(wall_s=600.0, output_bytes=MAX_BYTES)
_LIST = r"""
cd "$1" 2>/dev/null || exit 0
if [ -f .git/index ]; then wc -c < .git/index; cat .git/index; else echo 0; fi
pruned="-name .git -o -name .hg -o -name .svn"
find . -xdev \( $pruned \) -prune -o -type d -print0
printf '\0'
find . -xdev \( $pruned \) -prune -o \( -type f -o -type l \) -print0
"""
# Unreadable files are left out, as the tests could not read them either.
_PACK = 'cd "$1" && tar --null --no-recursion --hard-dereference --ignore-failed-read -T - -cf - 2>/dev/null'
_GITLINK = 0o160000
_ARCHIVE = re.compile(r"(dist/[^/]+\.(tar(\.\w+)?|tgz|zip)|.+\.(whl|egg))")
Execute = Callable[[Sequence[str], bytes, Limits], ExecResult]
"""Runs a command in the image; the arguments are argv, standard input and limits."""


@dataclass(frozen=True, slots=True)
class BuiltFile:
    """A file, a symlink or an empty folder that git does not track."""

    path: str
    """Relative to the project folder."""
    header: tarfile.TarInfo
    """Its kind, mode and time."""
    data: bytes
    """The content of a file."""


def read_built_files(execute: Execute) -> tuple[BuiltFile, ...] | None:
    """Return the files of an image's project folder that git does not track; None if the image has no such folder.

    Copies of tracked files, compiled tracked modules and archives of the project are left out, because they would show
    code that a state has changed. Raises SandboxError if the files are too large or cannot be read.
    """
    listing = _output(execute(["/bin/sh", "-c", _LIST, "sh", TESTBED], b"", _LIMITS))
    if not listing:
        return None
    first, _, rest = listing.partition(b"\n")
    size = int(first)
    tracked = read_index(rest[:size]) if size else {}
    folders, _, files = rest[size:].partition(b"\0\0")
    paths = untracked_paths(_names(folders), _names(files), tracked)
    if not paths:
        return ()
    names = b"".join(b"./" + os.fsencode(path) + b"\0" for path in paths)
    raw = _output(execute(["/bin/sh", "-c", _PACK, "sh", TESTBED], names, _LIMITS))
    return tuple(_unpacked(raw, tracked))


def _output(done: ExecResult) -> bytes:
    if done.limit is Limit.OUTPUT:
        raise SandboxError(f"the image has more than {MAX_BYTES // MIB} MiB in {TESTBED} that git does not track")
    if done.limit is not None:
        raise SandboxError(f"the files in {TESTBED} of the image cannot be read: {done.limit}")
    return done.stdout


def _names(listed: bytes) -> set[str]:
    return {os.fsdecode(name.removeprefix(b"./")) for name in listed.split(b"\0") if name not in (b"", b".")}


def read_index(data: bytes) -> dict[str, str]:
    """Return the tracked files of a git index with the hashes of their blobs; submodules are not files.

    The format is described in git's documentation (gitformat-index). Raises SandboxError for an index of another form.
    """
    tracked: dict[str, str] = {}
    name, position = b"", 12
    try:
        signature, version, count = struct.unpack_from(">4sLL", data)
        if signature != b"DIRC" or version not in (2, 3, 4):
            raise ValueError
        for _ in range(count):
            mode, blob, flags = struct.unpack_from(">24xL12x20sH", data, position)
            start = position + (64 if flags & 0x4000 else 62)
            kept = b""
            if version == 4:
                # The rest of the name, after the prefix that it shares with the previous name.
                dropped, start = _varint(data, start)
                kept = name[: len(name) - dropped]
            end = data.index(b"\0", start)
            name = kept + data[start:end]
            # Entries of earlier versions are padded to a multiple of eight bytes, with one zero byte or more.
            position = end + 1 if version == 4 else position + (end - position) // 8 * 8 + 8
            if mode != _GITLINK:
                tracked[os.fsdecode(name)] = blob.hex()
    except (struct.error, ValueError, IndexError):
        raise SandboxError(f"the git index in {TESTBED} of the image cannot be read") from None
    return tracked


def _varint(data: bytes, position: int) -> tuple[int, int]:
    """Return a number in git's variable length encoding, and the position after it."""
    byte = data[position]
    value = byte & 0x7F
    while byte & 0x80:
        position += 1
        byte = data[position]
        value = ((value + 1) << 7) | (byte & 0x7F)
    return value, position + 1


def untracked_paths(folders: Collection[str], files: Collection[str], tracked: Collection[str]) -> list[str]:
    """Return the files that are not tracked, and the empty folders, sorted.

    Compiled files whose source is tracked or absent are left out.
    """
    own = {path for path in files if path not in tracked and not _ARCHIVE.fullmatch(path)}
    own = {path for path in own if not path.endswith((".pyc", ".pyo")) or _source_of(path) in own}
    used = {parent for path in (*tracked, *files, *folders) for parent in _parents(path)}
    return sorted(own | (set(folders) - used))


def _source_of(compiled: str) -> str:
    path = PurePosixPath(compiled)
    folder = path.parent.parent if path.parent.name == "__pycache__" else path.parent
    return str(folder / f"{path.name.partition('.')[0]}.py")


def _parents(path: str) -> Iterator[str]:
    while path:
        path = path.rpartition("/")[0]
        yield path


def _unpacked(raw: bytes, tracked: Mapping[str, str]) -> Iterator[BuiltFile]:
    """Yield the entries of an archive that are plain; an image may hold anything."""
    blobs = set(tracked.values())
    try:
        with tarfile.open(fileobj=io.BytesIO(raw)) as archive:
            for header in archive:
                path = header.name.removeprefix("./")
                if {"", ".", ".."} & set(path.split("/")) or not (header.isreg() or header.issym() or header.isdir()):
                    continue
                file = archive.extractfile(header) if header.isreg() else None
                data = file.read() if file is not None else b""
                # Installed copies are hidden by the interpreter, and an environment must stay complete.
                is_copy = path.endswith(".py") and "/site-packages/" not in path and _blob(data) in blobs
                if not (is_copy and data):
                    yield BuiltFile(path, header, data)
    except (tarfile.TarError, OSError, EOFError) as error:
        raise SandboxError(f"the files in {TESTBED} of the image cannot be read: {error}; GNU tar is needed") from None


def _blob(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0%b" % (len(data), data), usedforsecurity=False).hexdigest()


def fitting(built: Iterable[BuiltFile], files: Collection[str], folders: Collection[str]) -> Iterator[BuiltFile]:
    """Yield the files that a tree with these files and folders does not have and has room for."""
    for file in built:
        if file.path not in files and file.path not in folders and not any(p in files for p in _parents(file.path)):
            yield file


def add_built_files(built: Iterable[BuiltFile], top: Path) -> frozenset[str]:
    """Write the files into a tree in which nothing runs, and return the paths of those that it did not have.

    No link is followed, neither of the tree nor of the image.
    """
    added = set()
    real = {""}
    for file in built:
        folder = file.path.rpartition("/")[0]
        if not _make_folders(top, folder, real) or os.path.lexists(top / file.path):
            continue
        _write(file, top / file.path)
        added.add(file.path)
    return frozenset(added)


def _make_folders(top: Path, folder: str, real: set[str]) -> bool:
    """Create a folder and its parents; return False if a link or a file is in the way. real: folders known to exist."""
    if folder in real:
        return True
    if not _make_folders(top, folder.rpartition("/")[0], real):
        return False
    with contextlib.suppress(FileExistsError):
        (top / folder).mkdir()
    if not stat.S_ISDIR((top / folder).lstat().st_mode):
        return False
    real.add(folder)
    return True


def _write(file: BuiltFile, target: Path) -> None:
    if file.header.issym():
        target.symlink_to(file.header.linkname)
        return
    if file.header.isdir():
        target.mkdir()
        return
    target.write_bytes(file.data)
    target.chmod(file.header.mode & 0o777 | 0o600)
    os.utime(target, (file.header.mtime, file.header.mtime))
