"""The meter of a container's command: what it counts, and for which request."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from pytest_ssr.sandbox.docker.container import Meter
from pytest_ssr.sandbox.filesystem.container_shell import Usage
from pytest_ssr.sandbox.protocol import MIB, Limit, Limits

IDLE = Usage(processes=2, refused=0, resident_bytes=MIB, shared_bytes=0, killed=0, full=0, disk_bytes=0)


@dataclass
class FakeShell:
    now: Usage = IDLE

    def usage(self, *, alone: bool = True) -> Usage:
        return self.now


@dataclass
class FakeContainer:
    shell: FakeShell = field(default_factory=FakeShell)
    disk: int = 0

    def disk_bytes(self) -> int:
        return self.disk


def test_kernel_kills_and_refusals_count_for_one_request_only() -> None:
    container = FakeContainer()
    meter = Meter(container, Limits(), 0, IDLE)
    for change, limit in (
        ({"killed": 1, "full": 1}, Limit.MEMORY),
        ({"killed": 2, "full": 1}, Limit.MACHINE_MEMORY),
        ({"killed": 2, "full": 1, "refused": 3}, Limit.PROCESSES),
    ):
        container.shell.now = replace(IDLE, **change)
        assert meter.exceeded_limit() is limit
        meter.restart()
        assert meter.exceeded_limit() is None


def test_files_in_memory_count_as_disk_and_other_shared_memory_as_memory() -> None:
    limits = Limits(memory_bytes=100 * MIB, disk_bytes=10 * MIB)
    container = FakeContainer(FakeShell(replace(IDLE, shared_bytes=50 * MIB)))
    meter = Meter(container, limits, 0, IDLE)
    assert meter.exceeded_limit() is None
    container.disk = 50 * MIB
    assert meter.exceeded_limit() is Limit.DISK
    container.disk, container.shell.now = 0, replace(IDLE, shared_bytes=150 * MIB)
    assert meter.exceeded_limit() is Limit.MEMORY
    meter.restart()
    assert meter.exceeded_limit() is Limit.MEMORY
