"""The sandbox `bubblewrap`: namespaces without root, an overlay of the tree at the project's own path, no network.

An overlay mount is made in a user and mount namespace, and bubblewrap is started inside that: bubblewrap's own
overlay option is newer than the releases that stable distributions carry. A pid namespace around both ends with the
command, so that nothing is left for the machine's first process to reap. Of the host only system directories, the
interpreter and a few files of `/etc` are visible, read-only; home, sockets and variables are not.
"""

from __future__ import annotations

import json
import os
import shutil
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO, Self

from pytest_ssr.errors import SandboxError, SandboxUnavailableError
from pytest_ssr.sandbox import folders, seccomp
from pytest_ssr.sandbox.conversation import Conversation
from pytest_ssr.sandbox.files import PlainFiles, inside, place
from pytest_ssr.sandbox.folder_backed import FolderBacked
from pytest_ssr.sandbox.host import (
    checked_place,
    checked_readable,
    kernel_mounts,
    remedy,
    system_binds,
    version,
)
from pytest_ssr.sandbox.layers import OverlayFiles
from pytest_ssr.sandbox.local_command import LocalCommand
from pytest_ssr.sandbox.mounting import launcher, overlay_works
from pytest_ssr.sandbox.protocol import Availability, ExecResult, Limits
from pytest_ssr.sandbox.running import limited, run

_SCRATCH = "/scratch"
_LOWER = "/ssr-tree"
_ENV = {"PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"}
_OURS = ("/", "/proc", "/dev", "/etc", "/usr", _SCRATCH)


class BubblewrapProvider:
    """Opens sandboxes with the bubblewrap that is installed.

    overlay: whether views are overlay mounts; None tries it once in each process and copies where it fails.
    """

    name = "bubblewrap"

    def __init__(self, *, overlay: bool | None = None) -> None:
        self._overlay = overlay

    def probe(self) -> Availability:
        """Start one, now."""
        for program, package in (("bwrap", "bubblewrap"), ("unshare", "util-linux")):
            if shutil.which(program) is None:
                return Availability(False, f"{program} is not installed", f"install it: apt-get install {package}")
        try:
            fault = self._trial()
        except (OSError, SandboxError) as error:
            fault = str(error)
        if fault:
            return Availability(False, fault, remedy())
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
        """Return why a sandbox cannot be used here, or an empty text."""
        folder = folders.new_folder()
        try:
            with self.open(folder, mount_at="/tmp/ssr-trial") as sandbox:
                done = sandbox.exec(["true"], limits=Limits(wall_s=30))
            return "" if done.exit_code == 0 else f"a trial command ended with {done.limit or done.exit_code}"
        finally:
            folders.discard(folder)


class BubblewrapSandbox(FolderBacked):
    """A private view of a tree; between commands nothing runs and nothing is mounted."""

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
        like: Self | None = None,
    ) -> None:
        self.root = checked_place(mount_at, _OURS)
        self.scratch = _SCRATCH
        self._readable, self._hidden = checked_readable(readable), tuple(hidden)
        self._tree = tree.resolve()
        self._overlay = overlay
        self._folder = folders.new_folder()
        self._upper = self._folder / ("upper" if overlay else "view")
        self._scratch = self._folder / "scratch"
        self._files = OverlayFiles(self._upper, self._tree) if overlay else PlainFiles(self._upper)
        self._lock = threading.Lock()
        try:
            self._fill(like)
        except BaseException as error:
            folders.discard(self._folder)
            if isinstance(error, OSError | shutil.Error):
                raise SandboxError(f"the sandbox's folder cannot be made: {error}") from None
            raise
        self._copied = 0 if overlay else folders.disk_bytes(self._upper)

    def _fill(self, like: Self | None) -> None:
        for name in ("work", "view", "upper"):
            (self._folder / name).mkdir()
        # A link's target needs no escapes in the options of a mount.
        (self._folder / "lower").symlink_to(self._tree)
        if like is not None:
            folders.copy_tree(like._upper, self._upper)
            folders.copy_tree(like._scratch, self._scratch)
        elif not self._overlay:
            folders.copy_tree(self._tree, self._upper)
        else:
            # The upper directory's own mode is the mode of the view's root.
            self._upper.chmod(self._tree.stat().st_mode & 0o777 | 0o700)
        folders.prepare_scratch(self._scratch)

    def exec(
        self,
        argv: Sequence[str],
        *,
        limits: Limits,
        env: Mapping[str, str] | None = None,
        stdin: bytes = b"",
        cwd: str | None = None,
    ) -> ExecResult:
        """Run a command; see the protocol. Exit statuses 129 to 192 are read as signals, as bubblewrap tells them."""
        inner = limited(argv, limits, place(self.root, cwd))
        self._require_open()
        folders.prepare_scratch(self._scratch)
        told, telling = os.pipe()
        with os.fdopen(told, "rb") as reports:
            # Two mounts of one upper directory at a time are undefined.
            with os.fdopen(telling, "wb"), seccomp.descriptor(namespaces=False) as calls, self._lock:
                result = run(
                    self._command(inner, env, calls, telling),
                    env=_ENV,
                    stdin=stdin,
                    limits=limits,
                    written=self._written,
                    pass_fds=(telling, calls),
                )
            code = _exit_code(reports)
        if result.limit is not None:
            return result
        if code is None:
            raise SandboxError(f"the sandbox does not start: {_last(result.stderr)}")
        return replace(result, exit_code=code)

    def converse(self, argv: Sequence[str], *, limits: Limits, env: Mapping[str, str] | None = None) -> Conversation:
        """Start a command that stays; see Conversing."""
        inner = limited(argv, limits, self.root)
        self._require_open()
        folders.prepare_scratch(self._scratch)
        self._lock.acquire()
        # A server of ours gives each of its forks a namespace and a mount.
        with seccomp.descriptor(namespaces=True) as calls:
            command = LocalCommand(
                self._command(inner, env, calls, None),
                env=_ENV,
                limits=limits,
                written=self._written,
                pass_fds=(calls,),
                ended=self._lock.release,
            )
        return Conversation(command, limits)

    def _written(self) -> int:
        return folders.disk_bytes(self._upper, self._scratch) - self._copied

    def _command(
        self, inner: Sequence[str], env: Mapping[str, str] | None, calls: int, telling: int | None
    ) -> list[str]:
        variables = {**folders.environment(_SCRATCH), **(env or {})}
        return [*launcher(self._folder, overlay=self._overlay), *self._bwrap(variables, calls, telling), *inner]

    def _bwrap(self, variables: Mapping[str, str], calls: int, telling: int | None) -> list[str]:
        words = ["bwrap", "--unshare-all", "--die-with-parent", "--new-session", "--hostname", "ssr"]
        words += ["--uid", "1000", "--gid", "1000", "--clearenv"]
        words += ["--json-status-fd", str(telling)] if telling is not None else []
        words += ["--seccomp", str(calls)] if seccomp.is_known_here() else []
        for name, value in variables.items():
            words += ["--setenv", name, value]
        words += [*kernel_mounts(), *system_binds()]
        shown = [p for p in self._readable if p.exists()]
        below = [p for p in shown if p.is_relative_to(self.root)]
        for path in shown:
            if path not in below:
                words += ["--ro-bind", str(path), str(path)]
        words += ["--bind", str(self._folder / "view"), self.root]
        for path in below:
            words += ["--ro-bind", str(path), str(path)]
        for hidden in filter(os.path.exists, self._hidden):
            empty = ["--size", "4096", "--tmpfs", hidden, "--remount-ro", hidden]
            words += empty if hidden.endswith("/") else ["--ro-bind", os.devnull, hidden]
        words += [] if telling is not None else ["--ro-bind", str(self._folder / "view"), _LOWER]
        return [*words, "--bind", str(self._scratch), _SCRATCH, "--remount-ro", "/", "--chdir", "/", "--"]

    def fork(self) -> Self:
        """Copy what was written, and nothing else."""
        self._require_open()
        return type(self)(
            self._tree,
            mount_at=self.root,
            readable=self._readable,
            hidden=self._hidden,
            overlay=self._overlay,
            like=self,
        )

    def _place(self, path: str) -> tuple[OverlayFiles | PlainFiles, str]:
        self._require_open()
        in_scratch, relative = inside(path, self.root, self.scratch)
        return PlainFiles(self._scratch) if in_scratch else self._files, relative


def _exit_code(reports: IO[bytes]) -> int | None:
    """Return how the command ended as bubblewrap tells it, negative for a signal; None when it was not started."""
    for line in reports:
        code = json.loads(line).get("exit-code")
        if code is not None:
            # bubblewrap reports a signal as a shell does.
            return 128 - int(code) if 128 < code <= 192 else int(code)
    return None


def _last(raw: bytes) -> str:
    lines = raw.decode(errors="replace").strip().splitlines()
    return lines[-1][:300] if lines else "it said nothing"
