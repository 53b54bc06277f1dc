"""The sandbox `bubblewrap`: namespaces without root, an overlay of the tree at the project's own path, no network.

An overlay mount is made in a user and mount namespace, and bubblewrap is started inside that: bubblewrap's own
overlay option is newer than the releases that stable distributions carry. Of the host only system directories, the
interpreter and a few files of `/etc` are visible, read-only; home, sockets and variables are not.
"""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import stat
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Self

from pytest_ssr.errors import SandboxError, SandboxUnavailableError
from pytest_ssr.sandbox import files
from pytest_ssr.sandbox.host import remedy, system_binds, version
from pytest_ssr.sandbox.protocol import MIB, Availability, ExecResult, Limits
from pytest_ssr.sandbox.running import limited, run
from pytest_ssr.sandbox.sampling import disk_bytes

_SCRATCH = "/scratch"
_PASSWD = (
    "root:x:0:0:root:/root:/bin/sh\nssr:x:1000:1000:ssr:/scratch/home:/bin/sh\nnobody:x:65534:65534::/:/bin/false\n"
)
_GROUP = "root:x:0:\nssr:x:1000:\nnogroup:x:65534:\n"
_HOSTS = "127.0.0.1 localhost ssr\n::1 localhost\n"

# Arguments: the sandbox's folder, the tree, how many paths to delete, those paths, the command.
_OVERLAY = """
cd "$1" && mount --bind "$2" lower &&
mount -t overlay overlay -o lowerdir=lower,upperdir=upper,workdir=work,userxattr view || exit 125
n=$3; shift 3
while [ "$n" -gt 0 ]; do rm -rf -- "view/$1"; shift; n=$((n-1)); done
exec "$@"
"""
_COPIED = """
cd "$1" || exit 125
n=$3; shift 3
while [ "$n" -gt 0 ]; do rm -rf -- "view/$1"; shift; n=$((n-1)); done
exec "$@"
"""


class BubblewrapProvider:
    """Opens sandboxes with the bubblewrap that is installed."""

    name = "bubblewrap"

    def probe(self) -> Availability:
        """Start one, now."""
        if shutil.which("bwrap") is None:
            return Availability(False, "bwrap is not installed", "install it: apt-get install bubblewrap")
        if shutil.which("unshare") is None:
            return Availability(False, "unshare is not installed", "install it: apt-get install util-linux")
        fault = _trial()
        if fault:
            return Availability(False, fault, remedy())
        view = "overlay views" if _overlay_works() else "copied views (overlay mounts are refused here)"
        return Availability(True, f"{version()}, no network, no home, {view}")

    def open(self, tree: Path, *, mount_at: str, readable: Sequence[Path] = ()) -> BubblewrapSandbox:
        """Open a sandbox whose view of the tree appears at `mount_at`."""
        if shutil.which("bwrap") is None:
            raise SandboxUnavailableError("bwrap is not installed; install it: apt-get install bubblewrap")
        return BubblewrapSandbox(tree, mount_at=mount_at, readable=readable)


class BubblewrapSandbox:
    """A private view of a tree; between commands nothing runs and nothing is mounted."""

    def __init__(self, tree: Path, *, mount_at: str, readable: Sequence[Path], like: Self | None = None) -> None:
        home = Path.home().resolve()
        for path in readable:
            if path == Path("/") or home.is_relative_to(path.resolve()):
                raise SandboxError(f"{path} would show the whole home directory inside the sandbox")
        self.root = mount_at.rstrip("/")
        self.scratch = _SCRATCH
        self._tree = tree.resolve()
        self._readable = tuple(readable)
        self._folder = files.new_folder()
        self._overlay = _overlay_works()
        self._upper = self._folder / ("upper" if self._overlay else "view")
        self._pending: set[str] = set()
        try:
            self._fill(like)
        except (OSError, shutil.Error) as error:
            files.discard(self._folder)
            raise SandboxError(f"the sandbox's folder cannot be made: {error}") from None
        self._copied = 0 if self._overlay else disk_bytes(self._upper)

    def _fill(self, like: Self | None) -> None:
        for name in ("lower", "work", "view", "upper", "etc"):
            (self._folder / name).mkdir()
        for name, text in (("passwd", _PASSWD), ("group", _GROUP), ("hosts", _HOSTS)):
            (self._folder / "etc" / name).write_text(text)
        if like is None:
            if not self._overlay:
                shutil.copytree(self._tree, self._upper, symlinks=True, dirs_exist_ok=True)
            for name in ("home", "tmp"):
                (self._folder / "scratch" / name).mkdir(parents=True)
            return
        self._pending = set(like._pending)
        shutil.copytree(
            like._upper, self._upper, symlinks=True, dirs_exist_ok=True, ignore=self._not_files(like._upper)
        )
        shutil.copytree(like._folder / "scratch", self._folder / "scratch", symlinks=True)

    def _not_files(self, top: Path):  # type: ignore[no-untyped-def]
        """What copytree must leave out: whiteouts, which become deletions to be made, and special files."""

        def ignored(folder: str, names: list[str]) -> list[str]:
            left_out = []
            for name in names:
                mode = (Path(folder) / name).lstat().st_mode
                if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISLNK(mode)):
                    left_out.append(name)
                    if stat.S_ISCHR(mode):
                        self._pending.add((Path(folder) / name).relative_to(top).as_posix())
            return left_out

        return ignored

    def exec(
        self,
        argv: Sequence[str],
        *,
        limits: Limits,
        env: Mapping[str, str] | None = None,
        stdin: bytes = b"",
        cwd: str | None = None,
    ) -> ExecResult:
        """Run a command; see the protocol."""
        variables = {
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "HOME": f"{_SCRATCH}/home",
            "TMPDIR": f"{_SCRATCH}/tmp",
            "LANG": "C.UTF-8",
            "TZ": "UTC",
            **(env or {}),
        }
        deletions = sorted(self._pending)
        outer = _OVERLAY if self._overlay else _COPIED
        prefix = ["unshare", "--user", "--map-root-user", "--mount", "/bin/sh", "-c", outer, "sh"]
        prefix += [str(self._folder), str(self._tree), str(len(deletions)), *deletions]
        # env(1) hands the variables over inside, so that the outer commands keep a PATH of their own.
        inner = ["/usr/bin/env", "-i", *(f"{k}={v}" for k, v in variables.items())]
        result = run(
            lambda started: [
                *prefix,
                *self._bwrap(cwd or self.root),
                *inner,
                *limited(argv, limits, started),
            ],
            env={"PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"},
            cwd="/",
            stdin=stdin,
            limits=limits,
            written=lambda: disk_bytes(self._upper, self._folder / "scratch") - self._copied,
        )
        self._pending.clear()
        code = result.exit_code
        # bubblewrap reports a signal as a shell does.
        return replace(result, exit_code=128 - code) if code is not None and 128 < code < 193 else result

    def _bwrap(self, cwd: str) -> list[str]:
        words = ["bwrap", "--unshare-all", "--die-with-parent", "--new-session", "--hostname", "ssr"]
        words += ["--uid", "1000", "--gid", "1000", "--proc", "/proc", "--dev", "/dev"]
        words += ["--size", str(256 * MIB), "--tmpfs", "/tmp"]
        words += system_binds()
        for name in ("passwd", "group", "hosts"):
            words += ["--ro-bind", str(self._folder / "etc" / name), f"/etc/{name}"]
        below = [p for p in self._readable if p.is_relative_to(self.root)]
        for path in self._readable:
            if path not in below and path.exists() and not path.is_relative_to("/usr"):
                words += ["--ro-bind", str(path), str(path)]
        words += ["--bind", str(self._folder / "view"), self.root]
        for path in below:
            if path.exists():
                words += ["--ro-bind", str(path), str(path)]
        words += ["--bind", str(self._folder / "scratch"), _SCRATCH, "--chdir", cwd]
        return words

    def read(self, path: str, *, max_bytes: int = 64 * MIB) -> bytes:
        """Return a regular file's content; see the protocol."""
        top, relative = self._place(path)
        data = files.read_file(top, relative, max_bytes)
        if data is None and top == self._upper and self._shows_lower(relative):
            data = files.read_file(self._tree, relative, max_bytes)
        if data is None:
            raise FileNotFoundError(path)
        return data

    def _shows_lower(self, relative: str) -> bool:
        """Tell whether nothing in the upper layer hides the tree's own file at this path."""
        if not self._overlay or relative in self._pending:
            return False
        parts = relative.split("/")
        for length in range(1, len(parts) + 1):
            found = files.status(self._upper, "/".join(parts[:length]))
            if found is None:
                return True
            if not stat.S_ISDIR(found.st_mode):
                return False
            with contextlib.suppress(OSError):
                if os.getxattr(self._upper / "/".join(parts[:length]), "user.overlay.opaque") == b"y":
                    return False
        return False

    def write(self, path: str, data: bytes, *, executable: bool = False) -> None:
        """Write a regular file; see the protocol."""
        top, relative = self._place(path)
        if top == self._upper:
            self._pending.discard(relative)
        files.write_file(top, relative, data, executable=executable)

    def remove(self, path: str) -> None:
        """Remove a file or link; see the protocol."""
        top, relative = self._place(path)
        if top == self._upper and self._overlay:
            self._pending.add(relative)
        files.remove_file(top, relative)

    def fork(self) -> Self:
        """Copy what was written, and nothing else."""
        return type(self)(self._tree, mount_at=self.root, readable=self._readable, like=self)

    def close(self) -> None:
        """Remove the folder; nothing runs between commands."""
        files.discard(self._folder)

    def __enter__(self) -> Self:
        """Return the sandbox itself."""
        return self

    def __exit__(self, *exc_info: object) -> None:
        """Close it."""
        self.close()

    def _place(self, path: str) -> tuple[Path, str]:
        return files.inside(path, (self.root, self._upper), (self.scratch, self._folder / "scratch"))


@functools.cache
def _overlay_works() -> bool:
    folder = files.new_folder()
    try:
        for name in ("lower", "upper", "work", "view", "tree"):
            (folder / name).mkdir()
        command = ["unshare", "--user", "--map-root-user", "--mount", "/bin/sh", "-c", _OVERLAY, "sh"]
        command += [str(folder), str(folder / "tree"), "0", "true"]
        return subprocess.run(command, capture_output=True, check=False, timeout=30).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False
    finally:
        files.discard(folder)


@functools.cache
def _trial() -> str:
    """Return why a sandbox cannot be opened and used here, or an empty text."""
    folder = files.new_folder()
    try:
        with BubblewrapSandbox(folder, mount_at="/tmp/ssr-trial", readable=()) as sandbox:
            done = sandbox.exec(["true"], limits=Limits(wall_s=30))
        return "" if done.exit_code == 0 else f"a trial command ended with {done.exit_code}"
    except SandboxError as error:
        return str(error)
    finally:
        files.discard(folder)
