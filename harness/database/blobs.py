"""Keep files by the hash of their content, in a folder or in an object store, through fsspec."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import secrets
import tempfile
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import fsspec

from pytest_ssr.errors import MissingExtraError, SettingsError, StoreError, StoreWriteError
from pytest_ssr.storage.synced_files import write_synced

_FOLDER = "blobs"
_SHORTEST_SECRET = 4
"""Characters; to hide shorter ones would make messages unreadable."""
_ADVICE = "ssr store check --repair, on a machine that has it, writes it again"
_LOCAL = ("file", "local")


class Blobs:
    """Files by the SHA-256 of their content; a file that exists is never written again."""

    def __init__(self, url: str, root: Path, owner: str) -> None:
        """url: where they are, such as `s3://bucket/prefix`; by default a folder in the store, `root`.

        owner: the id of the database whose files they are; those of each are in a folder of their own, so that stores
        with the same URL do not remove each other's. Raises SettingsError for an unknown scheme, MissingExtraError if
        its package is not installed.
        """
        self.root = root
        """The folder of the store."""
        self.url = url or str(root.absolute() / _FOLDER)
        self.shown = _shown(self.url)
        try:
            # Other processes write and remove, too: a list from before would be wrong.
            self._system, path = fsspec.core.url_to_fs(self.url, use_listings_cache=False)
        except ImportError as error:
            scheme = self.url.partition(":")[0]
            if scheme in ("s3", "s3a"):
                raise MissingExtraError("s3fs", "s3") from None
            raise SettingsError(f"--blobs {self.shown}: {error}", option="blobs") from None
        except ValueError as error:
            raise SettingsError(f"--blobs {self.shown}: {error}", option="blobs") from None
        if _protocol(self.url) == "memory":
            raise SettingsError("--blobs memory: is lost when the process ends; name a folder or s3://", option="blobs")
        self._path = f"{str(path).rstrip('/')}/{owner}"
        self._is_local = _protocol(self.url) in _LOCAL

    def put(self, data: bytes) -> str:
        """Write a file and return its hash; raises StoreWriteError."""
        digest = hashlib.sha256(data).hexdigest()
        with self._describing(digest, StoreWriteError):
            if not self._exists(digest, len(data)):
                self._write(digest, data)
        return digest

    def put_file(self, path: Path) -> tuple[str, int]:
        """Keep a local file, and return its hash and size; one that is still being written is kept as it is now."""
        before = path.stat()
        data = path.read_bytes()
        if not self._is_local:
            return self.put(data), len(data)
        digest = hashlib.sha256(data).hexdigest()
        target = Path(self._at(digest))
        with self._describing(digest, StoreWriteError):
            if not self._exists(digest, len(data)):
                target.parent.mkdir(parents=True, exist_ok=True)
                try:
                    # A second name of the same file: it takes no space.
                    target.unlink(missing_ok=True)
                    os.link(path, target)
                    is_same = _version(target.stat()) == _version(before)
                except OSError:
                    is_same = False
                if not is_same:
                    self._write(digest, data)
        return digest, len(data)

    def probe(self) -> None:
        """Write, read and remove a file; raises StoreError if that fails."""
        digest = self.put(secrets.token_bytes(32))
        self.get(digest)
        self.remove(digest)

    def get(self, digest: str) -> bytes:
        """Return a file; raises StoreError if it is missing, damaged or cannot be read."""
        data = self.read(digest)
        if data is None:
            raise StoreError(f"the file {digest} in {self.shown} is missing; {_ADVICE}")
        if hashlib.sha256(data).hexdigest() != digest:
            raise StoreError(f"the file {digest} in {self.shown} is damaged; {_ADVICE}")
        return data

    def read(self, digest: str) -> bytes | None:
        """Return what is stored under a hash, even if it is damaged; None if it is missing. Raises StoreError."""
        with self._describing(digest, StoreError):
            try:
                data: bytes = self._system.cat_file(self._at(digest))
            except FileNotFoundError:
                return None
        return data

    def keep(self, digest: str, size: int, content: bytes | Path) -> None:
        """Write a file again if it was removed since `put`; raises StoreWriteError."""
        with self._describing(digest, StoreWriteError):
            is_kept = self._exists(digest, size)
        if is_kept:
            return
        data = content if isinstance(content, bytes) else content.read_bytes()
        if hashlib.sha256(data).hexdigest() != digest:
            raise StoreWriteError(f"the file {digest} has changed while it was stored; run the same command again")
        with self._describing(digest, StoreWriteError):
            self._write(digest, data)

    def remove(self, digest: str) -> None:
        """Remove a file if it exists; raises StoreWriteError."""
        with self._describing(digest, StoreWriteError), contextlib.suppress(FileNotFoundError):
            self._system.rm_file(self._at(digest))

    def sizes(self) -> dict[str, tuple[int, float]]:
        """Return the sizes in bytes of all files and when they were written, by hash; raises StoreError."""
        with self._describing("", StoreError):
            self._system.invalidate_cache()
            if not self._system.exists(self._path):
                return {}
            found = self._system.find(self._path, detail=True)
        names = ((path.rpartition("/")[2], info) for path, info in found.items())
        return {name: (int(info["size"]), _written_at(info)) for name, info in names if _is_digest(name)}

    def unfinished(self) -> list[tuple[Path, float]]:
        """Return the files of writes that have not ended, and when they began; object stores show none."""
        if not self._is_local:
            return []
        found = []
        for path in Path(self._path).glob("*/.*-*"):
            with contextlib.suppress(FileNotFoundError):
                found.append((path, path.stat().st_mtime))
        return found

    def now(self) -> float:
        """Return the time by the clock of the folder's file system; that of an object store cannot be asked."""
        if not self._is_local or not Path(self._path).is_dir():
            return time.time()
        with self._describing("", StoreError), tempfile.TemporaryFile(dir=self._path) as file:
            return os.fstat(file.fileno()).st_mtime

    def _exists(self, digest: str, size: int) -> bool:
        try:
            return bool(self._system.info(self._at(digest))["size"] == size)
        except FileNotFoundError:
            return False

    def _write(self, digest: str, data: bytes) -> None:
        target = self._at(digest)
        if not self._is_local:
            # An object appears with its whole content, or not at all.
            self._system.pipe_file(target, data)
            return
        path = Path(target)
        write_synced(path, data, staging=path.parent / f".{digest[:8]}-{secrets.token_hex(6)}")

    def _at(self, digest: str) -> str:
        return f"{self._path}/{digest[:2]}/{digest}"

    @contextlib.contextmanager
    def _describing(self, digest: str, kind: type[StoreError]) -> Iterator[None]:
        """Turn errors of the file system and of object stores, which have classes of their own, into a StoreError."""
        try:
            yield
        except FileNotFoundError:
            if kind is StoreWriteError:
                raise kind(
                    f"the blobs in {self.shown} cannot be written: the bucket or folder does not exist"
                ) from None
            raise kind(f"the file {digest} in {self.shown} is missing; {_ADVICE}") from None
        except StoreError:
            raise
        except Exception as error:
            cause = getattr(error, "strerror", None) or f"{type(error).__name__}: {error}"
            for secret in _secrets(self.url):
                cause = cause.replace(secret, "***")
            raise kind(f"the blobs in {self.shown} cannot be used: {cause}; what is finished is kept") from error


def absolute(url: str) -> str:
    """Return the address of blobs so that it means the same in every directory: a local folder's path is absolute."""
    if not url or _protocol(url) not in _LOCAL:
        return url
    return str(Path(fsspec.utils.infer_storage_options(url)["path"]).absolute())


def _protocol(url: str) -> str:
    return str(fsspec.utils.get_protocol(url))


def _shown(url: str) -> str:
    """Return an address for people, without keys: all before an @ and after a ?."""
    if _protocol(url) in _LOCAL:
        return url
    for secret in _secrets(url):
        url = url.replace(secret, "***")
    return url


def _secrets(url: str) -> list[str]:
    """Return what may be a key, whole and in the parts in which messages show it, the longest first."""
    address, _, query = url.partition("://")[2].partition("?")
    key = address.rpartition("@")[0]
    parts = re.split(r"[:/@&=]", f"{key}&{query}")
    found = {secret for secret in (query, key, *parts) if len(secret) >= _SHORTEST_SECRET}
    return sorted(found, key=len, reverse=True)


def _version(found: os.stat_result) -> tuple[int, int, int]:
    """Return what differs if a file was replaced or changed."""
    return found.st_ino, found.st_size, found.st_mtime_ns


def _is_digest(name: str) -> bool:
    return len(name) == 64 and set(name) <= set("0123456789abcdef")


def _written_at(info: dict[str, Any]) -> float:
    """Return when a file was written; a second name of an older file is as old as that name (`created`)."""
    return max(_seconds(info.get(name)) for name in ("mtime", "LastModified", "created"))


def _seconds(value: object) -> float:
    if isinstance(value, datetime):
        return value.timestamp()
    return float(value) if isinstance(value, int | float) else 0.0
