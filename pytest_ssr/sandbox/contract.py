"""Check what every sandbox guarantees about limits and leftover processes; part of `pytest_ssr.testing`.

Each check takes an open sandbox and raises AssertionError if it breaks the guarantee.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_ssr.sandbox.protocol import MIB, Limit, Limits, Streaming
from pytest_ssr.sandbox.supervision.output_listener import listening

if TYPE_CHECKING:
    from pytest_ssr.sandbox.protocol import ExecResult, Sandbox

LIMITS = Limits(wall_s=60)
_EATER = "import os, time; [os.fork() for _ in range(2)]; x = b'x' * (80 << 20); time.sleep(60)"
_DAEMON = "import os, sys, time; os.fork() or (os.setsid(), os.fork() or time.sleep(float(sys.argv[1])))"


class LimitContract:
    """The checks of limits, one method each."""

    def sh(self, sandbox: Sandbox, script: str, *args: str, limits: Limits = LIMITS) -> ExecResult:
        """Run a shell script in the sandbox."""
        return sandbox.exec(["sh", "-c", script, "sh", *args], limits=limits)

    def python(self, sandbox: Sandbox, program: str, *args: str, limits: Limits = LIMITS) -> ExecResult:
        """Run a Python program in the sandbox."""
        return sandbox.exec([sys.executable, "-I", "-c", program, *args], limits=limits)

    def holds_wall_limit(self, sandbox: Sandbox) -> None:
        """The time limit ends a command, even one that has closed its output."""
        done = self.sh(sandbox, "echo begun; exec >&- 2>&-; sleep $1", _token(), limits=Limits(wall_s=1))
        assert (done.limit, done.exit_code, done.stdout) == (Limit.WALL_TIME, None, b"begun\n")
        assert 1 <= done.seconds < 10

    def holds_memory_limit(self, sandbox: Sandbox) -> None:
        """The memory of all processes together is limited; a single process gets a MemoryError."""
        done = self.python(sandbox, _EATER, limits=Limits(wall_s=60, memory_bytes=256 * MIB))
        assert done.limit is Limit.MEMORY
        alone = self.python(sandbox, "x = b'x' * (300 << 20)", limits=Limits(memory_bytes=256 * MIB))
        assert (alone.limit, alone.exit_code) == (None, 1)
        assert b"MemoryError" in alone.stderr

    def holds_process_limit(self, sandbox: Sandbox) -> None:
        """Exceeding the number of processes ends the command and all of its processes."""
        token = _token()
        script = 'i=0; while [ $i -lt 400 ]; do sleep "$1" & i=$((i+1)); done; wait'
        assert self.sh(sandbox, script, token, limits=Limits(wall_s=60, processes=60)).limit is Limit.PROCESSES
        assert _gone(token)

    def holds_output_limit(self, sandbox: Sandbox) -> None:
        """Output is cut off at exactly the limit."""
        done = self.sh(sandbox, "yes & yes >&2", limits=Limits(wall_s=60, output_bytes=MIB))
        assert done.limit is Limit.OUTPUT
        assert len(done.stdout) + len(done.stderr) == MIB

    def holds_file_limit(self, sandbox: Sandbox) -> None:
        """A single file cannot grow beyond its limit."""
        script = "head -c 9000000 /dev/zero > big; stat -c %s big"
        assert self.sh(sandbox, script, limits=Limits(file_bytes=MIB)).stdout == b"1048576\n"

    def holds_disk_limit(self, sandbox: Sandbox) -> None:
        """Writing many files exceeds the disk limit."""
        script = 'cd "$1"; i=0; while [ $i -lt 40 ]; do head -c 1000000 /dev/zero > f$i; i=$((i+1)); done; sleep 60'
        for folder in (sandbox.root, sandbox.scratch):
            done = self.sh(sandbox, script, folder, limits=Limits(wall_s=30, disk_bytes=10 * MIB))
            assert done.limit is Limit.DISK

    def holds_leftovers_die(self, sandbox: Sandbox) -> None:
        """Background processes of a command are killed at its end, including daemons."""
        token = _token()
        begin = time.monotonic()
        done = self.sh(sandbox, 'sleep "$1" & setsid sleep "$1" & echo done', token)
        assert (done.stdout, done.exit_code, done.limit) == (b"done\n", 0, None)
        assert self.python(sandbox, _DAEMON, token).exit_code == 0
        assert time.monotonic() - begin < 20
        assert _gone(token)

    def holds_output_is_handed_on(self, sandbox: Sandbox) -> None:
        """A sandbox that streams calls a listener while the command runs, which can read files and leave `exec`."""
        if not isinstance(sandbox, Streaming):
            return
        token, path, seen = _token(), f"{sandbox.scratch}/handed-on", []
        script = 'printf 1 >"$2"; echo begun; while printf 1 >>"$2"; do :; done & sleep "$1"'

        def listen(data: bytes) -> None:
            seen.append(data)
            if b"".join(seen).endswith(b"begun\n"):
                for _ in range(20):
                    # The file grows meanwhile.
                    assert set(sandbox.read(path)) == {ord("1")}
                raise _LeftError

        with contextlib.suppress(_LeftError), listening(listen):
            self.sh(sandbox, script, token, path)
            raise AssertionError("the listener was not called while the command ran")
        assert b"".join(seen) == b"begun\n"
        sandbox.close()
        assert _gone(token)


class _LeftError(Exception):
    """A listener leaves a command."""


def _token() -> str:
    """Return a number of seconds that identifies a `sleep` of this test on the process table."""
    return f"{3600 + int.from_bytes(os.urandom(6), 'big')}"


def _gone(token: str) -> bool:
    """Return whether no process on the machine has the token on its command line, now or within two seconds."""
    deadline = time.monotonic() + 2
    while any(token.encode() in _command_line(path) for path in Path("/proc").glob("[0-9]*/cmdline")):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def _command_line(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""
