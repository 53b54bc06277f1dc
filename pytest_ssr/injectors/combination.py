"""The injector `combination`: several small bugs in one artifact, in one file, one package or several.

Each part lies in a function of its own, so that each can matter on its own; whether it does, check 7 finds out.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import PurePosixPath
from random import Random

from pytest_ssr.injectors.mutation import MutationInjector
from pytest_ssr.injectors.protocol import Candidate, Injector, SourceTree
from pytest_ssr.injectors.python_source import Edit, splice
from pytest_ssr.injectors.removal import RemovalInjector

_POOL = 200
_TRIES = 50


class CombinationInjector:
    """Combines candidates of other injectors, two at a time or up to four."""

    name = "combination"

    def __init__(self, sources: Sequence[Injector] | None = None) -> None:
        self._sources = tuple(sources) if sources is not None else (MutationInjector(), RemovalInjector())

    def candidates(self, tree: SourceTree, *, seed: int) -> Iterator[Candidate]:
        """Yield combinations of the three modes in turn until fresh ones are hard to find."""
        chance = Random(f"{self.name}:{seed}")
        pool = [c for s in self._sources for c in islice(s.candidates(tree, seed=seed), _POOL)]
        if not pool:
            return
        seen: set[frozenset[int]] = set()
        modes = ("across-files", "same-module", "same-file")
        misses = turn = 0
        while misses < _TRIES:
            mode = modes[turn % len(modes)]
            turn += 1
            chosen = _choose(pool, mode, chance)
            made = combine(tree, [pool[i] for i in chosen]) if len(chosen) > 1 else None
            if made is None or frozenset(chosen) in seen:
                misses += 1
                continue
            seen.add(frozenset(chosen))
            misses = 0
            yield made


def _choose(pool: Sequence[Candidate], mode: str, chance: Random) -> list[int]:
    """Draw the places in the pool of two parts, now and then three or four, that the mode allows together."""
    first = chance.randrange(len(pool))
    start = PurePosixPath(pool[first].path)

    def fits(other: Candidate) -> bool:
        path = PurePosixPath(other.path)
        if mode == "same-file":
            return path == start and other.scope != pool[first].scope
        return path != start and (mode == "across-files" or path.parent == start.parent)

    others = [i for i, c in enumerate(pool) if fits(c)]
    wanted = chance.choice((1, 1, 1, 1, 2, 3))
    return [first, *chance.sample(others, min(wanted, len(others)))]


def combine(tree: SourceTree, parts: Sequence[Candidate]) -> Candidate | None:
    """Return one candidate that makes all changes, or None when two of them touch the same place or function."""
    if len({(p.path, p.scope) for p in parts}) < len(parts):
        return None
    edits: dict[str, list[Edit]] = {}
    for part in parts:
        for path, data in part.changes.items():
            if data is None:
                return None
            edits.setdefault(path, []).extend(line_edits(tree.read(path), data))
    try:
        changes: dict[str, bytes | None] = {p: splice(tree.read(p), found) for p, found in sorted(edits.items())}
    except ValueError:
        return None
    folders = {PurePosixPath(p).parent for p in edits}
    mode = "same-file" if len(edits) == 1 else "same-module" if len(folders) == 1 else "across-files"
    ordered = sorted(parts, key=lambda p: (p.path, p.line))
    return Candidate(
        strategy="combination",
        operator=f"combine-{mode}",
        changes=changes,
        path=ordered[0].path,
        line=ordered[0].line,
        scope=ordered[0].scope,
        detail="; ".join(f"{p.operator} in {p.path}:{p.line} {p.scope}" for p in ordered),
    )


def line_edits(old: bytes, new: bytes) -> list[Edit]:
    """Return the edits, in whole lines, that lead from one text to another."""
    before, after = old.splitlines(keepends=True), new.splitlines(keepends=True)
    head = 0
    while head < min(len(before), len(after)) and before[head] == after[head]:
        head += 1
    tail = 0
    while tail < min(len(before), len(after)) - head and before[-1 - tail] == after[-1 - tail]:
        tail += 1
    starts = [0]
    for line in before:
        starts.append(starts[-1] + len(line))
    middle_old, middle_new = before[head : len(before) - tail], after[head : len(after) - tail]
    matcher = difflib.SequenceMatcher(None, middle_old, middle_new, autojunk=False)
    return [
        Edit(starts[head + i1], starts[head + i2], b"".join(middle_new[j1:j2]))
        for tag, i1, i2, j1, j2 in matcher.get_opcodes()
        if tag != "equal"
    ]
