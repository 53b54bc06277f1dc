"""The commands of swebench's harness, run as it runs them: in a checkout, one after the other."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from pytest_ssr.patch import FileEntry
from pytest_ssr.patch.changes import SYMLINK

Tree = Mapping[str, FileEntry]
_GIT = ("git", "apply", "--verbose")
_SINCE_5 = (_GIT, (*_GIT, "--3way"), (*_GIT, "--reject"), ("patch", "--batch", "--forward", "--fuzz=5", "-p1", "-i"))
_UNTIL_4 = (_GIT, (*_GIT, "--reject"), ("patch", "--batch", "--fuzz=5", "-p1", "-i"))


def reference_5(text: bytes, tree: Tree, folder: Path) -> Tree | None:
    """Return the tree after a diff by swebench 5.0.2, which restores the checkout before each further command."""
    checkout, diff = _checked_out(text, tree, folder)
    for number, command in enumerate(_SINCE_5):
        if number:
            _run(["git", "checkout", "--", "."], checkout)
            _run(["git", "clean", "-fd"], checkout)
        if _run([*command, str(diff)], checkout) == 0:
            return _tree_of(checkout)
    reversed_applies = _run(["git", "apply", "--check", "--reverse", str(diff)], checkout) == 0
    return _tree_of(checkout) if reversed_applies else None


def reference_4(text: bytes, tree: Tree, folder: Path) -> Tree | None:
    """Return the tree after a diff by swebench 4.1.0, which leaves what a failed command did."""
    checkout, diff = _checked_out(text, tree, folder)
    applied = any(_run([*command, str(diff)], checkout) == 0 for command in _UNTIL_4)
    return _tree_of(checkout) if applied else None


def _checked_out(text: bytes, tree: Tree, folder: Path) -> tuple[Path, Path]:
    checkout, diff = folder / "testbed", folder / "patch.diff"
    checkout.mkdir(parents=True)
    diff.write_bytes(text)
    for path, entry in tree.items():
        target = checkout / path
        target.parent.mkdir(parents=True, exist_ok=True)
        if entry.mode == SYMLINK:
            target.symlink_to(os.fsdecode(entry.data))
        else:
            target.write_bytes(entry.data)
            target.chmod(0o755 if entry.mode & 0o100 else 0o644)
    _run(["git", "init", "-q", "."], checkout)
    _run(["git", "add", "-A", "-f"], checkout)
    assert _run(["git", "commit", "-qm", "base"], checkout) == 0
    return checkout, diff


def _run(command: Sequence[str], folder: Path) -> int:
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder.parent), "GIT_CONFIG_NOSYSTEM": "1", "LC_ALL": "C"}
    environment |= {
        f"GIT_{who}_{what}": "t@example.com" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")
    }
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, check=False).returncode


def _tree_of(checkout: Path) -> Tree:
    files = {}
    for path in checkout.rglob("*"):
        name = path.relative_to(checkout).as_posix()
        if name.startswith(".git/"):
            continue
        if path.is_symlink():
            files[name] = FileEntry(os.fsencode(os.readlink(path)), SYMLINK)
        elif path.is_file():
            files[name] = FileEntry(path.read_bytes(), 0o100755 if path.stat().st_mode & 0o100 else 0o100644)
    return files
