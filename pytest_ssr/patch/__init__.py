"""Git's unified diffs as records: parsed, split, reversed, made and applied, in bytes and without git."""

from pytest_ssr.patch.apply import apply_patch
from pytest_ssr.patch.make import make_patch
from pytest_ssr.patch.model import ChangeKind, FileChange, FileEntry, Hunk, Patch, PatchStats

__all__ = ["ChangeKind", "FileChange", "FileEntry", "Hunk", "Patch", "PatchStats", "apply_patch", "make_patch"]
