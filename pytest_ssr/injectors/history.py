"""Provide the injector `history`, which undoes past commits' changes that still apply (arXiv 2512.18552, 2.3).

Content comes from the snapshot, which may be dirty; git is queried for past diffs only. The commits, in an order drawn
from the seed, yield one candidate each in turn, so that a large commit is not drawn more often.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from random import Random

from pytest_ssr.errors import ArtifactError
from pytest_ssr.injectors.git_history import Commit, diff_of, last_commit, no_revert_applies, past_commits
from pytest_ssr.injectors.hunk_reverts import Effect, effect_of, revert
from pytest_ssr.injectors.protocol import Candidate, SourceTree
from pytest_ssr.patch import ChangeKind, Hunk, Patch
from pytest_ssr.source.syntax_tree import MODULE, Scope, parse, scopes

_MAX_SUBJECT_CHARS = 100


@dataclass(frozen=True, slots=True)
class _Revert:
    """A change that may become a candidate."""

    operator: str
    parts: tuple[tuple[str, tuple[Hunk, ...]], ...]
    """Paths in the tree, each with the hunks to undo."""


@dataclass(slots=True)
class _CurrentTree:
    """The tree's files as they are now, each analysed once."""

    tree: SourceTree
    code: tuple[str, ...]
    effects: dict[str, Effect | None] = field(default_factory=dict)
    scopes_by_path: dict[str, list[Scope]] = field(default_factory=dict)

    def effect(self, path: str) -> Effect | None:
        if path not in self.effects:
            self.effects[path] = effect_of(self.tree.read(path))
        return self.effects[path]

    def scope(self, path: str, line: int) -> str:
        if path not in self.scopes_by_path:
            source = parse(path, self.tree.read(path))
            self.scopes_by_path[path] = scopes(source) if source is not None else []
        enclosing = [s for s in self.scopes_by_path[path] if s.line <= line <= s.node.end_point.row + 1]
        return min(enclosing, key=lambda s: s.end - s.start).qualname if enclosing else MODULE

    def current_path(self, path: str) -> str | None:
        """Return the current path of a past file, even if its package has moved below `src`."""
        if path in self.code:
            return path
        moved = [p for p in self.code if p.endswith(f"/{path}") or path.endswith(f"/{p}")]
        return moved[0] if len(moved) == 1 and PurePosixPath(path).parent.parts else None


class HistoryInjector:
    """Reverts single hunks, single files and whole commits."""

    name = "history"

    def depends_on(self, tree: SourceTree) -> str:
        """Return the hash of the last commit."""
        return last_commit(tree.origin) if tree.origin is not None else ""

    def candidates(self, tree: SourceTree, *, seed: int) -> Iterator[Candidate]:
        """Yield reverts, with the commits in an order drawn from the seed.

        Raises ProjectError without git, without a history, or if nothing in it still applies.
        """
        rng = Random(f"{self.name}:{seed}")
        current = _CurrentTree(tree, tuple(tree.code_paths()))
        commits = past_commits(tree.origin)
        origin = tree.origin
        assert origin is not None
        rng.shuffle(commits)
        count = 0
        for candidate in _interleaved(
            [_commit_candidates(current, origin, c, Random(f"{seed}:{c.name}")) for c in commits]
        ):
            count += 1
            yield candidate
        if not count:
            raise no_revert_applies(origin, len(commits))


def _interleaved(sources: Sequence[Iterator[tuple[str, Candidate]]]) -> Iterator[Candidate]:
    """Yield one candidate of each commit in turn, without those whose effect an earlier one had."""
    seen: set[str] = set()
    live = list(sources)
    while live:
        remaining: list[Iterator[tuple[str, Candidate]]] = []
        for source in live:
            for effect, candidate in source:
                if effect not in seen:
                    seen.add(effect)
                    remaining.append(source)
                    yield candidate
                    break
        live = remaining


def _commit_candidates(
    current: _CurrentTree, origin: Path, commit: Commit, rng: Random
) -> Iterator[tuple[str, Candidate]]:
    """Yield the candidates that undo parts of one commit, each with a fingerprint of its effect."""
    paths = [p for p in commit.paths if current.current_path(p) is not None]
    if not paths:
        return
    try:
        patch = Patch.parse(diff_of(origin, commit, paths))
    except ArtifactError:
        return
    hunks: dict[str, tuple[Hunk, ...]] = {}
    for change in patch.files:
        path = current.current_path(change.path)
        if path is not None and path not in hunks and change.kind is ChangeKind.MODIFIED and change.hunks:
            hunks[path] = change.hunks
    reverts = _reverts(current, hunks)
    rng.shuffle(reverts)
    for planned in reverts:
        candidate = _candidate(current, planned, commit)
        if candidate is not None:
            yield candidate


def _reverts(current: _CurrentTree, hunks: dict[str, tuple[Hunk, ...]]) -> list[_Revert]:
    """Return reverts of each hunk, of each file that applies as a whole, and of all such files together."""
    reverts: list[_Revert] = []
    whole: list[tuple[str, tuple[Hunk, ...]]] = []
    for path, file_hunks in sorted(hunks.items()):
        if len(file_hunks) > 1:
            reverts += [_Revert("revert-hunk", ((path, (h,)),)) for h in file_hunks]
        if revert(current.tree.read(path), file_hunks) is not None:
            whole.append((path, file_hunks))
            reverts.append(_Revert("revert-file", ((path, file_hunks),)))
    if len(whole) > 1:
        reverts.append(_Revert("revert-commit", tuple(whole)))
    return reverts


def _undone(current: _CurrentTree, path: str, hunks: tuple[Hunk, ...]) -> tuple[bytes, int, str] | None:
    """Return the file without the hunks, the line and a fingerprint of the effect; None if the revert is useless.

    Useless are results that are not valid Python, changes of comments, docstrings and formatting, and results with
    names that are bound nowhere: such a module fails with a NameError wherever it is used.
    """
    before = current.effect(path)
    reverted = revert(current.tree.read(path), hunks) if before is not None else None
    after = effect_of(reverted[0]) if reverted is not None else None
    if (
        before is None
        or reverted is None
        or after is None
        or after.fingerprint == before.fingerprint
        or after.unbound - before.unbound
    ):
        return None
    return reverted[0], reverted[1], after.fingerprint


def _candidate(current: _CurrentTree, planned: _Revert, commit: Commit) -> tuple[str, Candidate] | None:
    changes: dict[str, bytes | None] = {}
    names: list[str] = []
    lines: list[tuple[str, int]] = []
    for path, hunks in planned.parts:
        undone = _undone(current, path, hunks)
        if undone is not None:
            changes[path] = undone[0]
            lines.append((path, undone[1]))
            names.append(f"{path} {undone[2]}")
    if not lines or (len(lines) < 2 and planned.operator == "revert-commit"):
        return None
    path, line = lines[0]
    subject = commit.subject
    short = subject if len(subject) <= _MAX_SUBJECT_CHARS else subject[: _MAX_SUBJECT_CHARS - 3] + "..."
    return "\n".join(names), Candidate(
        strategy="history",
        operator=planned.operator,
        changes=changes,
        path=path,
        line=line,
        scope=current.scope(path, line),
        detail=f"{commit.name[:10]} {short}",
    )
