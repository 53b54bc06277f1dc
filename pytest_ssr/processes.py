"""Ask the system about processes, in the same way on Linux and elsewhere."""

from __future__ import annotations

import os


def is_running(pid: int) -> bool:
    """Return whether a process of this machine exists."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        # It belongs to another user.
        return True
    return True
