"""Choose what the network sees of the code around a hole.

That is the function, similar lines of its file, names that the file defines and does not use, and lines of other files:
those with the function's name, and those of tests.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from enum import IntEnum

from harness.solvers.search.generator import project_lines
from harness.solvers.search.generator.code_stream import LAYOUT, NEWLINE, Stream, stream_of
from harness.solvers.search.generator.holes import Hole
from harness.solvers.search.generator.line_index import LineIndex
from harness.solvers.search.generator.project_lines import ProjectLines
from pytest_ssr.source.syntax_tree import ParsedSource, Scope

MOST_RETRIEVED, MOST_UNUSED, MOST_HEAD, MOST_LEFT, MOST_RIGHT = 96, 24, 24, 96, 48
LENGTH = 2 * project_lines.MOST_TOKENS + MOST_RETRIEVED + MOST_UNUSED + MOST_HEAD + MOST_LEFT + MOST_RIGHT + 1
"""Most tokens of a context."""
_NEAR_LEFT, _NEAR_RIGHT = 24, 16
_LONGEST_LINE = 24
_LINES = 10
_MOST_LOCAL = 12
"""Most unused names of a function itself."""
_AFTER_NAME, _NO_NAME = (b",", b")"), (b",", b"(", b")", b"*")


class Part(IntEnum):
    """Where a token of a context comes from."""

    SIMILAR = 0
    """A similar line of the file."""
    LEFT = 1
    """The function in front of the hole."""
    RIGHT = 2
    """The function behind it."""
    HOLE = 3
    UNUSED = 4
    """A name that is defined, and not used."""
    CODE = 5
    """A line of another file."""
    TESTS = 6
    """A line of a test."""


AWAY = frozenset((Part.SIMILAR, Part.UNUSED, Part.CODE, Part.TESTS))
"""The parts for which the distance to the hole says nothing."""


@dataclass(frozen=True, slots=True)
class Context:
    """The tokens around a hole, as the network sees them."""

    texts: list[bytes]
    hole: int
    """The index of the hole in them; its own text is empty."""
    parts: list[int]
    """The part of each token."""


class FileContext:
    """The lines of a file, by their names, and those of the other files of its project."""

    def __init__(self, source: ParsedSource, project: ProjectLines | None = None) -> None:
        """Read the file. project: None to see this file alone."""
        self.path, self.project = source.path, project
        self.stream = stream = stream_of(source.data)
        self.lines: list[tuple[int, int]] = []
        start = 0
        for index, text in enumerate(stream.texts):
            if text == NEWLINE:
                self.lines.append((start, index))
                start = index + 1
        self.index = LineIndex({stream.texts[i] for i in range(*line) if stream.is_name[i]} for line in self.lines)
        self.definitions = {name: n for n, line in enumerate(self.lines) for name in _defined(stream, *line)}
        """The line of each name that is imported, or private."""

    def of(self, scope: Scope, missing: Hole | None = None) -> ScopeContext:
        """Return the context of a function. missing: a hole whose code must not be seen."""
        return ScopeContext(self, scope, missing)


class ScopeContext:
    """What the contexts of all holes of a function share."""

    def __init__(self, file: FileContext, scope: Scope, missing: Hole | None) -> None:
        """Look at a function of a file; see `FileContext.of`."""
        self._file, stream = file, file.stream
        self._first, self._last = stream.index(scope.start), stream.index(scope.end)
        hidden = (stream.index(missing.start), stream.index(missing.end)) if missing is not None else (0, 0)
        seen = [i for i in range(self._first, self._last) if stream.is_name[i] and not hidden[0] <= i < hidden[1]]
        named = file.project.named if file.project is not None else ()
        names = sorted({*(stream.texts[i] for i in seen), *named})
        self._scores = file.index.scores(names)
        unused = [*self._unused_locals(seen)[:_MOST_LOCAL], *self._unused_definitions(hidden)][:MOST_UNUSED]
        code, tests = file.project.about(file.path, scope, names) if file.project is not None else ([], [])
        self._aside = [*code, *tests, *unused]
        self._aside_parts = [Part.CODE] * len(code) + [Part.TESTS] * len(tests) + [Part.UNUSED] * len(unused)

    def _unused_locals(self, seen: list[int]) -> list[bytes]:
        """Return the parameters and the assigned names of the function that it has once."""
        texts = self._file.stream.texts
        counts = Counter(texts[i] for i in seen)
        head_end = next((i for i in range(self._first, self._last) if texts[i] == NEWLINE), self._last)
        return [
            texts[i]
            for i in seen
            if counts[texts[i]] == 1
            and ((i < head_end and texts[i - 1] in (b"(", b",", b"*", b"**")) or texts[i + 1 : i + 2] == [b"="])
            and texts[i - 1] != b"."
        ]

    def _unused_definitions(self, hidden: tuple[int, int]) -> list[bytes]:
        """Return the imported and the private names of the file that one line has, the nearest in front."""
        file, found = self._file, list[tuple[int, bytes]]()
        at = next((n for n, (_, last) in enumerate(file.lines) if last >= self._first), 0)
        inside = {n for n, (first, last) in enumerate(file.lines) if first < hidden[1] and last > hidden[0]}
        for name, line in file.definitions.items():
            uses = file.index.uses(name)
            if len(uses) == 1 or (inside and len([n for n in uses if n not in inside]) == 1):
                if line not in inside:
                    found.append((abs(line - at), name))
        return [name for _, name in sorted(found)]

    def context(self, hole: Hole) -> Context:
        """Return the context of a hole."""
        stream = self._file.stream
        texts, is_name = stream.texts, stream.is_name
        first, last = self._first, self._last
        at, behind = stream.index(hole.start), stream.index(hole.end)
        while at > first and texts[at - 1] in LAYOUT:
            at -= 1
        while behind < last and texts[behind] in LAYOUT:
            behind += 1
        start, stop = max(first, at - MOST_LEFT), min(last, behind + MOST_RIGHT)
        head = texts[first : min(start, first + MOST_HEAD)]
        near = {texts[i] for i in range(max(first, at - _NEAR_LEFT), at) if is_name[i]}
        near |= {texts[i] for i in range(behind, min(last, behind + _NEAR_RIGHT)) if is_name[i]}
        retrieved = self._retrieved(sorted(near), start, stop, (at, behind))
        left, right = texts[start:at], texts[behind:stop]
        joined = [*self._aside, *retrieved, *head, *left]
        parts = [*self._aside_parts, *[Part.SIMILAR] * len(retrieved), *[Part.LEFT] * (len(head) + len(left))]
        return Context([*joined, b"", *right], len(joined), [*parts, Part.HOLE, *[Part.RIGHT] * len(right)])

    def _retrieved(self, near: list[bytes], start: int, stop: int, missing: tuple[int, int]) -> list[bytes]:
        """Return the lines of the file that are most similar, without those between two indices, in their order."""
        lines, texts = self._file.lines, self._file.stream.texts
        scores = defaultdict(float, self._scores)
        for number, score in self._file.index.scores(near).items():
            scores[number] += 2 * score
            # What stands beside a line like those around the hole may be what is missing.
            scores[number + 1] += score
            scores[number - 1] += score
        chosen, room = list[int](), MOST_RETRIEVED
        for number, _ in sorted(scores.items(), key=lambda pair: (-pair[1], pair[0])):
            if not 0 <= number < len(lines):
                continue
            first, last = lines[number]
            if (first < stop and last > start) or (first < missing[1] and last >= missing[0]):
                continue
            size = min(last - first, _LONGEST_LINE) + 1
            if size <= room:
                chosen.append(number)
                room -= size
            if len(chosen) == _LINES:
                break
        result = list[bytes]()
        for number in sorted(chosen):
            first, last = lines[number]
            result += [t for t in texts[first : min(last, first + _LONGEST_LINE)] if t not in LAYOUT]
            result.append(NEWLINE)
        return result


def _defined(stream: Stream, first: int, last: int) -> list[bytes]:
    """Return the names that a line imports, and the private names that it defines."""
    texts = [stream.texts[i] for i in range(first, last) if stream.texts[i] not in LAYOUT]
    if texts[:1] in ([b"import"], [b"from"]):
        bound = texts[texts.index(b"import") + 1 :] if b"import" in texts else []
        pairs = zip(bound, [*bound[1:], b","], strict=True)
        return [t for t, following in pairs if following in _AFTER_NAME and t not in _NO_NAME]
    if texts[:1] in ([b"def"], [b"class"]):
        return [t for t in texts[1:2] if _is_private(t)]
    if texts[:2] == [b"self", b"."] and texts[3:4] == [b"="]:
        return [t for t in texts[2:3] if _is_private(t)]
    return [t for t in texts[:1] if texts[1:2] == [b"="] and _is_private(t)]


def _is_private(name: bytes) -> bool:
    return name.startswith(b"_") and not name.startswith(b"__")
