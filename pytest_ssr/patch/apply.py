"""Apply a patch to a tree exactly: without fuzz, without searching for a hunk's position, and never partially."""

from __future__ import annotations

from collections.abc import Callable

from pytest_ssr.errors import ArtifactError
from pytest_ssr.patch.binary import blob_id, decode
from pytest_ssr.patch.changes import SYMLINK, ChangeKind, FileChange, FileEntry, split_lines
from pytest_ssr.patch.model import Patch


def apply_patch(patch: Patch, read: Callable[[str], FileEntry | None]) -> dict[str, FileEntry | None]:
    """Return the files that change, with None for those that are deleted.

    read: returns a file of the tree, or None if the file does not exist.
    Raises ArtifactError with the file, the hunk and the line if the patch does not apply.
    """
    result: dict[str, FileEntry | None] = {}
    for change in patch.files:
        old = read(change.old_path) if change.old_path is not None else None
        if change.old_path is not None and old is None:
            raise ArtifactError(f"{change.old_path} does not exist in the tree the diff is applied to")
        # Git replaces a file with a symlink in two changes: the first deletes the file.
        deleted = change.new_path in result and result[change.new_path] is None and change.kind is ChangeKind.ADDED
        is_new = change.new_path is not None and change.new_path != change.old_path and not deleted
        if change.new_path is not None and is_new and read(change.new_path) is not None:
            raise ArtifactError(f"{change.new_path} already exists in the tree the diff is applied to")
        if old is not None and change.old_mode is not None and (old.mode == SYMLINK) != (change.old_mode == SYMLINK):
            raise ArtifactError(f"{change.old_path} is a symlink only in the tree or only in the diff")
        data = _content(change, old.data if old is not None else b"")
        if change.kind is ChangeKind.DELETED and data:
            raise ArtifactError(f"{change.old_path} has content that the diff does not delete")
        if change.old_path is not None and change.kind is not ChangeKind.COPIED:
            result[change.old_path] = None
        if change.new_path is not None:
            mode = old.mode if old is not None else 0o100644
            if change.new_mode is not None and change.old_mode != change.new_mode:
                mode = change.new_mode
            result[change.new_path] = FileEntry(data, mode)
    _check_folders(result, read)
    return result


def _check_folders(result: dict[str, FileEntry | None], read: Callable[[str], FileEntry | None]) -> None:
    """Raise ArtifactError for a file below a file or a symlink, so that nothing is written through a symlink."""
    for path in [p for p, entry in result.items() if entry is not None]:
        at = path.find("/")
        while at >= 0:
            folder = path[:at]
            if (result[folder] if folder in result else read(folder)) is not None:
                raise ArtifactError(f"{path} cannot be written: {folder} is a file or a symlink, not a folder")
            at = path.find("/", at + 1)


def _content(change: FileChange, old: bytes) -> bytes:
    if change.binary:
        _check_blob(change, old, change.blobs[0], "is not the file the binary patch was made from")
        data = decode(change.forward, old, change.path)
        _check_blob(change, data, change.blobs[1], "does not match the index line after the binary patch")
        return data
    if not change.hunks:
        if change.kind is ChangeKind.DELETED and old:
            raise ArtifactError(f"{change.old_path} is not empty, but the diff deletes none of its lines")
        return old
    lines = split_lines(old)
    result: list[bytes] = []
    at = 0
    for number, hunk in enumerate(change.hunks, 1):
        start = hunk.old_start - (1 if hunk.old_count else 0)
        expected = hunk.side(b"-")
        actual = lines[start : start + len(expected)]
        if not at <= start <= len(lines) or actual != expected:
            raise ArtifactError(f"hunk {number} of {change.path} does not apply: {_mismatch(start, actual, expected)}")
        result += lines[at:start]
        result += hunk.side(b"+")
        at = start + len(expected)
    result += lines[at:]
    if any(not x.endswith(b"\n") for x in result[:-1]):
        raise ArtifactError(f"{change.path}: the diff adds lines after a last line without a newline")
    return b"".join(result)


def _check_blob(change: FileChange, data: bytes, blob: bytes, problem: str) -> None:
    absent = not blob.strip(b"0")
    if data if absent else blob_id(data, size=len(blob)) != blob:
        raise ArtifactError(f"{change.path} {problem}")


def _mismatch(start: int, actual: list[bytes], expected: list[bytes]) -> str:
    for offset, line in enumerate(expected):
        if offset >= len(actual):
            return f"the file ends before line {start + offset + 1}"
        if actual[offset] != line:
            actual_text, expected_text = (x.decode(errors="replace").rstrip("\n")[:60] for x in (actual[offset], line))
            return f"line {start + offset + 1} is {actual_text!r}, not {expected_text!r}"
    if not expected and not actual:
        return f"the file ends before line {start}"
    return "it overlaps the hunk before it"
