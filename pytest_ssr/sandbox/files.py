"""Reading and writing files that untrusted code may have arranged: no link is followed, no device is opened."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import stat
import tempfile
from pathlib import Path

from pytest_ssr.errors import SandboxError

PREFIX = "ssr-"
_OWNER = "owner"


def inside(path: str, *places: tuple[str, Path]) -> tuple[Path, str]:
    """Return the host folder and the relative path for a path as it is seen inside; the first place is the root.

    places: pairs of the folder as seen inside and on the host. Raises SandboxError for a path that leaves them.
    """
    full = path if path.startswith("/") else f"{places[0][0]}/{path}"
    for seen, host in places:
        if full.startswith(f"{seen}/"):
            relative = full[len(seen) + 1 :]
            if not {"", ".", ".."} & set(relative.split("/")):
                return host, relative
    raise SandboxError(f"{path!r} is not a plain path inside the sandbox")


def read_file(top: Path, relative: str, max_bytes: int) -> bytes | None:
    """Return a regular file's content below `top`, or None when there is none; raises SandboxError when too large."""
    *parents, name = relative.split("/")
    folder = _descend(top, parents, make=False)
    if folder is None:
        return None
    try:
        descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    except OSError:
        return None
    finally:
        os.close(folder)
    with open(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return None
        data = file.read(max_bytes + 1)
    if len(data) > max_bytes:
        raise SandboxError(f"{relative} is larger than {max_bytes} bytes")
    return data


def write_file(top: Path, relative: str, data: bytes, *, executable: bool) -> None:
    """Write a regular file below `top`, replacing a file or link of that name; raises SandboxError when it cannot."""
    *parents, name = relative.split("/")
    folder = _descend(top, parents, make=True)
    if folder is None:
        raise SandboxError(f"{relative}: a parent is a link or a file")
    staged = f".{secrets.token_hex(8)}"
    try:
        mode = 0o755 if executable else 0o644
        descriptor = os.open(staged, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode, dir_fd=folder)
        with open(descriptor, "wb") as file:
            file.write(data)
            os.fchmod(descriptor, mode)
        os.rename(staged, name, src_dir_fd=folder, dst_dir_fd=folder)
    except OSError as error:
        with contextlib.suppress(OSError):
            os.unlink(staged, dir_fd=folder)
        raise SandboxError(f"{relative} cannot be written in the sandbox: {error.strerror}") from None
    finally:
        os.close(folder)


def remove_file(top: Path, relative: str) -> None:
    """Remove a file or link below `top`, if it is there."""
    *parents, name = relative.split("/")
    folder = _descend(top, parents, make=False)
    if folder is not None:
        with contextlib.suppress(FileNotFoundError, IsADirectoryError, PermissionError):
            os.unlink(name, dir_fd=folder)
        os.close(folder)


def status(top: Path, relative: str) -> os.stat_result | None:
    """Return the status of what lies at a path below `top`, no link followed; None for nothing."""
    *parents, name = relative.split("/")
    folder = _descend(top, parents, make=False)
    if folder is None:
        return None
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False)
    except OSError:
        return None
    finally:
        os.close(folder)


def _descend(top: Path, parents: list[str], *, make: bool) -> int | None:
    """Return a descriptor of the folder below `top`, or None where a part is missing, a link or no folder."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    current = os.open(top, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    for part in parents:
        try:
            if make:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(part, 0o755, dir_fd=current)
            following = os.open(part, flags, dir_fd=current)
        except OSError:
            return None
        finally:
            os.close(current)
        current = following
    return current


def new_folder() -> Path:
    """Make a folder for one sandbox, marked with the process that owns it."""
    folder = Path(tempfile.mkdtemp(prefix=PREFIX))
    (folder / _OWNER).write_text(str(os.getpid()))
    return folder


def discard(folder: Path) -> None:
    """Remove a folder whatever permissions the code inside gave its files."""
    shutil.rmtree(folder, ignore_errors=True)
    if folder.exists():
        for top, names, _ in os.walk(folder):
            for name in names:
                with contextlib.suppress(OSError):
                    os.chmod(Path(top) / name, 0o700, follow_symlinks=False) if not os.path.islink(
                        Path(top) / name
                    ) else None
        shutil.rmtree(folder, ignore_errors=True)


def reap() -> int:
    """Remove the folders of sandboxes whose process was killed; returns how many."""
    count = 0
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError, ValueError):
            owner = int((folder / _OWNER).read_text())
            if not Path(f"/proc/{owner}").exists():
                discard(folder)
                count += 1
    return count
