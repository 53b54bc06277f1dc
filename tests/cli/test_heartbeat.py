"""A log shows that a step which takes long is alive."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.cli.terminal import Heartbeat
from pytest_ssr.progress import ProgressLines


@pytest.fixture
def lines() -> list[str]:
    return []


@pytest.fixture
def heartbeat(lines: list[str]) -> Iterator[Heartbeat]:
    beat = Heartbeat(lines.append, every_s=0.05)
    yield beat
    beat.stop()


def wait_for(lines: list[str], count: int) -> None:
    deadline = time.monotonic() + 60
    while len(lines) < count and time.monotonic() < deadline:
        time.sleep(0.01)
    assert len(lines) >= count


def test_a_status_line_is_repeated_with_its_duration(heartbeat: Heartbeat, lines: list[str]) -> None:
    heartbeat.show("measuring")
    wait_for(lines, 2)
    assert lines[0] == "measuring"
    assert lines[1].startswith("measuring, for ")


def test_the_latest_line_counts(heartbeat: Heartbeat, lines: list[str]) -> None:
    heartbeat.show("first")
    wait_for(lines, 1)
    heartbeat.show("second")
    wait_for(lines, len(lines) + 2)
    assert lines[-1].startswith("second")


def test_the_end_of_a_step_ends_the_repetition(heartbeat: Heartbeat, lines: list[str]) -> None:
    heartbeat.show("measuring")
    wait_for(lines, 1)
    heartbeat.show("")
    count = len(lines)
    time.sleep(0.3)
    assert len(lines) <= count + 1


def test_nothing_is_repeated_while_other_lines_are_written(lines: list[str]) -> None:
    beat = Heartbeat(lines.append, every_s=1000)
    beat.show("measuring")
    beat.postpone()
    time.sleep(0.1)
    beat.stop()
    assert lines == []


def test_a_run_that_starts_again_is_named(lines: list[str]) -> None:
    progress = ProgressLines(live=lines.append, plain=lines.append)
    for done in (1, 5, 0, 2):
        progress(5, done)
    assert ["failed again" in line for line in lines] == [False, False, True, True]


SLOW = """\
import sys
import time

from harness.cli import main, terminal

terminal._EVERY_S = 0.2
terminal.Heartbeat.__init__.__kwdefaults__["every_s"] = 0.2
sys.exit(main.main(sys.argv[1:]))
"""


def test_init_writes_to_a_pipe_while_it_measures(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[project]\nname = 'shop'\nversion = '1'\n")
    (tmp_path / "shop.py").write_text("def total(values):\n    return sum(values)\n")
    (tmp_path / "test_shop.py").write_text(
        "import time\n\nimport shop\n\n\ndef test_total():\n    time.sleep(3)\n    assert shop.total([1]) == 1\n"
    )
    command = [sys.executable, "-c", SLOW, "init", str(tmp_path), "--dry-run", "--sandbox", "process"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert "measuring the tests" in done.stderr
