"""The injector `combination`: several small bugs in one artifact, in one file, one package or several.

Parts are candidates of other injectors, merged by lines against the original (a three-way merge that refuses every
conflict). Each part lies in a function of its own, so that each can matter on its own; whether it does, check 7 finds
out.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from random import Random

from pytest_ssr.errors import ProjectError
from pytest_ssr.injectors.equivalence import parses
from pytest_ssr.injectors.merging import merged
from pytest_ssr.injectors.mutation import MutationInjector
from pytest_ssr.injectors.protocol import Candidate, Injector, SourceTree, identities
from pytest_ssr.injectors.removal import RemovalInjector

_TRIES = 50
_MODES = ("across-files", "same-module", "same-file")
_PARTS = (2, 2, 2, 2, 3, 4)
_MOST_IN_ONE_FILE = 3


class CombinationInjector:
    """Combines candidates of other injectors, two at a time or up to four."""

    name = "combination"

    def __init__(self, sources: Sequence[Injector] | None = None) -> None:
        self.sources = tuple(sources) if sources is not None else (MutationInjector(), RemovalInjector())

    def depends_on(self, tree: SourceTree) -> str:
        """Return that of its sources."""
        return " ".join(identities(self.sources, tree))

    def candidates(self, tree: SourceTree, *, seed: int) -> Iterator[Candidate]:
        """Yield combinations of the three modes in turn until fresh ones are hard to find.

        Raises ProjectError when each source does.
        """
        chance = Random(f"{self.name}:{seed}")
        shelf = _Shelf(tree, self.sources, chance, seed)
        seen: set[tuple[tuple[str, bytes | None], ...]] = set()
        misses = turn = 0
        while misses < _TRIES:
            made = combine(tree, _draw(shelf, _MODES[turn % len(_MODES)], chance))
            turn += 1
            name = tuple(sorted(made.changes.items())) if made is not None else ()
            if made is None or name in seen:
                misses += 1
                continue
            seen.add(name)
            misses = 0
            yield made
        if not seen and shelf.refusal is not None:
            raise shelf.refusal


def combine(tree: SourceTree, candidates: Sequence[Candidate]) -> Candidate | None:
    """Return one candidate that makes all changes, whatever the order they are given in.

    None for fewer than two, when two of them lie in the same function or touch the same lines, when one changes
    nothing, or when the result is no Python.
    """
    ordered = sorted(candidates, key=lambda c: (c.path, c.line, c.scope, c.operator, c.detail))
    if len(ordered) < 2 or len({(c.path, c.scope) for c in ordered}) < len(ordered):
        return None
    versions: dict[str, list[bytes | None]] = {}
    for candidate in ordered:
        for path, data in candidate.changes.items():
            versions.setdefault(path, []).append(data)
    changes: dict[str, bytes | None] = {}
    for path, found in sorted(versions.items()):
        try:
            original: bytes | None = tree.read(path)
        except FileNotFoundError:
            original = None
        data = merged(original, found)
        if data == original or (data is None and found != [None]):
            return None
        if data is not None and len(found) > 1 and path.endswith(".py") and not parses(data):
            return None
        changes[path] = data
    return Candidate(
        strategy="combination",
        operator=f"combine-{mode_of(changes)}",
        changes=changes,
        path=ordered[0].path,
        line=ordered[0].line,
        scope=ordered[0].scope,
        detail="; ".join(f"{c.operator} in {c.path}:{c.line} {c.scope}" for c in ordered),
    )


def mode_of(paths: Collection[str]) -> str:
    """Return `same-file`, `same-module` (one folder) or `across-files` for the files that change."""
    if len(paths) < 2:
        return "same-file"
    return "same-module" if len({_folder(p) for p in paths}) == 1 else "across-files"


def _folder(path: str) -> PurePosixPath:
    return PurePosixPath(path).parent


@dataclass(frozen=True, slots=True)
class _OneFile:
    """A tree of which one file may be changed."""

    tree: SourceTree
    path: str

    def paths(self) -> Sequence[str]:
        return self.tree.paths()

    def read(self, path: str) -> bytes:
        return self.tree.read(path)

    def code_paths(self) -> Sequence[str]:
        return (self.path,)

    @property
    def origin(self) -> Path | None:
        return self.tree.origin


class _Shelf:
    """Candidates by file, made when they are asked for; those made before come again when a file has no more."""

    def __init__(self, tree: SourceTree, sources: Sequence[Injector], chance: Random, seed: int) -> None:
        self.refusal: ProjectError | None = None
        self._tree, self._sources, self._chance, self._seed = tree, sources, chance, seed
        self._streams: dict[str, list[Iterator[Candidate]]] = {}
        self._made: dict[str, list[Candidate]] = {}
        self._empty: set[str] = set()
        self._paths = tree.code_paths()

    def paths(self) -> list[str]:
        """Return the files that may have candidates."""
        return [p for p in self._paths if p not in self._empty]

    def draw(self, path: str) -> Candidate | None:
        """Return a candidate in a file, a fresh one as long as there are any."""
        if path not in self._streams:
            view = _OneFile(self._tree, path)
            self._streams[path] = [s.candidates(view, seed=self._seed) for s in self._sources]
        streams = self._streams[path]
        made = self._made.setdefault(path, [])
        while streams:
            stream = self._chance.choice(streams)
            try:
                made.append(next(stream))
            except StopIteration:
                streams.remove(stream)
            except ProjectError as error:
                self.refusal = self.refusal or error
                streams.remove(stream)
            else:
                return made[-1]
        if not made:
            self._empty.add(path)
            return None
        return self._chance.choice(made)


def _draw(shelf: _Shelf, mode: str, chance: Random) -> list[Candidate]:
    """Draw parts that the mode allows together: two, now and then three or four; fewer when there are no more."""
    paths = shelf.paths()
    if not paths:
        return []
    wanted = chance.choice(_PARTS)
    first = chance.choice(paths)
    if mode == "same-file":
        chosen = [first] * min(wanted, _MOST_IN_ONE_FILE)
    else:
        same = mode == "same-module"
        others = [p for p in paths if p != first and (_folder(p) == _folder(first)) == same]
        chosen = [first, *chance.sample(others, min(wanted - 1, len(others)))]
    parts: list[Candidate] = []
    for path in chosen:
        part = _elsewhere(shelf, path, parts)
        if part is not None:
            parts.append(part)
    return parts


def _elsewhere(shelf: _Shelf, path: str, parts: Sequence[Candidate]) -> Candidate | None:
    """Draw a candidate in a function that no part lies in yet; None when a few tries find none."""
    taken = {(p.path, p.scope) for p in parts}
    for _ in range(8):
        part = shelf.draw(path)
        if part is None or (part.path, part.scope) not in taken:
            return part
    return None
