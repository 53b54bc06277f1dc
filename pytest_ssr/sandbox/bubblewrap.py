"""The sandbox `bubblewrap`: namespaces without root, an overlay of the tree at the project's own path, no network.

An overlay mount is made in a user and mount namespace, and bubblewrap is started inside it: bubblewrap's own
overlay option is newer than the releases that stable distributions carry. A pid namespace around both ends with the
command, so that no orphans are left for the machine's init process. Of the host only system directories, the
interpreter and a few files of `/etc` are visible, read-only; home, sockets and environment variables are not.
"""

from __future__ import annotations

import functools
import json
import os
import shutil
import stat
import subprocess
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO

from pytest_ssr.errors import SandboxError, SandboxUnavailableError
from pytest_ssr.sandbox.filesystem import workdirs
from pytest_ssr.sandbox.filesystem.directory_sandbox import DirectorySandbox
from pytest_ssr.sandbox.filesystem.overlay import OverlayFiles
from pytest_ssr.sandbox.filesystem.safe_files import PlainFiles, locate, working_directory
from pytest_ssr.sandbox.host import (
    checked_mount_point,
    checked_readable,
    kernel_mounts,
    remedy,
    system_binds,
    version,
)
from pytest_ssr.sandbox.protocol import Availability, ExecResult, Limits
from pytest_ssr.sandbox.supervision import cgroup, seccomp
from pytest_ssr.sandbox.supervision.local_session import LocalSession
from pytest_ssr.sandbox.supervision.rpc_session import RpcSession
from pytest_ssr.sandbox.supervision.supervisor import run, with_limits

_NAMESPACES = ["unshare", "--user", "--map-root-user", "--mount", "--pid", "--fork", "--kill-child"]

# Arguments: the sandbox's folder, in which `lower` is a link to the tree; control groups to join; `--`; the command.
_OVERLAY = """
cd "$1" || exit 125
shift
for file; do shift; [ "$file" = -- ] && break; echo 0 > "$file" || exit 125; done
mount -n -i -t overlay overlay -o lowerdir=lower,upperdir=upper,workdir=work,userxattr view && cd / || exit 125
exec "$@"
"""
_TRIAL = """
cd "$0/view" && test -e kept && test ! -e deleted && rm -r folder && mkdir folder && test ! -e folder/inner &&
echo changed > kept
"""


def launcher(folder: Path, *, overlay: bool) -> list[str]:
    """Return a command prefix that mounts a sandbox's view at `folder`/view, for `cgroup.join_command`."""
    if not overlay:
        return []
    return [*_NAMESPACES, "/bin/sh", "-c", _OVERLAY, "sh", str(folder), cgroup.JOIN_FILES, "--"]


@functools.cache
def overlay_works() -> bool:
    """Return whether overlay mounts with deletions and replaced directories work without root; tried once."""
    folder = workdirs.new_folder()
    try:
        for name in ("upper", "work", "view", "tree/folder/inner"):
            (folder / name).mkdir(parents=True)
        (folder / "lower").symlink_to(folder / "tree")
        for name in ("kept", "deleted"):
            (folder / "tree" / name).write_text("as it was")
        os.mknod(folder / "upper" / "deleted", stat.S_IFCHR, 0)
        command = cgroup.join_command(None, [*launcher(folder, overlay=True), "/bin/sh", "-c", _TRIAL, str(folder)])
        done = subprocess.run(command, capture_output=True, check=False, timeout=30)
        return done.returncode == 0 and (folder / "tree" / "kept").read_text() == "as it was"
    except (OSError, subprocess.TimeoutExpired):
        return False
    finally:
        workdirs.discard(folder)


_SCRATCH = "/scratch"
_LOWER = "/ssr-tree"
_ENV = {"PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"}
_OURS = ("/", "/proc", "/dev", "/etc", "/usr", _SCRATCH)


class BubblewrapProvider:
    """Open sandboxes with the installed bubblewrap.

    overlay: whether views are overlay mounts; None tries one once in each process and copies the tree if that fails.
    """

    name = "bubblewrap"

    def __init__(self, *, overlay: bool | None = None) -> None:
        self._overlay = overlay

    def probe(self) -> Availability:
        """Run a trial command in a sandbox."""
        for program, package in (("bwrap", "bubblewrap"), ("unshare", "util-linux")):
            if shutil.which(program) is None:
                needed = f"install it: apt-get install {package}"
                return Availability(False, f"{program} is not installed", needed, is_missing=True)
        try:
            failure = self._trial()
        except (OSError, SandboxError) as error:
            failure = str(error)
        if failure:
            return Availability(False, failure, remedy())
        view = "overlay views" if overlay_works() else "copied views (overlay mounts are refused here)"
        calls = "system calls filtered" if seccomp.is_known_here() else "system calls not filtered on this processor"
        return Availability(True, f"{version()}, no network, no home, {calls}, {view}")

    def open(
        self, tree: Path, *, mount_at: str, readable: Sequence[Path] = (), hidden: Sequence[str] = ()
    ) -> BubblewrapSandbox:
        """Open a sandbox whose view of the tree appears at `mount_at`."""
        if shutil.which("bwrap") is None:
            raise SandboxUnavailableError("bwrap is not installed; install it: apt-get install bubblewrap")
        overlay = overlay_works() if self._overlay is None else self._overlay
        return BubblewrapSandbox(tree, mount_at=mount_at, readable=readable, hidden=hidden, overlay=overlay)

    def _trial(self) -> str:
        """Return why a sandbox cannot be used here, or an empty string."""
        folder = workdirs.new_folder()
        try:
            with self.open(folder, mount_at="/tmp/ssr-trial") as sandbox:
                done = sandbox.exec(["true"], limits=Limits(wall_s=30))
            return "" if done.exit_code == 0 else f"a trial command ended with {done.limit or done.exit_code}"
        finally:
            workdirs.discard(folder)


class BubblewrapSandbox(DirectorySandbox):
    """A private view of a tree; nothing runs and nothing is mounted between commands."""

    private = ("/tmp", "/dev/shm")
    lower = _LOWER

    def __init__(
        self,
        tree: Path,
        *,
        mount_at: str,
        readable: Sequence[Path],
        hidden: Sequence[str],
        overlay: bool,
    ) -> None:
        self.root = checked_mount_point(mount_at, _OURS)
        self.scratch = _SCRATCH
        self._readable, self._hidden = checked_readable(readable), tuple(hidden)
        self._tree = tree.resolve()
        self._overlay = overlay
        self._folder = workdirs.new_folder()
        self._upper = self._folder / ("upper" if overlay else "view")
        self._scratch = self._folder / "scratch"
        self._files = OverlayFiles(self._upper, self._tree) if overlay else PlainFiles(self._upper)
        self._lock = threading.Lock()
        try:
            self._fill()
        except BaseException as error:
            workdirs.discard(self._folder)
            if isinstance(error, OSError | shutil.Error):
                raise SandboxError(f"the sandbox's folder cannot be created: {error}") from None
            raise
        self._copied = 0 if overlay else workdirs.disk_bytes(self._upper)

    def _fill(self) -> None:
        for name in ("work", "view", "upper"):
            (self._folder / name).mkdir()
        # The target of a link needs no escaping in the options of a mount.
        (self._folder / "lower").symlink_to(self._tree)
        if not self._overlay:
            workdirs.copy_tree(self._tree, self._upper)
        else:
            # The upper directory's own mode is the mode of the view's root.
            self._upper.chmod(self._tree.stat().st_mode & 0o777 | 0o700)
        workdirs.prepare_scratch(self._scratch)

    def exec(
        self,
        argv: Sequence[str],
        *,
        limits: Limits,
        env: Mapping[str, str] | None = None,
        stdin: bytes = b"",
        cwd: str | None = None,
    ) -> ExecResult:
        """Run a command; see the protocol. Exit statuses 129 to 192 count as signals, as bubblewrap reports them so."""
        inner = with_limits(argv, limits, working_directory(self.root, cwd))
        self._require_open()
        workdirs.prepare_scratch(self._scratch)
        reading, status_fd = os.pipe()
        with os.fdopen(reading, "rb") as reports:
            # Mounting one upper directory twice at the same time is undefined behaviour.
            with os.fdopen(status_fd, "wb"), seccomp.descriptor(namespaces=False) as filter_fd, self._lock:
                result = run(
                    self._command(inner, env, filter_fd, status_fd),
                    env=_ENV,
                    stdin=stdin,
                    limits=limits,
                    written=self._written,
                    pass_fds=(status_fd, filter_fd),
                )
            code = _exit_code(reports)
        if result.limit is not None:
            return result
        if code is None:
            raise SandboxError(f"the sandbox does not start: {_last_line(result.stderr)}")
        return replace(result, exit_code=code)

    def converse(self, argv: Sequence[str], *, limits: Limits, env: Mapping[str, str] | None = None) -> RpcSession:
        """Start a long-running command; see Conversing."""
        inner = with_limits(argv, limits, self.root)
        self._require_open()
        workdirs.prepare_scratch(self._scratch)
        # The fork server gives each of its forks a namespace and a mount.
        with seccomp.descriptor(namespaces=True) as filter_fd:
            outer = self._command(inner, env, filter_fd, None)
            # The session releases the lock when it ends, also if it does not start.
            self._lock.acquire()
            command = LocalSession(
                outer,
                env=_ENV,
                limits=limits,
                written=self._written,
                pass_fds=(filter_fd,),
                ended=self._lock.release,
            )
        return RpcSession(command, limits)

    def _written(self) -> int:
        return workdirs.disk_bytes(self._upper, self._scratch) - self._copied

    def _command(
        self, inner: Sequence[str], env: Mapping[str, str] | None, filter_fd: int, status_fd: int | None
    ) -> list[str]:
        variables = {**workdirs.environment(_SCRATCH), **(env or {})}
        return [*launcher(self._folder, overlay=self._overlay), *self._bwrap(variables, filter_fd, status_fd), *inner]

    def _bwrap(self, variables: Mapping[str, str], filter_fd: int, status_fd: int | None) -> list[str]:
        command = ["bwrap", "--unshare-all", "--die-with-parent", "--new-session", "--hostname", "ssr"]
        command += ["--uid", "1000", "--gid", "1000", "--clearenv"]
        command += ["--json-status-fd", str(status_fd)] if status_fd is not None else []
        command += ["--seccomp", str(filter_fd)] if seccomp.is_known_here() else []
        for name, value in variables.items():
            command += ["--setenv", name, value]
        command += [*kernel_mounts(), *system_binds()]
        shown = [p for p in self._readable if p.exists()]
        below = [p for p in shown if p.is_relative_to(self.root)]
        for path in shown:
            if path not in below:
                command += ["--ro-bind", str(path), str(path)]
        command += ["--bind", str(self._folder / "view"), self.root]
        for path in below:
            command += ["--ro-bind", str(path), str(path)]
        for hidden in filter(os.path.exists, self._hidden):
            empty = ["--size", "4096", "--tmpfs", hidden, "--remount-ro", hidden]
            command += empty if hidden.endswith("/") else ["--ro-bind", os.devnull, hidden]
        command += [] if status_fd is not None else ["--ro-bind", str(self._folder / "view"), _LOWER]
        return [*command, "--bind", str(self._scratch), _SCRATCH, "--remount-ro", "/", "--chdir", "/", "--"]

    def _locate(self, path: str) -> tuple[OverlayFiles | PlainFiles, str]:
        self._require_open()
        in_scratch, relative = locate(path, self.root, self.scratch)
        return PlainFiles(self._scratch) if in_scratch else self._files, relative


def _exit_code(reports: IO[bytes]) -> int | None:
    """Return the exit status that bubblewrap reports, negative for a signal; None if the command was not started."""
    for line in reports:
        code = json.loads(line).get("exit-code")
        if code is not None:
            # bubblewrap reports a signal like a shell, as 128 plus its number.
            return 128 - int(code) if 128 < code <= 192 else int(code)
    return None


def _last_line(raw: bytes) -> str:
    lines = raw.decode(errors="replace").strip().splitlines()
    return lines[-1][:300] if lines else "no error output"
