"""Copy the tree of a snapshot to another machine, with its compiled files, as one archive."""

from __future__ import annotations

import io
import os
import shutil
import tarfile
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from pytest_ssr.errors import StoreWriteError, os_error_advice
from pytest_ssr.project.shared_files import EPOCH_S
from pytest_ssr.project.snapshot import Snapshot, matches, set_folder_times

_COMPRESSION = 1
"""Trees are sent once to each machine: the time to pack them matters as much as their size."""


def pack(directory: Path) -> bytes:
    """Return a folder as an archive."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz", compresslevel=_COMPRESSION) as archive:
        archive.add(directory, arcname=".")
    return buffer.getvalue()


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
                self._fetch(trees, final)
            os.utime(trees / self.name)
        except OSError as error:
            raise StoreWriteError(f"cannot write {final}: {os_error_advice(error)}") from None
        return placed

    def _fetch(self, trees: Path, final: Path) -> None:
        trees.mkdir(parents=True, exist_ok=True)
        staging = Path(tempfile.mkdtemp(prefix=".tmp-", dir=trees))
        try:
            with tarfile.open(fileobj=io.BytesIO(self.fetch())) as archive:
                # The driver made the archive. Older releases of Python 3.11 have no argument for this.
                archive.extraction_filter = lambda member, path: member
                archive.extractall(staging)
            for folder, _, names in os.walk(staging):
                for name in names:
                    os.utime(os.path.join(folder, name), (EPOCH_S, EPOCH_S), follow_symlinks=False)
            set_folder_times(staging)
            if matches(final, self.snapshot.files):
                return
            shutil.rmtree(final, ignore_errors=True)
            staging.rename(final)
        finally:
            shutil.rmtree(staging, ignore_errors=True)
