"""Hide from Python what only Linux has, in each process that has this file in its path: macOS has none of it.

The list is that of the standard library's documentation ("Availability: Linux").
"""

import ctypes
import fcntl
import os
import resource
import select
import signal
import sys

# Before `selectors` is imported, which looks for it.
for _name in [name for name in vars(select) if name.lower().startswith("epoll")]:
    delattr(select, _name)
import socket  # noqa: E402

_NAMES = {
    os: (
        "memfd_create sched_getaffinity sched_setaffinity pidfd_open splice eventfd unshare setns posix_fadvise "
        "posix_fallocate getrandom copy_file_range fdatasync pipe2 getresuid getresgid setresuid setresgid getxattr "
        "setxattr listxattr removexattr O_PATH O_TMPFILE O_DIRECT O_NOATIME MFD_CLOEXEC"
    ),
    signal: "pidfd_send_signal sigwaitinfo sigtimedwait SIGRTMIN SIGRTMAX SIGPWR SIGSTKFLT SIGPOLL",
    socket: "SO_PEERCRED SOCK_CLOEXEC SOCK_NONBLOCK AF_NETLINK AF_PACKET AF_VSOCK SO_PASSCRED",
    resource: "prlimit RLIMIT_NICE RLIMIT_RTPRIO RLIMIT_SIGPENDING RLIMIT_MSGQUEUE",
    fcntl: "F_OFD_SETLK F_OFD_SETLKW F_OFD_GETLK F_ADD_SEALS F_GET_SEALS F_SETPIPE_SZ F_GETPIPE_SZ",
}
_FUNCTIONS = frozenset(("memfd_create", "mount", "prctl", "setns", "syscall", "umount2", "unshare"))
_FOLDERS = ("/proc", "/sys")
_EVENTS = frozenset(("open", "os.listdir", "os.scandir"))

for _module, _names in _NAMES.items():
    for _name in _names.split():
        if hasattr(_module, _name):
            delattr(_module, _name)


def _refuse(event, arguments):
    if event in _EVENTS and arguments:
        path = os.fsdecode(arguments[0]) if isinstance(arguments[0], (str, bytes)) else ""
        if path.startswith(_FOLDERS):
            raise FileNotFoundError(2, "No such file or directory", path)


def _hidden(look):
    def look_or_hide(path, *arguments, **options):
        if isinstance(path, (str, bytes, os.PathLike)) and os.fspath(path) and os.fsdecode(path).startswith(_FOLDERS):
            raise FileNotFoundError(2, "No such file or directory", os.fsdecode(path))
        return look(path, *arguments, **options)

    return look_or_hide


os.stat, os.lstat, os.readlink = map(_hidden, (os.stat, os.lstat, os.readlink))
_find = ctypes.CDLL.__getattr__


def _without_calls(library, name):
    if name in _FUNCTIONS:
        raise AttributeError(name)
    return _find(library, name)


ctypes.CDLL.__getattr__ = _without_calls
sys.addaudithook(_refuse)
