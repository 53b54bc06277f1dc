"""Keep artifacts, verdicts, baselines and results in the store `.ssr/`; safe for concurrent processes and kills.

Every write goes to a temporary name and is renamed when complete, so a reader sees all of it or nothing. Names are
content ids, or keys of everything a result depends on; two writers of the same name write the same content.

A store with a database (`ssr store migrate`, `ssr serve`) also writes its results there, and reads them from there; a
write has succeeded once the database has it.
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
from collections.abc import Iterator, Mapping, Set
from pathlib import Path
from typing import Any

from pytest_ssr.errors import ArtifactError, StoreError, StoreWriteError, os_error_advice
from pytest_ssr.options import STORE_MARK
from pytest_ssr.processes import is_running
from pytest_ssr.project.snapshot import STAGING
from pytest_ssr.records.artifact import BugArtifact, read_artifact, write_artifact
from pytest_ssr.records.decoding import json_object
from pytest_ssr.storage import locks
from pytest_ssr.storage.shared import DURABLE, SharedRecords, connect
from pytest_ssr.storage.shared_trees import SharedTrees
from pytest_ssr.storage.synced_files import sync_directory, write_synced

STORE_VERSION = 1
_VERSION_FILE = STORE_MARK
_MOVING = "moving"
"""Name of the lock of artifacts that are published or set aside."""
_OTHER_KIND = {"artifacts": "spare", "spare": "artifacts"}


class Store:
    """A directory of finished results."""

    def __init__(self, root: Path, shared: SharedRecords | None = None) -> None:
        """Open a store, creating it if it does not exist; raises StoreError if it cannot be used.

        shared: has its results; None for its database, if it has one."""
        self.root = root.absolute()
        version = self.root / _VERSION_FILE
        with self._reporting(f"open the store {self.root}"):
            # Checked twice: another run may be creating the store now, and writes the version first.
            if self.root.exists() and not version.exists() and self._foreign() and not version.exists():
                raise StoreError(f"{self.root} is not a store and not empty; choose another with --store")
            if not (self.root / ".gitignore").exists():
                self._write(self.root / ".gitignore", b"*\n")
            if not version.exists():
                self._write(version, json.dumps({"store_version": STORE_VERSION}).encode() + b"\n")
            for folder in ("artifacts", "verdicts", "baselines", "attempts", "trees", "tmp"):
                (self.root / folder).mkdir(parents=True, exist_ok=True)
        content = self._load(version)
        if content is None:
            raise StoreError(f'{version} is damaged; it should hold {{"store_version": {STORE_VERSION}}}')
        if content.get("store_version") != STORE_VERSION:
            raise StoreError(
                f"{self.root} was written by another release (store version {content.get('store_version')}, "
                f"this one reads {STORE_VERSION}); choose another with --store, or remove it"
            )
        self._sweep()
        self._held: set[str] = set()
        self._shared = shared or connect(self.root, content)
        self.shared_trees = SharedTrees(self.trees, self._shared)

    @property
    def trees(self) -> Path:
        """The directory of snapshots."""
        return self.root / "trees"

    def put_artifact(self, artifact_id: str, artifact: BugArtifact, *, spare: bool = False) -> Path:
        """Write an artifact under its id unless it exists; return its directory.

        spare: it is set aside until a run publishes it.
        """
        for kind in ("artifacts", "spare") if spare else ("artifacts",):
            if self._is_stored(kind, artifact_id):
                return self.root / kind / artifact_id
        # First the tree: an artifact that another machine sees has one.
        self.shared_trees.share(artifact.info.get("tree_hash"))
        with self._reporting(f"write artifact {artifact_id}"), self._staging() as staging:
            write_artifact(staging, artifact)
            sync_directory(staging)
            with self._alone_to_move():
                # Another process may have published it by now.
                is_spare = spare and not _is_complete(self.root / "artifacts" / artifact_id)
                kind = "spare" if is_spare else "artifacts"
                self._put_folder(staging, self.root / kind / artifact_id)
                self.keep(f"{kind}/{artifact_id}")
        if is_spare and self._shared is not None and self._shared.digests(f"artifacts/{artifact_id}"):
            # So has another machine.
            self._move("spare", "artifacts", artifact_id)
            kind = "artifacts"
        return self.root / kind / artifact_id

    def _put_folder(self, staging: Path, final: Path) -> None:
        if not _is_complete(final):
            shutil.rmtree(final, ignore_errors=True)
        final.parent.mkdir(exist_ok=True)
        try:
            staging.rename(final)
        except OSError as error:
            if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
                raise
        sync_directory(final.parent)

    def publish(self, artifact_id: str, *, provisional: bool = False) -> None:
        """Keep an artifact among the artifacts from now on; a spare one is moved there.

        provisional: `make_spare` can set it aside again.
        """
        if not provisional and self.record("wanted", artifact_id) is None:
            self.put_record("wanted", artifact_id, {})
        self._move("spare", "artifacts", artifact_id)
        if self._shared is not None:
            # A worker on another machine that wrote it has no tree to share.
            self.shared_trees.share(self.artifact(artifact_id).info.get("tree_hash"))

    def make_spare(self, artifact_id: str) -> None:
        """Set aside an artifact that exceeds the wanted number; a later run that wants more can use it.

        An artifact that any run has published is not moved.
        """
        if self.record("wanted", artifact_id) is None:
            self._move("artifacts", "spare", artifact_id)
            if self.record("wanted", artifact_id) is not None:
                # Another run has published it in the meantime.
                self._move("spare", "artifacts", artifact_id)

    def has_artifact(self, artifact_id: str) -> bool:
        """Return whether an artifact exists and is complete, including spare ones."""
        return any(self._is_stored(kind, artifact_id) for kind in ("artifacts", "spare"))

    def _is_stored(self, kind: str, artifact_id: str) -> bool:
        # A folder that the database does not have is from a run that was killed before it shared it.
        if self._shared is not None and not self._copy_shared(f"{kind}/{artifact_id}"):
            return False
        return _is_complete(self.root / kind / artifact_id)

    def _move(self, source: str, target: str, artifact_id: str) -> None:
        with self._alone_to_move():
            self._move_folder(source, target, artifact_id)
            if self._shared is not None:
                self._shared.move(f"{source}/{artifact_id}", f"{target}/{artifact_id}")

    @contextlib.contextmanager
    def _alone_to_move(self) -> Iterator[None]:
        with self._lock_file(_MOVING) as descriptor:
            locks.wait_for(descriptor, fcntl.LOCK_EX)
            yield

    def _move_folder(self, source: str, target: str, artifact_id: str) -> None:
        with self._reporting(f"move artifact {artifact_id}"), contextlib.suppress(FileNotFoundError):
            (self.root / target).mkdir(exist_ok=True)
            folder = self.root / source / artifact_id
            try:
                folder.rename(self.root / target / artifact_id)
            except OSError as error:
                if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
                    raise
                # Equal ids have equal content.
                shutil.rmtree(folder, ignore_errors=True)

    def artifact_ids(self) -> list[str]:
        """Return the ids of all artifacts, sorted."""
        if self._shared is not None:
            return sorted({path.split("/")[1] for path in self._shared.digests("artifacts")})
        with self._reporting(f"list {self.root}"):
            return sorted(p.name for p in (self.root / "artifacts").iterdir() if p.is_dir())

    def artifact(self, artifact_id: str) -> BugArtifact:
        """Read one artifact; raises ArtifactError if it does not exist or is damaged."""
        self.fetch(f"artifacts/{artifact_id}")
        return read_artifact(self.root / "artifacts" / artifact_id)

    def put_record(self, kind: str, name: str, data: Mapping[str, Any]) -> None:
        """Write one JSON record atomically; kind is a folder of the store."""
        self.put_file(kind, f"{name}.json", json.dumps(data, indent=1, sort_keys=True).encode() + b"\n")

    def put_file(self, kind: str, name: str, data: bytes) -> None:
        """Write one file atomically; kind is a folder of the store."""
        target = self.root / kind / name
        with self._reporting(f"write {target}"):
            target.parent.mkdir(parents=True, exist_ok=True)
            self._write(target, data)
        if self._shared is not None and _is_durable(kind):
            self._shared.put({f"{kind}/{name}": data})

    def record(self, kind: str, name: str) -> dict[str, Any] | None:
        """Read one JSON record; None if it does not exist or is not valid JSON."""
        if self._shared is not None and _is_durable(kind):
            return json_object(self._shared.get(f"{kind}/{name}.json") or b"")
        return self._load(self.root / kind / f"{name}.json")

    def file(self, kind: str, name: str) -> bytes | None:
        """Read one file; None if it does not exist."""
        if self._shared is not None and _is_durable(kind):
            return self._shared.get(f"{kind}/{name}")
        path = self.root / kind / name
        try:
            return path.read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise StoreError(f"cannot read {path}: {error.strerror}") from None

    def keep(self, folder: str) -> None:
        """Share the files that were written into a folder of the store, such as the journal of a rollout."""
        if self._shared is not None:
            local = self.root / folder
            self._shared.put_folder(local, {f"{folder}/{p.name}": p for p in sorted(local.iterdir()) if p.is_file()})

    def fetch(self, folder: str) -> list[Path]:
        """Return the files below a folder of the store; those that only other machines have are copied here first."""
        if self._shared is not None:
            self._copy_shared(folder)
        return sorted(p for p in (self.root / folder).rglob("*") if p.is_file())

    def _copy_shared(self, folder: str) -> bool:
        """Make a folder as the database has it; return whether that has anything."""
        assert self._shared is not None
        found = self._shared.digests(folder)
        for path, digest in found.items():
            self._copy(path, digest)
        self._move_as_elsewhere(folder, {path.split("/")[1] for path in found})
        return bool(found)

    def _move_as_elsewhere(self, folder: str, known: Set[str]) -> None:
        """Move the local copies of artifacts that another machine has published or set aside."""
        kind, _, artifact_id = folder.partition("/")
        if kind not in _OTHER_KIND or self._shared is None:
            return
        local = [artifact_id] if artifact_id else [p.name for p in (self.root / kind).glob("*")]
        if all(name in known or not (self.root / kind / name).is_dir() for name in local):
            return
        other = _OTHER_KIND[kind]
        with self._alone_to_move():
            here, there = ({path.split("/")[1] for path in self._shared.digests(k)} for k in (kind, other))
            for name in (there - here).intersection(local):
                self._move_folder(kind, other, name)

    def _copy(self, path: str, digest: str) -> None:
        assert self._shared is not None
        target = self.root / path
        if target.is_file():
            if hashlib.sha256(target.read_bytes()).hexdigest() == digest:
                return
            name = path.split("/")[1]
            if name not in self._held and locks.is_locked(self.root, name):
                # Another process is writing this result again; what it has written so far must not be replaced.
                return
        data = self._shared.get(path)
        if data is not None:
            with self._reporting(f"write {target}"):
                target.parent.mkdir(parents=True, exist_ok=True)
                self._write(target, data)

    def remove_record(self, kind: str, name: str) -> None:
        """Remove one JSON record if it exists."""
        path = self.root / kind / f"{name}.json"
        with self._reporting(f"remove {path}"):
            path.unlink(missing_ok=True)
        if self._shared is not None and _is_durable(kind):
            self._shared.remove(f"{kind}/{name}.json")

    @contextlib.contextmanager
    def alone(self, name: str, *, here: bool = False) -> Iterator[None]:
        """Hold the lock of a name, for one thread of one process at a time; others wait.

        here: only those of this machine wait, since what is made is not shared.
        """
        with self._lock_file(name) as descriptor:
            locks.wait_for(descriptor, fcntl.LOCK_EX)
            shared = None if here else self._shared
            with shared.alone(name) if shared is not None else contextlib.nullcontext():
                self._held.add(name)
                try:
                    yield
                finally:
                    self._held.discard(name)

    @contextlib.contextmanager
    def in_use(self, name: str) -> Iterator[None]:
        """Hold the lock of a name together with others that use it; see `unused`."""
        with self._lock_file(name) as descriptor:
            locks.wait_for(descriptor, fcntl.LOCK_SH)
            yield

    @contextlib.contextmanager
    def unused(self, name: str) -> Iterator[bool]:
        """Yield whether the lock of a name is free; if so, those that want to use it wait for the end of the block."""
        with self._lock_file(name) as descriptor:
            yield locks.try_alone(descriptor)

    @contextlib.contextmanager
    def _lock_file(self, name: str) -> Iterator[int]:
        path = self.root / locks.FOLDER / name
        with self._reporting(f"write {path}"):
            path.parent.mkdir(exist_ok=True)
            file = path.open("ab")
        with file:
            yield file.fileno()

    def _foreign(self) -> bool:
        return any(p.name not in (".gitignore", "tmp", "artifacts") for p in self.root.iterdir())

    def _load(self, path: Path) -> dict[str, Any] | None:
        try:
            return json_object(path.read_bytes())
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StoreError(f"cannot read {path}: {error.strerror}") from None

    def _write(self, target: Path, data: bytes) -> None:
        write_synced(target, data, staging=self.root / "tmp" / f"{os.getpid()}-{secrets.token_hex(6)}")

    @contextlib.contextmanager
    def _staging(self) -> Iterator[Path]:
        staging = self.root / "tmp" / f"{os.getpid()}-{secrets.token_hex(6)}"
        staging.mkdir(parents=True)
        try:
            yield staging
        finally:
            shutil.rmtree(staging, ignore_errors=True)

    def _sweep(self) -> None:
        """Remove the temporary files of killed processes."""
        for path in (*(self.root / "tmp").iterdir(), *self.trees.glob(f"{STAGING}*")):
            pid = path.name.removeprefix(STAGING).partition("-")[0]
            if pid.isdecimal() and not is_running(int(pid)):
                shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)

    @contextlib.contextmanager
    def _reporting(self, action: str) -> Iterator[None]:
        """Turn an OSError during an action into a StoreWriteError; finished results are not affected."""
        try:
            yield
        except OSError as error:
            note = "" if action.startswith("open") else " (what is finished is kept)"
            raise StoreWriteError(f"cannot {action}: {os_error_advice(error)}{note}") from None


@functools.cache
def code_hash() -> str:
    """Return a hash of this package's source: results of one version are not reused by another."""
    package = Path(__file__).parents[1]
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        digest.update(str(path.relative_to(package)).encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def key_of(*parts: object) -> str:
    """Return a hash of everything a result depends on, 24 hexadecimal characters."""
    return hashlib.sha256("\0".join(map(str, parts)).encode("utf-8", "surrogateescape")).hexdigest()[:24]


def _is_durable(kind: str) -> bool:
    return kind.partition("/")[0] in DURABLE


def _is_complete(directory: Path) -> bool:
    try:
        read_artifact(directory)
    except ArtifactError:
        return False
    return True


def resolve_artifact(name: str, store: Store | None) -> Path:
    """Return an artifact's directory from a path, or from an id or its unique prefix in a store.

    Raises ArtifactError if the name is neither, or the prefix is ambiguous.
    """
    path = Path(name)
    if name and path.is_dir():
        return path
    if store is not None:
        matches = [i for i in store.artifact_ids() if name and i.startswith(name)]
        if len(matches) == 1:
            store.fetch(f"artifacts/{matches[0]}")
            return store.root / "artifacts" / matches[0]
        if matches:
            raise ArtifactError(f"{name} is the beginning of {len(matches)} ids; give more characters")
    location = f"in the store {store.root}" if store is not None else "in a store: there is none here"
    raise ArtifactError(f"{name} is neither an artifact's directory nor the id of one {location}")
