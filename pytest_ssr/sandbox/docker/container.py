"""Create a container, run commands in it within their limits, and remove it."""

from __future__ import annotations

import contextlib
import secrets
import select
import socket
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_ssr.errors import SandboxError
from pytest_ssr.interrupts import raise_if_stopped
from pytest_ssr.sandbox.docker.container_spec import ContainerSpec as ContainerSpec
from pytest_ssr.sandbox.docker.engine import Stream
from pytest_ssr.sandbox.docker.images import LABEL, ensure_image, host_image
from pytest_ssr.sandbox.docker.reaper import owner, remove_volume
from pytest_ssr.sandbox.filesystem.container_shell import SHELL, Frames, Shell, UnresponsiveError, used_bytes
from pytest_ssr.sandbox.protocol import MIB, ExecResult, Limit, Limits
from pytest_ssr.sandbox.supervision.output_listener import hand_on
from pytest_ssr.sandbox.supervision.supervisor import with_limits

if TYPE_CHECKING:
    import docker
from dataclasses import replace

from pytest_ssr.sandbox.filesystem.container_shell import Usage
from pytest_ssr.sandbox.supervision import cgroup

_OWN_PROCESSES = 8


class Meter:
    """Compare the usage of a container with its usage before the command."""

    def __init__(self, container: Container, limits: Limits, used_before: int, before: Usage) -> None:
        """used_before: bytes in use when the sandbox was opened. before: usage before the command."""
        self._container, self._limits = container, limits
        self._used_before, self._before = used_before, before

    def restart(self) -> None:
        """Ignore kills and refusals by the kernel so far, which were already reported."""
        usage = self._container.shell.usage(alone=False)
        self._before = replace(self._before, killed=usage.killed, full=usage.full, refused=usage.refused)

    def exceeded_limit(self) -> Limit | None:
        """Return a limit that the running command exceeds, if any."""
        usage, limits = self._container.shell.usage(alone=False), self._limits
        if usage.killed > self._before.killed:
            return cgroup.classify_kill(by_limit=usage.full > self._before.full)
        if usage.processes > limits.processes + _OWN_PROCESSES or usage.refused > self._before.refused:
            return Limit.PROCESSES
        if usage.resident_bytes > limits.memory_bytes:
            return Limit.MEMORY
        shared = usage.shared_bytes - self._before.shared_bytes
        written_before = self._before.disk_bytes - self._used_before
        if written_before + shared > limits.disk_bytes:
            written = self._container.disk_bytes() - self._before.disk_bytes
            if written_before + written > limits.disk_bytes:
                return Limit.DISK
            shared -= written
            return Limit.MEMORY if usage.resident_bytes + shared > limits.memory_bytes else None
        return None

    def exceeded_limit_at_end(self) -> Limit | None:
        """Return a limit that the command exceeded, if any, after all of its processes have ended."""
        usage = self._container.shell.usage()
        if usage.killed > self._before.killed:
            return cgroup.classify_kill(by_limit=usage.full > self._before.full)
        return Limit.DISK if usage.disk_bytes - self._used_before > self._limits.disk_bytes else None


_SLACK_BYTES = 1024 * MIB
_SAMPLE_S, _MAX_SAMPLE_S, _SHARE, _GRACE_S = 0.05, 1.0, 10, 5.0


class Container:
    """A running container and its shell.

    ended_by: the limit for which the whole container was ended, if commands caused that: the kernel killed its shell
    because memory ran out, or commands kept the shell from running. Its files are then gone.
    """

    def __init__(self, client: docker.DockerClient, spec: ContainerSpec) -> None:
        """Create and start the container; raises SandboxError or the SDK's exceptions."""
        self._client, self.spec = client, spec
        self._memory_bound = _memory_bound(Limits())
        self._alive = True
        self.ended_by: Limit | None = None
        token = secrets.token_hex(16)
        image = ensure_image(client, spec.image) if spec.image else host_image(client)
        volumes = sorted(client.images.get(image).attrs["Config"].get("Volumes") or ())
        mount_points = [*spec.private_mounts(volumes), *spec.shared_mounts()]
        self._tree_volume = f"pytest-ssr-{secrets.token_hex(8)}" if spec.namespaces else ""
        api = client.api
        self._id: str = api.create_container(
            image,
            ["-c", f"token={token}\n{SHELL}"],
            entrypoint=["/bin/sh"],
            user=f"{spec.user}:{spec.user + 1}",
            working_dir="/",
            hostname="ssr",
            stdin_open=True,
            network_disabled=True,
            labels={LABEL: owner()},
            host_config=spec.host_config(
                client, volumes=volumes, tree_volume=self._tree_volume, max_bytes=self._memory_bound
            ),
        )["Id"]
        try:
            raw = api.attach_socket(self._id, params={"stdin": 1, "stdout": 1, "stderr": 1, "stream": 1})
            self._stream = Stream(raw)
            self.shell = Shell(self._stream.socket, token, mount_points)
            api.start(self._id)
            self._clean_state = self.shell.clean()
        except BaseException:
            self.remove()
            raise

    def run(
        self,
        argv: Sequence[str],
        env: Mapping[str, str],
        limits: Limits,
        stdin: bytes,
        cwd: str,
        *,
        used_before: int,
    ) -> ExecResult:
        """Run a command until it ends or exceeds a limit; afterwards none of its processes runs."""
        begin = time.monotonic()
        name, stream, meter = self.start(with_limits(argv, limits, cwd), env, limits, used_before, stdin=bool(stdin))
        watch = _Watch(self, name, stream, stdin, limits, meter)
        try:
            limit = watch.wait_for_end(begin)
        except SandboxError as error:
            limit = self.limit_for_error(error)
        finally:
            watch.close()
        out, err = watch.output()
        code = None if limit is not None else watch.code
        return ExecResult(signed_exit_status(code), out, err, time.monotonic() - begin, limit)

    def start(
        self, inner: Sequence[str], env: Mapping[str, str], limits: Limits, used_before: int, *, stdin: bool
    ) -> tuple[str, Stream, Meter]:
        """Start a command and return its id, the stream to it, and its meter.

        used_before: bytes in use on the file systems when the sandbox was opened.
        """
        self._update_memory_bound(limits)
        self.shell.prepare(self.spec.scratch)
        meter = Meter(self, limits, used_before, self.shell.usage())
        api, user = self._client.api, f"{self.spec.user}:{self.spec.user}"
        name = api.exec_create(self._id, list(inner), stdin=stdin, user=user, environment=dict(env))["Id"]
        return name, Stream(api.exec_start(name, socket=True)), meter

    def kill(self, name: str) -> None:
        """Kill all running processes, including the named command if the engine is still starting it."""
        deadline = time.monotonic() + _GRACE_S
        self.shell.kill_others()
        while self.exit_status(name) is None and time.monotonic() < deadline:
            time.sleep(0.005)
            self.shell.kill_others()

    def limit_for_error(self, error: SandboxError) -> Limit:
        """Return the limit for which commands have ended the container; raises the error if they did not.

        A container whose shell does not answer is removed.
        """
        if self._was_out_of_memory():
            self.ended_by = Limit.MEMORY
        elif isinstance(error, UnresponsiveError):
            self.ended_by = Limit.WALL_TIME
            self.remove()
        else:
            raise error
        return self.ended_by

    def pack(self) -> bytes:
        """Return an archive (tar) of the tree and scratch for another container, with names relative to `/`."""
        spec = self.spec
        tops = [p for p in self.shell.mount_points if Path(p).is_relative_to(spec.root) or p == spec.scratch]
        return self.shell.pack(tops, without=spec.shown_in_tree())

    def disk_bytes(self) -> int:
        """Return the bytes in use on the writable file systems, measured by root, which commands cannot kill."""
        command = ["df", "-P", "-k", *self.shell.mount_points]
        name = self._client.api.exec_create(self._id, command, user="0:0")["Id"]
        return used_bytes(self._client.api.exec_start(name).decode("utf-8", "replace"))

    def exit_status(self, name: str) -> int | None:
        """Return the exit status of a command, or None while it runs."""
        state = self._client.api.exec_inspect(name)
        return None if state["Running"] else state["ExitCode"]

    def _update_memory_bound(self, limits: Limits) -> None:
        """Update the memory bound of the container; a runtime that cannot do so keeps its first one and is sampled."""
        import docker

        bound = _memory_bound(limits)
        if bound != self._memory_bound and not self.spec.runtime:
            # This fails if more is already in use; the memory is then only sampled.
            with contextlib.suppress(docker.errors.APIError):
                self._client.api.update_container(self._id, mem_limit=bound, memswap_limit=bound)
                self._memory_bound = bound

    def _was_out_of_memory(self) -> bool:
        with contextlib.suppress(Exception):
            return bool(self._client.api.inspect_container(self._id)["State"]["OOMKilled"])
        return False

    def reset(self) -> bool:
        """Empty the container; return whether its state is then the same as when it was new."""
        try:
            return self._alive and self.shell.clean() == self._clean_state
        except SandboxError:
            return False

    def remove(self) -> None:
        """Kill and remove the container; errors are ignored."""
        self._alive = False
        if hasattr(self, "_stream"):
            # Closing the stream ends the shell and so the container.
            self._stream.close()
        with contextlib.suppress(Exception):
            self._client.api.remove_container(self._id, force=True, v=True)
        if self._tree_volume:
            remove_volume(self._client, self._tree_volume)


def signed_exit_status(code: int | None) -> int | None:
    """Return an exit status of the engine, negative if it stands for a signal (128 plus its number)."""
    return 128 - code if code is not None and 128 < code <= 192 else code


def _memory_bound(limits: Limits) -> int:
    """Return the memory bound of a container, which includes files in memory such as the tree."""
    return limits.memory_bytes + limits.disk_bytes + _SLACK_BYTES


class _Watch:
    """Pass a command's input and output, sample its usage, and decide when it is finished."""

    def __init__(
        self,
        container: Container,
        name: str,
        stream: Stream,
        stdin: bytes,
        limits: Limits,
        meter: Meter,
    ) -> None:
        self._container, self._name, self._limits = container, name, limits
        self._attached, self._stream, self._meter = stream, stream.socket, meter
        self._input = memoryview(stdin)
        self._half_closed = not stdin
        self._frames = Frames()
        self._output: tuple[bytearray, bytearray] = (bytearray(), bytearray())
        self._at_end = False
        self.code: int | None = None
        self._stream.setblocking(False)
        self._store(stream.buffered)

    def wait_for_end(self, begin: float) -> Limit | None:
        """Wait until the command ends or exceeds a limit, kill its processes, and return that limit."""
        limit: Limit | None = None
        due, pause = begin + _SAMPLE_S, 0.002
        deadline = begin + self._limits.wall_s
        while limit is None:
            raise_if_stopped()
            now = time.monotonic()
            if self._size() > self._limits.output_bytes:
                limit = Limit.OUTPUT
            elif now > deadline:
                limit = Limit.WALL_TIME
            elif self._at_end or now >= due:
                self.code = self._container.exit_status(self._name)
                if self.code is not None:
                    # Processes that it leaves running also count.
                    limit = self._meter.exceeded_limit()
                    break
                if now >= due:
                    limit = self._meter.exceeded_limit()
                    due = now + min(max(_SAMPLE_S, _SHARE * (time.monotonic() - now)), _MAX_SAMPLE_S)
                else:
                    # The command has closed its streams, or is just about to end.
                    time.sleep(pause)
                    pause = min(2 * pause, _SAMPLE_S)
            else:
                self._move(min(due, deadline) - now)
        self._container.kill(self._name)
        self._drain()
        if limit is None:
            limit = self._exceeded_limit_at_end()
        return limit

    def output(self) -> tuple[bytes, bytes]:
        """Return standard output and standard error, cut off at their common limit."""
        limit = self._limits.output_bytes
        out = bytes(self._output[0][:limit])
        return out, bytes(self._output[1][: limit - len(out)])

    def close(self) -> None:
        """Close the stream."""
        self._attached.close()

    def _size(self) -> int:
        return len(self._output[0]) + len(self._output[1])

    def _exceeded_limit_at_end(self) -> Limit | None:
        return Limit.OUTPUT if self._size() > self._limits.output_bytes else self._meter.exceeded_limit_at_end()

    def _move(self, seconds: float) -> None:
        writing = [self._stream] if self._input else []
        readable, writable, _ = select.select([self._stream], writing, [], max(0.001, seconds))
        if writable:
            try:
                self._input = self._input[self._stream.send(self._input[: 1 << 16]) :]
            except BlockingIOError:
                pass
            except OSError:
                self._input = memoryview(b"")
        if not self._input and not self._half_closed:
            self._half_closed = True
            with contextlib.suppress(OSError):
                self._stream.shutdown(socket.SHUT_WR)
        if readable:
            self._receive()

    def _receive(self) -> None:
        try:
            chunk = self._stream.recv(1 << 18)
        except BlockingIOError:
            return
        except OSError:
            chunk = b""
        if not chunk:
            self._at_end = True
        self._store(chunk)

    def _store(self, chunk: bytes) -> None:
        for stream, data in self._frames.feed(chunk):
            self._output[0 if stream == 1 else 1].extend(data)
            hand_on(data)

    def _drain(self) -> None:
        """Read what remains in the stream after the command's end."""
        deadline = time.monotonic() + _GRACE_S
        while not self._at_end and self._size() <= self._limits.output_bytes:
            remaining_s = deadline - time.monotonic()
            if remaining_s <= 0:
                return
            if select.select([self._stream], [], [], remaining_s)[0]:
                self._receive()
