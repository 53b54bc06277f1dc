"""Shift the clock of Python processes, as on a machine whose clock is wrong."""

from __future__ import annotations

from pathlib import Path

DAY_S = 86_400
_SHIFT = """
import time

_seconds, _nanoseconds = time.time, time.time_ns
time.time = lambda: _seconds() + {shift_s}
time.time_ns = lambda: _nanoseconds() + {shift_s} * 10**9
"""


def shifted_clock(folder: Path, shift_s: int) -> dict[str, str]:
    """Return the environment of a process whose clock is ahead. folder: a new one for the module that shifts it."""
    folder.mkdir(parents=True)
    (folder / "sitecustomize.py").write_text(_SHIFT.format(shift_s=shift_s))
    return {"PYTHONPATH": str(folder)}
