"""The slots of a machine are those for which it has cores and memory, within the limits of its container."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.cli.main import main
from harness.executors import slots as slots_module
from harness.executors.slots import SLOT_BYTES, measured_slots

GIB = 2**30


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with 8 cores and memory for 20 slots, in no container."""
    monkeypatch.setattr(slots_module, "_CGROUP", tmp_path)
    monkeypatch.setattr(slots_module, "_MEMINFO", tmp_path / "meminfo")
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(8)))
    (tmp_path / "meminfo").write_text(f"MemTotal: 1 kB\nMemAvailable: {20 * SLOT_BYTES // 1024} kB\n")
    return tmp_path


def test_cores_and_memory_limit_the_slots(machine: Path) -> None:
    assert measured_slots() == 8
    (machine / "meminfo").write_text(f"MemAvailable: {3 * SLOT_BYTES // 1024} kB\n")
    assert measured_slots() == 3
    (machine / "meminfo").write_text("MemAvailable: 1 kB\n")
    assert measured_slots() == 1


def test_the_limits_of_a_container_count(machine: Path) -> None:
    (machine / "cpu.max").write_text("600000 100000\n")
    assert measured_slots() == 6
    (machine / "memory.max").write_text(f"{8 * SLOT_BYTES}\n")
    (machine / "memory.current").write_text(f"{7 * SLOT_BYTES}\n")
    assert measured_slots() == 1
    # What the kernel keeps of files makes room for others.
    (machine / "memory.stat").write_text(f"anon 1\nfile 2\ninactive_file {4 * SLOT_BYTES}\n")
    assert measured_slots() == 5
    (machine / "memory.max").write_text("max\n")
    assert measured_slots() == 6


def test_doctor_prints_them_alone(machine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--slots"]) == 0
    assert capsys.readouterr().out == "8\n"
