"""The sandbox `process`: a copy of the tree and limits, no isolation; for the user's own code with our own bugs."""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

from pytest_ssr.errors import SandboxError
from pytest_ssr.sandbox import files
from pytest_ssr.sandbox.protocol import MIB, Availability, ExecResult, Limits
from pytest_ssr.sandbox.running import limited, run
from pytest_ssr.sandbox.sampling import disk_bytes

_MARKER = "SSR_SANDBOX_RUN"


class ProcessProvider:
    """Opens copies in a temporary folder."""

    name = "process"

    def probe(self) -> Availability:
        """It works wherever a process can be started; its detail says what it does not keep out."""
        detail = "copies and limits only: host files, home and network stay reachable"
        return Availability(True, detail, "for model-written code install bubblewrap: apt-get install bubblewrap")

    def open(self, tree: Path, *, mount_at: str, readable: Sequence[Path] = ()) -> ProcessSandbox:
        """Copy the tree; it lies in the sandbox's own folder, not at `mount_at`."""
        return ProcessSandbox(tree)


class ProcessSandbox:
    """A copied tree and a scratch folder beside it."""

    def __init__(self, tree: Path, scratch: Path | None = None) -> None:
        self._folder = files.new_folder()
        self._tree = self._folder / "tree"
        self._scratch = self._folder / "scratch"
        self.root = str(self._tree)
        self.scratch = str(self._scratch)
        try:
            shutil.copytree(tree, self._tree, symlinks=True)
            if scratch is not None:
                shutil.copytree(scratch, self._scratch, symlinks=True)
            for name in ("home", "tmp"):
                (self._scratch / name).mkdir(parents=True, exist_ok=True)
        except (OSError, shutil.Error) as error:
            files.discard(self._folder)
            raise SandboxError(f"the tree cannot be copied for the sandbox: {error}") from None
        self._copied = disk_bytes(self._tree, self._scratch)

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
        marker = f"{_MARKER}={secrets.token_hex(8)}"
        variables = {
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "HOME": f"{self.scratch}/home",
            "TMPDIR": f"{self.scratch}/tmp",
            "LANG": "C.UTF-8",
            "TZ": "UTC",
            **(env or {}),
            _MARKER: marker.partition("=")[2],
        }
        return run(
            lambda started: limited(argv, limits, started),
            env=variables,
            cwd=cwd or self.root,
            stdin=stdin,
            limits=limits,
            written=lambda: disk_bytes(self._tree, self._scratch) - self._copied,
            marker=marker,
        )

    def read(self, path: str, *, max_bytes: int = 64 * MIB) -> bytes:
        """Return a regular file's content; see the protocol."""
        data = files.read_file(*self._place(path), max_bytes)
        if data is None:
            raise FileNotFoundError(path)
        return data

    def write(self, path: str, data: bytes, *, executable: bool = False) -> None:
        """Write a regular file; see the protocol."""
        files.write_file(*self._place(path), data, executable=executable)

    def remove(self, path: str) -> None:
        """Remove a file or link; see the protocol."""
        files.remove_file(*self._place(path))

    def fork(self) -> Self:
        """Copy tree and scratch as they are now."""
        return type(self)(self._tree, self._scratch)

    def close(self) -> None:
        """Remove the folder."""
        files.discard(self._folder)

    def __enter__(self) -> Self:
        """Return the sandbox itself."""
        return self

    def __exit__(self, *exc_info: object) -> None:
        """Close it."""
        self.close()

    def _place(self, path: str) -> tuple[Path, str]:
        return files.inside(path, (self.root, self._tree), (self.scratch, self._scratch))
