"""Tell whether a disk has room for results, before work begins whose results could not be stored."""

from __future__ import annotations

import shutil
from pathlib import Path

from pytest_ssr.errors import DiskFullError

_LEAST_BYTES = 64 << 20
"""With less free space, neither a database nor the files of a run can be expected to grow."""


def is_full(folder: Path) -> bool:
    """Return whether the disk of a folder has no room for results; raises OSError if it cannot be reached."""
    return shutil.disk_usage(folder).free < _LEAST_BYTES


def require_space(folder: Path, option: str) -> None:
    """Raise DiskFullError if the disk of a folder, which need not exist yet, has no room for results.

    option: the one that chooses another folder.
    """
    existing = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if is_full(existing):
        raise DiskFullError(f"the disk of {folder} has no space left for results (--{option})", option=option)
