"""The seam between what is run and where: a provider opens sandboxes on an immutable tree.

A sandbox shows a private copy-on-write view of the tree at `root`. Writes are kept between `exec` calls of the
same sandbox and are seen by nobody else; the tree itself never changes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, Self, runtime_checkable

from pytest_ssr.outcomes import Limit

__all__ = ["MIB", "Availability", "ExecResult", "Limit", "Limits", "Sandbox", "SandboxProvider", "WithImage"]

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Limits:
    """What one command may use; past any of these the whole process group dies."""

    wall_s: float = 120.0
    """Seconds of wall time."""
    memory_bytes: int = 4096 * MIB
    """Memory: address space of each process (where the kernel offers no better), resident set of all together."""
    processes: int = 256
    """Processes and threads alive at a time."""
    output_bytes: int = 16 * MIB
    """Bytes on standard output and standard error together."""
    file_bytes: int = 512 * MIB
    """Size of one file."""
    disk_bytes: int = 1024 * MIB
    """Bytes of all that was written in the sandbox."""


@dataclass(frozen=True, slots=True)
class ExecResult:
    """What one command did."""

    exit_code: int | None
    """The exit status, negative for a signal, None when a limit ended it."""
    stdout: bytes
    """Standard output, as far as the output limit allowed."""
    stderr: bytes
    """Standard error, likewise."""
    seconds: float
    """Wall time."""
    limit: Limit | None = None
    """The limit that ended the command."""


@dataclass(frozen=True, slots=True)
class Availability:
    """Whether a sandbox works on this machine."""

    works: bool
    """It was tried on the spot and worked."""
    detail: str
    """Version and isolation if it works, else what failed."""
    remedy: str = ""
    """What to install or change."""


class Sandbox(Protocol):
    """An open sandbox on a private view of a tree; a context manager that closes itself."""

    root: str
    """The tree's directory as commands inside see it."""
    scratch: str
    """A private writable directory outside the tree as commands inside see it; TMPDIR and HOME lie in it."""

    def exec(
        self,
        argv: Sequence[str],
        *,
        limits: Limits,
        env: Mapping[str, str] | None = None,
        stdin: bytes = b"",
        cwd: str | None = None,
    ) -> ExecResult:
        """Run `argv` (default directory: `root`) with a minimal environment plus `env`, and wait for its end.

        Raises SandboxError when the sandbox itself fails to start the command. A missing program is exit code 127.
        """

    def read(self, path: str, *, max_bytes: int = 64 * MIB) -> bytes:
        """Return the content of a regular file inside `root` or `scratch` (absolute as seen inside, or relative
        to `root`).

        Symlinks are not followed and nothing outside is reached. Raises FileNotFoundError when there is no such
        regular file, SandboxError when it is larger than `max_bytes` or the path leaves the sandbox.
        """

    def write(self, path: str, data: bytes, *, executable: bool = False) -> None:
        """Write a regular file inside `root` or `scratch`, making its parents; same path rules as `read`.

        An existing file or symlink at `path` is replaced, not written through.
        """

    def remove(self, path: str) -> None:
        """Remove a file or symlink from the view; missing is no error; same path rules as `read`."""

    def fork(self) -> Self:
        """Return a new sandbox whose view starts as this one's is now; both are independent after."""

    def close(self) -> None:
        """Kill what still runs and remove every trace; idempotent."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *exc_info: object) -> None: ...


class SandboxProvider(Protocol):
    """A kind of sandbox, under the name that users type."""

    name: str

    def probe(self) -> Availability:
        """Try it on this machine, now; never raises for a sandbox that does not work."""

    def open(self, tree: Path, *, mount_at: str, readable: Sequence[Path] = (), hidden: Sequence[str] = ()) -> Sandbox:
        """Open a sandbox on a directory that nobody changes while it is open.

        mount_at: where the tree should appear inside (the project's own path, so that editable installs resolve
        to the view); a provider that cannot do so puts it elsewhere, and `root` tells.
        readable: further host paths the commands may read (the interpreter's prefixes, site directories).
        hidden: files inside, and folders (these end with a slash), that are shown empty; a provider that isolates
        nothing hides nothing.
        Raises SandboxUnavailableError when the sandbox does not work here, SandboxError when it breaks.
        """


@runtime_checkable
class WithImage(Protocol):
    """A provider whose sandboxes can show an image in place of the host's system."""

    image: str
    """The image's name; empty: the host's system is shown."""

    def image_digest(self) -> str:
        """Return what tells the image's content from any other; raises SandboxError where it cannot be had."""
