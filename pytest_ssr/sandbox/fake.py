"""Provide a fake sandbox for tests: results are scripted by command prefix, files are kept in a dictionary."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from pytest_ssr.errors import SandboxError
from pytest_ssr.sandbox.filesystem.safe_files import locate
from pytest_ssr.sandbox.protocol import MIB, Availability, ExecResult, Limits

_WORKS = Availability(True, "a fake that runs nothing")
Scripted = ExecResult | Callable[["FakeSandbox", "FakeCall"], ExecResult]


@dataclass(frozen=True, slots=True)
class FakeCall:
    """One command passed to `exec`."""

    argv: tuple[str, ...]
    """The command and its arguments."""
    env: Mapping[str, str]
    """The environment variables passed with it."""
    stdin: bytes
    """Its standard input."""
    cwd: str | None
    """The working directory passed with it."""
    limits: Limits
    """The limits passed with it."""


def fake_result(
    stdout: bytes = b"", *, exit_code: int | None = 0, stderr: bytes = b"", seconds: float = 0.01
) -> ExecResult:
    """Return a result for a script; with `exit_code` None, set its limit by `dataclasses.replace`."""
    return ExecResult(exit_code, stdout, stderr, seconds)


@dataclass(slots=True)
class FakeSandboxProvider:
    """Open fake sandboxes; the longest scripted prefix of a command selects its result, any other command fails."""

    results: Mapping[tuple[str, ...], Scripted] = field(default_factory=dict)
    """Results, or functions that return them, by command prefix; `()` matches every command."""
    availability: Availability = _WORKS
    """The result of the probe."""
    name: str = "fake"
    """The name of the provider."""
    calls: list[FakeCall] = field(default_factory=list)
    """Every command passed to any sandbox of this provider, in order."""
    opened: list[FakeSandbox] = field(default_factory=list)
    """Every sandbox opened."""

    def probe(self) -> Availability:
        """Return the scripted availability."""
        return self.availability

    def open(
        self, tree: Path, *, mount_at: str, readable: Sequence[Path] = (), hidden: Sequence[str] = ()
    ) -> FakeSandbox:
        """Read the tree's regular files into a new fake sandbox."""
        files = {
            path.relative_to(tree).as_posix(): path.read_bytes()
            for path in sorted(tree.rglob("*"))
            if path.is_file() and not path.is_symlink()
        }
        return FakeSandbox(self, mount_at.rstrip("/"), {f"{mount_at.rstrip('/')}/{p}": d for p, d in files.items()})


class FakeSandbox:
    """A fake with files by their path as seen inside, and with results from the provider's script."""

    def __init__(self, provider: FakeSandboxProvider, root: str, files: Mapping[str, bytes]) -> None:
        self.provider, self.root, self.scratch = provider, root, "/scratch"
        self.files = dict(files)
        self.executable: set[str] = set()
        self.closed = False
        provider.opened.append(self)

    def exec(
        self,
        argv: Sequence[str],
        *,
        limits: Limits,
        env: Mapping[str, str] | None = None,
        stdin: bytes = b"",
        cwd: str | None = None,
    ) -> ExecResult:
        """Return the scripted result; raises SandboxError for a command without one."""
        call = FakeCall(tuple(argv), dict(env or {}), stdin, cwd, limits)
        self.provider.calls.append(call)
        for length in range(len(argv), -1, -1):
            scripted = self.provider.results.get(call.argv[:length])
            if scripted is not None:
                return scripted if isinstance(scripted, ExecResult) else scripted(self, call)
        raise SandboxError(f"the fake has no result for {list(argv)!r}")

    def read(self, path: str, *, max_bytes: int = 64 * MIB) -> bytes:
        """Return a file's content; see the protocol."""
        full = self._full(path)
        if full not in self.files:
            raise FileNotFoundError(path)
        if len(self.files[full]) > max_bytes:
            raise SandboxError(f"{path} is larger than {max_bytes} bytes")
        return self.files[full]

    def write(self, path: str, data: bytes, *, executable: bool = False) -> None:
        """Write a file; see the protocol."""
        full = self._full(path)
        self.files[full] = data
        (self.executable.add if executable else self.executable.discard)(full)

    def remove(self, path: str) -> None:
        """Remove a file; see the protocol."""
        self.files.pop(self._full(path), None)

    def close(self) -> None:
        """Record that the sandbox was closed."""
        self.closed = True

    def __enter__(self) -> Self:
        """Return the sandbox itself."""
        return self

    def __exit__(self, *exc_info: object) -> None:
        """Close it."""
        self.close()

    def _full(self, path: str) -> str:
        in_scratch, relative = locate(path, self.root, self.scratch)
        return f"{self.scratch if in_scratch else self.root}/{relative}"
