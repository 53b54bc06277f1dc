"""Run a long-running command on this machine that answers requests; its standard input is a socket."""

from __future__ import annotations

import contextlib
import functools
import os
import select
import signal
import socket
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from pytest_ssr.errors import SandboxError
from pytest_ssr.interrupts import uninterrupted
from pytest_ssr.sandbox.protocol import MIB, Limit, Limits
from pytest_ssr.sandbox.supervision import cgroup
from pytest_ssr.sandbox.supervision.proc_usage import Descendants
from pytest_ssr.sandbox.supervision.supervisor import die_with_parent

_GRACE_S = 0.5


@functools.cache
def _starter(pid: int) -> ThreadPoolExecutor:
    """Return the thread that starts all long-running commands of this process and lives as long as the process.

    A child that dies with its parent (PR_SET_PDEATHSIG) dies as soon as the thread that started it ends.
    """
    return ThreadPoolExecutor(1, thread_name_prefix=f"ssr-start-{pid}")


class LocalSession:
    """A running command and the socket to it; see CommandSession."""

    @uninterrupted()
    def __init__(
        self,
        command: Sequence[str],
        *,
        env: Mapping[str, str],
        limits: Limits,
        written: Callable[[], int],
        marker: str = "",
        pass_fds: Sequence[int] = (),
        ended: Callable[[], None] = lambda: None,
    ) -> None:
        """Start the command; raises SandboxError if that fails.

        written: returns the bytes written in the sandbox so far. marker: see `run`. ended: called once, at the end.
        """
        self._limits, self._written = limits, written
        self._group = group = cgroup.new_group(limits)
        full_command = [*die_with_parent(), *command]

        def finish() -> None:
            if group is not None:
                group.remove()
            ended()

        self._ended = finish
        ours, theirs = socket.socketpair()
        self._socket = ours
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 # closed with the command
        try:
            self._process = (
                _starter(os.getpid())
                .submit(
                    subprocess.Popen,
                    cgroup.join_command(group, full_command),
                    stdin=theirs.fileno(),
                    stdout=subprocess.DEVNULL,
                    stderr=self._errors,
                    env=dict(env),
                    cwd="/",
                    pass_fds=tuple(pass_fds),
                    start_new_session=True,
                )
                .result()
            )
        except (OSError, ValueError) as error:
            ours.close()
            self._errors.close()
            finish()
            raise SandboxError(f"the sandbox does not start: {error}") from None
        finally:
            theirs.close()
        self._descendants = Descendants(self._process.pid, marker.encode())
        self._sweep = bool(marker)
        self._poll = select.poll()
        self._poll.register(ours, select.POLLIN)
        self._is_closed = False

    def send(self, data: bytes) -> None:
        """Send all of the data."""
        self._socket.sendall(data)

    def receive(self, max_bytes: int, *, wait_s: float) -> bytes | None:
        """Return what has arrived; see the protocol."""
        return self._socket.recv(max_bytes) if self._poll.poll(1000 * wait_s) else None

    def exceeded_limit(self, *, disk: bool) -> Limit | None:
        """Return a limit that is exceeded now, if any."""
        limit = self._descendants.exceeded_limit(self._limits, self._group)
        if limit is None and disk and self._written() > self._limits.disk_bytes:
            return Limit.DISK
        return limit

    def exit_summary(self) -> str:
        """Return how the command ended; see the protocol."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_GRACE_S)
        code = self._process.returncode
        self._errors.seek(0)
        return describe_exit(code, self._errors.read(MIB))

    def close(self, *, at_once: bool) -> None:
        """End the command and its descendants; see the protocol."""
        if self._is_closed:
            return
        self._is_closed = True
        if at_once:
            self._descendants.kill()
        self._socket.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_GRACE_S)
        if self._process.returncode is None or self._sweep:
            self._descendants.kill()
        self._process.wait()
        self._errors.close()
        self._ended()


def describe_exit(code: int | None, errors: bytes) -> str:
    """Describe how a command ended by its exit status, negative for a signal, and the last line of its stderr."""
    lines = errors.decode(errors="replace").strip().splitlines()
    status = f"signal {signal.Signals(-code).name}" if code is not None and code < 0 else f"exit status {code}"
    return f"{status}: {lines[-1][:300]}" if lines else status
