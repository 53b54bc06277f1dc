"""Select what sandboxes without an image show of the host, and check what the host must allow for bubblewrap."""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import shutil
import subprocess
import threading
from collections.abc import Collection, Sequence
from pathlib import Path

from pytest_ssr.errors import SandboxError
from pytest_ssr.sandbox.filesystem import workdirs
from pytest_ssr.sandbox.protocol import MIB

SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
_ETC_FILES = (
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d/*",
    "localtime",
    "timezone",
    "nsswitch.conf",
    "ssl/openssl.cnf",
    "mime.types",
    "protocols",
    "services",
    "python3*/*",
)
ETC_FOLDERS = ("alternatives", "ssl/certs", "ca-certificates")
_OWN_ETC = {
    "passwd": b"root:x:0:0:root:/root:/bin/sh\nssr:x:1000:1000:ssr:/scratch/home:/bin/sh\n"
    b"nobody:x:65534:65534::/:/bin/false\n",
    "group": b"root:x:0:\nssr:x:1000:\nnogroup:x:65534:\n",
    "hosts": b"127.0.0.1 localhost ssr\n::1 localhost\n",
}


# Files of /proc that a process of the real root may write whatever namespaces it is in: bubblewrap covers a
# directory only if the directory itself is writable (so irq and bus); /proc/sys is not, but the settings below it are.
_COVERED = ("/proc/sys", "/proc/sysrq-trigger", "/proc/fs", "/proc/acpi", "/proc/scsi")
# Files that expose the host, its other processes, its users' keys and its kernel.
_MASKED = ("keys", "key-users", "timer_list", "sched_debug", "kallsyms", "kcore", "config.gz")
_TMP_BYTES = 256 * MIB
_etc_lock = threading.Lock()


def checked_mount_point(mount_at: str, reserved: Collection[str]) -> str:
    """Return the path of the tree inside the sandbox; raises SandboxError if nothing can be mounted there."""
    path = mount_at.rstrip("/")
    if not path.startswith("/") or os.path.normpath(path) != path or path in reserved:
        raise SandboxError(f"a tree cannot be shown at {mount_at!r} inside a sandbox")
    return path


def home_directory() -> Path | None:
    """Return the user's home directory, or None for a user who has none, as a container's of any number."""
    path = os.path.expanduser("~")
    return Path(path).resolve() if os.path.isabs(path) else None


def checked_readable(readable: Sequence[Path]) -> tuple[Path, ...]:
    """Return the host paths to show besides system directories; raises SandboxError for the home directory."""
    home = home_directory()
    for path in readable:
        if not path.is_absolute() or (home is not None and home.is_relative_to(path.resolve())):
            raise SandboxError(f"{path} would show the whole home directory inside the sandbox")
    return tuple(path for path in readable if not Path(os.path.normpath(path)).is_relative_to("/usr"))


def kernel_mounts() -> list[str]:
    """Return the arguments for /proc, /dev and /tmp: kernel settings read-only, file systems in memory bounded."""
    arguments = [*proc_mounts(), "--dev", "/dev", "--perms", "1777", "--size", str(_TMP_BYTES), "--tmpfs", "/dev/shm"]
    return [*arguments, "--remount-ro", "/dev", "--perms", "1777", "--size", str(_TMP_BYTES), "--tmpfs", "/tmp"]


def proc_mounts() -> list[str]:
    """Return the arguments for /proc: kernel settings read-only, files that expose the host hidden."""
    arguments = ["--proc", "/proc"]
    for path in _COVERED:
        if Path(path).exists():
            arguments += ["--ro-bind", path, path]
    for path in masked_proc_files():
        arguments += ["--ro-bind", os.devnull, path]
    return arguments


@functools.cache
def masked_proc_files() -> list[str]:
    """Return the files of /proc that this kernel has and that are hidden from commands."""
    return [path for name in _MASKED if os.path.exists(path := f"/proc/{name}")]


@functools.cache
def etc_files() -> dict[str, bytes]:
    """Return the files of the inner `/etc` by name; copying them is much cheaper than mounting each."""
    files = dict(_OWN_ETC)
    for pattern in _ETC_FILES:
        for path in Path("/etc").glob(pattern):
            with contextlib.suppress(OSError):
                files[path.relative_to("/etc").as_posix()] = path.read_bytes()
    return files


@functools.cache
def _etc(pid: int) -> Path:
    folder = workdirs.new_folder()
    atexit.register(_discard_if_owner, pid, folder)
    for name, data in etc_files().items():
        path = folder / "etc" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    for name in ETC_FOLDERS:
        if Path("/etc", name).is_dir():
            with contextlib.suppress(shutil.Error):
                shutil.copytree(Path("/etc", name), folder / "etc" / name, symlinks=True)
    return folder / "etc"


def _discard_if_owner(pid: int, folder: Path) -> None:
    if os.getpid() == pid:
        workdirs.discard(folder)


def etc() -> Path:
    """Return the folder for the inner `/etc`, created once in each process and removed when the process exits."""
    with _etc_lock:
        if not _etc(os.getpid()).is_dir():
            _etc.cache_clear()
        return _etc(os.getpid())


def system_binds() -> list[str]:
    """Return the arguments that show the system directories and a generated `/etc`, read-only."""
    arguments: list[str] = []
    for link, target in shown_links().items():
        arguments += ["--symlink", target, link]
    for folder in (str(path) for path in shown_directories() if str(path) in SYSTEM):
        arguments += ["--ro-bind", folder, folder]
    return [*arguments, "--ro-bind", str(etc()), "/etc"]


def shown_directories() -> list[Path]:
    """Return the host's system directories and folders of `/etc` that such a sandbox shows."""
    candidates = [Path(p) for p in SYSTEM] + [Path("/etc", name) for name in ETC_FOLDERS]
    return [p for p in candidates if p.is_dir() and not (p.is_symlink() and str(p) in SYSTEM)]


def shown_links() -> dict[str, str]:
    """Return the host's system directories that are symlinks, with their targets."""
    return {path: os.readlink(path) for path in SYSTEM if Path(path).is_symlink()}


def version() -> str:
    """Return the name and version that bubblewrap reports."""
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run(["bwrap", "--version"], capture_output=True, text=True, check=True, timeout=10)
        return done.stdout.strip()
    return "bubblewrap"


def remedy() -> str:
    """Return what to change if bubblewrap is installed but does not work."""
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
    options = "--security-opt seccomp=unconfined --security-opt systempaths=unconfined"
    return f"user namespaces may be forbidden here (in a container: run it with {options})"
