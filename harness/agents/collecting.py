"""What an agent changed: files listed in the sandbox and read out of it, against the state it started from.

Git in the sandbox is the agent's to break, so it is not asked. What the listing says only decides what is read: a
model that lies to it changes its own patch, and nothing else.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

from pytest_ssr.codebase import CodebaseState
from pytest_ssr.errors import ArtifactError, SandboxError
from pytest_ssr.execution.interpreter import Interpreter
from pytest_ssr.patch import FileEntry, Patch
from pytest_ssr.sandbox.protocol import MIB, Limits, Sandbox
from pytest_ssr.solver_tree import is_left_out

_MOST_FILES = 2000
_MOST_BYTES = 16 * MIB
_LIST = """
import hashlib, json, os, stat, sys
found = {}
for folder, folders, names in os.walk("."):
    folders[:] = sorted(f for f in folders if f not in (".git", "__pycache__", ".pytest_cache", ".ssr"))
    for name in sorted(names):
        path = os.path.join(folder, name)[2:]
        try:
            info = os.lstat(path)
            if stat.S_ISREG(info.st_mode) and info.st_size <= 1 << 24:
                with open(path, "rb") as file:
                    digest = hashlib.sha256(file.read()).hexdigest()
                found[path] = ["%o" % info.st_mode, digest]
            elif stat.S_ISLNK(info.st_mode):
                found[path] = ["link", ""]
        except OSError:
            found[path] = ["unreadable", ""]
json.dump(found, sys.stdout)
"""


def changed(sandbox: Sandbox, interpreter: Interpreter, start: CodebaseState, *, limits: Limits) -> CodebaseState:
    """Return the state that the sandbox's tree shows.

    Leavings of tools and symlinks are passed over. Raises ArtifactError for a tree that cannot be a repair: too many
    files, too large ones; SandboxError when the sandbox breaks.
    """
    done = sandbox.exec([str(interpreter.executable), "-I", "-c", _LIST], limits=limits, cwd=sandbox.root)
    try:
        listed = json.loads(done.stdout)
        assert isinstance(listed, dict)
    except (ValueError, AssertionError):
        why = done.limit or f"status {done.exit_code}"
        raise ArtifactError(f"the tree cannot be listed ({why}); is its folder still there?") from None
    changes: dict[str, FileEntry | None] = {}
    before = {p for p in {*start.snapshot.files, *start.changes} if start.entry(p) is not None and not is_left_out(p)}
    for path, (mode, digest) in _regular(listed).items():
        old = start.entry(path)
        executable = bool(int(mode, 8) & 0o100)
        same_mode = old is not None and (old.mode == 0o100755) == executable
        if old is not None and same_mode and _digest(old) == digest:
            continue
        if is_left_out(path) or (old is not None and old.mode == 0o120000):
            continue
        if len(changes) >= _MOST_FILES:
            raise ArtifactError(f"more than {_MOST_FILES} files are changed")
        try:
            data = sandbox.read(path, max_bytes=_MOST_BYTES)
        except FileNotFoundError:
            continue
        except SandboxError as error:
            raise ArtifactError(f"{path} cannot be read: {error}") from None
        changes[path] = FileEntry(data, 0o100755 if executable else 0o100644)
    for path in before - listed.keys():
        changes[path] = None
    return start.replace(changes)


def patch_of(sandbox: Sandbox, interpreter: Interpreter, start: CodebaseState, *, limits: Limits) -> Patch:
    """Return the diff from the state to what the sandbox's tree shows; raises as `changed` does."""
    return changed(sandbox, interpreter, start, limits=limits).patch_from(start)


def _regular(listed: Mapping[str, object]) -> dict[str, tuple[str, str]]:
    found = {}
    for path, pair in listed.items():
        if isinstance(pair, list) and len(pair) == 2 and all(isinstance(p, str) for p in pair):
            if pair[0].isdigit() and not path.startswith(("/", "../")) and "/../" not in path:
                found[path] = (pair[0], pair[1])
    return found


def _digest(entry: FileEntry) -> str:
    return hashlib.sha256(entry.data).hexdigest()
