"""Write a project's past commits into a new repository, without anything that came after its own commit.

Only the commit and its ancestors are copied: no other branches, tags or reflogs, and so none of the commits after that
of a dataset's row. A project in a subfolder gets the commits that changed the subfolder, one after the other. What the
project's files have changed since is a last commit, so that a diff shows an injector's own changes only.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pytest_ssr.errors import ProjectError
from pytest_ssr.injectors.git_history import MAX_COMMITS, last_commit, run_git

_BRANCH = "refs/heads/main"
_SETTINGS = ("-c", "safe.directory=*", "-c", "core.hooksPath=/dev/null", "-c", "commit.gpgSign=false")
_FIELDS = 3
"""Of a commit in the output of `git log`: its hash, its author with the date, its message."""
_NOT_IN_NAMES = re.compile(rb"[<>\n\r\0]+")


@dataclass(frozen=True, slots=True)
class History:
    """The past commits of a project."""

    folder: Path
    """A folder of its repository, or a git directory."""
    commit: str
    """The newest commit."""
    prefix: str = ""
    """The project's folder in the repository, with a slash at its end; empty for the top."""


def history_of(project: Path) -> History | None:
    """Return the history of a project in a git repository; None if no commit has a file of the project."""
    is_inside, out, _ = run_git(project, "rev-parse", "--show-prefix")
    if not is_inside:
        return None
    prefix = os.fsdecode(out.rstrip(b"\n"))
    if not prefix:
        commit = last_commit(project)
    else:
        _, out, _ = run_git(project, "log", "-1", "--format=%H", "--no-show-signature", "--", ".")
        commit = out.decode("ascii", "replace").strip()
    return History(project, commit, prefix) if commit else None


def write_history(history: History, folder: Path, tree: Path) -> None:
    """Make a repository in a new folder with a project's past commits and its files as they are now.

    tree: the project's files. Raises ProjectError if git cannot read the commits.
    """
    _git(None, "init", "-q", "--template=", str(folder))
    if history.prefix:
        _write_subfolder(history, folder)
    else:
        _copy_objects(history, folder, history.commit)
        _git(folder, "update-ref", _BRANCH, history.commit)
    _git(folder, "symbolic-ref", "HEAD", _BRANCH)
    shutil.copytree(
        tree, folder, symlinks=True, dirs_exist_ok=True, ignore=shutil.ignore_patterns(".git", "__pycache__")
    )
    _git(folder, "add", "-A")
    if _git(folder, "status", "--porcelain", "--untracked-files=no"):
        _git(folder, "commit", "-q", "--no-verify", "-m", "The project as it is")


def _write_subfolder(history: History, folder: Path) -> None:
    """Write the commits that changed the project's subfolder, with the subfolder as their top."""
    commits = list(_commits_of(history))
    names = "".join(f"{commit.name}:{history.prefix.rstrip('/')}\n" for commit in commits)
    lines = _git(history.folder, "cat-file", "--batch-check=%(objectname) %(objecttype)", stdin=names.encode())
    trees = [line.removesuffix(b" tree").decode() if line.endswith(b" tree") else "" for line in lines.splitlines()]
    _copy_objects(history, folder, *filter(None, dict.fromkeys(trees)))
    stream = b"".join(
        commit.as_import(tree) for commit, tree in reversed(list(zip(commits, trees, strict=True))) if tree
    )
    _git(folder, "fast-import", "--quiet", "--date-format=raw", stdin=stream)


@dataclass(frozen=True, slots=True)
class _Commit:
    name: str
    author: bytes
    """Name, address and raw date, separated by line feeds."""
    message: bytes

    def as_import(self, tree: str) -> bytes:
        """Return the commands of `git fast-import` for the commit with another tree."""
        name, address, date = (_NOT_IN_NAMES.sub(b" ", part) for part in self.author.rsplit(b"\n", 2))
        person = name + b" <" + address + b"> " + date
        return (
            f"commit {_BRANCH}\n".encode()
            + b"author %b\ncommitter %b\ndata %d\n%b\n" % (person, person, len(self.message), self.message)
            + f'M 040000 {tree} ""\n\n'.encode()
        )


def _commits_of(history: History) -> Iterator[_Commit]:
    """Yield the newest commits that changed the subfolder, the newest first."""
    options = ("--no-show-signature", "-z", "--date=raw", f"--max-count={MAX_COMMITS}", "--no-merges")
    top = history.folder
    _, out, _ = run_git(top, "log", *options, "--format=%H%x00%an%n%ae%n%ad%x00%B", history.commit, "--", ".")
    parts = out.rstrip(b"\0").split(b"\0")
    for at in range(0, len(parts) - _FIELDS + 1, _FIELDS):
        name, author, message = parts[at : at + _FIELDS]
        yield _Commit(name.strip().decode("ascii", "replace"), author, message)


def _copy_objects(history: History, folder: Path, *names: str) -> None:
    """Copy these commits or trees with all that they consist of; a shallow history stays shallow."""
    revisions = "".join(f"{name}\n" for name in names).encode()
    pack = _git(history.folder, "pack-objects", "--revs", "--stdout", "-q", stdin=revisions)
    shallow = os.fsdecode(_git(history.folder, "rev-parse", "--git-path", "shallow").strip())
    source = history.folder / shallow
    if source.is_file() and not history.prefix:
        shutil.copyfile(source, folder / ".git" / "shallow")
    _git(folder, "index-pack", "--stdin", "--fix-thin", stdin=pack)


def _git(folder: Path | None, *arguments: str, stdin: bytes = b"") -> bytes:
    """Run git and return its output; raises ProjectError if it fails."""
    where = ("-C", str(folder)) if folder is not None else ()
    identity = {f"GIT_{who}_{what}": "ssr@localhost" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    env = {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": os.devnull,
        "LC_ALL": "C",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_ALLOW_PROTOCOL": "none",
        "GIT_NO_REPLACE_OBJECTS": "1",
        **identity,
    }
    try:
        command = ["git", *_SETTINGS, *where, *arguments]
        return subprocess.run(command, input=stdin, env=env, capture_output=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        output = getattr(error, "stderr", b"") or str(error).encode()
        reason = output.decode(errors="replace").strip()
        raise ProjectError(f"the history of the project cannot be copied: git {arguments[0]}: {reason}") from None
