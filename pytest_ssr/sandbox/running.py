"""Start one command in a session of its own, feed it, drain it, hold it to its limits, and leave nothing of it.

The limits that the kernel keeps for each process are set by a small shell in front of the command; those on all of it
together are sampled, and kept by a control group as well where this user may make one. Samples are spaced by what they
cost.
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
from pytest_ssr.sandbox import cgroup
from pytest_ssr.sandbox.protocol import ExecResult, Limit, Limits
from pytest_ssr.sandbox.sampling import Descendants
from pytest_ssr.stopping import POLL_S, require_going_on, uninterrupted

_SAMPLE_S, _DISK_S = 0.05, 0.2
_SHARE = 10
_GRACE_S = 1.0
_CHUNK = 1 << 16


def limited(argv: Sequence[str], limits: Limits, cwd: str) -> list[str]:
    """Return the command behind a shell that enters `cwd` and sets the limits of each process.

    A directory that cannot be entered is exit code 126. Raises SandboxError when there is no command.
    """
    if not argv or any("\0" in word for word in argv):
        raise SandboxError(f"{list(argv)!r} is not a command")
    script = (
        'cd -- "$1" || exit 126; shift; unset OLDPWD; '
        f"ulimit -c 0; ulimit -f {max(1, limits.file_bytes // 512)}; "
        f'ulimit -v {max(1, limits.memory_bytes // 1024)}; exec "$@"'
    )
    return ["/bin/sh", "-c", script, "sh", cwd, *argv]


@functools.cache
def dying_with_us() -> tuple[str, ...]:
    """Return the words before a command that end it when this process is killed (prctl(2), PR_SET_PDEATHSIG).

    None where util-linux has no such program; what is left running then, `reap` ends.
    """
    words = ("setpriv", "--pdeathsig", "KILL")
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        if subprocess.run([*words, "true"], capture_output=True, check=False, timeout=30).returncode == 0:
            return words
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
    """Run a command to its end or to a limit; afterwards nothing of it runs.

    written: returns the bytes written in the sandbox so far. marker: a `NAME=value` in the environment by which
    orphans are known and killed; none where a namespace dies with the command. Raises SandboxError when it does
    not start.
    """
    begin = time.monotonic()
    group = cgroup.made(limits)
    whole = [*dying_with_us(), *command]
    try:
        process = subprocess.Popen(
            cgroup.entered(group, whole),
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
    over = False
    try:
        watch = _Watch(process, stdin, limits, written, descendants, group, begin)
        limit = watch.to_the_end(sweep=bool(marker))
        over = True
        told = group.passed() if group is not None else None
        late = limit is Limit.WALL_TIME and told is Limit.MEMORY
        if limit is None or late or (told is Limit.MACHINE_MEMORY and limit is not Limit.MEMORY):
            # What the killed one was waited for may have led to another limit.
            limit = told
        code = process.wait() if limit is None else None
        out, err = watch.kept()
        return ExecResult(code, out, err, time.monotonic() - begin, limit)
    finally:
        if not over:
            descendants.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout, process.stderr):
            with contextlib.suppress(OSError):
                pipe.close()  # type: ignore[union-attr] # all three were asked for
        if group is not None:
            group.remove()


class _Watch:
    """Moves bytes, samples usage, and decides when it is over."""

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
        for pipe, kept in ((process.stdout, self._out), (process.stderr, self._err)):
            os.set_blocking(pipe.fileno(), False)
            self._selector.register(pipe, selectors.EVENT_READ, kept)
        if stdin:
            os.set_blocking(process.stdin.fileno(), False)
            self._selector.register(process.stdin, selectors.EVENT_WRITE)
        else:
            process.stdin.close()

    def to_the_end(self, *, sweep: bool) -> Limit | None:
        """Return when the command has ended, or when a limit was passed; then all of it is dead.

        sweep: look for what the command left running, too.
        """
        end = _end_of(self._pid)
        self._selector.register(end, selectors.EVENT_READ)
        try:
            ended = False
            while not ended:
                require_going_on()
                limit = self._passed(time.monotonic())
                if limit is not None:
                    self._descendants.kill()
                    self._drain_rest()
                    return limit
                ended = self._move(end)
            if sweep:
                self._descendants.kill()
            self._drain_rest()
            return self._passed_at_last(time.monotonic())
        finally:
            self._selector.close()
            os.close(end)

    def kept(self) -> tuple[bytes, bytes]:
        """Return standard output and standard error, together within the limit."""
        room = self._limits.output_bytes
        out = bytes(self._out[:room])
        return out, bytes(self._err[: room - len(out)])

    def _passed(self, now: float) -> Limit | None:
        if len(self._out) + len(self._err) > self._limits.output_bytes:
            return Limit.OUTPUT
        if now - self._begin > self._limits.wall_s:
            return Limit.WALL_TIME
        if now >= self._next_sample:
            limit = self._descendants.passed(self._limits, self._group)
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

    def _passed_at_last(self, now: float) -> Limit | None:
        if len(self._out) + len(self._err) > self._limits.output_bytes:
            return Limit.OUTPUT
        # What is too short to be sampled cannot have written much, and the walk would cost more than the command.
        if now - self._begin > _SAMPLE_S and self._written() > self._limits.disk_bytes:
            return Limit.DISK
        return None

    def _move(self, end: int) -> bool:
        """Move what can be moved until the next sample; True when the command has ended."""
        due = min(self._next_sample, self._next_disk, self._begin + self._limits.wall_s)
        ended = False
        for key, _ in self._selector.select(max(0.001, min(POLL_S, due - time.monotonic()))):
            if key.fileobj == end:
                ended = True
            elif key.data is None:
                self._feed(key.fileobj)  # type: ignore[arg-type] # the pipe that was registered
            else:
                self._drain(key.fileobj, key.data)  # type: ignore[arg-type] # likewise
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

    def _drain(self, pipe: IO[bytes], kept: bytearray) -> None:
        try:
            data = os.read(pipe.fileno(), _CHUNK)
        except BlockingIOError:
            return
        if data:
            kept += data
        else:
            self._selector.unregister(pipe)
            self._open.discard(pipe)

    def _drain_rest(self) -> None:
        """Take what the dead left in the pipes; an end of file comes at once unless someone escaped."""
        until = time.monotonic() + _GRACE_S
        while self._open and (left := until - time.monotonic()) > 0:
            if len(self._out) + len(self._err) > self._limits.output_bytes:
                return
            for key, _ in self._selector.select(left):
                if key.fileobj in self._open:
                    self._drain(key.fileobj, key.data)
                else:
                    self._selector.unregister(key.fileobj)


def _end_of(pid: int) -> int:
    """Return a descriptor that becomes readable when a child has ended; the child is left to be waited for.

    A thread waits, because not every build of Python has `os.pidfd_open`.
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
