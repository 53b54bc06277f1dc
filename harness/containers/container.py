"""A container without an engine: an overlay of an image's layers as the root, in namespaces that bubblewrap makes.

Unlike a sandbox of `pytest_ssr.sandbox`, it has a root that is writable, root and other users, and what a command
leaves running goes on running until the container is stopped. Of the host it shows no file; the system call filter is
that of the sandboxes, the capabilities are those of Docker's containers, and set-user-id programs have no effect.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from harness.containers import user_namespace
from harness.containers.registry import ImageSettings
from pytest_ssr.errors import SandboxError, SandboxMissingError
from pytest_ssr.sandbox.host import proc_mounts
from pytest_ssr.sandbox.protocol import Limits
from pytest_ssr.sandbox.supervision import cgroup, seccomp

# As Docker grants them (man capabilities), without those that only serve to attack: raw sockets and audit messages.
_CAPABILITIES = {
    "CHOWN": 0, "DAC_OVERRIDE": 1, "FOWNER": 3, "FSETID": 4, "KILL": 5, "SETGID": 6, "SETUID": 7, "SETPCAP": 8,
    "NET_BIND_SERVICE": 10, "SETFCAP": 31,
}  # fmt: skip
_NAMESPACES = ("user", "mnt", "pid", "uts", "ipc")
_PROCESSES = 4096
_GRACE_S = 10.0
_HOST = "container"
_HOSTS = f"127.0.0.1 localhost {_HOST}\n::1 localhost\n"


@dataclass(frozen=True, slots=True)
class LocalImage:
    """An image whose layers are on this machine."""

    settings: ImageSettings
    layers: tuple[Path, ...]
    """The lowest first."""
    has_triggers: bool = False


@dataclass(frozen=True, slots=True)
class Bind:
    """A host path that a container shows."""

    source: str
    target: str
    is_read_only: bool = False


@dataclass(frozen=True, slots=True)
class ContainerOptions:
    """What a container may use."""

    has_network: bool = False
    """Whether it shares the host's network; otherwise it has none."""
    cpus: int = 0
    """The number of processors; 0 for all."""
    memory_bytes: int = 0
    """The memory of all processes together, if this user may create control groups; 0 for no limit."""
    binds: Sequence[Bind] = field(default_factory=tuple)


class Container:
    """A running container; raises SandboxError if it does not start."""

    def __init__(self, image: LocalImage, folder: Path, options: ContainerOptions) -> None:
        """Start it. folder: an empty folder for its files; the caller removes it with `user_namespace.remove`."""
        self.image = image
        self._options, self._folder = options, folder
        self._group = cgroup.new_group(
            Limits(memory_bytes=options.memory_bytes or 1 << 50, processes=_PROCESSES, disk_bytes=0)
        )
        available = sorted(os.sched_getaffinity(0))
        few = 0 < options.cpus < len(available)
        self._cpus = random.sample(available, options.cpus) if few else []
        self._namespaces = [*_NAMESPACES, *(() if options.has_network else ("net",))]
        try:
            self._prepare()
            self._process = self._start()
        except BaseException:
            if self._group is not None:
                self._group.remove()
            raise

    def _prepare(self) -> None:
        for name in ("upper", "work", "view"):
            (self._folder / name).mkdir()
        (self._folder / "upper").chmod(0o755)
        # The options of a mount are short, and links need no escaping there.
        for number, layer in enumerate(self.image.layers):
            (self._folder / f"l{number}").symlink_to(layer)
        (self._folder / "hosts").write_text(_HOSTS)

    def _start(self) -> subprocess.Popen[bytes]:
        reading, writing = os.pipe()
        with os.fdopen(reading, "rb") as report, seccomp.descriptor(namespaces=False) as filter_fd:
            try:
                told = {
                    "groups": self._group.join_files if self._group is not None else [],
                    "cpus": self._cpus,
                    "layers": [f"l{number}" for number in reversed(range(len(self.image.layers)))],
                    "command": self._command(writing, filter_fd),
                }
                process = user_namespace.start("start", self._folder, told, pass_fds=(writing, filter_fd))
            finally:
                os.close(writing)
            assert process.stdout is not None
            lines = []
            for line in process.stdout:
                if line == b"started\n":
                    break
                lines.append(line.decode(errors="replace").strip())
            else:
                process.stdout.close()
                process.wait()
                if any("bwrap" in line and "No such file" in line for line in lines[-1:]):
                    raise SandboxMissingError("bwrap is not installed; install it: apt-get install bubblewrap")
                raise SandboxError(f"the container does not start: {lines[-1] if lines else 'no reason given'}")
            self.pid = int(json.load(report)["child-pid"])
            self._first = os.pidfd_open(self.pid)
        return process

    def _command(self, report: int, filter_fd: int) -> list[str]:
        command = ["bwrap", "--unshare-pid", "--unshare-uts", "--unshare-ipc", "--hostname", _HOST]
        command += [] if self._options.has_network else ["--unshare-net"]
        command += ["--die-with-parent", "--new-session", "--info-fd", str(report), "--cap-drop", "ALL"]
        for name in _CAPABILITIES:
            command += ["--cap-add", f"CAP_{name}"]
        command += ["--seccomp", str(filter_fd)] if seccomp.is_known_here() else []
        command += ["--bind", str(self._folder / "view"), "/", *proc_mounts(), "--dev", "/dev"]
        command += ["--perms", "1777", "--tmpfs", "/dev/shm"]
        command += ["--ro-bind", str(self._folder / "hosts"), "/etc/hosts"]
        if self._options.has_network and Path("/etc/resolv.conf").is_file():
            command += ["--ro-bind", "/etc/resolv.conf", "/etc/resolv.conf"]
        for bind in self._options.binds:
            command += ["--ro-bind" if bind.is_read_only else "--bind", bind.source, bind.target]
        command += ["--clearenv", "--setenv", "PATH", user_namespace.HOST_ENV["PATH"], "--chdir", "/"]
        return [*command, "--", "/bin/sh", "-c", "echo started; exec sleep infinity >/dev/null 2>&1"]

    @property
    def argv(self) -> list[str]:
        """The command that enters the container, whose standard input is a request."""
        return user_namespace.guest_command("command")

    def execute_request(self, argv: Sequence[str], *, env: Mapping[str, str], user: str, cwd: str) -> bytes:
        """Return the request to execute a command."""
        return self._request("execute", argv=list(argv), env=dict(env), user=user, cwd=cwd)

    def unpack_request(
        self, folder: str, *, user: str = "root", rename: str = "", mode: int | None = None, keeps_owners: bool = False
    ) -> bytes:
        """Return the request to unpack the archive that follows it."""
        return self._request("unpack", folder=folder, user=user, rename=rename, mode=mode, keeps_owners=keeps_owners)

    def pack_request(self, path: str) -> bytes:
        """Return the request to write a path as an archive."""
        return self._request("pack", path=path)

    def _request(self, do: str, **fields: Any) -> bytes:
        told = {
            **fields,
            "do": do,
            "pid": self.pid,
            "groups": self._group.join_files if self._group is not None else [],
            "cpus": self._cpus,
            "namespaces": self._namespaces,
            "capabilities": sorted(_CAPABILITIES.values()),
            "filter": seccomp.program(namespaces=False).hex(),
        }
        return json.dumps(told).encode() + b"\n"

    def run(self, request: bytes, data: IO[bytes] | None = None) -> tuple[int, str]:
        """Run a request, with an archive after it, and return its exit status and the end of its output."""
        with tempfile.TemporaryFile() as output:
            process = subprocess.Popen(
                self.argv,
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=user_namespace.HOST_ENV,
                start_new_session=True,
            )
            assert process.stdin is not None
            try:
                with contextlib.suppress(BrokenPipeError), process.stdin:
                    process.stdin.write(request)
                    while data is not None and (chunk := data.read(1 << 20)):
                        process.stdin.write(chunk)
                code = process.wait()
            except BaseException:
                end(process.pid)
                process.wait()
                raise
            output.seek(max(0, output.seek(0, os.SEEK_END) - 4096))
            return code, output.read().decode(errors="replace").strip()

    def stop(self) -> None:
        """Kill everything that runs in the container; idempotent."""
        if self._first >= 0:
            # The kernel ends a namespace of processes before its first one is gone; bubblewrap waits for that.
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._first, signal.SIGKILL)
            os.close(self._first)
            self._first = -1
        try:
            self._process.wait(_GRACE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
        if self._group is not None:
            self._group.remove()
            self._group = None


def end(request: int) -> None:
    """End a request by its process, and what it has started, but not what has left its group of processes."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(request, signal.SIGTERM)


def archive_of(source: Path, target: IO[bytes]) -> None:
    """Write the content of a folder, or a file, as an archive whose files belong to root."""

    def owned_by_root(member: tarfile.TarInfo) -> tarfile.TarInfo:
        member.uid = member.gid = 0
        member.uname = member.gname = ""
        return member

    with tarfile.open(fileobj=target, mode="w|") as archive:
        entries = sorted(source.iterdir()) if source.is_dir() else [source]
        for entry in entries:
            archive.add(entry, entry.name, filter=owned_by_root)
