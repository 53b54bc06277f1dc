"""Check the limits of a command in a container, using samples taken by the container's shell."""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

from pytest_ssr.sandbox.filesystem.container_shell import Usage
from pytest_ssr.sandbox.protocol import Limit, Limits
from pytest_ssr.sandbox.supervision import cgroup

_OWN_PROCESSES = 8


class Sampling(Protocol):
    """The part of a container's shell that measures usage."""

    def usage(self, *, alone: bool = True) -> Usage:
        """Return the current usage; see `Shell.usage`."""


class Measured(Protocol):
    """The container in which the command runs."""

    @property
    def shell(self) -> Sampling:
        """The shell that takes the samples."""

    def disk_bytes(self) -> int:
        """Return the bytes in use on the writable file systems."""


class Meter:
    """Compare the usage of a container with its usage before the command."""

    def __init__(self, container: Measured, limits: Limits, used_before: int, before: Usage) -> None:
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
