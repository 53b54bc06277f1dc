"""The sandbox `user`: commands on a copy of the tree run as another user of this machine, without privileges.

It is for root inside a container, which may create no namespaces. Commands cannot read files that only their owner may
read, and cannot write files that are not world-writable; each sandbox has a user of its own. They share the machine's
network and processes, and what other users may see of them.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import secrets
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from pytest_ssr.errors import SandboxUnavailableError
from pytest_ssr.sandbox.process import ProcessProvider, ProcessSandbox
from pytest_ssr.sandbox.protocol import Availability, ExecResult, Limits
from pytest_ssr.sandbox.supervision import process_table
from pytest_ssr.sandbox.supervision.rpc_session import RpcSession

_FIRST_USER, _USERS = 20_000, 40_000
"""Numbers that a container has even if its users are mapped to a range of 65,536."""
_TIMEOUT_S = 30
_ROUNDS = 200
"""Of killing and waiting; processes end at once, unless the kernel holds them."""


class OtherUserProvider(ProcessProvider):
    """Open sandboxes that are copies in a temporary folder, each of another user."""

    name = "user"

    def probe(self) -> Availability:
        """Return whether this process is root, and may start a command as another user."""
        if os.geteuid() != 0:
            return Availability(False, "this user is not root", "run it as root, as in a container")
        if shutil.which("setpriv") is None:
            return Availability(False, "setpriv is not installed", "install it: apt-get install util-linux")
        tried = subprocess.run([*_as_user(_FIRST_USER), "true"], capture_output=True, check=False, timeout=_TIMEOUT_S)
        if tried.returncode:
            reason = tried.stderr.decode(errors="replace").strip()
            return Availability(False, f"no command runs as another user: {reason}", "allow CAP_SETUID and CAP_SETGID")
        return Availability(True, "another user without privileges; network and processes of the machine stay visible")

    def open(
        self, tree: Path, *, mount_at: str, readable: Sequence[Path] = (), hidden: Sequence[str] = ()
    ) -> OtherUserSandbox:
        """Copy the tree to the sandbox's own folder, not to `mount_at`; `root` is its path."""
        return OtherUserSandbox(tree)


class OtherUserSandbox(ProcessSandbox):
    """A copied tree and a scratch folder that belong to another user."""

    def __init__(self, tree: Path) -> None:
        if os.geteuid() != 0:
            raise SandboxUnavailableError("the sandbox user needs root")
        self._user = _unused_user()
        super().__init__(tree)
        # Others may pass through the folder, but read neither of the two in it.
        self._folder.chmod(0o711)
        self._tree.chmod(0o700)
        self._scratch.chmod(0o700)
        self._is_owned, self._converses = False, False

    def write(self, path: str, data: bytes, *, executable: bool = False) -> None:
        """Write a regular file; see the protocol."""
        super().write(path, data, executable=executable)
        self._is_owned = False

    def exec(
        self,
        argv: Sequence[str],
        *,
        limits: Limits,
        env: Mapping[str, str] | None = None,
        stdin: bytes = b"",
        cwd: str | None = None,
    ) -> ExecResult:
        """Run a command, and end whatever it leaves behind before anything is read; see the protocol."""
        try:
            return super().exec(argv, limits=limits, env=env, stdin=stdin, cwd=cwd)
        finally:
            if not self._converses:
                _end_all_of(self._user)

    def converse(self, argv: Sequence[str], *, limits: Limits, env: Mapping[str, str] | None = None) -> RpcSession:
        """Start a long-running command, which ends with the sandbox at the latest; see Conversing."""
        self._converses = True
        return super().converse(argv, limits=limits, env=env)

    def close(self) -> None:
        """End all processes of the user, and remove the files; see the protocol."""
        _end_all_of(self._user)
        super().close()

    def _command(self, argv: Sequence[str], limits: Limits, cwd: str) -> list[str]:
        return [*_as_user(self._user), *super()._command(argv, limits, cwd)]

    def _variables(self, env: Mapping[str, str] | None) -> tuple[dict[str, str], str]:
        variables = super()._variables(env)
        if not self._is_owned:
            for folder in (self._tree, self._scratch):
                _give(folder, self._user)
            self._is_owned = True
        else:
            for folder in (self._scratch, self._scratch / "home", self._scratch / "tmp"):
                os.chown(folder, self._user, self._user, follow_symlinks=False)
        return variables


def _end_all_of(user: int) -> None:
    """Kill all processes of a user at once (kill(2) with -1), and wait until they have ended.

    Other sandboxes find a process whose parents have ended by its environment. It can empty that, and root without
    CAP_SYS_PTRACE, as in a container, cannot read that of another user's process.
    """
    if not _runs_any(user):
        return
    for _ in range(_ROUNDS):
        command = [*_as_user(user), "sh", "-c", "kill -KILL -1"]
        subprocess.run(command, capture_output=True, check=False, timeout=_TIMEOUT_S)
        if not _runs_any(user):
            return
        time.sleep(0.01)


def _runs_any(user: int) -> bool:
    """Return whether a user has a process that has not ended."""
    for pid, entry in (process_table.listed() or {}).items():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            if entry is not None and not entry.ended and Path(f"/proc/{pid}").stat().st_uid == user:
                return True
    return False


def _as_user(user: int) -> list[str]:
    """Return a command prefix that gives up all privileges (capabilities(7), no_new_privs of prctl(2))."""
    number = str(user)
    without = ("--clear-groups", "--no-new-privs", "--inh-caps=-all", "--bounding-set=-all", "--pdeathsig", "KILL")
    return ["setpriv", "--reuid", number, "--regid", number, *without]


def _unused_user() -> int:
    """Return the number of a user that this machine does not have, and that owns no process of it."""
    taken = {entry.pw_uid for entry in pwd.getpwall()}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(FileNotFoundError):
                taken.add(entry.stat().st_uid)
    return secrets.choice([user for user in range(_FIRST_USER, _FIRST_USER + _USERS) if user not in taken])


def _give(folder: Path, user: int) -> None:
    """Give a folder and everything in it to a user, without following links."""
    os.chown(folder, user, user, follow_symlinks=False)
    for parent, folders, files in os.walk(folder):
        for name in (*folders, *files):
            os.chown(os.path.join(parent, name), user, user, follow_symlinks=False)
