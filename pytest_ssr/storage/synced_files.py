"""Write files so that they survive a power cut."""

from __future__ import annotations

import os
from pathlib import Path


def write_synced(target: Path, data: bytes, *, staging: Path) -> None:
    """Write a file atomically, so that it survives a power cut. staging: a temporary name on the same file system."""
    staging.parent.mkdir(parents=True, exist_ok=True)
    try:
        with staging.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        staging.replace(target)
    finally:
        staging.unlink(missing_ok=True)


def sync_directory(path: Path) -> None:
    """Make the names in a directory survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
