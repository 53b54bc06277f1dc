"""Run the commands with which SWE-bench's harness applies a diff, on a copy of the files that the diff names.

They are those of swebench 5.0.2, each on a tree without the traces of the one before. What they can reach: a new
folder, no configuration of git, no hooks, no repository of the user. The diff is untrusted, so time, memory and the
size of files are limited.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from pytest_ssr.errors import SsrError
from pytest_ssr.patch import FileEntry
from pytest_ssr.patch.changes import SYMLINK

_WALL_S = 60.0
_LIMITS = 'ulimit -t 60; ulimit -f 524288; ulimit -v 4194304 2>/dev/null; exec "$@"'
"""Seconds of the processor, blocks of 512 bytes in a file, KiB of memory (which macOS cannot limit)."""
_ED_LINE = re.compile(rb"^[- \tX]*\d+(?:,\d+)?(?:[acdi]|s/\.//)[ \t]*\r?$", re.MULTILINE)
"""A command of ed. Outside of a hunk, GNU patch would start ed for it, whatever the type of the diff."""
_DIFF, _TREE, _REPOSITORY = "submitted.diff", "tree", "repository"


class MissingToolError(SsrError):
    """A program is not installed without which a diff cannot be applied as SWE-bench's harness does."""


class Step(StrEnum):
    """The commands, in their order."""

    GIT_APPLY = "git-apply"
    THREE_WAY = "git-apply-3way"
    REJECT = "git-apply-reject"
    PATCH = "gnu-patch"
    ALREADY_APPLIED = "already-applied"
    """The tree that GNU patch leaves has all the changes, although it skipped some that the tree had before."""


_GIT_OPTIONS = {Step.GIT_APPLY: (), Step.THREE_WAY: ("--3way",), Step.REJECT: ("--reject",)}
_GNU_PATCH = ("--batch", "--forward", "--fuzz=5", "-p1", "--no-backup-if-mismatch", "--reject-file=-", "-i")
"""The options of the reference, without files for what was rejected and for the version before."""


@dataclass(frozen=True, slots=True)
class StepResult:
    """What a command did."""

    step: Step
    exit_code: int
    output: bytes
    files: Mapping[str, FileEntry]
    """The files that it left, if it succeeded."""

    @property
    def is_unreadable(self) -> bool:
        """Whether the command found no diff that it can read, by its exit status."""
        return self.exit_code == (2 if self.step is Step.PATCH else 128)


def run_steps(data: bytes, files: Mapping[str, FileEntry], folder: Path) -> list[StepResult]:
    """Run the commands until one succeeds, which is then the last of the results.

    files: those that the diff names. folder: an empty one to work in. Raises MissingToolError if git is missing, or
    if no command has succeeded and GNU patch is missing.
    """
    if shutil.which("git") is None:
        raise MissingToolError("git is not installed, which applies diffs; install it")
    (folder / _DIFF).write_bytes(data)
    results: list[StepResult] = []
    for step, options in _GIT_OPTIONS.items():
        _prepare(folder, files)
        command = ["git", "apply", "--verbose", *options, str(folder / _DIFF)]
        results.append(_result(step, command, folder))
        if results[-1].exit_code == 0:
            return results
    has_links = any(entry.mode == SYMLINK for entry in files.values()) or b" 120000" in data
    if has_links or _ED_LINE.search(data):
        # Releases of GNU patch have followed symlinks out of the tree, and run programs from scripts of ed.
        return results
    gnu_patch = shutil.which("patch")
    if gnu_patch is None:
        raise MissingToolError(
            "git cannot apply the diff, and GNU patch, which would try it next, is not installed; install it"
        )
    _prepare(folder, files)
    results.append(_result(Step.PATCH, [gnu_patch, *_GNU_PATCH, str(folder / _DIFF)], folder))
    if results[-1].exit_code:
        command = ["git", "apply", "--check", "--reverse", str(folder / _DIFF)]
        results.append(_result(Step.ALREADY_APPLIED, command, folder))
    return results


def _result(step: Step, command: Sequence[str], folder: Path) -> StepResult:
    tree = folder / _TREE
    try:
        done = _run(command, folder)
    except subprocess.TimeoutExpired:
        return StepResult(step, 1, b"error: it takes longer than %d s" % _WALL_S, {})
    files = _read_tree(tree) if done.returncode == 0 else {}
    return StepResult(step, done.returncode, done.stderr + done.stdout, files)


def _prepare(folder: Path, files: Mapping[str, FileEntry]) -> None:
    """Write the tree, and a repository outside of it, in which git knows the files."""
    tree, repository = folder / _TREE, folder / _REPOSITORY
    for old in (tree, repository):
        shutil.rmtree(old, ignore_errors=True)
    tree.mkdir()
    for path, entry in files.items():
        target = tree / path
        target.parent.mkdir(parents=True, exist_ok=True)
        if entry.mode == SYMLINK:
            target.symlink_to(os.fsdecode(entry.data))
        else:
            target.write_bytes(entry.data)
            target.chmod(0o755 if entry.mode & 0o100 else 0o644)
    _run(["git", "init", "--quiet", "--template="], folder)
    _run(["git", "add", "--all", "--force"], folder)


def _run(command: Sequence[str], folder: Path) -> subprocess.CompletedProcess[bytes]:
    environment = {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": str(folder),
        "TMPDIR": str(folder),
        "LC_ALL": "C",
        "GIT_DIR": str(folder / _REPOSITORY),
        "GIT_WORK_TREE": str(folder / _TREE),
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_DEFAULT_HASH": "sha1",
    }
    return subprocess.run(
        ["sh", "-c", _LIMITS, "sh", *command],
        cwd=folder / _TREE,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
        timeout=_WALL_S,
    )


def _read_tree(tree: Path) -> dict[str, FileEntry]:
    """Return the files of a folder; no symlink is followed."""
    files = {}
    for root, folders, names in os.walk(tree):
        for name in (*names, *folders):
            path = Path(root, name)
            if path.is_symlink():
                files[str(path.relative_to(tree))] = FileEntry(os.fsencode(os.readlink(path)), SYMLINK)
            elif name in names:
                mode = path.stat().st_mode
                path.chmod(0o600)
                files[str(path.relative_to(tree))] = FileEntry(
                    path.read_bytes(), 0o100755 if mode & 0o100 else 0o100644
                )
    return files
