"""What runs on this machine."""

from __future__ import annotations

import contextlib
from pathlib import Path


def command_lines() -> list[bytes]:
    """Return those of all processes, their words ended by NUL; one that ends meanwhile is left out."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            found.append(path.read_bytes())
    return found
