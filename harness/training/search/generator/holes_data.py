"""Collect holes with the code that is missing in them, from projects."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from harness.solvers.search.generator.beam import MOST_TOKENS
from harness.solvers.search.generator.code_stream import stream_of
from harness.solvers.search.generator.context import FileContext
from harness.solvers.search.generator.cuts import cuts_of
from harness.solvers.search.generator.holes import Hole, HoleKind, holes_of
from harness.solvers.search.generator.vocabulary import END, Encoded, Vocabulary
from harness.training.search.examples import LONGEST_BYTES
from harness.training.search.sources import SourceFolder
from pytest_ssr.source.syntax_tree import ParsedSource, Scope, parse, scopes

_WEIGHTS = {
    HoleKind.BLOCK: 6.0,
    HoleKind.BEFORE: 6.0,
    HoleKind.AFTER: 3.0,
    HoleKind.ELSE: 1.0,
    HoleKind.VALUE: 4.0,
    HoleKind.SUFFIX: 1.5,
    HoleKind.ARGUMENT: 1.5,
    HoleKind.RIGHT: 1.0,
    HoleKind.LEFT: 0.7,
    HoleKind.BASES: 10.0,
}
_EMPTY_SHARE = 0.2
"""Share of holes at which nothing is missing."""
_ALWAYS_FILLED = (HoleKind.BLOCK, HoleKind.VALUE)


def masked(source: ParsedSource, scope: Scope, rng: random.Random, count: int) -> list[Hole]:
    """Return some holes of a function, or of the head of a class; a hole whose span is empty lacks nothing."""
    filled, empty = defaultdict[HoleKind, list[Hole]](list), defaultdict[HoleKind, list[Hole]](list)
    for hole in cuts_of(source, scope):
        filled[hole.kind].append(hole)
    for hole in holes_of(source, scope):
        if hole.kind not in _ALWAYS_FILLED:
            empty[hole.kind].append(hole)
    chosen = dict[Hole, None]()
    for _ in range(count):
        pool = empty if empty and (not filled or rng.random() < _EMPTY_SHARE) else filled
        if pool:
            kinds = sorted(pool)
            kind = rng.choices(kinds, [_WEIGHTS[k] for k in kinds])[0]
            chosen[rng.choice(pool[kind])] = None
    return list(chosen)


_COMMON = 2000
_MOST_FILES = 150
_HOLES_PER_FUNCTION = 3


@dataclass(frozen=True, slots=True)
class HoleExample:
    """A hole and what is missing in it."""

    context: Encoded
    numbers: list[int]
    """The numbers of the missing tokens, and of the end."""
    rows: list[int]
    """The rows of the embedding of what is in front of each: the hole, then the missing tokens."""


def vocabulary_of(sources: Sequence[SourceFolder], rng: random.Random) -> Vocabulary:
    """Return the tokens that most projects use."""
    by_project, total = Counter[bytes](), Counter[bytes]()
    for source in sources:
        own = Counter[bytes]()
        for path in _files(source, rng):
            own.update(stream_of(source.read(path)).texts)
        by_project.update(own.keys())
        total.update(own)
    common = sorted(by_project, key=lambda text: (-by_project[text], -total[text], text))[:_COMMON]
    return Vocabulary([text for text in common if b"\0" not in text])


def _files(source: SourceFolder, rng: random.Random) -> list[str]:
    paths = sorted(source.code_paths())
    rng.shuffle(paths)
    return paths[:_MOST_FILES]


def hole_examples(source: SourceFolder, vocabulary: Vocabulary, rng: random.Random, most: int) -> Iterator[HoleExample]:
    """Yield holes of a project whose missing code is short, and made of common tokens and tokens of the context."""
    made = 0
    if most <= 0:
        return
    for path in _files(source, rng):
        parsed = parse(path, source.read(path))
        if parsed is None:
            continue
        file = FileContext(parsed, source.files().lines)
        for scope in scopes(parsed):
            if scope.kind == "module" or (scope.kind == "function" and scope.end - scope.start > LONGEST_BYTES):
                continue
            count = _HOLES_PER_FUNCTION if scope.kind == "function" else 1
            for hole in masked(parsed, scope, rng, count):
                missing = file.stream.between(hole.start, hole.end)
                if len(missing) > MOST_TOKENS:
                    continue
                context = vocabulary.encode(file.of(scope, hole).context(hole), hole.kind)
                example = _example(vocabulary, context, missing)
                if example is not None:
                    yield example
                    made += 1
                if made >= most:
                    return


def _example(vocabulary: Vocabulary, context: Encoded, missing: Sequence[bytes]) -> HoleExample | None:
    copied = {text: len(vocabulary) + index for index, text in enumerate(context.copied)}
    numbers = list[int]()
    for text in missing:
        number = vocabulary.number(text)
        number = copied.get(text) if number is None else number
        if number is None:
            return None
        numbers.append(number)
    rows = [context.rows[context.hole], *(vocabulary.row(text) for text in missing)]
    return HoleExample(context, [*numbers, END], rows)
