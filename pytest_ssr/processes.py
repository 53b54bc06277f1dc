"""Ask the system about processes, in the same way on Linux and elsewhere."""

from __future__ import annotations

import os


def is_running(pid: int) -> bool:
    """Return whether a process of this machine exists; no process has an id below 1."""
    if pid < 1:
        # Signals to these reach groups of processes.
        return False
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        # It belongs to another user.
        return True
    return True
