"""Copy the tree of a snapshot to another machine, with its compiled files, as one archive."""

from __future__ import annotations

import errno
import io
import os
import shutil
import tarfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from pytest_ssr.errors import StoreWriteError, os_error_advice
from pytest_ssr.project.snapshot import Snapshot, matches, set_times, staging_folder

_COMPRESSION = 1
"""Trees are sent once to each machine: the time to pack them matters as much as their size."""


def pack(directory: Path) -> bytes:
    """Return a folder as an archive."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz", compresslevel=_COMPRESSION) as archive:
        archive.add(directory, arcname=".")
    return buffer.getvalue()


def unpack(data: bytes, folder: Path) -> None:
    """Write the archive of a folder, which replaces the folder if it exists; all files have the time of snapshots."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    staging = staging_folder(folder.parent)
    try:
        with tarfile.open(fileobj=io.BytesIO(data)) as archive:
            # The driver made the archive. Older releases of Python 3.11 have no argument for this.
            archive.extraction_filter = lambda member, path: member
            archive.extractall(staging)
        set_times(staging)
        shutil.rmtree(folder, ignore_errors=True)
        staging.rename(folder)
    except OSError as error:
        # Another worker of this machine may have written it in the meantime.
        if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
            raise
    finally:
        shutil.rmtree(staging, ignore_errors=True)


@dataclass(frozen=True)
class TreeCopy:
    """A snapshot without its directory, and how to fetch that."""

    name: str
    """The name of the tree, which is part of what it holds: equal names, equal trees."""
    snapshot: Snapshot
    fetch: Callable[[], bytes]

    def place(self, trees: Path) -> Snapshot:
        """Return the snapshot with a directory below `trees`, fetched unless it is there and intact.

        Raises StoreWriteError if it cannot be written, for example because the disk is full.
        """
        final = trees / self.name
        placed = replace(self.snapshot, directory=final)
        try:
            if not matches(final, self.snapshot.files):
                unpack(self.fetch(), final)
            os.utime(trees / self.name)
        except OSError as error:
            raise StoreWriteError(f"cannot write {final}: {os_error_advice(error)}") from None
        return placed
