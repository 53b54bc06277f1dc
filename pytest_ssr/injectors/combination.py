"""Provide the injector `combination`: several small bugs in one artifact, in one file, one package or several.

Parts are candidates of other injectors, merged line by line against the original (a three-way merge that refuses every
conflict). Each part lies in a separate function, so that it can matter independently; check 7 verifies whether it does.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from random import Random

from pytest_ssr.errors import ProjectError
from pytest_ssr.injectors.equivalence import parses
from pytest_ssr.injectors.mutation import MutationInjector
from pytest_ssr.injectors.protocol import Candidate, Injector, SourceTree, identities
from pytest_ssr.injectors.removal import RemovalInjector
from pytest_ssr.injectors.three_way_merge import merge

_MAX_MISSES = 50
_MODES = ("across-files", "same-module", "same-file")
_PARTS = (2, 2, 2, 2, 3, 4)
_MAX_IN_ONE_FILE = 3


class CombinationInjector:
    """Combines candidates of other injectors, two at a time or up to four."""

    name = "combination"

    def __init__(self, sources: Sequence[Injector] | None = None) -> None:
        self.sources = tuple(sources) if sources is not None else (MutationInjector(), RemovalInjector())

    def depends_on(self, tree: SourceTree) -> str:
        """Return the identities of the sources."""
        return " ".join(identities(self.sources, tree))

    def candidates(self, tree: SourceTree, *, seed: int) -> Iterator[Candidate]:
        """Yield combinations of the three modes in turn until new ones are hard to find.

        Raises ProjectError if every source does.
        """
        rng = Random(f"{self.name}:{seed}")
        pool = _CandidatePool(tree, self.sources, rng, seed)
        seen: set[tuple[tuple[str, bytes | None], ...]] = set()
        misses = turn = 0
        while misses < _MAX_MISSES:
            candidate = combine(tree, _draw_parts(pool, _MODES[turn % len(_MODES)], rng))
            turn += 1
            key = tuple(sorted(candidate.changes.items())) if candidate is not None else ()
            if candidate is None or key in seen:
                misses += 1
                continue
            seen.add(key)
            misses = 0
            yield candidate
        if not seen and pool.error is not None:
            raise pool.error


def combine(tree: SourceTree, candidates: Sequence[Candidate]) -> Candidate | None:
    """Return one candidate that makes all changes, independent of their order.

    None for fewer than two, if two of them lie in the same function or touch the same lines, if one changes
    nothing, or if the result is not valid Python.
    """
    ordered = sorted(candidates, key=lambda c: (c.path, c.line, c.scope, c.operator, c.detail))
    if len(ordered) < 2 or len({(c.path, c.scope) for c in ordered}) < len(ordered):
        return None
    versions: dict[str, list[bytes | None]] = {}
    for candidate in ordered:
        for path, data in candidate.changes.items():
            versions.setdefault(path, []).append(data)
    changes: dict[str, bytes | None] = {}
    for path, file_versions in sorted(versions.items()):
        try:
            original: bytes | None = tree.read(path)
        except FileNotFoundError:
            original = None
        data = merge(original, file_versions)
        if data == original or (data is None and file_versions != [None]):
            return None
        if data is not None and len(file_versions) > 1 and path.endswith(".py") and not parses(data):
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
    """Return `same-file`, `same-module` (one folder) or `across-files` for the changed files."""
    if len(paths) < 2:
        return "same-file"
    return "same-module" if len({_folder(p) for p in paths}) == 1 else "across-files"


def _folder(path: str) -> PurePosixPath:
    return PurePosixPath(path).parent


@dataclass(frozen=True, slots=True)
class _OneFile:
    """A tree in which only one file may be changed."""

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


class _CandidatePool:
    """Candidates by file, generated on demand; when a file has no new ones, earlier ones are drawn again."""

    def __init__(self, tree: SourceTree, sources: Sequence[Injector], rng: Random, seed: int) -> None:
        self.error: ProjectError | None = None
        self._tree, self._sources, self._rng, self._seed = tree, sources, rng, seed
        self._streams: dict[str, list[Iterator[Candidate]]] = {}
        self._drawn: dict[str, list[Candidate]] = {}
        self._exhausted: set[str] = set()
        self._paths = tree.code_paths()

    def paths(self) -> list[str]:
        """Return the files that may have candidates."""
        return [p for p in self._paths if p not in self._exhausted]

    def draw(self, path: str) -> Candidate | None:
        """Return a candidate in a file, a new one as long as there are any."""
        if path not in self._streams:
            view = _OneFile(self._tree, path)
            self._streams[path] = [s.candidates(view, seed=self._seed) for s in self._sources]
        streams = self._streams[path]
        drawn = self._drawn.setdefault(path, [])
        while streams:
            stream = self._rng.choice(streams)
            try:
                drawn.append(next(stream))
            except StopIteration:
                streams.remove(stream)
            except ProjectError as error:
                self.error = self.error or error
                streams.remove(stream)
            else:
                return drawn[-1]
        if not drawn:
            self._exhausted.add(path)
            return None
        return self._rng.choice(drawn)


def _draw_parts(pool: _CandidatePool, mode: str, rng: Random) -> list[Candidate]:
    """Draw parts that the mode allows together: two, sometimes three or four; fewer if there are no more."""
    paths = pool.paths()
    if not paths:
        return []
    count = rng.choice(_PARTS)
    first = rng.choice(paths)
    if mode == "same-file":
        chosen = [first] * min(count, _MAX_IN_ONE_FILE)
    else:
        same = mode == "same-module"
        others = [p for p in paths if p != first and (_folder(p) == _folder(first)) == same]
        chosen = [first, *rng.sample(others, min(count - 1, len(others)))]
    parts: list[Candidate] = []
    for path in chosen:
        part = _draw_in_other_function(pool, path, parts)
        if part is not None:
            parts.append(part)
    return parts


def _draw_in_other_function(pool: _CandidatePool, path: str, parts: Sequence[Candidate]) -> Candidate | None:
    """Draw a candidate in a function without a part; None if a few tries find none."""
    taken = {(p.path, p.scope) for p in parts}
    for _ in range(8):
        part = pool.draw(path)
        if part is None or (part.path, part.scope) not in taken:
            return part
    return None
