"""The injector `history`: past commits' source hunks are reverted where they still apply (arXiv 2512.18552, 2.3).

Content comes from the snapshot, which may be dirty; git is asked for past diffs only and never writes.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

from pytest_ssr.errors import ArtifactError, ProjectError
from pytest_ssr.injectors.equivalence import fingerprint
from pytest_ssr.injectors.protocol import Candidate, SourceTree
from pytest_ssr.patch import ChangeKind, Hunk, Patch

_MOST_COMMITS = 2000
_ADVICE = "the history strategy needs git history; clone the project with its history, or choose another injector"


@dataclass(frozen=True, slots=True)
class _Commit:
    name: str
    subject: str


class HistoryInjector:
    """Reverts single hunks, single files and whole commits."""

    name = "history"

    def candidates(self, tree: SourceTree, *, seed: int) -> Iterator[Candidate]:
        """Yield reverts, commits in an order drawn from the seed; raises ProjectError where there is no history."""
        origin = tree.origin
        commits = _commits(origin) if origin is not None else []
        if origin is None or len(commits) < 2:
            raise ProjectError(f"{origin} has no commits to revert: {_ADVICE}")
        Random(f"{self.name}:{seed}").shuffle(commits)
        code = frozenset(tree.code_paths())
        seen: set[str] = set()
        for commit in commits:
            for candidate in _reverts(tree, code, origin, commit):
                name = "".join(fingerprint(d) or "" for d in candidate.changes.values() if d is not None)
                if name not in seen:
                    seen.add(name)
                    yield candidate


def _git(origin: Path, *arguments: str) -> bytes:
    """Run a git command that only reads; returns nothing when git or the repository is absent."""
    env = {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": os.devnull,
        "LC_ALL": "C",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_TERMINAL_PROMPT": "0",
    }
    settings = ["-c", "safe.directory=*", "-c", "core.quotepath=off", "-c", "diff.external=", "--no-pager"]
    try:
        done = subprocess.run(
            ["git", *settings, *arguments], cwd=origin, env=env, capture_output=True, check=False, timeout=120
        )
    except (OSError, subprocess.TimeoutExpired):
        return b""
    return done.stdout if done.returncode == 0 else b""


def _commits(origin: Path) -> list[_Commit]:
    raw = _git(origin, "log", "--first-parent", "--no-merges", f"-{_MOST_COMMITS}", "--format=%H%x00%s", "--", ".")
    rows = (line.partition(b"\0") for line in raw.splitlines())
    return [_Commit(name.decode(), subject.decode(errors="replace")) for name, _, subject in rows if name]


def _reverts(tree: SourceTree, code: frozenset[str], origin: Path, commit: _Commit) -> Iterator[Candidate]:
    raw = _git(
        origin, "show", "--format=", "--relative", "--no-renames", "--no-ext-diff", "--no-textconv", "-U3",
        commit.name, "--", "*.py",
    )  # fmt: skip
    try:
        patch = Patch.parse(raw)
    except ArtifactError:
        return
    files = [f for f in patch.files if f.path in code and f.kind is ChangeKind.MODIFIED and f.hunks]
    whole: dict[str, tuple[bytes, int]] = {}
    for change in files:
        data = tree.read(change.path)
        reverted, line = data, 0
        for hunk in reversed(change.hunks):
            alone = _revert(data, hunk)
            if alone is not None and len(change.hunks) > 1 and _matters(data, alone[0]):
                yield _candidate("revert-hunk", {change.path: alone[0]}, change.path, alone[1], hunk, commit)
            together = _revert(reverted, hunk)
            if together is not None:
                reverted, line = together
        if _matters(data, reverted):
            whole[change.path] = (reverted, line)
            yield _candidate("revert-file", {change.path: reverted}, change.path, line, change.hunks[0], commit)
    if len(whole) > 1:
        first = min(whole)
        yield _candidate(
            "revert-commit",
            {p: d for p, (d, _) in whole.items()},
            first,
            whole[first][1],
            files[0].hunks[0],
            commit,
        )


def _revert(data: bytes, hunk: Hunk) -> tuple[bytes, int] | None:
    """Undo one hunk where its lines stand exactly once in the file; None where they do not."""
    after, before = b"".join(hunk.side(b"+")), b"".join(hunk.side(b"-"))
    if not after or data.count(after) != 1:
        return None
    at = data.index(after)
    if at and data[at - 1 : at] != b"\n":
        return None
    lead = next((i for i, line in enumerate(hunk.lines) if line[:1] in b"+-"), 0)
    return data[:at] + before + data[at + len(after) :], data.count(b"\n", 0, at) + 1 + lead


def _matters(old: bytes, new: bytes) -> bool:
    """Tell whether a change parses and does more than move comments."""
    name = fingerprint(new)
    return old != new and name is not None and name != fingerprint(old)


def _candidate(
    operator: str, changes: dict[str, bytes], path: str, line: int, hunk: Hunk, commit: _Commit
) -> Candidate:
    section = hunk.section.decode(errors="replace").strip()
    words = section.removeprefix("async ").removeprefix("def ").removeprefix("class ")
    scope = words.partition("(")[0].partition(":")[0].strip() or "<module>"
    return Candidate("history", operator, dict(changes), path, line, scope, f"{commit.name[:10]} {commit.subject}")
