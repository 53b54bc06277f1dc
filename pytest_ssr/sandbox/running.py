"""Start one command in a process group of its own, feed it, drain it, hold it to its limits, and leave nothing of it.

The limits that the kernel keeps for each process are set by a small shell in front of the command; those on all of it
together are sampled, since no user may be assumed to own a control group.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence

from pytest_ssr.errors import SandboxError
from pytest_ssr.sandbox.protocol import ExecResult, Limit, Limits
from pytest_ssr.sandbox.sampling import kill_all, usage_of

_FIRST_SAMPLE_S, _SAMPLE_S, _DISK_EVERY = 0.03, 0.05, 5
_GRACE_S = 0.2
_CHUNK = 1 << 16


def limited(argv: Sequence[str], limits: Limits, started: int) -> list[str]:
    """Return the command behind a shell that tells on descriptor `started` that it runs, and sets its limits."""
    script = (
        f"printf s >/proc/self/fd/{started}; ulimit -c 0; "
        f"ulimit -f {max(1, limits.file_bytes // 512)}; ulimit -v {max(1, limits.memory_bytes // 1024)}; "
        'exec "$@"'
    )
    return ["/bin/sh", "-c", script, "sh", *argv]


def run(
    command: Callable[[int], Sequence[str]],
    *,
    env: Mapping[str, str],
    cwd: str | None,
    stdin: bytes,
    limits: Limits,
    written: Callable[[], int],
    marker: str = "",
) -> ExecResult:
    """Run what `command(descriptor)` returns; that descriptor must get one byte when the command proper starts.

    written: returns the bytes written in the sandbox so far. marker: a text in the environment by which orphans
    are known. Raises SandboxError when the command was never started.
    """
    heard, told = os.pipe()
    begin = time.monotonic()
    try:
        process = subprocess.Popen(
            command(told),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=dict(env),
            cwd=cwd,
            pass_fds=(told,),
            start_new_session=True,
        )
    except OSError as error:
        os.close(heard)
        raise SandboxError(f"the sandbox does not start: {error}") from None
    finally:
        os.close(told)
    try:
        watch = _Watch(process, stdin, limits, written, marker, begin)
        limit = watch.to_the_end()
        code = None if limit is not None else process.wait()
        result = ExecResult(code, bytes(watch.out), bytes(watch.err), time.monotonic() - begin, limit)
        os.set_blocking(heard, False)
        with contextlib.suppress(BlockingIOError):
            if not os.read(heard, 1) and limit is None:
                raise SandboxError(f"the sandbox does not start: {_last(result.stderr)}")
        return result
    finally:
        kill_all(process.pid, marker) if process.poll() is None or marker else None
        process.wait()
        os.close(heard)
        for pipe in (process.stdin, process.stdout, process.stderr):
            with contextlib.suppress(OSError):
                pipe.close()  # type: ignore[union-attr]


def _last(raw: bytes) -> str:
    lines = raw.decode(errors="replace").strip().splitlines()
    return lines[-1][:300] if lines else "it said nothing"


class _Watch:
    """Moves bytes, samples usage, and decides when it is over."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        stdin: bytes,
        limits: Limits,
        written: Callable[[], int],
        marker: str,
        begin: float,
    ) -> None:
        self.process, self.limits, self.written, self.marker = process, limits, written, marker
        self.begin = begin
        self.out, self.err = bytearray(), bytearray()
        self._input = memoryview(stdin)
        self._samples = 0
        self._selector = selectors.DefaultSelector()
        for pipe, kind in ((process.stdout, self.out), (process.stderr, self.err)):
            assert pipe is not None
            os.set_blocking(pipe.fileno(), False)
            self._selector.register(pipe, selectors.EVENT_READ, kind)
        assert process.stdin is not None
        if stdin:
            os.set_blocking(process.stdin.fileno(), False)
            self._selector.register(process.stdin, selectors.EVENT_WRITE, None)
        else:
            process.stdin.close()
        self._child = os.pidfd_open(process.pid)
        self._selector.register(self._child, selectors.EVENT_READ, "child")

    def to_the_end(self) -> Limit | None:
        """Return when the command and its output have ended, or when a limit was passed and all of it is dead."""
        ended_at: float | None = None
        next_sample = self.begin + _FIRST_SAMPLE_S
        try:
            while len(self._selector.get_map()) > (ended_at is None):
                now = time.monotonic()
                if ended_at is not None and now > ended_at + _GRACE_S:
                    break
                limit = self._passed(now, sample=now >= next_sample and ended_at is None)
                if limit is not None:
                    kill_all(self.process.pid, self.marker)
                    self._drain_rest()
                    return limit
                if now >= next_sample:
                    next_sample = now + _SAMPLE_S
                if self._move(max(0.001, min(next_sample, self.begin + self.limits.wall_s) - now)):
                    ended_at = time.monotonic()
            return Limit.OUTPUT if self._output_size > self.limits.output_bytes else None
        finally:
            self._selector.close()
            os.close(self._child)

    @property
    def _output_size(self) -> int:
        return len(self.out) + len(self.err)

    def _passed(self, now: float, *, sample: bool) -> Limit | None:
        if self._output_size > self.limits.output_bytes:
            return Limit.OUTPUT
        if now - self.begin > self.limits.wall_s:
            return Limit.WALL_TIME
        if not sample:
            return None
        usage = usage_of(self.process.pid, self.marker)
        self._samples += 1
        if usage.threads > self.limits.processes:
            return Limit.PROCESSES
        if usage.resident_bytes > self.limits.memory_bytes:
            return Limit.MEMORY
        if self._samples % _DISK_EVERY == 0 and self.written() > self.limits.disk_bytes:
            return Limit.DISK
        return None

    def _move(self, timeout: float) -> bool:
        """Move what can be moved; True when the child has ended."""
        ended = False
        for key, _ in self._selector.select(timeout):
            if key.data == "child":
                self._selector.unregister(key.fileobj)
                ended = True
            elif key.data is None:
                self._feed(key.fileobj)
            else:
                self._drain(key.fileobj, key.data)
        return ended

    def _feed(self, pipe: object) -> None:
        try:
            self._input = self._input[os.write(pipe.fileno(), self._input[:_CHUNK]) :]  # type: ignore[attr-defined]
            done = not self._input
        except BlockingIOError:
            return
        except OSError:
            done = True
        if done:
            self._selector.unregister(pipe)  # type: ignore[arg-type]
            pipe.close()  # type: ignore[attr-defined]

    def _drain(self, pipe: object, kind: object) -> None:
        assert isinstance(kind, bytearray)
        try:
            data = os.read(pipe.fileno(), _CHUNK)  # type: ignore[attr-defined]
        except BlockingIOError:
            return
        if data:
            kind += data
        else:
            self._selector.unregister(pipe)  # type: ignore[arg-type]

    def _drain_rest(self) -> None:
        for pipe, kind in ((self.process.stdout, self.out), (self.process.stderr, self.err)):
            with contextlib.suppress(OSError, ValueError):
                kind += os.read(pipe.fileno(), _CHUNK)  # type: ignore[union-attr]
        room = self.limits.output_bytes
        del self.out[room:]
        del self.err[max(0, room - len(self.out)) :]
