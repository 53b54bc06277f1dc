"""The meter of a container's command: what it counts, and against which question."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from pytest_ssr.sandbox.docker_meter import Meter
from pytest_ssr.sandbox.in_container import Usage
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


def test_what_the_kernel_killed_or_refused_counts_for_one_question_only() -> None:
    container = FakeContainer()
    meter = Meter(container, Limits(), 0, IDLE)
    for change, limit in (
        ({"killed": 1, "full": 1}, Limit.MEMORY),
        ({"killed": 2, "full": 1}, Limit.MACHINE_MEMORY),
        ({"killed": 2, "full": 1, "refused": 3}, Limit.PROCESSES),
    ):
        container.shell.now = replace(IDLE, **change)
        assert meter.passed() is limit
        meter.restart()
        assert meter.passed() is None


def test_files_in_memory_are_disk_and_other_shared_memory_is_memory() -> None:
    limits = Limits(memory_bytes=100 * MIB, disk_bytes=10 * MIB)
    container = FakeContainer(FakeShell(replace(IDLE, shared_bytes=50 * MIB)))
    meter = Meter(container, limits, 0, IDLE)
    assert meter.passed() is None
    container.disk = 50 * MIB
    assert meter.passed() is Limit.DISK
    container.disk, container.shell.now = 0, replace(IDLE, shared_bytes=150 * MIB)
    assert meter.passed() is Limit.MEMORY
    meter.restart()
    assert meter.passed() is Limit.MEMORY
