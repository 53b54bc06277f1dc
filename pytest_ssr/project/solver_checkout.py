"""Write the checkout of a solver, a repository of one commit without the answer, and search for leaks of the answer.

Files come from the codebase state, not from a clone, so there is nothing to strip: no remote, reflog, pack, tag or
stash. Bytecode, built copies and editors' backup files are omitted, and all files have the same modification time.
"""

from __future__ import annotations

import gzip
import io
import os
import re
import subprocess
import tarfile
import zipfile
import zlib
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from types import CodeType

from pytest_ssr.errors import StoreError
from pytest_ssr.project.file_roles import is_old_copy, old_copies
from pytest_ssr.project.shared_files import EPOCH_S
from pytest_ssr.project.snapshot import set_times
from pytest_ssr.project.state import CodebaseState
from pytest_ssr.records.artifact import BugArtifact
from pytest_ssr.source.parsing import recorded_warnings

_OMITTED = ("*.pyc", "*.pyo", "*.orig", "*.rej", "*.whl", "*.diff", "*.patch", ".coverage", "*.swp", "*~", ".git")
"""A file `.git` leads git to another folder, whose settings may name programs that git starts here."""
_OMITTED_FOLDERS = ("__pycache__", "*.egg-info", "*.dist-info", ".eggs", ".ssr", ".git", ".pytest_cache", ".tox")
_GIT = ("git", "-c", "core.hooksPath=/dev/null", "-c", "core.logAllRefUpdates=false", "-c", "gc.auto=0")
_GIT_IDENTITY = {
    f"GIT_{role}_{field}": value
    for role in ("AUTHOR", "COMMITTER")
    for field, value in (("NAME", "ssr"), ("EMAIL", "ssr@localhost"), ("DATE", f"{EPOCH_S} +0000"))
}
_MIN_CHARACTERS = 12
_MAX_BYTES = 64 * 1024**2
_MAX_LEAKS = 100


@dataclass(frozen=True, slots=True)
class Leak:
    """One location where a line of the fix can be read."""

    path: str
    """The file; `archive!member` in an archive, `.git object` in a repository."""
    text: str
    """The line, or the name of the function if its bytecode was found."""
    is_of_library: bool = False
    """Whether the interpreter's standard library has it: hiding it would break the interpreter, or pytest."""


def omitted_paths(paths: Collection[str]) -> set[str]:
    """Return the files of a state that are not given to a solver."""
    return {p for p in paths if is_omitted(p)} | old_copies(paths)


def is_omitted(path: str) -> bool:
    """Return whether the path alone shows that a file is not given to a solver."""
    *folders, name = PurePosixPath(path).parts
    if any(fnmatchcase(f, p) for f in folders for p in _OMITTED_FOLDERS):
        return True
    return is_old_copy(path) or any(fnmatchcase(name, p) for p in _OMITTED)


def write_solver_tree(state: CodebaseState, folder: Path) -> None:
    """Write a state into a new folder, as a repository of one commit; raises StoreError if that fails."""
    snapshot = state.snapshot
    try:
        folder.mkdir(parents=True)
        paths = {*snapshot.files, *state.changes}
        for path in sorted(paths - omitted_paths(paths)):
            entry = state.entry(path)
            if entry is None:
                continue
            target = folder / path
            target.parent.mkdir(parents=True, exist_ok=True)
            if entry.mode == 0o120000:
                target.symlink_to(entry.data.decode())
            else:
                target.write_bytes(entry.data)
                target.chmod(entry.mode & 0o777)
            os.utime(target, (EPOCH_S, EPOCH_S), follow_symlinks=False)
        for arguments in (
            ["init", "-q", "-b", "main"],
            ["add", "-A", "-f"],
            ["commit", "-q", "--no-verify", "--allow-empty", "-m", "start"],
        ):
            _git(folder, *arguments)
        for part in ("hooks", "info", "description", "COMMIT_EDITMSG"):
            subprocess.run(["rm", "-rf", str(folder / ".git" / part)], check=True)
        set_times(folder)
    except (OSError, subprocess.CalledProcessError) as error:
        message = getattr(error, "stderr", b"") or str(error).encode()
        raise StoreError(f"the solver's tree {folder} cannot be written: {message.decode(errors='replace')}") from None


def _git(folder: Path, *arguments: str) -> bytes:
    environment = {
        "PATH": os.environ.get("PATH", ""),
        "HOME": "/nonexistent",
        "GIT_CONFIG_NOSYSTEM": "1",
        **_GIT_IDENTITY,
    }
    command = [*_GIT, "-C", str(folder), *arguments]
    return subprocess.run(command, env=environment, capture_output=True, check=True).stdout


def find_leaks(artifact: BugArtifact, original: CodebaseState, paths: Sequence[Path]) -> list[Leak]:
    """Search files and folders, including archives, repositories and bytecode in them, for lines of the fix.

    A line counts if the fix adds it, it is long enough to be distinctive, and the weakened state does not contain it
    anywhere. The bytecode of a changed function counts too. Unreadable files are not leaks: a solver cannot read
    them either.
    """
    weakened = original.apply(artifact.bug).apply(artifact.weaken)
    secrets = _Secrets(original, weakened, artifact)
    results: dict[Leak, None] = {}
    for top in paths:
        for path in _files(top):
            for name, data in _contents(path):
                for text in secrets.matches(data):
                    results[Leak(name, text)] = None
                    if len(results) >= _MAX_LEAKS:
                        return list(results)
    return list(results)


class _Secrets:
    """The lines and the bytecode of the fix."""

    def __init__(self, original: CodebaseState, weakened: CodebaseState, artifact: BugArtifact) -> None:
        given = {*original.snapshot.files, *weakened.changes}
        given -= omitted_paths(given)
        visible = b"\n".join(e.data for p in given if (e := weakened.entry(p)) is not None)
        lines: dict[bytes, None] = {}
        self._codes: dict[bytes, CodeType] = {}
        for path in artifact.bug.paths:
            old, new = original.entry(path), weakened.entry(path)
            before = set(_stripped(new.data)) if new is not None else set()
            for line in _stripped(old.data) if old is not None else ():
                if line not in before and len(line) >= _MIN_CHARACTERS and line not in visible:
                    lines[line] = None
            if old is not None and path.endswith(".py"):
                buggy = {code.co_code for code in _codes(new.data if new is not None else b"")}
                for code in _codes(old.data):
                    if code.co_code not in buggy and len(code.co_code) > 4 * _MIN_CHARACTERS:
                        self._codes[code.co_code] = code
        self._pattern = re.compile(b"|".join(map(re.escape, lines))) if lines else None

    def matches(self, data: bytes) -> Iterator[str]:
        """Yield the lines and functions of the fix that some bytes contain."""
        if self._pattern is not None:
            yield from dict.fromkeys(m.decode(errors="replace") for m in self._pattern.findall(data))
        for raw, code in self._codes.items():
            # Short functions with other names can have the same instructions.
            names = (code.co_name, *code.co_names, *code.co_varnames)
            if raw in data and all(name.encode() in data for name in names):
                yield f"the bytecode of {code.co_name}"


def _stripped(data: bytes) -> list[bytes]:
    return [line.strip() for line in data.splitlines()]


def _codes(data: bytes) -> Iterator[CodeType]:
    """Yield the code objects of a file, including nested ones."""
    with recorded_warnings():
        try:
            waiting = [compile(data, "", "exec", dont_inherit=True)]
        except (SyntaxError, ValueError, RecursionError):
            return
    while waiting:
        code = waiting.pop()
        inner = [c for c in code.co_consts if isinstance(c, CodeType)]
        waiting += inner
        if code.co_name != "<module>":
            yield code


def _files(top: Path) -> Iterator[Path]:
    if top.is_file():
        yield top
    for folder, folders, names in os.walk(top):
        folders.sort()
        for name in sorted(names):
            path = Path(folder, name)
            if path.is_file() and not path.is_symlink() and path.stat().st_size <= _MAX_BYTES:
                yield path


def _contents(path: Path) -> Iterator[tuple[str, bytes]]:
    """Yield (name, content) of a file, and of the members of an archive or a repository."""
    try:
        data = path.read_bytes()
    except OSError:
        return
    yield str(path), data
    try:
        if data.startswith(b"PK"):
            with zipfile.ZipFile(io.BytesIO(data)) as archive:
                for member in archive.infolist():
                    if member.file_size <= _MAX_BYTES:
                        yield f"{path}!{member.filename}", archive.read(member)
        elif path.name.endswith((".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz")):
            with tarfile.open(fileobj=io.BytesIO(data)) as tar:
                for item in tar:
                    stream = tar.extractfile(item) if item.isfile() and item.size <= _MAX_BYTES else None
                    if stream is not None:
                        yield f"{path}!{item.name}", stream.read()
        elif data.startswith(b"\x1f\x8b"):
            yield f"{path}!", gzip.decompress(data)
        elif re.fullmatch(r"[0-9a-f]{38}|[0-9a-f]{62}", path.name) and "objects" in path.parts:
            yield f"{path} (git object)", zlib.decompress(data)
        elif path.suffix == ".pack":
            yield from _packed(path)
    except (OSError, EOFError, ValueError, RuntimeError, zipfile.BadZipFile, tarfile.TarError, zlib.error):
        return


def _packed(path: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the objects of the repository that a pack belongs to."""
    repository = path.parents[2]
    command = [*_GIT, f"--git-dir={repository}", "cat-file", "--batch-all-objects", "--batch", "--buffer"]
    done = subprocess.run(command, capture_output=True, check=False)
    yield f"{repository} (packed objects)", done.stdout
