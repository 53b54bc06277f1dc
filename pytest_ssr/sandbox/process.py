"""The sandbox `process`: a copy of the tree and limits, no isolation; for the user's own code with our own bugs."""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

from pytest_ssr.errors import SandboxError
from pytest_ssr.sandbox import folders
from pytest_ssr.sandbox.conversation import Conversation
from pytest_ssr.sandbox.files import PlainFiles, inside, place
from pytest_ssr.sandbox.folder_backed import FolderBacked
from pytest_ssr.sandbox.local_command import LocalCommand
from pytest_ssr.sandbox.protocol import Availability, ExecResult, Limits
from pytest_ssr.sandbox.running import limited, run

_MARKER = "SSR_SANDBOX_RUN"
_SWEEP_BY = Path("/proc/self/stat")


class ProcessProvider:
    """Opens copies in a temporary folder."""

    name = "process"

    def probe(self) -> Availability:
        """It works wherever `/proc` shows processes; its detail says what it does not keep out."""
        if not _SWEEP_BY.exists():
            return Availability(False, "there is no /proc to watch processes by", "run it on Linux, with /proc mounted")
        detail = "copies and limits only: host files, home and network stay reachable"
        return Availability(True, detail, "for model-written code install bubblewrap: apt-get install bubblewrap")

    def open(
        self, tree: Path, *, mount_at: str, readable: Sequence[Path] = (), hidden: Sequence[str] = ()
    ) -> ProcessSandbox:
        """Copy the tree; it lies in the sandbox's own folder, not at `mount_at`, and `root` tells where."""
        return ProcessSandbox(tree)


class ProcessSandbox(FolderBacked):
    """A copied tree and a scratch folder beside it."""

    private: tuple[str, ...] = ()

    def __init__(self, tree: Path, scratch: Path | None = None) -> None:
        self._folder = folders.new_folder()
        tree_copy, self._scratch = self._folder / "tree", self._folder / "scratch"
        self.root, self.scratch = str(tree_copy), str(self._scratch)
        self.lower = self.root
        self._tree = tree_copy
        try:
            folders.copy_tree(tree, tree_copy)
            if scratch is not None:
                folders.copy_tree(scratch, self._scratch)
            folders.prepare_scratch(self._scratch)
        except BaseException as error:
            folders.discard(self._folder)
            if isinstance(error, OSError | shutil.Error):
                raise SandboxError(f"the tree cannot be copied for the sandbox: {error}") from None
            raise
        self._copied = folders.disk_bytes(tree_copy, self._scratch)

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
            limited(argv, limits, place(self.root, cwd)),
            env=variables,
            stdin=stdin,
            limits=limits,
            written=self._written,
            marker=marker,
        )

    def converse(self, argv: Sequence[str], *, limits: Limits, env: Mapping[str, str] | None = None) -> Conversation:
        """Start a command that stays; see Conversing."""
        variables, marker = self._variables(env)
        inner = limited(argv, limits, self.root)
        command = LocalCommand(inner, env=variables, limits=limits, written=self._written, marker=marker)
        return Conversation(command, limits)

    def _variables(self, env: Mapping[str, str] | None) -> tuple[dict[str, str], str]:
        self._require_open()
        folders.prepare_scratch(self._scratch)
        secret = secrets.token_hex(8)
        return {**folders.environment(self.scratch), **(env or {}), _MARKER: secret}, f"{_MARKER}={secret}"

    def _written(self) -> int:
        return folders.disk_bytes(self._tree, self._scratch) - self._copied

    def fork(self) -> Self:
        """Copy tree and scratch as they are now."""
        self._require_open()
        return type(self)(self._tree, self._scratch)

    def _place(self, path: str) -> tuple[PlainFiles, str]:
        self._require_open()
        in_scratch, relative = inside(path, self.root, self.scratch)
        return PlainFiles(self._scratch if in_scratch else self._tree), relative
