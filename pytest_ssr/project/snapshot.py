"""Copy a project directory into an immutable, content-addressed snapshot.

The snapshot holds the project's tracked files and the untracked ones that git does not ignore, with the content of
the working tree; without git, every file except the output of tools. Ignored files that an import needs (generated
modules, compiled extensions, `.egg-info`) are included, see docs/decisions/execution.md.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import stat
import subprocess
import tempfile
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from pytest_ssr.errors import ProjectError, StoreError, StoreWriteError, os_error_advice
from pytest_ssr.interrupts import raise_if_stopped, uninterrupted
from pytest_ssr.options import STORE_MARK
from pytest_ssr.patch import FileEntry
from pytest_ssr.project.file_roles import is_injectable
from pytest_ssr.project.report_marks import ACCEPTED_FILE, is_report
from pytest_ssr.project.shared_files import EPOCH_S, SharedFiles

TOOL_FOLDERS = frozenset(
    (".git", ".hg", ".svn", ".ssr", "__pycache__", ".tox", ".nox", ".venv", "venv", "node_modules", ".eggs")
)
_TOOL_SUFFIXES = (".pyc", ".pyo")
_SUPPORT_SUFFIXES = (".py", ".so", ".pyd")
MANIFEST = "manifest.json"
STAGING = ".tmp-"
"""Begins the names of trees that are being written."""
MAX_SNAPSHOT_BYTES = 4 * 1024**3
_MODES = frozenset((0o100644, 0o100755, 0o120000))


@dataclass(frozen=True, slots=True)
class FileStamp:
    """One file of a snapshot."""

    mode: int
    """Git's file mode: 0o100644, 0o100755 or 0o120000."""
    sha256: str
    """Hash of the content, or of the target of a symlink."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """An immutable copy of a project's files."""

    directory: Path
    """Directory of the copy; never written to."""
    files: Mapping[str, FileStamp]
    """Relative path to stamp, sorted by path."""
    tree_hash: str
    """Hash of all paths, modes and contents."""
    origin: Path
    """The project that was copied."""
    allowed: frozenset[str] | None = None
    """The files that bugs may go into; None for all code files of the product."""

    def paths(self) -> Sequence[str]:
        """Return the paths of all files, sorted."""
        return tuple(self.files)

    def read(self, path: str) -> bytes:
        """Return one file's content; raises FileNotFoundError if the snapshot does not have it."""
        return self.entry(path).data

    def entry(self, path: str) -> FileEntry:
        """Return one file's content and mode; raises FileNotFoundError if the snapshot does not have it."""
        if path not in self.files:
            raise FileNotFoundError(path)
        mode = self.files[path].mode
        full = self.directory / path
        return FileEntry(os.readlink(full).encode() if mode == 0o120000 else full.read_bytes(), mode)

    def compiled(self, path: str) -> Sequence[str]:
        """Return the compiled files of a source file in the copy, as relative paths."""
        folder, stem = PurePosixPath(path).parent / "__pycache__", PurePosixPath(path).stem
        cache = self.directory / folder
        if not path.endswith(".py") or not os.path.isdir(cache):
            return ()
        return tuple(
            str(folder / n) for n in sorted(os.listdir(cache)) if n.startswith(f"{stem}.") and n.endswith(".pyc")
        )

    @property
    def project_name(self) -> str:
        """The name in `pyproject.toml`, else that of the directory."""
        return name_of(self.directory, default=self.origin.name)

    def code_paths(self) -> Sequence[str]:
        """Return the Python files that bugs may go into, sorted."""
        return tuple(
            p
            for p, s in self.files.items()
            if (self.allowed is None or p in self.allowed) and s.mode != 0o120000 and is_injectable(p)
        )


def name_of(project: Path, *, default: str = "") -> str:
    """Return a project's name in its `pyproject.toml`, else the default, which is by default that of the directory."""
    try:
        name = tomllib.loads((project / "pyproject.toml").read_bytes().decode())["project"]["name"]
    except (OSError, ValueError, KeyError, TypeError):
        name = None
    return name if isinstance(name, str) and name else default or project.resolve().name


def require_directory(project: Path) -> None:
    """Raise ProjectError unless the project is an existing directory."""
    if not project.exists():
        raise ProjectError(f"{project} does not exist; name the project's top directory")
    if not project.is_dir():
        raise ProjectError(f"{project} is not a directory; name the project's top directory")


def take_snapshot(project: Path, trees: Path, *, needs_python: bool = True, tree_hash: str = "") -> Snapshot:
    """Copy a project's files into `trees/<hash>` unless they are there already, and return the snapshot.

    needs_python: whether the project must hold a Python file. tree_hash: the hash of a copy that another process of
    the same run has taken; the project may have changed since. Raises ProjectError if it must hold a Python file and
    does not, or if the directory is missing; StoreError if the copy cannot be written.
    """
    project = project.resolve()
    if tree_hash:
        taken = read_manifest(trees / tree_hash)
        if taken is None:
            raise StoreError(f"{trees / tree_hash}, a copy of {project}, was removed or damaged during the run")
        return Snapshot(trees / tree_hash / "tree", taken, tree_hash, project)
    require_directory(project)
    try:
        written = _open_outputs()
        listed = (p for p in _listed(project) if not written or _identity(project / p) not in written)
        paths = sorted({path for path in listed if path != ACCEPTED_FILE and not is_report(project / path)})
    except RecursionError:
        raise ProjectError(f"{project} holds folders nested too deep to be copied") from None
    if needs_python and not any(p.endswith(".py") for p in paths):
        raise ProjectError(f"{project} holds no Python file; run this in the top directory of a Python project")
    try:
        files = _stamped(project, paths)
        final = trees / hash_of(files)
        if _intact(final, files):
            return Snapshot(final / "tree", files, final.name, project)
    except OSError as error:
        raise ProjectError(f"cannot read {error.filename or project}: {error.strerror or error}") from None
    return _copied(project, paths, trees)


def change_stamps(project: Path) -> dict[str, tuple[int, int]]:
    """Return time and size of each file that a snapshot would hold, so that a change is seen without reading it.

    The time is that of the last change of content, name or permissions, which programs cannot set.
    """
    stamps: dict[str, tuple[int, int]] = {}
    for path in _listed(project.resolve()):
        with contextlib.suppress(OSError):
            info = os.lstat(f"{project}/{path}")
            stamps[path] = (info.st_ctime_ns, info.st_size)
    return stamps


def _open_outputs() -> set[tuple[int, int]]:
    """Return the identities of the files that this process's own output goes to: they change while it runs."""
    outputs = set()
    for descriptor in (1, 2):
        with contextlib.suppress(OSError):
            info = os.fstat(descriptor)
            if stat.S_ISREG(info.st_mode):
                outputs.add((info.st_dev, info.st_ino))
    return outputs


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        info = os.lstat(path)
    except OSError:
        return None
    return info.st_dev, info.st_ino


def staging_folder(trees: Path) -> Path:
    """Create a folder for a tree that is being written; its name has the process, so that one left by a kill is found.

    Raises OSError."""
    return Path(tempfile.mkdtemp(prefix=f"{STAGING}{os.getpid()}-", dir=trees))


@uninterrupted()
def _copied(project: Path, paths: Sequence[str], trees: Path) -> Snapshot:
    try:
        trees.mkdir(parents=True, exist_ok=True)
        staging = staging_folder(trees)
    except OSError as error:
        raise StoreError(f"cannot write to {trees}: {error.strerror}; choose another place with --store") from None
    try:
        return _fill(project, paths, staging, trees)
    except OSError as error:
        raise StoreWriteError(
            f"cannot copy {project} to {trees}: {os_error_advice(error)} (nothing was lost)"
        ) from None
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _stamped(
    project: Path, paths: Sequence[str], copy: Path | None = None, shared: SharedFiles | None = None
) -> dict[str, FileStamp]:
    """Return the stamps of the files that exist, copying each file below `copy` by `shared` if these are given."""
    files: dict[str, FileStamp] = {}
    total = 0
    for path in paths:
        raise_if_stopped()
        entry = _read_entry(f"{project}/{path}")
        if entry is None:
            continue
        total += len(entry.data)
        if total > MAX_SNAPSHOT_BYTES:
            raise ProjectError(f"{project} holds more than 4 GiB of files; ignore the large ones in .gitignore")
        files[path] = FileStamp(entry.mode, hashlib.sha256(entry.data).hexdigest())
        if copy is not None and shared is not None:
            shared.place(path, entry, f"{copy}/{path}", f"{project}/{path}")
    return files


def _fill(project: Path, paths: Sequence[str], staging: Path, trees: Path) -> Snapshot:
    files = _stamped(project, paths, staging / "tree", SharedFiles(trees))
    tree_hash = hash_of(files)
    final = trees / tree_hash
    manifest = {p: [s.mode, s.sha256] for p, s in files.items()}
    (staging / MANIFEST).write_text(json.dumps(manifest, sort_keys=True), encoding="utf-8")
    set_folder_times(staging / "tree")
    if not _intact(final, files):
        shutil.rmtree(final, ignore_errors=True)
        try:
            staging.rename(final)
        except OSError:
            if not _intact(final, files):
                raise
    return Snapshot(final / "tree", files, tree_hash, project)


def _intact(directory: Path, files: Mapping[str, FileStamp]) -> bool:
    """Return whether a stored tree matches its hash; an incomplete or edited one is written again."""
    return (directory / MANIFEST).is_file() and matches(directory / "tree", files)


def read_manifest(directory: Path) -> dict[str, FileStamp] | None:
    """Return the files of a stored tree as its manifest lists them; None if that is missing or damaged."""
    path = directory / MANIFEST
    if not path.is_file():
        return None
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
        files = {name: FileStamp(mode, sha256) for name, (mode, sha256) in manifest.items()}
        is_valid = all(_is_valid(name, stamp) for name, stamp in files.items())
    except (ValueError, TypeError, AttributeError, RecursionError):
        return None
    return files if is_valid else None


def _is_valid(path: str, stamp: FileStamp) -> bool:
    """Return whether an entry of a manifest is that of a file inside of the tree; raises ValueError or TypeError."""
    os.fsencode(path)
    parts = PurePosixPath(path).parts
    is_inside = bool(parts) and parts[0] != "/" and ".." not in parts and "\0" not in path
    return is_inside and stamp.mode in _MODES and isinstance(stamp.sha256, str)


def is_complete(directory: Path) -> bool:
    """Return whether a stored tree has exactly the files of its hash, which is its name; raises OSError."""
    files = read_manifest(directory)
    return files is not None and hash_of(files) == directory.name and matches(directory / "tree", files)


def matches(tree: Path, files: Mapping[str, FileStamp]) -> bool:
    """Return whether a directory has files with these stamps and the time of all snapshots."""
    for path, stamp in files.items():
        full = f"{tree}/{path}"
        entry = _read_entry(full)
        if entry is None or entry.mode != stamp.mode:
            return False
        if entry.mode != 0o120000 and os.stat(full).st_mtime_ns != EPOCH_S * 10**9:
            return False
        if hashlib.sha256(entry.data).hexdigest() != stamp.sha256:
            return False
    return True


def set_times(top: Path) -> None:
    """Set the modification time of `top` and everything below it to `EPOCH_S`."""
    for folder, _, names in os.walk(top, topdown=False):
        raise_if_stopped()
        for name in names:
            os.utime(os.path.join(folder, name), (EPOCH_S, EPOCH_S), follow_symlinks=False)
        os.utime(folder, (EPOCH_S, EPOCH_S))


def set_folder_times(top: Path) -> None:
    """Set the modification time of a folder and the folders below it to `EPOCH_S`."""
    for folder, _, _ in os.walk(top, topdown=False):
        raise_if_stopped()
        os.utime(folder, (EPOCH_S, EPOCH_S))


def hash_of(files: Mapping[str, FileStamp]) -> str:
    """Return a hash of paths, modes and contents, 40 hexadecimal characters."""
    digest = hashlib.sha256()
    for path in sorted(files):
        digest.update(f"{files[path].mode:o} {files[path].sha256} {path}\0".encode("utf-8", "surrogateescape"))
    return digest.hexdigest()[:40]


def _read_entry(path: str | Path) -> FileEntry | None:
    try:
        info = os.lstat(path)
    except OSError:
        return None
    # It may vanish at any time: editors rename and remove their temporary files.
    with contextlib.suppress(FileNotFoundError):
        if stat.S_ISLNK(info.st_mode):
            return FileEntry(os.fsencode(os.readlink(path)), 0o120000)
        if not stat.S_ISREG(info.st_mode):
            return None
        if info.st_size > MAX_SNAPSHOT_BYTES:
            raise ProjectError(f"{path} is larger than 4 GiB; ignore it in .gitignore")
        with open(path, "rb") as file:
            return FileEntry(file.read(), 0o100755 if info.st_mode & stat.S_IXUSR else 0o100644)
    return None


def _listed(project: Path) -> Iterator[str]:
    listed = _git_listed(project)
    if listed is None:
        yield from _walked(project, every=True)
        return
    for path in listed:
        if (project / path).is_dir() and not (project / path).is_symlink():
            yield from (f"{path.rstrip('/')}/{p}" for p in _walked(project / path, every=True))
        elif not _is_tool_output(path):
            yield path
    packages = {str(PurePosixPath(p).parent) for p in listed if p.endswith(".py")}
    for path in _walked(project, every=False):
        parent = PurePosixPath(path).parent
        if any(part.endswith(".egg-info") for part in parent.parts) or (
            str(parent) in packages and path.endswith(_SUPPORT_SUFFIXES)
        ):
            yield path


def _is_tool_output(path: str) -> bool:
    return ".ssr" in PurePosixPath(path).parts or path.endswith(_TOOL_SUFFIXES)


def _git_listed(project: Path) -> list[str] | None:
    """Return what git tracks or would track below a directory; None if it is not in a repository."""
    command = [
        "git",
        "-c",
        "safe.directory=*",
        # The repository's settings can name a program, which would run outside of every sandbox.
        "-c",
        "core.fsmonitor=false",
        "ls-files",
        "-z",
        "--cached",
        "--others",
        "--exclude-standard",
    ]
    env = {"PATH": os.environ.get("PATH", os.defpath), "GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"}
    try:
        done = subprocess.run(command, cwd=project, env=env, capture_output=True, check=False, timeout=120)
    except (OSError, subprocess.TimeoutExpired):
        return None
    if done.returncode != 0:
        return None
    names = [os.fsdecode(n) for n in done.stdout.split(b"\0") if n]
    return names or None


def _walked(top: Path, *, every: bool) -> Iterator[str]:
    for folder, folders, names in os.walk(top):
        folders[:] = sorted(
            f
            for f in folders
            if f not in TOOL_FOLDERS
            and not (f.startswith(".") and f.endswith("_cache"))
            and not os.path.exists(os.path.join(folder, f, "pyvenv.cfg"))
            and not os.path.exists(os.path.join(folder, f, STORE_MARK))
        )
        relative = Path(folder).relative_to(top).as_posix()
        prefix = "" if relative == "." else f"{relative}/"
        links = [f for f in folders if (Path(folder) / f).is_symlink()] if every else []
        for name in sorted([*names, *links]):
            if not name.endswith(_TOOL_SUFFIXES):
                yield prefix + name
