"""Whether a command in a container keeps to its limits, by samples that the container's shell takes."""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

from pytest_ssr.sandbox import cgroup
from pytest_ssr.sandbox.in_container import Usage
from pytest_ssr.sandbox.protocol import Limit, Limits

_OWN_PROCESSES = 8


class Sampling(Protocol):
    """The part of a container's shell that measures."""

    def usage(self, *, alone: bool = True) -> Usage:
        """Return what runs and what it takes."""


class Measured(Protocol):
    """The container in which the command runs."""

    @property
    def shell(self) -> Sampling:
        """What takes the samples."""

    def disk_bytes(self) -> int:
        """Return the bytes on the file systems that can be written."""


class Meter:
    """Compares what a container uses with what it used before the command."""

    def __init__(self, container: Measured, limits: Limits, used_before: int, before: Usage) -> None:
        """used_before: bytes on the file systems when the sandbox was opened. before: usage before the command."""
        self._container, self._limits = container, limits
        self._used_before, self._before = used_before, before

    def restart(self) -> None:
        """Leave out of account what the kernel has killed and refused up to now, as that was told already."""
        usage = self._container.shell.usage(alone=False)
        self._before = replace(self._before, killed=usage.killed, full=usage.full, refused=usage.refused)

    def passed(self) -> Limit | None:
        """Return a limit that is passed while the command runs."""
        usage, limits = self._container.shell.usage(alone=False), self._limits
        if usage.killed > self._before.killed:
            return cgroup.killed(by_limit=usage.full > self._before.full)
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

    def passed_at_last(self) -> Limit | None:
        """Return a limit that was passed, once nothing of the command runs."""
        usage = self._container.shell.usage()
        if usage.killed > self._before.killed:
            return cgroup.killed(by_limit=usage.full > self._before.full)
        return Limit.DISK if usage.disk_bytes - self._used_before > self._limits.disk_bytes else None
