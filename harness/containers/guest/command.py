"""Enter a running container: execute a command there, unpack an archive, or pack a path.

`python command.py` reads one line of JSON from its standard input, and then the archive to unpack. It is not in the
container until the last moment, so what runs there can neither trace it nor change what it reports.
"""

from __future__ import annotations

import bz2  # noqa: F401 # for archives; not found later
import contextlib
import ctypes
import encodings.idna  # noqa: F401
import gzip  # noqa: F401
import json
import lzma  # noqa: F401
import os
import posixpath
import shutil  # noqa: F401
import signal
import stat
import struct
import sys
import tarfile
from typing import Any

_NAMESPACES = ("user", "mnt", "pid", "uts", "ipc", "cgroup", "net")
_SET_SECCOMP, _DROP_BOUND, _FILTER = 22, 24, 2
_CAPABILITY_VERSION = 0x20080522
_NOT_FOUND, _NOT_EXECUTED = 127, 126
_libc = ctypes.CDLL(None, use_errno=True)


def _checked(result: int) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def enter(told: dict[str, Any]) -> None:
    """Join the control groups, the processors and the namespaces of a container."""
    for file in told["groups"]:
        with open(file, "w") as group:
            group.write("0")
    if told["cpus"]:
        os.sched_setaffinity(0, told["cpus"])
    names = [name for name in _NAMESPACES if name in told["namespaces"]]
    # All are opened first: afterwards, the files of /proc are others.
    opened = [os.open(f"/proc/{told['pid']}/ns/{name}", os.O_RDONLY | os.O_CLOEXEC) for name in names]
    for descriptor in opened:
        _checked(_libc.setns(descriptor, 0))
        os.close(descriptor)


def restrict(told: dict[str, Any]) -> None:
    """Give up the capabilities that containers do not have, and filter system calls."""
    kept = set(told["capabilities"])
    for number in range(64):
        if number not in kept and _libc.prctl(_DROP_BOUND, number, 0, 0, 0) != 0:
            break
    program = bytes.fromhex(told["filter"])
    if program:
        buffer = ctypes.create_string_buffer(program, len(program))
        bpf = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(buffer))
        _checked(_libc.prctl(_SET_SECCOMP, _FILTER, ctypes.c_char_p(bpf), 0, 0))
    bits = sum(1 << number for number in kept)
    data = struct.pack("6I", *[bits & 0xFFFFFFFF] * 2, 0, *[bits >> 32] * 2, 0)
    header = struct.pack("Ii", _CAPABILITY_VERSION, 0)
    _checked(_libc.capset(ctypes.c_char_p(header), ctypes.c_char_p(data)))


def _table(path: str) -> list[list[str]]:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return [line.rstrip("\n").split(":") for line in file]
    except OSError:
        return []


def resolve(user: str) -> tuple[int, int, list[int], str]:
    """Return the number, the group, the further groups and the home of `name`, `number` or `user:group`."""
    name, _, group = user.partition(":")
    groups = [row for row in _table("/etc/group") if len(row) >= 4 and row[2].isdigit()]
    users = [row for row in _table("/etc/passwd") if len(row) >= 6 and row[2].isdigit() and row[3].isdigit()]
    found = next((row for row in users if name in (row[0], row[2])), None)
    if found is None and not name.isdigit():
        raise LookupError(f"there is no user {name!r} in the container")
    number, own = (int(found[2]), int(found[3])) if found else (int(name), 0)
    further = [int(row[2]) for row in groups if found and found[0] in row[3].split(",")]
    if group:
        named = next((int(row[2]) for row in groups if group in (row[0], row[2])), None)
        if named is None and not group.isdigit():
            raise LookupError(f"there is no group {group!r} in the container")
        own, further = (int(group) if named is None else named), []
    return number, own, further, found[5] if found else "/"


def execute(told: dict[str, Any]) -> int:
    """Execute a command as a user, without standard input."""
    try:
        number, group, further, home = resolve(told["user"])
        os.chdir(told["cwd"])
    except (LookupError, OSError) as error:
        print(error, file=sys.stderr)
        return _NOT_EXECUTED
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    environment = {"HOME": home or "/", **told["env"]}
    os.umask(0o022)
    os.setgroups(further)
    os.setresgid(group, group, group)
    os.setresuid(number, number, number)
    try:
        os.execvpe(told["argv"][0], told["argv"], environment)
    except OSError as error:
        print(f"{told['argv'][0]}: {error.strerror}", file=sys.stderr)
        return _NOT_FOUND if isinstance(error, FileNotFoundError) else _NOT_EXECUTED


def unpack(told: dict[str, Any]) -> int:
    """Unpack an archive from standard input into a folder, which is created; links on the way are followed.

    rename: the name of the only member, unless it is that of a folder, which then gets the member.
    """
    number, group, _, _ = resolve(told["user"])
    folder, name = told["folder"], told["rename"]
    if name and os.path.isdir(os.path.join(folder, name)):
        folder, name = os.path.join(folder, name), ""
    _make_folder(folder, number, group)
    os.chdir(folder)
    with tarfile.open(fileobj=sys.stdin.buffer, mode="r|*") as archive:
        for member in archive:
            if member.ischr() or member.isblk():
                continue
            member.name = name or member.name
            if not told["keeps_owners"]:
                member.uid, member.gid = number, group
            if told["mode"] is not None and not member.issym():
                member.mode = told["mode"]
            if member.isdir() and os.path.isdir(member.name):
                continue
            if not member.isdir() and os.path.lexists(member.name) and not os.path.isdir(member.name):
                os.unlink(member.name)
            archive.extract(member, ".", numeric_owner=True, filter="fully_trusted")
    return 0


def _make_folder(path: str, number: int, group: int) -> None:
    missing = []
    while not os.path.isdir(path):
        missing.append(path)
        path = posixpath.dirname(path)
    for folder in reversed(missing):
        os.mkdir(folder, 0o755)
        os.chown(folder, number, group)


def pack(told: dict[str, Any]) -> int:
    """Write a path as an archive to standard output: the content of a folder, or a file by its name."""
    path = told["path"]
    with tarfile.open(fileobj=sys.stdout.buffer, mode="w|") as archive:
        if os.path.isdir(path):
            for name in sorted(os.listdir(path)):
                archive.add(os.path.join(path, name), name, filter=_packed)
        elif os.path.isfile(path):
            archive.add(os.path.realpath(path), os.path.basename(path), filter=_packed)
        else:
            print(f"{path} does not exist in the container", file=sys.stderr)
            return _NOT_FOUND
    return 0


def _packed(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    return None if member.isdev() or stat.S_ISSOCK(member.mode) else member


def _kill_group(leader: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(leader, signal.SIGKILL)
    with contextlib.suppress(ProcessLookupError):
        # It may not lead a group yet.
        os.kill(leader, signal.SIGKILL)


def main() -> int:
    """Do what is told, in a child: only children are in the namespace of processes."""
    told = json.loads(sys.stdin.buffer.readline())
    enter(told)
    child = os.fork()
    if child == 0:
        code = _NOT_EXECUTED
        try:
            os.setpgid(0, 0)
            restrict(told)
            code = {"execute": execute, "unpack": unpack, "pack": pack}[told["do"]](told)
        except (OSError, LookupError, tarfile.TarError) as error:
            print(error, file=sys.stderr)
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    # It is not killed itself, as nobody else would wait for its child.
    signal.signal(signal.SIGTERM, lambda *_: _kill_group(child))
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main())
