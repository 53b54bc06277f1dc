"""The sandbox `process`: limits on a copy of the tree without isolation; for trusted code with generated bugs."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from pytest_ssr.errors import SandboxError
from pytest_ssr.sandbox.filesystem import workdirs
from pytest_ssr.sandbox.filesystem.directory_sandbox import DirectorySandbox
from pytest_ssr.sandbox.filesystem.safe_files import PlainFiles, locate, working_directory
from pytest_ssr.sandbox.protocol import Availability, ExecResult, Limits
from pytest_ssr.sandbox.supervision.local_session import LocalSession
from pytest_ssr.sandbox.supervision.process_table import has_proc
from pytest_ssr.sandbox.supervision.rpc_session import RpcSession
from pytest_ssr.sandbox.supervision.supervisor import run, with_limits

_MARKER = "SSR_SANDBOX_RUN"


class ProcessProvider:
    """Open sandboxes that are copies in a temporary folder."""

    name = "process"

    def probe(self) -> Availability:
        """Return whether processes can be watched; the detail names what the sandbox does not isolate."""
        if not has_proc() and shutil.which("ps") is None:
            return Availability(False, "neither /proc nor the program ps is available", "mount /proc, or install ps")
        if not hasattr(os, "waitid"):
            return Availability(False, "this Python has no os.waitid", "on macOS, use Python 3.13 or newer")
        detail = "copies and limits only: host files, home and network stay reachable"
        return Availability(True, detail, "for model-written code install bubblewrap: apt-get install bubblewrap")

    def open(
        self, tree: Path, *, mount_at: str, readable: Sequence[Path] = (), hidden: Sequence[str] = ()
    ) -> ProcessSandbox:
        """Copy the tree to the sandbox's own folder, not to `mount_at`; `root` is its path."""
        return ProcessSandbox(tree)


class ProcessSandbox(DirectorySandbox):
    """A copied tree and a scratch folder beside it."""

    private: tuple[str, ...] = ()

    def __init__(self, tree: Path) -> None:
        self._folder = workdirs.new_folder()
        tree_copy, self._scratch = self._folder / "tree", self._folder / "scratch"
        self.root, self.scratch = str(tree_copy), str(self._scratch)
        self.lower = self.root
        self._tree = tree_copy
        try:
            workdirs.copy_tree(tree, tree_copy)
            workdirs.prepare_scratch(self._scratch)
        except BaseException as error:
            workdirs.discard(self._folder)
            if isinstance(error, OSError | shutil.Error):
                raise SandboxError(f"the tree cannot be copied for the sandbox: {error}") from None
            raise
        self._copied = workdirs.disk_bytes(tree_copy, self._scratch)

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
        variables, marker = self._variables(env)
        return run(
            self._command(argv, limits, working_directory(self.root, cwd)),
            env=variables,
            stdin=stdin,
            limits=limits,
            written=self._written,
            marker=marker,
        )

    def converse(self, argv: Sequence[str], *, limits: Limits, env: Mapping[str, str] | None = None) -> RpcSession:
        """Start a long-running command; see Conversing."""
        variables, marker = self._variables(env)
        inner = self._command(argv, limits, self.root)
        command = LocalSession(inner, env=variables, limits=limits, written=self._written, marker=marker)
        return RpcSession(command, limits)

    def _command(self, argv: Sequence[str], limits: Limits, cwd: str) -> list[str]:
        """Return the whole command to start for one that runs inside."""
        return with_limits(argv, limits, cwd)

    def _variables(self, env: Mapping[str, str] | None) -> tuple[dict[str, str], str]:
        self._require_open()
        workdirs.prepare_scratch(self._scratch)
        secret = secrets.token_hex(8)
        return {**workdirs.environment(self.scratch), **(env or {}), _MARKER: secret}, f"{_MARKER}={secret}"

    def _written(self) -> int:
        return workdirs.disk_bytes(self._tree, self._scratch) - self._copied

    def _locate(self, path: str) -> tuple[PlainFiles, str]:
        self._require_open()
        in_scratch, relative = locate(path, self.root, self.scratch)
        return PlainFiles(self._scratch if in_scratch else self._tree), relative
