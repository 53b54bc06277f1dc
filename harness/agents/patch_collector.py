"""Collect an agent's changes: list and read the files in the sandbox, and compare them with the initial state.

An agent may break the sandbox's git, so git is not used. The listing only decides which files are read: an agent that
tampers with it changes its own patch, nothing else. A tree that cannot become a patch is rejected with an error; only
leftovers of tools, files that the image has built there, and new symlinks where nothing existed before are ignored
silently.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection
from dataclasses import dataclass

from pytest_ssr.errors import ArtifactError, SandboxError
from pytest_ssr.patch import FileEntry, Patch
from pytest_ssr.project.interpreter import Interpreter
from pytest_ssr.project.solver_checkout import is_omitted, omitted_paths
from pytest_ssr.project.state import CodebaseState
from pytest_ssr.sandbox.protocol import MIB, Limits, Sandbox, WithBuiltFiles

_MAX_FILES = 2000
_MAX_FILE_BYTES, _MAX_TOTAL_BYTES = 16 * MIB, 64 * MIB
_LISTING = Limits(wall_s=120.0, output_bytes=64 * MIB)
_SYMLINK = 0o120000
_LIST = """
import hashlib, json, os, stat, sys
entries = {}
def describe(path):
    info = os.lstat(path)
    if stat.S_ISLNK(info.st_mode):
        return ["link", os.readlink(path), 0]
    if not stat.S_ISREG(info.st_mode):
        return ["special", "", 0]
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        for part in iter(lambda: file.read(1 << 20), b""):
            digest.update(part)
    return ["%o" % info.st_mode, digest.hexdigest(), info.st_size]
def refused(error):
    entries[error.filename[2:] or "."] = ["unreadable", error.strerror, 0]
for folder, folders, names in os.walk(".", onerror=refused):
    folders[:] = sorted(f for f in folders if f not in (".git", "__pycache__", ".pytest_cache", ".ssr"))
    links = [f for f in folders if os.path.islink(os.path.join(folder, f))]
    for name in sorted([*names, *links]):
        path = os.path.join(folder, name)
        try:
            entries[path[2:]] = describe(path)
        except OSError as error:
            entries[path[2:]] = ["unreadable", error.strerror, 0]
json.dump(entries, sys.stdout)
"""


@dataclass(frozen=True, slots=True)
class _Listed:
    """One entry of the listing."""

    kind: str
    """file, link, special or unreadable."""
    detail: str
    """A file's digest, a link's target, or why it cannot be read."""
    executable: bool = False
    size: int = 0

    def is_same(self, old: FileEntry) -> bool:
        """Return whether the entry is unchanged."""
        if self.kind == "link":
            return old.mode == _SYMLINK and self.detail.encode("utf-8", "surrogateescape") == old.data
        digest = hashlib.sha256(old.data).hexdigest()
        return self.kind == "file" and (0o100755 if self.executable else 0o100644, self.detail) == (old.mode, digest)


def collect_state(sandbox: Sandbox, interpreter: Interpreter, start: CodebaseState) -> CodebaseState:
    """Return the state of the sandbox's tree.

    Leftovers of tools and built files of the image are ignored, and so are new symlinks where nothing existed before:
    no patch may create one.
    Raises ArtifactError, with a message for the agent, for a tree that cannot be submitted: too many or too large
    files, symlinks in place of files, unreadable files; SandboxError when the sandbox breaks.
    """
    entries = _list_tree(sandbox, interpreter)
    original_paths = {p for p in {*start.snapshot.files, *start.changes} if start.entry(p) is not None}
    omitted = omitted_paths(original_paths)
    visible = original_paths - omitted
    # The image's own files are in no codebase state, changed or not.
    ignored = omitted | (sandbox.built if isinstance(sandbox, WithBuiltFiles) else frozenset())
    changes: dict[str, FileEntry | None] = {}
    room = _MAX_TOTAL_BYTES
    for path, entry in entries.items():
        old = start.entry(path)
        if path in ignored or is_omitted(path) or (old is not None and entry.is_same(old)):
            continue
        if reason := _refusal(path, entry, old, visible):
            raise ArtifactError(reason)
        if entry.kind != "file":
            continue
        if len(changes) >= _MAX_FILES:
            raise ArtifactError(
                f"more than {_MAX_FILES} files are changed, {path} among them; remove those that are not part of the "
                "work"
            )
        room -= entry.size
        if room < 0:
            raise ArtifactError(
                f"the changed files are larger than {_MAX_TOTAL_BYTES // MIB} MiB; remove those that are not part of "
                "the work"
            )
        data = _read(sandbox, path)
        if data is not None:
            changes[path] = FileEntry(data, 0o100755 if entry.executable else 0o100644)
    for path in visible - entries.keys():
        changes[path] = None
    return start.replace(changes)


def collect_patch(sandbox: Sandbox, interpreter: Interpreter, start: CodebaseState) -> Patch:
    """Return the diff from the initial state to the sandbox's tree; raises the same errors as `collect_state`."""
    return collect_state(sandbox, interpreter, start).patch_from(start)


def _refusal(path: str, entry: _Listed, old: FileEntry | None, visible: Collection[str]) -> str:
    """Return why a tree with this entry cannot be submitted, or an empty string."""
    if entry.kind == "unreadable":
        return f"{path} cannot be read ({entry.detail}); make it readable, or remove it"
    if entry.kind == "file":
        if old is not None and old.mode == _SYMLINK:
            return f"{path} was a symlink and is now a file; restore the symlink, and change its target"
        if entry.size > _MAX_FILE_BYTES:
            return (
                f"{path} is changed and larger than {_MAX_FILE_BYTES // MIB} MiB, which is too large for a patch; "
                "restore it, or remove it if it is new"
            )
        return ""
    replaces_original = old is not None or any(p.startswith(f"{path}/") for p in visible)
    if not replaces_original:
        return ""
    if entry.kind == "link":
        return (
            f"{path} is now a symlink to {entry.detail}; a patch may not add or change symlinks: restore the original"
        )
    return f"{path} is no longer a file; restore the original"


def _list_tree(sandbox: Sandbox, interpreter: Interpreter) -> dict[str, _Listed]:
    """Return the entries of the tree by path; malformed entries of the listing are ignored."""
    done = sandbox.exec([str(interpreter.executable), "-I", "-c", _LIST], limits=_LISTING, cwd=sandbox.root)
    try:
        listing = json.loads(done.stdout)
        assert isinstance(listing, dict)
    except (ValueError, AssertionError, RecursionError):
        reason = done.limit or f"status {done.exit_code}"
        raise ArtifactError(f"the tree cannot be listed ({reason}); does its folder still exist?") from None
    entries = {}
    for path, item in listing.items():
        outside = path.startswith(("/", "../")) or "/../" in path or "\0" in path
        if outside or not isinstance(item, list) or [type(part) for part in item] != [str, str, int]:
            continue
        mode, detail, size = item
        if mode.isdigit() and not set(mode) & {"8", "9"}:
            entries[path] = _Listed("file", detail, bool(int(mode, 8) & 0o100), size)
        else:
            entries[path] = _Listed(mode, detail)
    return entries


def _read(sandbox: Sandbox, path: str) -> bytes | None:
    """Return a file's content; None if it no longer exists."""
    try:
        return sandbox.read(path, max_bytes=_MAX_FILE_BYTES)
    except FileNotFoundError:
        return None
    except SandboxError as error:
        # The file may have grown meanwhile. If the sandbox broke instead, this command raises.
        sandbox.exec(["true"], limits=_LISTING)
        raise ArtifactError(f"{path} cannot be read: {error}") from None
