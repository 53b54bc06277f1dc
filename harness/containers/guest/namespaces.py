"""Create a user namespace, and do there what only its root may do: unpack a layer, remove files, start a container.

`python namespaces.py` reads JSON from its arguments, prints `ready` once the namespace exists, and goes on when it
reads a line: by then, its caller has mapped the users. Everything is imported first, as the file system changes.
"""

from __future__ import annotations

import contextlib
import ctypes
import encodings.idna  # noqa: F401 # names in archives; not found later
import gzip  # noqa: F401
import json
import lzma  # noqa: F401
import os
import shutil
import stat
import sys
import tarfile
import zlib  # noqa: F401
from typing import Any

_NEW_MOUNTS, _NEW_USERS = 0x00020000, 0x10000000
_READ_ONLY, _REMOUNT, _BIND, _RELATIVE_TIMES = 0x1, 0x20, 0x1000, 0x200000
_DIE_WITH_PARENT, _KILL = 1, 9
_DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
_WHITEOUT, _OPAQUE = ".wh.", ".wh..wh..opq"
_libc = ctypes.CDLL(None, use_errno=True)


def _checked(result: int) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def enter(told: dict[str, Any]) -> None:
    """Become root of new namespaces."""
    os.chdir(told["folder"])
    _checked(_libc.unshare(_NEW_USERS | _NEW_MOUNTS))
    print("ready", flush=True)
    sys.stdin.readline()
    os.setgroups([])
    os.setresgid(0, 0, 0)
    os.setresuid(0, 0, 0)
    # A change of users clears it.
    _checked(_libc.prctl(_DIE_WITH_PARENT, _KILL, 0, 0, 0))


def unpack(told: dict[str, Any]) -> None:
    """Unpack a layer of an image as a directory of an overlay; links in it lead nowhere else."""
    with open(told["archive"], "rb") as raw:
        os.chroot(".")
        os.chdir("/")
        os.umask(0)
        is_compressed = raw.read(2) == b"\x1f\x8b"
        raw.seek(0)
        with tarfile.open(fileobj=raw, mode="r|gz" if is_compressed else "r|") as archive:
            for member in archive:
                _unpack(archive, member)


def _unpack(archive: tarfile.TarFile, member: tarfile.TarInfo) -> None:
    path = os.path.normpath("/" + member.name)
    folder, name = os.path.split(path)
    os.makedirs(folder, 0o755, exist_ok=True)
    if name == _OPAQUE:
        os.setxattr(folder, "user.overlay.opaque", b"y")
        return
    if name.startswith(_WHITEOUT):
        os.mknod(os.path.join(folder, name[len(_WHITEOUT) :]), stat.S_IFCHR, 0)
        return
    if member.ischr() or member.isblk():
        return
    if os.path.lexists(path) and not (member.isdir() and os.path.isdir(path)):
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path)
        else:
            os.unlink(path)
    member.name = path.lstrip("/") or "."
    if member.islnk():
        member.linkname = os.path.normpath("/" + member.linkname).lstrip("/")
    archive.extract(member, "/", numeric_owner=True, filter="fully_trusted")


def remove(told: dict[str, Any]) -> None:
    """Remove the content of the folder."""
    for entry in list(os.scandir(".")):
        if entry.is_dir(follow_symlinks=False):
            with contextlib.suppress(OSError):
                # The kernel makes this directory of every overlay unreadable.
                os.chmod(os.path.join(entry.path, "work"), 0o700)
            shutil.rmtree(entry.path, ignore_errors=True)
        else:
            os.unlink(entry.path)


def start(told: dict[str, Any]) -> None:
    """Mount the layers and execute the command that starts the container."""
    for file in told["groups"]:
        with open(file, "w") as group:
            group.write("0")
    if told["cpus"]:
        os.sched_setaffinity(0, told["cpus"])
    for name in _DEVICES:
        _protect(f"/dev/{name}".encode())
    options = f"lowerdir={':'.join(told['layers'])},upperdir=upper,workdir=work,userxattr"
    _checked(_libc.mount(b"overlay", b"view", b"overlay", 0, options.encode()))
    os.execvp(told["command"][0], told["command"])


def _protect(device: bytes) -> None:
    """Mount a device of the host read-only: it can be used as before, but the container's root cannot change its mode.

    bubblewrap shows these devices, and its own read-only mounts would not be usable as devices.
    """
    _checked(_libc.mount(device, device, None, _BIND, None))
    found = os.statvfs(device).f_flag
    # Flags that a namespace above has set have to stay; all but this one have the same value here and there.
    flags = found & (os.ST_NOSUID | os.ST_NODEV | os.ST_NOEXEC | os.ST_NOATIME | os.ST_NODIRATIME)
    flags |= _RELATIVE_TIMES if found & os.ST_RELATIME else 0
    _checked(_libc.mount(None, device, None, _BIND | _REMOUNT | _READ_ONLY | flags, None))


if __name__ == "__main__":
    _told = json.loads(sys.argv[1])
    enter(_told)
    {"unpack": unpack, "remove": remove, "start": start}[_told["do"]](_told)
