"""Define the sandbox protocol: a provider opens sandboxes on an immutable tree, and commands run in them.

A sandbox shows a private copy-on-write view of the tree at `root`. Writes persist between `exec` calls of the
same sandbox and are not visible anywhere else; the tree itself never changes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, Self, runtime_checkable

from pytest_ssr.records.test_run import Limit

__all__ = [
    "MIB",
    "Availability",
    "ExecResult",
    "HoldsImages",
    "Image",
    "KeepsIdle",
    "Limit",
    "Limits",
    "Sandbox",
    "SandboxProvider",
    "Slotted",
    "Streaming",
    "WithBuiltFiles",
    "WithImage",
]

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Limits:
    """The resources that one command may use; beyond any of these limits the whole process group is killed."""

    wall_s: float = 120.0
    """Seconds of wall time."""
    memory_bytes: int = 4096 * MIB
    """Memory: address space of each process (if the kernel offers nothing better), resident set of all together."""
    processes: int = 256
    """Number of processes and threads alive at the same time."""
    output_bytes: int = 16 * MIB
    """Total number of bytes on standard output and standard error."""
    file_bytes: int = 512 * MIB
    """Maximum size of one file."""
    disk_bytes: int = 1024 * MIB
    """Total number of bytes written in the sandbox."""


@dataclass(frozen=True, slots=True)
class ExecResult:
    """The result of one command."""

    exit_code: int | None
    """The exit status, negative for a signal, None if a limit ended the command."""
    stdout: bytes
    """Standard output, as far as the output limit allowed."""
    stderr: bytes
    """Standard error, as far as the output limit allowed."""
    seconds: float
    """Wall time in seconds."""
    limit: Limit | None = None
    """The limit that ended the command, if any."""


@dataclass(frozen=True, slots=True)
class Availability:
    """Whether a sandbox works on this machine."""

    works: bool
    """Whether a trial on this machine succeeded."""
    detail: str
    """The version and isolation if it works, otherwise what failed."""
    remedy: str = ""
    """What to install or change to make it work."""
    is_missing: bool = False
    """Whether a program or package that it needs is not installed."""


class Sandbox(Protocol):
    """An open sandbox on a private view of a tree; a context manager that closes the sandbox on exit."""

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
        """Run `argv` (default directory: `root`) with a minimal environment plus `env`, and wait for it to end.

        Raises SandboxError if the sandbox itself fails to start the command. A missing program gives exit code 127.
        """

    def read(self, path: str, *, max_bytes: int = 64 * MIB) -> bytes:
        """Return the content of a regular file inside `root` or `scratch` (absolute as seen inside, or relative
        to `root`).

        Symlinks are not followed and nothing outside is reached. Raises FileNotFoundError if the file does not
        exist or is not regular, SandboxError if it is larger than `max_bytes` or the path leaves the sandbox.
        """

    def write(self, path: str, data: bytes, *, executable: bool = False) -> None:
        """Write a regular file inside `root` or `scratch`, creating its parents; same path rules as `read`.

        An existing file or symlink at `path` is replaced, not written through.
        """

    def remove(self, path: str) -> None:
        """Remove a file or symlink from the view, if it exists; same path rules as `read`."""

    def close(self) -> None:
        """Kill running commands and remove every trace; idempotent."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *exc_info: object) -> None: ...


class SandboxProvider(Protocol):
    """A kind of sandbox; `name` is what users type."""

    name: str

    def probe(self) -> Availability:
        """Try the sandbox on this machine; never raises for a sandbox that does not work."""

    def open(self, tree: Path, *, mount_at: str, readable: Sequence[Path] = (), hidden: Sequence[str] = ()) -> Sandbox:
        """Open a sandbox on a directory, which must not change while the sandbox is open.

        mount_at: the path at which the tree should appear inside (the project's own path, so that editable installs
        resolve to the view); a provider that cannot do so uses another path, which `root` contains.
        readable: more host paths that commands may read (the interpreter's prefixes, site directories).
        hidden: files inside, and folders (these end with a slash), that are shown empty; a provider without
        isolation hides nothing.
        Raises SandboxUnavailableError if the sandbox does not work here, SandboxError if it fails.
        """


@runtime_checkable
class WithImage(Protocol):
    """A provider whose sandboxes can show an image instead of the host's system."""

    image: str
    """The name of the image; empty to show the host's system."""

    def image_digest(self) -> str:
        """Return a string that identifies the image's content; raises SandboxError if it cannot be determined."""

    def exec_in_image(self, argv: Sequence[str], *, limits: Limits, stdin: bytes = b"") -> ExecResult:
        """Run a command in the image, in a sandbox without a tree, so that all of the image's files are visible."""


@dataclass(frozen=True, slots=True)
class Image:
    """An image on this machine."""

    name: str
    """With its tag or digest."""
    id: str
    """A hash of its content."""
    size_bytes: int


@runtime_checkable
class HoldsImages(Protocol):
    """A provider whose engine keeps images on this machine."""

    def local_images(self) -> Sequence[Image]:
        """Return the images that are there, by name; raises SandboxError without an engine."""

    def pull(self, image: str) -> Image:
        """Pull an image if it is missing; raises SandboxError if that fails."""


class KeepsIdle(Protocol):
    """Something that keeps sandboxes open between their uses."""

    def close_idle(self) -> bool:
        """Close one that is not in use now; return whether there was one."""


@runtime_checkable
class Slotted(Protocol):
    """A provider that has only so many sandboxes open at the same time, and waits if they are all in use."""

    @property
    def slots(self) -> int:
        """How many; 0 if that is not known."""

    def add_keeper(self, keeper: KeepsIdle) -> None:
        """Let idle sandboxes of this provider give way to others, as long as their keeper exists."""


@runtime_checkable
class Streaming(Protocol):
    """A sandbox that hands output on while a command runs; the listener may read files then.

    See `supervision.output_listener`. An exception of the listener leaves `exec`; the command ends with the sandbox at
    the latest.
    """

    streams: bool


@runtime_checkable
class WithBuiltFiles(Protocol):
    """A sandbox whose tree shows files that its image has built there."""

    built: frozenset[str]
    """Their paths, relative to the root; git does not track them, and they are part of no patch."""
