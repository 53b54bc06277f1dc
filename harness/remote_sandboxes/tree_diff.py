"""Compare a sandbox's tree with the tree on which it was opened, and return the difference as a diff.

The tree is listed by programs inside the sandbox, which every image has. Code that tampers with them changes its own
diff and nothing else.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

from harness.remote_sandboxes.calls import TreeEntry
from harness.remote_sandboxes.tree_cache import TreeCache
from pytest_ssr.errors import SandboxError
from pytest_ssr.patch import FileEntry, make_patch
from pytest_ssr.sandbox.protocol import MIB, Limits, Sandbox

_LIMITS = Limits(wall_s=120.0, output_bytes=64 * MIB)
_MAX_FILE_BYTES, _MAX_TOTAL_BYTES = 16 * MIB, 64 * MIB
_SYMLINK, _FILE, _EXECUTABLE = 0o120000, 0o100644, 0o100755
_PRUNED = ("__pycache__", ".pytest_cache", ".git", ".ssr")
_PRUNE = f"'(' {' -o '.join(f'-name {name}' for name in _PRUNED)} ')' -prune -o"
# Each list ends with an empty name. `-perm -100` is the owner's bit, as in git.
_LIST = f"""
find . {_PRUNE} -type f -perm -100 -print0 && printf '\\0' &&
find . {_PRUNE} -type f ! -perm -100 -print0 && printf '\\0' &&
find . {_PRUNE} -type l -print0 && printf '\\0'
"""
_DIGEST_CHARACTERS = 64
_READ_LINK = ["/bin/sh", "-c", 'exec readlink -n -- "$1"', "sh"]


def diff_of(sandbox: Sandbox, entries: tuple[TreeEntry, ...], cache: TreeCache) -> bytes:
    """Return the diff from the entries to the sandbox's tree; raises SandboxError, or ArtifactError for large ones."""
    before = {entry.path: entry for entry in entries if entry.digest or entry.target}
    before = {path: entry for path, entry in before.items() if not set(path.split("/")) & set(_PRUNED)}
    modes = _listed(sandbox)
    digests = _digests(sandbox, [path for path, mode in modes.items() if mode != _SYMLINK])
    pairs: dict[str, tuple[FileEntry | None, FileEntry | None]] = {}
    room = _MAX_TOTAL_BYTES
    for path in sorted({*before, *modes}):
        old = before.get(path)
        if old is not None and digests.get(path) == old.digest and modes[path] == _mode(old):
            continue
        new = _entry(sandbox, path, modes[path]) if path in modes else None
        if new is None or not _is_same(old, new):
            pairs[path] = (_original(old, cache), new)
            room -= len(new.data) if new is not None else 0
        if room < 0:
            raise SandboxError(f"the changed files are larger than {_MAX_TOTAL_BYTES // MIB} MiB")
    return make_patch(pairs).data


def _listed(sandbox: Sandbox) -> Mapping[str, int]:
    """Return git's mode of each file and link by path."""
    done = sandbox.exec(["/bin/sh", "-c", _LIST], limits=_LIMITS, cwd=sandbox.root)
    lists = _lists(done.stdout)
    if done.exit_code != 0 or len(lists) != 3:
        raise SandboxError(f"the tree cannot be listed ({done.limit or f'status {done.exit_code}'})")
    return {path: mode for mode, paths in zip((_EXECUTABLE, _FILE, _SYMLINK), lists, strict=True) for path in paths}


def _lists(raw: bytes) -> list[list[str]]:
    lists: list[list[str]] = [[]]
    for name in raw.split(b"\0")[:-1]:
        if name:
            lists[-1].append(name.decode("utf-8", "surrogateescape").removeprefix("./"))
        else:
            lists.append([])
    return lists[:-1]


def _digests(sandbox: Sandbox, paths: Sequence[str]) -> Mapping[str, str]:
    """Return the SHA-256 of files; nothing if the program does not print one line for each."""
    names = b"".join(b"./%s\0" % path.encode("utf-8", "surrogateescape") for path in paths)
    done = sandbox.exec(["xargs", "-0", "sha256sum", "--"], limits=_LIMITS, stdin=names, cwd=sandbox.root)
    # A backslash at the start means that the name is escaped.
    lines = [
        line.removeprefix(b"\\")[:_DIGEST_CHARACTERS].decode("ascii", "replace") for line in done.stdout.splitlines()
    ]
    return dict(zip(paths, lines, strict=True)) if done.exit_code == 0 and len(lines) == len(paths) else {}


def _entry(sandbox: Sandbox, path: str, mode: int) -> FileEntry | None:
    if mode == _SYMLINK:
        done = sandbox.exec([*_READ_LINK, path], limits=_LIMITS, cwd=sandbox.root)
        return FileEntry(done.stdout, _SYMLINK)
    try:
        return FileEntry(sandbox.read(path, max_bytes=_MAX_FILE_BYTES), mode)
    except FileNotFoundError:
        return None


def _is_same(old: TreeEntry | None, new: FileEntry) -> bool:
    if old is None:
        return False
    if old.target:
        return new.mode == _SYMLINK and new.data == old.target.encode("utf-8", "surrogateescape")
    return (hashlib.sha256(new.data).hexdigest(), new.mode) == (old.digest, _mode(old))


def _original(old: TreeEntry | None, cache: TreeCache) -> FileEntry | None:
    if old is None:
        return None
    if old.target:
        return FileEntry(old.target.encode("utf-8", "surrogateescape"), _SYMLINK)
    return FileEntry(cache.content(old.digest), _mode(old))


def _mode(entry: TreeEntry) -> int:
    return _EXECUTABLE if entry.mode & 0o100 else _FILE
