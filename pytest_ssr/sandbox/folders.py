"""Folders of sandboxes on the host: made with an owner's lock, copied, removed whatever the code inside did to them.

A folder belongs to the process that holds the lock on its `owner` file; a lock cannot be mistaken for another
process's as a recycled pid can, and it is right across containers that share a temporary directory.
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
from pytest_ssr.sandbox import cgroup
from pytest_ssr.sandbox.sampling import kill_marked

PREFIX = "ssr-"
OPAQUE = "user.overlay.opaque"
_OWNER = "owner"
_USUAL = (Path("/tmp"), Path("/var/tmp"))
_MEMORY = Path("/dev/shm")
_ROOM = 4 * 1024**3
_LEAST_ROOM = 64 * 1024**2
_FICLONE = 0x40049409
_locks: dict[Path, int] = {}


def places() -> list[Path]:
    """Return where sandboxes' folders are made, the place for new ones first.

    A file system in memory makes and removes them many times as fast as a disk. It is taken where nobody asked for
    another place (`TMPDIR`), programs can run from it, and memory is plenty.
    """
    usual = Path(tempfile.gettempdir())
    if usual not in _USUAL or any(name in os.environ for name in ("TMPDIR", "TEMP", "TMP")):
        return [usual]
    try:
        found = os.statvfs(_MEMORY)
        mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
        kind = next((words[2] for words in reversed(mounts) if words[1] == str(_MEMORY)), "")
        memory = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
        available = int(memory["MemAvailable"].split()[0])
    except (OSError, KeyError, ValueError):
        return [usual]
    roomy = found.f_bavail * found.f_frsize >= _ROOM and available * 1024 >= 2 * _ROOM
    usable = kind == "tmpfs" and not found.f_flag & os.ST_NOEXEC and os.access(_MEMORY, os.W_OK | os.X_OK)
    return [_MEMORY, usual] if roomy and usable else [usual, _MEMORY]


def require_room() -> None:
    """Raise SandboxError when this machine has too little room for a run: what fails then is not the tests' fault."""
    place = places()[0]
    with contextlib.suppress(OSError):
        found = os.statvfs(place)
        free = found.f_bavail * found.f_frsize
        if free < _LEAST_ROOM:
            raise SandboxError(f"only {free >> 20} MiB are free at {place}; free some space, or set TMPDIR")


def new_folder() -> Path:
    """Make a folder for one sandbox, locked by this process until `discard`; raises SandboxError without room."""
    require_room()
    made = Path(tempfile.mkdtemp(prefix=f"new-{PREFIX}", dir=places()[0])).resolve()
    lock = os.open(made / _OWNER, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    os.write(lock, str(os.getpid()).encode())
    # Only now may `reap` see it: before, it would find a folder that nobody owns.
    folder = made.rename(made.with_name(made.name.removeprefix("new-")))
    _locks[folder] = lock
    return folder


def discard(folder: Path) -> None:
    """Remove a folder whatever permissions and depth the code inside gave it; missing is no error."""
    with contextlib.suppress(OSError):
        # The kernel makes this one unreadable in every overlay's work directory.
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
    """Remove the folders of sandboxes whose process was killed, and what still runs in them; returns how many."""
    count = 0
    cgroup.reap()
    for folder in (f for place in places() for f in place.glob(f"{PREFIX}*")):
        with contextlib.suppress(OSError):
            found = folder.lstat()
            if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
                continue
            lock = os.open(folder / _OWNER, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                # A lock that this very process holds is refused too: it was taken through another opening.
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                # Where they did not die with the owner, commands know the folder by their HOME, launchers by name.
                kill_marked(os.fsencode(folder))
                discard(folder)
                count += 1
            finally:
                os.close(lock)
    return count


def copy_tree(source: Path, target: Path) -> None:
    """Copy a tree with its links, modes, times and whiteouts into an existing or new directory.

    Fifos, sockets and devices are left out, file contents are shared where the file system can. Directories that
    the owner made unreadable are copied all the same.
    """
    target.mkdir(exist_ok=True)
    # Directories get their modes last: a read-only one could not be filled.
    modes: list[tuple[Path, Path, int]] = []
    waiting = [(source, target)]
    while waiting:
        here, there = waiting.pop()
        mode = stat.S_IMODE(here.lstat().st_mode)
        modes.append((here, there, mode))
        if mode & 0o700 != 0o700:
            _open_up(here, mode | 0o700)
        with os.scandir(here) as entries:
            for entry in entries:
                copy = there / entry.name
                if entry.is_dir(follow_symlinks=False):
                    copy.mkdir(exist_ok=True)
                    waiting.append((Path(entry.path), copy))
                else:
                    _copy_entry(Path(entry.path), copy)
    for here, there, mode in reversed(modes):
        with contextlib.suppress(OSError):
            os.setxattr(there, OPAQUE, os.getxattr(here, OPAQUE))
        shutil.copystat(here, there)
        there.chmod(mode)
        if mode & 0o700 != 0o700:
            _open_up(here, mode)


def _open_up(path: Path, mode: int) -> None:
    """Change a mode where that is allowed; another owner's file is left as it is."""
    with contextlib.suppress(PermissionError):
        path.chmod(mode)


def _copy_entry(source: Path, target: Path) -> None:
    found = source.lstat()
    if stat.S_ISLNK(found.st_mode):
        target.symlink_to(source.readlink())
        os.utime(target, ns=(found.st_atime_ns, found.st_mtime_ns), follow_symlinks=False)
    elif stat.S_ISREG(found.st_mode):
        locked = not found.st_mode & stat.S_IRUSR
        if locked:
            _open_up(source, found.st_mode | 0o400)
        _copy_content(source, target)
        if locked:
            _open_up(source, stat.S_IMODE(found.st_mode))
        target.chmod(stat.S_IMODE(found.st_mode))
        os.utime(target, ns=(found.st_atime_ns, found.st_mtime_ns))
    elif stat.S_ISCHR(found.st_mode) and found.st_rdev == 0:
        os.mknod(target, stat.S_IFCHR, 0)


def _copy_content(source: Path, target: Path) -> None:
    with source.open("rb") as reading, target.open("wb") as writing:
        try:
            fcntl.ioctl(writing.fileno(), _FICLONE, reading.fileno())
        except OSError:
            shutil.copyfileobj(reading, writing, 1 << 20)


def disk_bytes(*folders: Path) -> int:
    """Return the bytes that the files below these folders take, without following links.

    Directories nested too deep to be walked count as more than any limit: nothing honest makes them.
    """
    total = 0
    waiting = [str(folder) for folder in folders]
    while waiting:
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    with contextlib.suppress(FileNotFoundError):
                        total += entry.stat(follow_symlinks=False).st_blocks * 512
                        if entry.is_dir(follow_symlinks=False):
                            waiting.append(entry.path)
        except OSError as error:
            if error.errno == errno.ENAMETOOLONG:
                return 1 << 62
    return total


def prepare_scratch(scratch: Path) -> None:
    """Make HOME and TMPDIR in a scratch folder, again if the code inside took them away."""
    scratch.mkdir(exist_ok=True)
    for name in ("home", "tmp"):
        with contextlib.suppress(OSError):
            (scratch / name).mkdir()


def environment(scratch: str) -> dict[str, str]:
    """Return the variables that every command gets; nothing of the caller's environment is among them."""
    return {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "HOME": f"{scratch}/home",
        "TMPDIR": f"{scratch}/tmp",
        "LANG": "C.UTF-8",
        "TZ": "UTC",
    }
