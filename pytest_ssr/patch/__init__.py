"""Parse, split, reverse, make and apply git's unified diffs, in bytes and without git."""

from pytest_ssr.patch.apply import apply_patch
from pytest_ssr.patch.changes import ChangeKind, FileChange, FileEntry, Hunk
from pytest_ssr.patch.make import make_patch
from pytest_ssr.patch.model import Patch, PatchStats

__all__ = ["ChangeKind", "FileChange", "FileEntry", "Hunk", "Patch", "PatchStats", "apply_patch", "make_patch"]
