"""The store `.ssr/`: artifacts, verdicts, baselines and attempts on disk; safe for many processes and for a kill.

Every write goes to a temporary name and is renamed when it is whole, so a reader sees all of it or nothing. Names are
content ids or keys made from everything a result depends on; two writers of the same name write the same thing.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import functools
import hashlib
import json
import os
import secrets
import shutil
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pytest_ssr.artifact import BugArtifact, read_artifact, write_artifact
from pytest_ssr.errors import ArtifactError, StoreError, StoreWriteError, advice
from pytest_ssr.snapshot import STORE_MARK
from pytest_ssr.stopping import require_going_on

STORE_VERSION = 1
_VERSION_FILE = STORE_MARK
_LOOK_S = 0.1


class Store:
    """A directory of finished results."""

    def __init__(self, root: Path) -> None:
        """Open a store, making it where there is none; raises StoreError when it cannot be used."""
        self.root = root.absolute()
        version = self.root / _VERSION_FILE
        with self._reporting(f"open the store {self.root}"):
            # Asked twice: another run may be making it just now, and writes the version first.
            if self.root.exists() and not version.exists() and self._foreign() and not version.exists():
                raise StoreError(f"{self.root} is not a store and not empty; choose another with --store")
            if not (self.root / ".gitignore").exists():
                self._write(self.root / ".gitignore", b"*\n")
            if not version.exists():
                self._write(version, json.dumps({"store_version": STORE_VERSION}).encode() + b"\n")
            for folder in ("artifacts", "verdicts", "baselines", "attempts", "trees", "tmp"):
                (self.root / folder).mkdir(parents=True, exist_ok=True)
        found = self._load(version)
        if found is None:
            raise StoreError(f'{version} is damaged; it should hold {{"store_version": {STORE_VERSION}}}')
        if found.get("store_version") != STORE_VERSION:
            raise StoreError(
                f"{self.root} was written by another release (store version {found.get('store_version')}, "
                f"this one reads {STORE_VERSION}); choose another with --store, or remove it"
            )
        self._sweep()

    @property
    def trees(self) -> Path:
        """Where snapshots lie."""
        return self.root / "trees"

    def put_artifact(self, artifact_id: str, artifact: BugArtifact) -> Path:
        """Write an artifact under its id unless it is there; returns its directory."""
        final = self.root / "artifacts" / artifact_id
        if _whole(final):
            return final
        with self._reporting(f"write artifact {artifact_id}"), self._staging() as staging:
            write_artifact(staging, artifact)
            _sync_directory(staging)
            if not _whole(final):
                shutil.rmtree(final, ignore_errors=True)
            try:
                staging.rename(final)
            except OSError as error:
                if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
                    raise
            _sync_directory(final.parent)
        return final

    def publish(self, artifact_id: str) -> None:
        """Keep an artifact among the artifacts from now on, bringing it back there where it is spare."""
        if self.record("wanted", artifact_id) is None:
            self.put_record("wanted", artifact_id, {})
        self._move("spare", "artifacts", artifact_id)

    def make_spare(self, artifact_id: str) -> None:
        """Put an artifact aside that was made beyond the wanted number; a later run with a larger one uses it.

        One that any run has published stays.
        """
        if self.record("wanted", artifact_id) is None:
            self._move("artifacts", "spare", artifact_id)
            if self.record("wanted", artifact_id) is not None:
                # Another run has published it just now.
                self._move("spare", "artifacts", artifact_id)

    def has_artifact(self, artifact_id: str) -> bool:
        """Tell whether an artifact is there and whole, spare ones included."""
        return any(_whole(self.root / kind / artifact_id) for kind in ("artifacts", "spare"))

    def _move(self, source: str, target: str, artifact_id: str) -> None:
        with self._reporting(f"move artifact {artifact_id}"), contextlib.suppress(FileNotFoundError):
            (self.root / target).mkdir(exist_ok=True)
            try:
                (self.root / source / artifact_id).rename(self.root / target / artifact_id)
            except OSError as error:
                if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
                    raise

    def artifact_ids(self) -> list[str]:
        """Return the ids of all artifacts, sorted."""
        with self._reporting(f"list {self.root}"):
            return sorted(p.name for p in (self.root / "artifacts").iterdir() if p.is_dir())

    def artifact(self, artifact_id: str) -> BugArtifact:
        """Read one artifact; raises ArtifactError when there is none or it is damaged."""
        return read_artifact(self.root / "artifacts" / artifact_id)

    def put_record(self, kind: str, name: str, data: Mapping[str, Any]) -> None:
        """Write one JSON record atomically; kind is a folder of the store."""
        self.put_file(kind, f"{name}.json", json.dumps(data, indent=1, sort_keys=True).encode() + b"\n")

    def put_file(self, kind: str, name: str, data: bytes) -> None:
        """Write a file atomically, likewise."""
        target = self.root / kind / name
        with self._reporting(f"write {target}"):
            target.parent.mkdir(parents=True, exist_ok=True)
            self._write(target, data)

    def record(self, kind: str, name: str) -> dict[str, Any] | None:
        """Read one JSON record; None when it is absent or cannot be read as JSON."""
        return self._load(self.root / kind / f"{name}.json")

    def remove_record(self, kind: str, name: str) -> None:
        """Remove one JSON record, if it is there."""
        path = self.root / kind / f"{name}.json"
        with self._reporting(f"remove {path}"):
            path.unlink(missing_ok=True)

    @contextlib.contextmanager
    def alone(self, name: str) -> Iterator[None]:
        """Hold a name that one thread of one process holds at a time; who comes second waits."""
        path = self.root / "locks" / name
        with self._reporting(f"write {path}"):
            path.parent.mkdir(exist_ok=True)
            file = path.open("ab")
        with file:
            while not _locked(file.fileno()):
                time.sleep(_LOOK_S)
                require_going_on()
            yield

    def _foreign(self) -> bool:
        return any(p.name not in (".gitignore", "tmp", "artifacts") for p in self.root.iterdir())

    def _load(self, path: Path) -> dict[str, Any] | None:
        try:
            data = json.loads(path.read_bytes())
        except (FileNotFoundError, ValueError, RecursionError):
            return None
        except OSError as error:
            raise StoreError(f"cannot read {path}: {error.strerror}") from None
        return data if isinstance(data, dict) else None

    def _write(self, target: Path, data: bytes) -> None:
        staging = self.root / "tmp" / f"{os.getpid()}-{secrets.token_hex(6)}"
        staging.parent.mkdir(parents=True, exist_ok=True)
        try:
            with staging.open("xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            staging.replace(target)
        finally:
            staging.unlink(missing_ok=True)

    @contextlib.contextmanager
    def _staging(self) -> Iterator[Path]:
        staging = self.root / "tmp" / f"{os.getpid()}-{secrets.token_hex(6)}"
        staging.mkdir(parents=True)
        try:
            yield staging
        finally:
            shutil.rmtree(staging, ignore_errors=True)

    def _sweep(self) -> None:
        """Remove what killed processes left half-written."""
        for left in (self.root / "tmp").iterdir():
            pid = left.name.partition("-")[0]
            if pid.isdigit() and not Path(f"/proc/{pid}").exists():
                shutil.rmtree(left, ignore_errors=True) if left.is_dir() else left.unlink(missing_ok=True)

    @contextlib.contextmanager
    def _reporting(self, what: str) -> Iterator[None]:
        """Turn an error of the file system into one sentence; what is finished stays where it is."""
        try:
            yield
        except OSError as error:
            kept = "" if what.startswith("open") else " (what is finished is kept)"
            raise StoreWriteError(f"cannot {what}: {advice(error)}{kept}") from None


@functools.cache
def code_hash() -> str:
    """Return a hash of this package's own source: what one version found out is no result of another."""
    package = Path(__file__).parent
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        digest.update(str(path.relative_to(package)).encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def key_of(*parts: object) -> str:
    """Return a short name made of everything a result depends on."""
    return hashlib.sha256("\0".join(map(str, parts)).encode("utf-8", "surrogateescape")).hexdigest()[:24]


def _locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        # A file system without locks.
        return True
    return True


def _whole(directory: Path) -> bool:
    try:
        read_artifact(directory)
    except ArtifactError:
        return False
    return True


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def resolve_artifact(name: str, store: Store | None) -> Path:
    """Return an artifact's directory from a path or from an id (or its unique beginning) in a store."""
    path = Path(name)
    if name and path.is_dir():
        return path
    if store is not None:
        found = [i for i in store.artifact_ids() if name and i.startswith(name)]
        if len(found) == 1:
            return store.root / "artifacts" / found[0]
        if found:
            raise ArtifactError(f"{name} is the beginning of {len(found)} ids; give more of it")
    place = f"in the store {store.root}" if store is not None else "in a store: there is none here"
    raise ArtifactError(f"{name} is neither an artifact's directory nor the id of one {place}")
