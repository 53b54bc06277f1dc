"""Read a project's past commits and their diffs with git, which writes nothing and runs nothing.

Paths are relative to the project's directory, which may lie below the top of the checkout.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pytest_ssr.errors import ProjectError

MAX_COMMITS = 2000
MAX_FILES = 100
_MIN_COMMITS = 50
_TIMEOUT_S = 120
_SETTINGS = (
    "--no-pager",
    "--literal-pathspecs",
    "-c",
    "safe.directory=*",
    "-c",
    "core.quotepath=off",
    "-c",
    "core.fsmonitor=false",
    "-c",
    "diff.suppressBlankEmpty=false",
)
_DIFF = (
    "--relative",
    "--no-renames",
    "--no-ext-diff",
    "--no-textconv",
    "--no-color",
    "--no-show-signature",
    "--diff-algorithm=myers",
    "--submodule=short",
    "--src-prefix=a/",
    "--dst-prefix=b/",
    "--inter-hunk-context=0",
    "-U1",
)
_ADVICE = "the history strategy needs git history; clone the project with its history, or choose the injector mutation"


@dataclass(frozen=True, slots=True)
class Commit:
    """One commit that changed Python files."""

    name: str
    """The full hash."""
    subject: str
    """The first line of its message."""
    paths: tuple[str, ...]
    """The Python files it changed."""


def past_commits(origin: Path | None) -> list[Commit]:
    """Return the newest 2,000 commits of the main line that changed Python files, the newest first.

    If the main line has fewer than 50 (a project that merges pull requests), side branches are walked as well.
    Raises ProjectError without git or without a history.
    """
    if origin is None:
        raise ProjectError(f"the project has no directory on disk: {_ADVICE}")
    inside, _, reason = run_git(origin, "rev-parse", "--is-inside-work-tree")
    if not inside:
        raise ProjectError(f"{origin} is not a git checkout ({reason}): {_ADVICE}")
    commits = _log(origin, "--first-parent")
    if len(commits) < _MIN_COMMITS:
        commits = _log(origin)
    if not commits:
        raise ProjectError(f"{origin} has no commits to revert: {_ADVICE}")
    return commits


def last_commit(origin: Path) -> str:
    """Return the hash of the last commit in a directory's history; empty if there are no commits."""
    _, out, _ = run_git(origin, "rev-parse", "--verify", "-q", "HEAD")
    return out.decode("ascii", "replace").strip()


def no_revert_applies(origin: Path | None, count: int) -> ProjectError:
    """Return the error for a history in which nothing can be reverted."""
    return ProjectError(
        f"none of the {count} past commits of {origin} can be reverted any more; "
        "clone the project with more of its history, or choose the injector mutation"
    )


def diff_of(origin: Path, commit: Commit, paths: Sequence[str]) -> bytes:
    """Return a commit's changes of some files as a git diff; empty if git does not have it (a partial clone)."""
    _, out, _ = run_git(origin, "show", "--format=", *_DIFF, commit.name, "--", *paths)
    return out


def _log(origin: Path, *options: str) -> list[Commit]:
    _, out, _ = run_git(
        origin, "log", *options, "--no-merges", f"--max-count={MAX_COMMITS}", "--format=%x01%H%x00%s%x00", "-z",
        "--encoding=UTF-8", "--name-only", *_DIFF[:-1], "--", ".",
    )  # fmt: skip
    commits: list[Commit] = []
    for row in out.split(b"\x01")[1:]:
        name, subject, *names = (part.strip(b"\n") for part in row.split(b"\0"))
        paths = tuple(os.fsdecode(n) for n in names if n.endswith(b".py"))
        if 0 < len(paths) <= MAX_FILES:
            commits.append(Commit(name.decode("ascii"), subject.decode("utf-8", "replace"), paths))
    return commits


def run_git(origin: Path, *arguments: str) -> tuple[bool, bytes, str]:
    """Run a read-only git command; return whether it succeeded, its output, and the reason if it failed."""
    env = {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": os.devnull,
        "LC_ALL": "C",
        "GIT_ALLOW_PROTOCOL": "none",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_NO_REPLACE_OBJECTS": "1",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_TERMINAL_PROMPT": "0",
    }
    try:
        completed = subprocess.run(
            ["git", *_SETTINGS, *arguments],
            cwd=origin,
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            timeout=_TIMEOUT_S,
        )
    except FileNotFoundError:
        return False, b"", "git is not installed" if origin.is_dir() else "the directory does not exist"
    except (OSError, subprocess.TimeoutExpired) as error:
        return False, b"", str(error)
    error_lines = completed.stderr.decode("utf-8", "replace").strip().splitlines()
    reason = error_lines[0] if error_lines else ""
    if completed.returncode != 0:
        return False, b"", reason
    return True, completed.stdout, reason
