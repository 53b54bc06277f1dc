"""One container: how it is made, what runs in it and to which limits, and how it goes."""

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
from pytest_ssr.sandbox.docker_images import LABEL, host_image, provide
from pytest_ssr.sandbox.docker_meter import Meter
from pytest_ssr.sandbox.docker_owners import owner, remove_volume
from pytest_ssr.sandbox.docker_owners import reap as reap
from pytest_ssr.sandbox.docker_recipe import Recipe as Recipe
from pytest_ssr.sandbox.docker_stream import Stream
from pytest_ssr.sandbox.in_container import SHELL, Frames, Shell, SilentError, used_bytes
from pytest_ssr.sandbox.protocol import MIB, ExecResult, Limit, Limits
from pytest_ssr.sandbox.running import limited
from pytest_ssr.stopping import require_going_on

if TYPE_CHECKING:
    import docker

_SLACK = 1024 * MIB
_SAMPLE_S, _MOST_S, _SHARE, _GRACE_S = 0.05, 1.0, 10, 5.0


class Container:
    """A running container and its shell.

    ended_by: the limit for which it was ended as a whole, where commands have brought that about: the kernel has killed
    its shell for want of memory, or they have kept the shell from running. Then it holds nothing any more.
    """

    def __init__(self, client: docker.DockerClient, recipe: Recipe) -> None:
        """Create and start it; raises SandboxError or what the SDK raises."""
        self._client, self.recipe = client, recipe
        self._most = _most(Limits())
        self._alive = True
        self.ended_by: Limit | None = None
        token = secrets.token_hex(16)
        image = provide(client, recipe.image) if recipe.image else host_image(client)
        volumes = sorted(client.images.get(image).attrs["Config"].get("Volumes") or ())
        places = [*recipe.own_places(volumes), *recipe.shared_places()]
        self._tree_volume = f"pytest-ssr-{secrets.token_hex(8)}" if recipe.namespaces else ""
        api = client.api
        self._id: str = api.create_container(
            image,
            ["-c", f"token={token}\n{SHELL}"],
            entrypoint=["/bin/sh"],
            user=f"{recipe.user}:{recipe.user + 1}",
            working_dir="/",
            hostname="ssr",
            stdin_open=True,
            network_disabled=True,
            labels={LABEL: owner()},
            host_config=recipe.host_config(
                client, volumes=volumes, tree_volume=self._tree_volume, most_bytes=self._most
            ),
        )["Id"]
        try:
            raw = api.attach_socket(self._id, params={"stdin": 1, "stdout": 1, "stderr": 1, "stream": 1})
            self._stream = Stream(raw)
            self.shell = Shell(self._stream.socket, token, places)
            api.start(self._id)
            self._new = self.shell.clean()
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
        """Run a command to its end or to a limit; afterwards nothing of it runs."""
        begin = time.monotonic()
        name, stream, meter = self.start(limited(argv, limits, cwd), env, limits, used_before, stdin=bool(stdin))
        watch = _Watch(self, name, stream, stdin, limits, meter)
        try:
            limit = watch.to_the_end(begin)
        except SandboxError as error:
            limit = self.blamed(error)
        finally:
            watch.close()
        out, err = watch.kept()
        code = None if limit is not None else watch.code
        return ExecResult(signalled(code), out, err, time.monotonic() - begin, limit)

    def start(
        self, inner: Sequence[str], env: Mapping[str, str], limits: Limits, used_before: int, *, stdin: bool
    ) -> tuple[str, Stream, Meter]:
        """Start a command; returns its name, the stream to it, and what measures it.

        used_before: bytes on the file systems when the sandbox was opened.
        """
        self._limit(limits)
        self.shell.prepare(self.recipe.scratch)
        meter = Meter(self, limits, used_before, self.shell.usage())
        api, user = self._client.api, f"{self.recipe.user}:{self.recipe.user}"
        name = api.exec_create(self._id, list(inner), stdin=stdin, user=user, environment=dict(env))["Id"]
        return name, Stream(api.exec_start(name, socket=True)), meter

    def kill(self, name: str) -> None:
        """Kill all that runs, the named command too if the engine is only about to start it."""
        until = time.monotonic() + _GRACE_S
        self.shell.kill_others()
        while self.ended(name) is None and time.monotonic() < until:
            time.sleep(0.005)
            self.shell.kill_others()

    def blamed(self, error: SandboxError) -> Limit:
        """Return the limit for which commands have brought the container to its end; raises the error if they did not.

        A container whose shell does not answer is removed.
        """
        if self._was_out_of_memory():
            self.ended_by = Limit.MEMORY
        elif isinstance(error, SilentError):
            self.ended_by = Limit.WALL_TIME
            self.remove()
        else:
            raise error
        return self.ended_by

    def pack(self) -> bytes:
        """Return an archive of the tree and scratch for another container, with names relative to `/`."""
        recipe = self.recipe
        tops = [p for p in self.shell.places if Path(p).is_relative_to(recipe.root) or p == recipe.scratch]
        return self.shell.pack(tops, without=recipe.shown_in_tree())

    def disk_bytes(self) -> int:
        """Return the bytes on the file systems that can be written, asked by a user whom no command can hinder."""
        command = ["df", "-P", "-k", *self.shell.places]
        name = self._client.api.exec_create(self._id, command, user="0:0")["Id"]
        return used_bytes(self._client.api.exec_start(name).decode("utf-8", "replace"))

    def ended(self, name: str) -> int | None:
        """Return the exit status of a command, or None while it runs."""
        found = self._client.api.exec_inspect(name)
        return None if found["Running"] else found["ExitCode"]

    def _limit(self, limits: Limits) -> None:
        """Bound the memory of all together anew; a runtime that cannot do so keeps its first bound, and is sampled."""
        import docker

        most = _most(limits)
        if most != self._most and not self.recipe.runtime:
            # More than that may be in use already; it is sampled then.
            with contextlib.suppress(docker.errors.APIError):
                self._client.api.update_container(self._id, mem_limit=most, memswap_limit=most)
                self._most = most

    def _was_out_of_memory(self) -> bool:
        with contextlib.suppress(Exception):
            return bool(self._client.api.inspect_container(self._id)["State"]["OOMKilled"])
        return False

    def is_as_new(self) -> bool:
        """Empty it; tell whether it is then as when it was new."""
        try:
            return self._alive and self.shell.clean() == self._new
        except SandboxError:
            return False

    def remove(self) -> None:
        """Kill and remove it; what is gone already is no error."""
        self._alive = False
        if hasattr(self, "_stream"):
            # Its end is the end of the shell, and so of the container.
            self._stream.close()
        with contextlib.suppress(Exception):
            self._client.api.remove_container(self._id, force=True, v=True)
        if self._tree_volume:
            remove_volume(self._client, self._tree_volume)


def signalled(code: int | None) -> int | None:
    """Return an exit status as the engine reports it, negative if it means a signal."""
    return 128 - code if code is not None and 128 < code <= 192 else code


def _most(limits: Limits) -> int:
    """Return the bound for a container's memory: files in memory count as well, the tree among them."""
    return limits.memory_bytes + limits.disk_bytes + _SLACK


class _Watch:
    """Moves a command's bytes, samples its usage, and decides when it is over."""

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
        self._whole, self._stream, self._meter = stream, stream.socket, meter
        self._input = memoryview(stdin)
        self._half_closed = not stdin
        self._frames = Frames()
        self._kept: tuple[bytearray, bytearray] = (bytearray(), bytearray())
        self._at_end = False
        self.code: int | None = None
        self._stream.setblocking(False)
        self._keep(stream.early)

    def to_the_end(self, begin: float) -> Limit | None:
        """Return when the command has ended, or when a limit was passed; then all of it is dead."""
        limit: Limit | None = None
        due, pause = begin + _SAMPLE_S, 0.002
        until = begin + self._limits.wall_s
        while limit is None:
            require_going_on()
            now = time.monotonic()
            if self._size() > self._limits.output_bytes:
                limit = Limit.OUTPUT
            elif now > until:
                limit = Limit.WALL_TIME
            elif self._at_end or now >= due:
                self.code = self._container.ended(self._name)
                if self.code is not None:
                    # What it leaves running is counted as well.
                    limit = self._meter.passed()
                    break
                if now >= due:
                    limit = self._meter.passed()
                    due = now + min(max(_SAMPLE_S, _SHARE * (time.monotonic() - now)), _MOST_S)
                else:
                    # The command has closed its streams, or is just about to end.
                    time.sleep(pause)
                    pause = min(2 * pause, _SAMPLE_S)
            else:
                self._move(min(due, until) - now)
        self._container.kill(self._name)
        self._drain()
        if limit is None:
            limit = self._at_last()
        return limit

    def kept(self) -> tuple[bytes, bytes]:
        """Return standard output and standard error, together within the limit."""
        room = self._limits.output_bytes
        out = bytes(self._kept[0][:room])
        return out, bytes(self._kept[1][: room - len(out)])

    def close(self) -> None:
        """Close the stream."""
        self._whole.close()

    def _size(self) -> int:
        return len(self._kept[0]) + len(self._kept[1])

    def _at_last(self) -> Limit | None:
        return Limit.OUTPUT if self._size() > self._limits.output_bytes else self._meter.passed_at_last()

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
            piece = self._stream.recv(1 << 18)
        except BlockingIOError:
            return
        except OSError:
            piece = b""
        if not piece:
            self._at_end = True
        self._keep(piece)

    def _keep(self, piece: bytes) -> None:
        for stream, data in self._frames.feed(piece):
            self._kept[0 if stream == 1 else 1].extend(data)

    def _drain(self) -> None:
        """Take what the dead left in the stream."""
        until = time.monotonic() + _GRACE_S
        while not self._at_end and (left := until - time.monotonic()) > 0 and self._size() <= self._limits.output_bytes:
            if select.select([self._stream], [], [], left)[0]:
                self._receive()
