"""Keep the trees of open sandboxes and of recent ones, built from files that clients have sent.

A tree is a folder of hard links, so that trees share their files. Sandboxes never write to a tree. When the files
exceed the limit, the trees that were not used for the longest time are removed.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

from harness.remote_sandboxes.calls import ErrorCode, RemoteError, TreeEntry
from harness.remote_sandboxes.trees import ROOT, require_valid, tree_id
from pytest_ssr.errors import SandboxError
from pytest_ssr.sandbox.filesystem import workdirs

_MAX_TREES = 1_000
_STAGED_S = 600
"""How long a file that was sent may wait for the tree that needs it."""


class TreeCache:
    """The trees of one host, in a folder that is removed when the host ends, however it ends."""

    def __init__(self, max_bytes: int) -> None:
        self._folder, self._max_bytes = workdirs.new_folder(), max_bytes
        for name in ("staged", "files", "trees"):
            (self._folder / name).mkdir()
        self._lock = threading.RLock()
        self._trees: dict[str, tuple[TreeEntry, ...]] = {}
        """The one that was not used for the longest time comes first."""
        self._uses: Counter[str] = Counter()
        self._files: defaultdict[str, set[Path]] = defaultdict(set)
        """By digest: one file for each combination of mode and time."""
        self._staged: dict[str, tuple[float, int]] = {}
        self.bytes = 0

    @property
    def tree_count(self) -> int:
        """Number of trees."""
        return len(self._trees)

    def put(self, digest: str, data: bytes) -> None:
        """Keep a file for the trees that follow; raises RemoteError if it is not the promised one, or too much."""
        if hashlib.sha256(data).hexdigest() != digest:
            raise RemoteError(ErrorCode.MALFORMED, "a file differs from its hash")
        with self._lock:
            if digest in self._staged or self._files.get(digest):
                return
            self._make_room(len(data))
            with _describing_os_errors():
                (self._folder / "staged" / digest).write_bytes(data)
            self._staged[digest] = (time.monotonic(), len(data))
            self.bytes += len(data)

    def add(self, entries: Sequence[TreeEntry]) -> list[str]:
        """Build a tree, and return an empty list; or return the digests of the files that are missing for it."""
        require_valid(entries)
        identity = tree_id(entries)
        with self._lock:
            if identity in self._trees:
                self._trees[identity] = self._trees.pop(identity)
                return []
            digests = dict.fromkeys(entry.digest for entry in entries if entry.digest)
            missing = [digest for digest in digests if digest not in self._staged and not self._files.get(digest)]
            if not missing:
                self._build(identity, tuple(entries))
            return missing

    @contextlib.contextmanager
    def using(self, identity: str) -> Iterator[Path]:
        """Yield the folder of a tree; unless the block fails, it is kept until `release`. Raises RemoteError."""
        with self._lock:
            if identity not in self._trees:
                raise RemoteError(ErrorCode.UNKNOWN_TREE, "the tree is not known here, or no longer")
            self._trees[identity] = self._trees.pop(identity)
            self._uses[identity] += 1
        try:
            yield self._folder / "trees" / identity
        except BaseException:
            self.release(identity)
            raise

    def release(self, identity: str) -> None:
        """Let a tree be removed once nobody else uses it."""
        with self._lock:
            self._uses[identity] -= 1
            self._uses += Counter()

    def entries(self, identity: str) -> tuple[TreeEntry, ...]:
        """Return the entries of a tree in use."""
        with self._lock:
            return self._trees[identity]

    def content(self, digest: str) -> bytes:
        """Return the content of a file of a tree in use."""
        with self._lock:
            return next(iter(self._files[digest])).read_bytes()

    def forget_staged(self) -> None:
        """Remove files that were sent for a tree that never followed."""
        limit = time.monotonic() - _STAGED_S
        with self._lock:
            for digest in [d for d, (since, _) in self._staged.items() if since < limit]:
                self.bytes -= self._staged.pop(digest)[1]
                (self._folder / "staged" / digest).unlink(missing_ok=True)

    def close(self) -> None:
        """Remove everything."""
        with self._lock:
            self._trees.clear()
            workdirs.discard(self._folder)

    def _build(self, identity: str, entries: tuple[TreeEntry, ...]) -> None:
        top = self._folder / "trees" / identity
        self._make_room(0)
        # Not evicted while it is built: making room for a copy may evict other trees.
        self._trees[identity] = entries
        self._uses[identity] += 1
        try:
            with _describing_os_errors():
                top.mkdir()
                folders = [entry for entry in entries if not entry.digest and not entry.target]
                for entry in entries:
                    self._build_entry(top, entry)
                # Last, because a new entry changes the time of its folder, and a read-only folder takes none.
                for entry in reversed(folders):
                    _set_status(top / entry.path, entry)
        except BaseException:
            self._remove(identity)
            raise
        finally:
            self.release(identity)

    def _build_entry(self, top: Path, entry: TreeEntry) -> None:
        path = top / entry.path
        if entry.digest:
            os.link(self._file(entry), path)
        elif entry.target:
            path.symlink_to(entry.target)
            os.utime(path, ns=(entry.mtime_ns, entry.mtime_ns), follow_symlinks=False)
        elif entry.path != ROOT:
            path.mkdir()

    def _file(self, entry: TreeEntry) -> Path:
        """Return the file with this content, mode and time, which is made from the one that was sent or a copy."""
        path = self._folder / "files" / f"{entry.digest}-{entry.mode:o}-{entry.mtime_ns}"
        files = self._files[entry.digest]
        if path in files:
            return path
        if entry.digest in self._staged:
            del self._staged[entry.digest]
            (self._folder / "staged" / entry.digest).rename(path)
        else:
            data = self.content(entry.digest)
            # The file could lose its last tree meanwhile, but its content is at hand.
            self._make_room(len(data))
            path.write_bytes(data)
            self.bytes += len(data)
        _set_status(path, entry)
        files.add(path)
        self._files[entry.digest] = files
        return path

    def _make_room(self, size: int) -> None:
        for identity in list(self._trees):
            if self.bytes + size <= self._max_bytes and len(self._trees) <= _MAX_TREES:
                return
            if not self._uses[identity]:
                self._remove(identity)
        if self.bytes + size > self._max_bytes:
            raise RemoteError(
                ErrorCode.CACHE_FULL,
                f"the sandbox server keeps at most {self._max_bytes} bytes of trees; start it with more --cache-bytes",
            )

    def _remove(self, identity: str) -> None:
        entries = self._trees.pop(identity)
        top = self._folder / "trees" / identity
        # Only the folders: other trees share the files, with their modes.
        for entry in entries:
            if not entry.digest and not entry.target:
                with contextlib.suppress(OSError):
                    (top / entry.path).chmod(0o700)
        shutil.rmtree(top, ignore_errors=True)
        for digest in {entry.digest for entry in entries if entry.digest}:
            for path in [p for p in self._files[digest] if p.stat().st_nlink == 1]:
                self.bytes -= path.stat().st_size
                path.unlink()
                self._files[digest].discard(path)
            if not self._files[digest]:
                del self._files[digest]


def _set_status(path: Path, entry: TreeEntry) -> None:
    path.chmod(entry.mode)
    os.utime(path, ns=(entry.mtime_ns, entry.mtime_ns))


@contextlib.contextmanager
def _describing_os_errors() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise SandboxError(f"the sandbox server cannot keep the tree: {error.strerror or error}") from None
