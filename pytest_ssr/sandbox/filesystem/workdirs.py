"""Create, copy and remove the folders of sandboxes on the host, whatever the code inside did to them.

A folder belongs to the process that holds the lock on its `owner` file; unlike a pid, a lock cannot be recycled, and
it also works across containers that share a temporary directory.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
import stat
import subprocess
import tempfile
from pathlib import Path

from pytest_ssr.errors import SandboxError
from pytest_ssr.sandbox.supervision import cgroup
from pytest_ssr.sandbox.supervision.proc_usage import kill_marked

PREFIX = "ssr-"
OPAQUE = "user.overlay.opaque"
_OWNER = "owner"
_DEFAULTS = (Path("/tmp"), Path("/var/tmp"))
_MEMORY = Path("/dev/shm")
_MIN_MEMORY_BYTES = 4 * 1024**3
_MIN_FREE_BYTES = 64 * 1024**2
_FICLONE = 0x40049409
_locks: dict[Path, int] = {}


def base_directories() -> list[Path]:
    """Return the directories that may contain sandboxes' folders, the one for new folders first.

    A file system in memory creates and removes them many times as fast as a disk. It is used unless another directory
    is configured (`TMPDIR`), if it allows execution and has enough free memory.
    """
    temporary = Path(tempfile.gettempdir())
    if temporary not in _DEFAULTS or any(name in os.environ for name in ("TMPDIR", "TEMP", "TMP")):
        return [temporary]
    try:
        memory_fs = os.statvfs(_MEMORY)
        mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
        kind = next((fields[2] for fields in reversed(mounts) if fields[1] == str(_MEMORY)), "")
        memory = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
        available = int(memory["MemAvailable"].split()[0])
    except (OSError, KeyError, ValueError):
        return [temporary]
    free = memory_fs.f_bavail * memory_fs.f_frsize
    has_space = free >= _MIN_MEMORY_BYTES and available * 1024 >= 2 * _MIN_MEMORY_BYTES
    usable = kind == "tmpfs" and not memory_fs.f_flag & os.ST_NOEXEC and os.access(_MEMORY, os.W_OK | os.X_OK)
    return [_MEMORY, temporary] if has_space and usable else [temporary, _MEMORY]


def require_disk_space() -> None:
    """Raise SandboxError if there is too little disk space for a run, whose failures would not be the tests' fault."""
    directory = base_directories()[0]
    with contextlib.suppress(OSError):
        file_system = os.statvfs(directory)
        free = file_system.f_bavail * file_system.f_frsize
        if free < _MIN_FREE_BYTES:
            raise SandboxError(f"only {free >> 20} MiB are free at {directory}; free some space, or set TMPDIR")


def new_folder(base: Path | None = None) -> Path:
    """Create a folder for one sandbox, locked by this process until `discard`; raises SandboxError without space.

    base: a directory among `base_directories`; None for the first one.
    """
    require_disk_space()
    unlocked = Path(tempfile.mkdtemp(prefix=f"new-{PREFIX}", dir=base or base_directories()[0])).resolve()
    lock = os.open(unlocked / _OWNER, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    os.write(lock, str(os.getpid()).encode())
    # `reap` ignores the first name: without a lock it would take the folder for an abandoned one.
    folder = unlocked.rename(unlocked.with_name(unlocked.name.removeprefix("new-")))
    _locks[folder] = lock
    return folder


def discard(folder: Path) -> None:
    """Remove a folder, if it exists, whatever permissions and depth the code inside gave it."""
    with contextlib.suppress(OSError):
        # The kernel makes this directory of every overlay unreadable.
        (folder / "work" / "work").chmod(0o700)
    with contextlib.suppress(RecursionError):
        shutil.rmtree(folder, ignore_errors=True)
    if folder.is_dir() and not folder.is_symlink():
        # rmtree gives up on unreadable and on very deep directories; these two do not.
        for command in (["chmod", "-R", "u+rwX"], ["rm", "-rf"]):
            subprocess.run([*command, "--", str(folder)], capture_output=True, check=False)
    lock = _locks.pop(folder, None)
    if lock is not None:
        os.close(lock)


def reap() -> int:
    """Remove the folders of sandboxes whose process was killed, kill what runs in them, and return their number."""
    count = 0
    cgroup.reap()
    for folder in (f for directory in base_directories() for f in directory.glob(f"{PREFIX}*")):
        with contextlib.suppress(OSError):
            status = folder.lstat()
            if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
                continue
            lock = os.open(folder / _OWNER, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                # A lock held by this process is refused too, as it was taken through another descriptor.
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                # Commands that outlived the owner have the folder in their HOME, launchers in their arguments.
                kill_marked(os.fsencode(folder))
                discard(folder)
                count += 1
            finally:
                os.close(lock)
    return count


def copy_tree(source: Path, target: Path) -> None:
    """Copy a tree with its links, modes, times and whiteouts into an existing or new directory.

    Fifos, sockets and devices are skipped; file contents are shared if the file system can do so. Directories that
    the owner made unreadable are copied too.
    """
    target.mkdir(exist_ok=True)
    # Directories get their modes last, as a read-only one could not be filled.
    modes: list[tuple[Path, Path, int]] = []
    pending = [(source, target)]
    while pending:
        original, copied = pending.pop()
        mode = stat.S_IMODE(original.lstat().st_mode)
        modes.append((original, copied, mode))
        if mode & 0o700 != 0o700:
            _open_up(original, mode | 0o700)
        with os.scandir(original) as entries:
            for entry in entries:
                copy = copied / entry.name
                if entry.is_dir(follow_symlinks=False):
                    copy.mkdir(exist_ok=True)
                    pending.append((Path(entry.path), copy))
                else:
                    _copy_entry(Path(entry.path), copy)
    for original, copied, mode in reversed(modes):
        # Only overlays, which Linux alone has, mark a directory in this way.
        with contextlib.suppress(OSError, AttributeError):
            os.setxattr(copied, OPAQUE, os.getxattr(original, OPAQUE))
        shutil.copystat(original, copied)
        copied.chmod(mode)
        if mode & 0o700 != 0o700:
            _open_up(original, mode)


def _open_up(path: Path, mode: int) -> None:
    """Change a mode if that is allowed; the mode of another user's file is left unchanged."""
    with contextlib.suppress(PermissionError):
        path.chmod(mode)


def _copy_entry(source: Path, target: Path) -> None:
    status = source.lstat()
    if stat.S_ISLNK(status.st_mode):
        target.symlink_to(source.readlink())
        os.utime(target, ns=(status.st_atime_ns, status.st_mtime_ns), follow_symlinks=False)
    elif stat.S_ISREG(status.st_mode):
        locked = not status.st_mode & stat.S_IRUSR
        if locked:
            _open_up(source, status.st_mode | 0o400)
        _copy_content(source, target)
        if locked:
            _open_up(source, stat.S_IMODE(status.st_mode))
        target.chmod(stat.S_IMODE(status.st_mode))
        os.utime(target, ns=(status.st_atime_ns, status.st_mtime_ns))
    elif stat.S_ISCHR(status.st_mode) and status.st_rdev == 0:
        os.mknod(target, stat.S_IFCHR, 0)


def _copy_content(source: Path, target: Path) -> None:
    with source.open("rb") as reading, target.open("wb") as writing:
        try:
            fcntl.ioctl(writing.fileno(), _FICLONE, reading.fileno())
        except OSError:
            shutil.copyfileobj(reading, writing, 1 << 20)


def disk_bytes(*folders: Path) -> int:
    """Return the disk usage of these folders in bytes, without following links.

    Directories nested too deep to be walked count as more than any limit: no honest code creates them.
    """
    total = 0
    pending = [str(folder) for folder in folders]
    while pending:
        try:
            with os.scandir(pending.pop()) as entries:
                for entry in entries:
                    with contextlib.suppress(FileNotFoundError):
                        total += entry.stat(follow_symlinks=False).st_blocks * 512
                        if entry.is_dir(follow_symlinks=False):
                            pending.append(entry.path)
        except OSError as error:
            if error.errno == errno.ENAMETOOLONG:
                return 1 << 62
    return total


def prepare_scratch(scratch: Path) -> None:
    """Create HOME and TMPDIR in a scratch folder if they are missing; the code inside may have removed them."""
    scratch.mkdir(exist_ok=True)
    for name in ("home", "tmp"):
        with contextlib.suppress(OSError):
            (scratch / name).mkdir()


def environment(scratch: str) -> dict[str, str]:
    """Return the environment of every command, which contains nothing of the caller's environment."""
    return {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "HOME": f"{scratch}/home",
        "TMPDIR": f"{scratch}/tmp",
        "LANG": "C.UTF-8",
        "TZ": "UTC",
    }
