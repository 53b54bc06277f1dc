"""List the processes of this machine."""

from __future__ import annotations

import contextlib
from pathlib import Path


def command_lines() -> list[bytes]:
    """Return the command lines of all processes, arguments ended by NUL; skips processes that end meanwhile."""
    lines = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            lines.append(path.read_bytes())
    return lines
