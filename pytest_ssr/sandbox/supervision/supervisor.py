"""Run one command in its own session, pass its input and output, enforce its limits, and kill what it leaves running.

Limits that the kernel enforces for each process are set by a small shell before the command; limits on all processes
together are sampled, and also enforced by a control group if this user may create one. The interval between samples
grows with their cost.
"""

from __future__ import annotations

import contextlib
import functools
import os
import selectors
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import IO

from pytest_ssr.errors import SandboxError
from pytest_ssr.interrupts import POLL_S, raise_if_stopped, uninterrupted
from pytest_ssr.sandbox.protocol import ExecResult, Limit, Limits
from pytest_ssr.sandbox.supervision import cgroup
from pytest_ssr.sandbox.supervision.output_listener import hand_on
from pytest_ssr.sandbox.supervision.proc_usage import Descendants

_SAMPLE_S, _DISK_S = 0.05, 0.2
_SHARE = 10
_GRACE_S = 1.0
_CHUNK = 1 << 16


def with_limits(argv: Sequence[str], limits: Limits, cwd: str) -> list[str]:
    """Return a shell command that enters `cwd`, sets the limits of each process and executes `argv`.

    A directory that cannot be entered gives exit code 126. Raises SandboxError if `argv` is empty or contains
    a null byte.
    """
    if not argv or any("\0" in word for word in argv):
        raise SandboxError(f"{list(argv)!r} is not a command")
    script = (
        'cd -- "$1" || exit 126; shift; unset OLDPWD; '
        f"ulimit -c 0; ulimit -f {max(1, limits.file_bytes // 512)}; "
        # Not every system can limit the address space.
        f'ulimit -v {max(1, limits.memory_bytes // 1024)} 2>/dev/null; exec "$@"'
    )
    return ["/bin/sh", "-c", script, "sh", cwd, *argv]


@functools.cache
def die_with_parent() -> tuple[str, ...]:
    """Return a command prefix that makes the command die with this process (prctl(2), PR_SET_PDEATHSIG).

    Empty if util-linux lacks the program; `reap` then kills what is left running.
    """
    prefix = ("setpriv", "--pdeathsig", "KILL")
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        if subprocess.run([*prefix, "true"], capture_output=True, check=False, timeout=30).returncode == 0:
            return prefix
    return ()


@uninterrupted()
def run(
    command: Sequence[str],
    *,
    env: Mapping[str, str],
    stdin: bytes,
    limits: Limits,
    written: Callable[[], int],
    marker: str = "",
    pass_fds: Sequence[int] = (),
) -> ExecResult:
    """Run a command until it ends or exceeds a limit; afterwards none of its processes runs.

    written: returns the bytes written in the sandbox so far. marker: a `NAME=value` in the environment that
    identifies orphans to kill; empty if a namespace dies with the command. Raises SandboxError if it does not start.
    """
    begin = time.monotonic()
    group = cgroup.new_group(limits)
    full_command = [*die_with_parent(), *command]
    try:
        process = subprocess.Popen(
            cgroup.join_command(group, full_command),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=dict(env),
            cwd="/",
            pass_fds=tuple(pass_fds),
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        if group is not None:
            group.remove()
        raise SandboxError(f"the sandbox does not start: {error}") from None
    descendants = Descendants(process.pid, marker.encode())
    finished = False
    try:
        watch = _Watch(process, stdin, limits, written, descendants, group, begin)
        limit = watch.wait_for_end(sweep=bool(marker))
        finished = True
        kernel_limit = group.exceeded_limit() if group is not None else None
        late = limit is Limit.WALL_TIME and kernel_limit is Limit.MEMORY
        if limit is None or late or (kernel_limit is Limit.MACHINE_MEMORY and limit is not Limit.MEMORY):
            # Waiting for a killed process may have led to another limit.
            limit = kernel_limit
        code = process.wait() if limit is None else None
        out, err = watch.output()
        return ExecResult(code, out, err, time.monotonic() - begin, limit)
    finally:
        if not finished:
            descendants.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout, process.stderr):
            with contextlib.suppress(OSError):
                pipe.close()  # type: ignore[union-attr] # all three are pipes
        if group is not None:
            group.remove()


class _Watch:
    """Pass input and output, sample usage, and decide when the command is finished."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        stdin: bytes,
        limits: Limits,
        written: Callable[[], int],
        descendants: Descendants,
        group: cgroup.Group | None,
        begin: float,
    ) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        self._pid, self._limits, self._written, self._begin = process.pid, limits, written, begin
        self._descendants, self._group = descendants, group
        self._out, self._err = bytearray(), bytearray()
        self._input = memoryview(stdin)
        self._next_sample, self._next_disk = begin + _SAMPLE_S, begin + _DISK_S
        self._open = {process.stdout, process.stderr}
        self._selector = selectors.DefaultSelector()
        for pipe, buffer in ((process.stdout, self._out), (process.stderr, self._err)):
            os.set_blocking(pipe.fileno(), False)
            self._selector.register(pipe, selectors.EVENT_READ, buffer)
        if stdin:
            os.set_blocking(process.stdin.fileno(), False)
            self._selector.register(process.stdin, selectors.EVENT_WRITE)
        else:
            process.stdin.close()

    def wait_for_end(self, *, sweep: bool) -> Limit | None:
        """Wait until the command ends or exceeds a limit, which kills it, and return that limit.

        sweep: also look for processes that the command left running.
        """
        exit_fd = _exit_descriptor(self._pid)
        self._selector.register(exit_fd, selectors.EVENT_READ)
        try:
            ended = False
            while not ended:
                raise_if_stopped()
                limit = self._exceeded_limit(time.monotonic())
                if limit is not None:
                    self._descendants.kill()
                    self._drain_rest()
                    return limit
                ended = self._move(exit_fd)
            if sweep:
                self._descendants.kill()
            self._drain_rest()
            return self._exceeded_limit_at_end(time.monotonic())
        finally:
            self._selector.close()
            os.close(exit_fd)

    def output(self) -> tuple[bytes, bytes]:
        """Return standard output and standard error, cut off at their common limit."""
        limit = self._limits.output_bytes
        out = bytes(self._out[:limit])
        return out, bytes(self._err[: limit - len(out)])

    def _exceeded_limit(self, now: float) -> Limit | None:
        if len(self._out) + len(self._err) > self._limits.output_bytes:
            return Limit.OUTPUT
        if now - self._begin > self._limits.wall_s:
            return Limit.WALL_TIME
        if now >= self._next_sample:
            limit = self._descendants.exceeded_limit(self._limits, self._group)
            cost = time.monotonic() - now
            self._next_sample = now + cost + max(_SAMPLE_S, _SHARE * cost)
            if limit is not None:
                return limit
        if now >= self._next_disk:
            begin = time.monotonic()
            if self._written() > self._limits.disk_bytes:
                return Limit.DISK
            cost = time.monotonic() - begin
            self._next_disk = begin + cost + max(_DISK_S, _SHARE * cost)
        return None

    def _exceeded_limit_at_end(self, now: float) -> Limit | None:
        if len(self._out) + len(self._err) > self._limits.output_bytes:
            return Limit.OUTPUT
        # A command too short to be sampled cannot have written much, and the walk would cost more than the command.
        if now - self._begin > _SAMPLE_S and self._written() > self._limits.disk_bytes:
            return Limit.DISK
        return None

    def _move(self, exit_fd: int) -> bool:
        """Pass data until the next sample is due; return whether the command has ended."""
        due = min(self._next_sample, self._next_disk, self._begin + self._limits.wall_s)
        ended = False
        for key, _ in self._selector.select(max(0.001, min(POLL_S, due - time.monotonic()))):
            if key.fileobj == exit_fd:
                ended = True
            elif key.data is None:
                self._feed(key.fileobj)  # type: ignore[arg-type] # a pipe that was registered
            else:
                self._drain(key.fileobj, key.data)  # type: ignore[arg-type] # a pipe that was registered
        return ended

    def _feed(self, pipe: IO[bytes]) -> None:
        try:
            self._input = self._input[os.write(pipe.fileno(), self._input[:_CHUNK]) :]
            done = not self._input
        except BlockingIOError:
            return
        except OSError:
            done = True
        if done:
            self._selector.unregister(pipe)
            pipe.close()

    def _drain(self, pipe: IO[bytes], buffer: bytearray) -> None:
        try:
            data = os.read(pipe.fileno(), _CHUNK)
        except BlockingIOError:
            return
        if data:
            buffer += data
            hand_on(data)
        else:
            self._selector.unregister(pipe)
            self._open.discard(pipe)

    def _drain_rest(self) -> None:
        """Read what remains in the pipes; the end of file follows at once unless a process has escaped."""
        deadline = time.monotonic() + _GRACE_S
        while self._open and (remaining_s := deadline - time.monotonic()) > 0:
            if len(self._out) + len(self._err) > self._limits.output_bytes:
                return
            for key, _ in self._selector.select(remaining_s):
                if key.fileobj in self._open:
                    self._drain(key.fileobj, key.data)
                else:
                    self._selector.unregister(key.fileobj)


def _exit_descriptor(pid: int) -> int:
    """Return a descriptor that becomes readable when a child has ended; the caller still has to wait for the child.

    A thread is used because not every build of Python has `os.pidfd_open`.
    """
    reading, writing = os.pipe()

    def wait() -> None:
        try:
            with contextlib.suppress(ChildProcessError):
                os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        finally:
            os.close(writing)

    try:
        threading.Thread(target=wait, name=f"ssr-wait-{pid}", daemon=True).start()
    except RuntimeError as error:
        os.close(reading)
        os.close(writing)
        raise SandboxError(f"the sandbox cannot watch its command: {error}") from None
    return reading
