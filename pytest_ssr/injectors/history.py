"""The injector `history`: what past commits did to the source is undone where it still applies (arXiv 2512.18552, 2.3).

Content comes from the snapshot, which may be dirty; git is asked for past diffs only. Candidates come from one commit
after another in an order drawn from the seed, one of each in turn, so that a large commit is not drawn more often.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from random import Random

from pytest_ssr.errors import ArtifactError
from pytest_ssr.injectors.past_commits import Commit, diff_of, last_commit, none_applies, past_commits
from pytest_ssr.injectors.protocol import Candidate, SourceTree
from pytest_ssr.injectors.python_source import MODULE, Scope, parse, scopes
from pytest_ssr.injectors.reverting import Effect, effect_of, revert
from pytest_ssr.patch import ChangeKind, Hunk, Patch

_LONGEST_SUBJECT = 100


@dataclass(frozen=True, slots=True)
class _Revert:
    """A change that may become a candidate."""

    operator: str
    parts: tuple[tuple[str, tuple[Hunk, ...]], ...]
    """Paths in the tree, each with the hunks to undo there."""


@dataclass(slots=True)
class _Now:
    """The tree's files as they are now, each looked at once."""

    tree: SourceTree
    code: tuple[str, ...]
    effects: dict[str, Effect | None] = field(default_factory=dict)
    places: dict[str, list[Scope]] = field(default_factory=dict)

    def effect(self, path: str) -> Effect | None:
        if path not in self.effects:
            self.effects[path] = effect_of(self.tree.read(path))
        return self.effects[path]

    def scope(self, path: str, line: int) -> str:
        if path not in self.places:
            source = parse(path, self.tree.read(path))
            self.places[path] = scopes(source) if source is not None else []
        around = [s for s in self.places[path] if s.line <= line <= s.node.end_point.row + 1]
        return min(around, key=lambda s: s.end - s.start).qualname if around else MODULE

    def where(self, path: str) -> str | None:
        """Return today's path of a file of the past: a package that moved below `src` is found again."""
        if path in self.code:
            return path
        moved = [p for p in self.code if p.endswith(f"/{path}") or path.endswith(f"/{p}")]
        return moved[0] if len(moved) == 1 and PurePosixPath(path).parent.parts else None


class HistoryInjector:
    """Reverts single hunks, single files and whole commits."""

    name = "history"

    def depends_on(self, tree: SourceTree) -> str:
        """Return the last commit."""
        return last_commit(tree.origin) if tree.origin is not None else ""

    def candidates(self, tree: SourceTree, *, seed: int) -> Iterator[Candidate]:
        """Yield reverts, commits in an order drawn from the seed.

        Raises ProjectError where there is no git, no history, or nothing in it that still applies.
        """
        chance = Random(f"{self.name}:{seed}")
        now = _Now(tree, tuple(tree.code_paths()))
        commits = past_commits(tree.origin)
        origin = tree.origin
        assert origin is not None
        chance.shuffle(commits)
        made = 0
        for candidate in _in_turn([_of_commit(now, origin, c, Random(f"{seed}:{c.name}")) for c in commits]):
            made += 1
            yield candidate
        if not made:
            raise none_applies(origin, len(commits))


def _in_turn(sources: Sequence[Iterator[tuple[str, Candidate]]]) -> Iterator[Candidate]:
    """Take one candidate of each commit in turn, none with the effect of one before."""
    seen: set[str] = set()
    live = list(sources)
    while live:
        going: list[Iterator[tuple[str, Candidate]]] = []
        for source in live:
            for name, candidate in source:
                if name not in seen:
                    seen.add(name)
                    going.append(source)
                    yield candidate
                    break
        live = going


def _of_commit(now: _Now, origin: Path, commit: Commit, chance: Random) -> Iterator[tuple[str, Candidate]]:
    """Yield what can be undone of one commit, each with a name for its effect."""
    paths = [p for p in commit.paths if now.where(p) is not None]
    if not paths:
        return
    try:
        patch = Patch.parse(diff_of(origin, commit, paths))
    except ArtifactError:
        return
    hunks: dict[str, tuple[Hunk, ...]] = {}
    for change in patch.files:
        path = now.where(change.path)
        if path is not None and path not in hunks and change.kind is ChangeKind.MODIFIED and change.hunks:
            hunks[path] = change.hunks
    reverts = _reverts(now, hunks)
    chance.shuffle(reverts)
    for wanted in reverts:
        found = _made(now, wanted, commit)
        if found is not None:
            yield found


def _reverts(now: _Now, hunks: dict[str, tuple[Hunk, ...]]) -> list[_Revert]:
    """Return each hunk, each file that applies as a whole, and all such files together."""
    found: list[_Revert] = []
    whole: list[tuple[str, tuple[Hunk, ...]]] = []
    for path, every in sorted(hunks.items()):
        if len(every) > 1:
            found += [_Revert("revert-hunk", ((path, (h,)),)) for h in every]
        if revert(now.tree.read(path), every) is not None:
            whole.append((path, every))
            found.append(_Revert("revert-file", ((path, every),)))
    if len(whole) > 1:
        found.append(_Revert("revert-commit", tuple(whole)))
    return found


def _undone(now: _Now, path: str, hunks: tuple[Hunk, ...]) -> tuple[bytes, int, str] | None:
    """Return the file without the hunks, the line and a name for the effect; None when nothing comes of it.

    Nothing comes of what is no Python, of comments, docstrings and formatting, and of what leaves names behind that
    are bound nowhere: such a module fails by name wherever it is used.
    """
    before = now.effect(path)
    made = revert(now.tree.read(path), hunks) if before is not None else None
    after = effect_of(made[0]) if made is not None else None
    if before is None or made is None or after is None or after.name == before.name or after.unbound - before.unbound:
        return None
    return made[0], made[1], after.name


def _made(now: _Now, wanted: _Revert, commit: Commit) -> tuple[str, Candidate] | None:
    changes: dict[str, bytes | None] = {}
    names: list[str] = []
    lines: list[tuple[str, int]] = []
    for path, hunks in wanted.parts:
        undone = _undone(now, path, hunks)
        if undone is not None:
            changes[path] = undone[0]
            lines.append((path, undone[1]))
            names.append(f"{path} {undone[2]}")
    if not lines or (len(lines) < 2 and wanted.operator == "revert-commit"):
        return None
    path, line = lines[0]
    subject = commit.subject
    short = subject if len(subject) <= _LONGEST_SUBJECT else subject[: _LONGEST_SUBJECT - 3] + "..."
    return "\n".join(names), Candidate(
        strategy="history",
        operator=wanted.operator,
        changes=changes,
        path=path,
        line=line,
        scope=now.scope(path, line),
        detail=f"{commit.name[:10]} {short}",
    )
