"""Build a filter that refuses system calls that no test needs and that expose the kernel (seccomp(2)).

Refused with EPERM: keys, modules, kernel tracing, file handles, io_uring, clocks, and, unless the fork server runs
inside, new namespaces and mounts; and calls that show or change which pages of a file are in memory, by which one
sandbox could tell another something over the files that both can read. `clone3`, whose arguments a filter cannot see,
fails with ENOSYS; C libraries then use `clone`. The program is classic BPF, written here because a library for it may
not be installed.
"""

from __future__ import annotations

import contextlib
import errno
import os
import platform
import struct
from collections.abc import Iterator

_ALLOW, _ERRNO, _KILL = 0x7FFF0000, 0x00050000, 0x80000000
_LOAD, _EQUAL, _ANY_BIT, _AT_LEAST, _RETURN = 0x20, 0x15, 0x45, 0x35, 0x06
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT = 0, 4, 16
# CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET.
NEW_NAMESPACES = 0x7E020000
_X32 = 0x40000000
_AUDIT = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
# Numbers by architecture, as in the kernel's tables; those above 423 are the same on both.
_NUMBERS = {
    "x86_64": {
        "clone": 56, "unshare": 272, "setns": 308, "mount": 165, "umount2": 166, "pivot_root": 155, "chroot": 161,
        "add_key": 248, "request_key": 249, "keyctl": 250, "bpf": 321, "perf_event_open": 298, "userfaultfd": 323,
        "kexec_load": 246, "kexec_file_load": 320, "init_module": 175, "finit_module": 313, "delete_module": 176,
        "open_by_handle_at": 304, "quotactl": 179, "acct": 163, "swapon": 167, "swapoff": 168, "reboot": 169,
        "settimeofday": 164, "clock_settime": 227, "clock_adjtime": 305, "adjtimex": 159, "syslog": 103,
        "iopl": 172, "ioperm": 173, "lookup_dcookie": 212, "move_pages": 279, "nfsservctl": 180,
        "mincore": 27, "fadvise64": 221, "readahead": 187, "preadv2": 327,
    },
    "aarch64": {
        "clone": 220, "unshare": 97, "setns": 268, "mount": 40, "umount2": 39, "pivot_root": 41, "chroot": 51,
        "add_key": 217, "request_key": 218, "keyctl": 219, "bpf": 280, "perf_event_open": 241, "userfaultfd": 282,
        "kexec_load": 104, "kexec_file_load": 294, "init_module": 105, "finit_module": 273, "delete_module": 106,
        "open_by_handle_at": 265, "quotactl": 60, "acct": 89, "swapon": 224, "swapoff": 225, "reboot": 142,
        "settimeofday": 170, "clock_settime": 112, "clock_adjtime": 266, "adjtimex": 171, "syslog": 116,
        "lookup_dcookie": 18, "move_pages": 239, "nfsservctl": 42,
        "mincore": 232, "fadvise64": 223, "readahead": 213, "preadv2": 286,
    },
}  # fmt: skip
_COMMON = {
    "io_uring_setup": 425, "io_uring_enter": 426, "io_uring_register": 427, "open_tree": 428, "move_mount": 429,
    "fsopen": 430, "fsconfig": 431, "fsmount": 432, "fspick": 433, "clone3": 435, "mount_setattr": 442,
    "quotactl_fd": 443, "cachestat": 451,
}  # fmt: skip
_NAMESPACES = frozenset(
    (
        *("unshare", "setns", "mount", "umount2", "pivot_root", "chroot", "open_tree", "move_mount", "fsopen"),
        *("fsconfig", "fsmount", "fspick", "mount_setattr"),
    )
)


def is_known_here() -> bool:
    """Return whether there is a filter for this machine's architecture."""
    return platform.machine() in _NUMBERS


def refused(*, namespaces: bool) -> dict[str, int]:
    """Return the numbers of the calls refused for all arguments, by name; `namespaces` allows new namespaces."""
    numbers = {**_NUMBERS.get(platform.machine(), {}), **_COMMON}
    return {n: k for n, k in numbers.items() if n not in ("clone", "clone3") and not (namespaces and n in _NAMESPACES)}


def program(*, namespaces: bool) -> bytes:
    """Return the filter program, empty if there is none for this architecture."""
    return b"".join(struct.pack("=HBBI", *step) for step in _steps(namespaces)) if is_known_here() else b""


def _steps(namespaces: bool) -> Iterator[tuple[int, int, int, int]]:
    machine = platform.machine()
    yield _LOAD, 0, 0, _ARCHITECTURE
    yield _EQUAL, 1, 0, _AUDIT[machine]
    yield _RETURN, 0, 0, _KILL
    yield _LOAD, 0, 0, _NUMBER
    if machine == "x86_64":
        # The x32 ABI has other numbers for the same calls.
        yield _AT_LEAST, 0, 1, _X32
        yield _RETURN, 0, 0, _ERRNO | errno.ENOSYS
    for number in refused(namespaces=namespaces).values():
        yield _EQUAL, 0, 1, number
        yield _RETURN, 0, 0, _ERRNO | errno.EPERM
    if not namespaces:
        yield _EQUAL, 0, 1, _COMMON["clone3"]
        yield _RETURN, 0, 0, _ERRNO | errno.ENOSYS
        yield _EQUAL, 0, 3, _NUMBERS[machine]["clone"]
        yield _LOAD, 0, 0, _FIRST_ARGUMENT
        yield _ANY_BIT, 0, 1, NEW_NAMESPACES
        yield _RETURN, 0, 0, _ERRNO | errno.EPERM
    yield _RETURN, 0, 0, _ALLOW


@contextlib.contextmanager
def descriptor(*, namespaces: bool) -> Iterator[int]:
    """Yield a file descriptor from which the filter can be read."""
    with os.fdopen(os.memfd_create("ssr-seccomp", 0), "wb", buffering=0) as file:
        file.write(program(namespaces=namespaces))
        file.seek(0)
        yield file.fileno()
