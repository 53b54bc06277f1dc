"""What a bubblewrap sandbox shows of the host, and what a host must allow for it."""

from __future__ import annotations

import contextlib
import functools
import os
import subprocess
from pathlib import Path

_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
_ETC = [
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "alternatives",
    "localtime",
    "timezone",
    "nsswitch.conf",
    "ssl/certs",
    "ssl/openssl.cnf",
    "ca-certificates",
    "mime.types",
    "protocols",
    "services",
]


@functools.cache
def system_binds() -> tuple[str, ...]:
    """Return the arguments that show system directories and a few files of `/etc`, read-only."""
    words: list[str] = []
    for place in _SYSTEM:
        path = Path(place)
        if path.is_symlink():
            words += ["--symlink", os.readlink(path), place]
        elif path.is_dir():
            words += ["--ro-bind", place, place]
    for name in _ETC:
        path = Path("/etc") / name
        if path.exists():
            words += ["--ro-bind", str(path.resolve()), str(path)]
    return tuple(words)


def version() -> str:
    """Return what bubblewrap calls itself."""
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run(["bwrap", "--version"], capture_output=True, text=True, check=True, timeout=10)
        return done.stdout.strip()
    return "bubblewrap"


def remedy() -> str:
    """Return what to change where bubblewrap is installed but does not work."""
    settings = (
        ("/proc/sys/kernel/unprivileged_userns_clone", "0", "sysctl -w kernel.unprivileged_userns_clone=1"),
        (
            "/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
            "1",
            "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0",
        ),
        ("/proc/sys/user/max_user_namespaces", "0", "sysctl -w user.max_user_namespaces=10000"),
    )
    for path, bad, command in settings:
        with contextlib.suppress(OSError):
            if Path(path).read_text().strip() == bad:
                return f"user namespaces are switched off; as root: {command}"
    return "user namespaces may be forbidden here (in a container: run it with --security-opt seccomp=unconfined)"
