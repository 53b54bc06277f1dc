"""Choose what the network sees of the code around a hole.

That is the function, similar lines of its file, names that are defined and not used, and lines of other files: those
with the function's name, and those of tests.
"""

from __future__ import annotations

import bisect
from collections import Counter, defaultdict
from dataclasses import dataclass
from enum import IntEnum

from tree_sitter import Node

from harness.solvers.search.generator import project_lines
from harness.solvers.search.generator.code_stream import LAYOUT, NEWLINE, Stream, logical_lines, stream_of
from harness.solvers.search.generator.holes import Hole
from harness.solvers.search.generator.line_index import LineIndex, best_lines
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
        self.stream = stream_of(source.data)
        self.lines = list(logical_lines(self.stream))
        """The first index of each line, and the one after its last."""
        self.index = LineIndex()
        self.definitions = defaultdict[bytes, list[int]](list)
        """The lines that import a name, or define a private one."""
        for number, (first, last) in enumerate(self.lines):
            self.index.add({self.stream.texts[i] for i in range(first, last) if self.stream.is_name[i]})
            for name in _defined(self.stream, first, last):
                self.definitions[name].append(number)

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
        unused = [*self._unused_locals(scope, seen)[:_MOST_LOCAL], *self._unused_definitions(hidden)][:MOST_UNUSED]
        code, tests = file.project.about(file.path, scope, names) if file.project is not None else ([], [])
        self._aside = [*code, *tests, *unused]
        self._aside_parts = [Part.CODE] * len(code) + [Part.TESTS] * len(tests) + [Part.UNUSED] * len(unused)

    def _unused_locals(self, scope: Scope, seen: list[int]) -> list[bytes]:
        """Return the parameters and the assigned names that a function has once."""
        if scope.kind != "function":
            return []
        texts = self._file.stream.texts
        parameters = {self._file.stream.index(offset) for offset in _parameters(scope.node)}
        counts = Counter(texts[i] for i in seen)

        def is_set(i: int) -> bool:
            before, behind = texts[i - 1], texts[i + 1 : i + 2]
            starts_line = before in LAYOUT and behind in ([b"="], [b":"])
            return starts_line or (before == b"for" and behind == [b"in"]) or (before == b"as" and behind == [b":"])

        return [texts[i] for i in seen if counts[texts[i]] == 1 and (i in parameters or is_set(i))]

    def _unused_definitions(self, hidden: tuple[int, int]) -> list[bytes]:
        """Return the imported and the private names of the file that one line has, the nearest first."""
        file, found = self._file, list[tuple[int, bytes]]()
        at = bisect.bisect_right(file.lines, (self._first, 0))
        inside = {n for n, (first, last) in enumerate(file.lines) if first < hidden[1] and last > hidden[0]}
        visible = {
            file.stream.texts[i] for n in inside for i in range(*file.lines[n]) if not hidden[0] <= i < hidden[1]
        }
        for name, lines in file.definitions.items():
            uses = [n for n in file.index.uses(name) if n not in inside or name in visible]
            if len(uses) == 1 and uses[0] in lines:
                found.append((abs(uses[0] - at), name))
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

        def size(number: int) -> int:
            first, last = lines[number] if 0 <= number < len(lines) else (start, stop)
            is_shown = first < stop and last > start
            is_missing = first < missing[1] and last >= missing[0]
            return 0 if is_shown or is_missing else min(last - first, _LONGEST_LINE) + 1

        result = list[bytes]()
        for number in best_lines(scores, size, room=MOST_RETRIEVED, most=_LINES):
            first, last = lines[number]
            result += [t for t in texts[first : min(last, first + _LONGEST_LINE)] if t not in LAYOUT]
            result.append(NEWLINE)
        return result


def _parameters(function: Node) -> list[int]:
    """Return the offset of the name of each parameter, without `self` and `cls`."""
    parameters = function.child_by_field_name("parameters")
    found = list[int]()
    for node in parameters.named_children if parameters is not None else ():
        while node.type != "identifier" and node.named_children:
            node = node.named_children[0]
        if node.type == "identifier" and node.text not in (b"self", b"cls"):
            found.append(node.start_byte)
    return found


def _defined(stream: Stream, first: int, last: int) -> list[bytes]:
    """Return the names that a line imports, and the private names that it defines."""
    texts = [t for t in stream.texts[first:last] if t not in LAYOUT]
    if texts[:1] in ([b"import"], [b"from"]):
        return _imported(texts)
    if texts[:1] == [b"async"]:
        texts = texts[1:]
    if texts[:1] in ([b"def"], [b"class"]):
        return [t for t in texts[1:2] if _is_private(t)]
    name, behind = (texts[2:3], texts[3:4]) if texts[:2] == [b"self", b"."] else (texts[:1], texts[1:2])
    return [t for t in name if _is_private(t) and behind in ([b"="], [b":"])]


def _imported(texts: list[bytes]) -> list[bytes]:
    """Return the names that an import binds. texts: the tokens of the statement."""
    items = [list[bytes]()]
    for text in texts[texts.index(b"import") + 1 :] if b"import" in texts else ():
        if text == b",":
            items.append([])
        elif text not in (b"(", b")", b"*"):
            items[-1].append(text)
    # `import a.b` binds `a`, `import a.b as c` binds `c`.
    return [item[-1] if b"as" in item or texts[0] == b"from" else item[0] for item in items if item]


def _is_private(name: bytes) -> bool:
    return name.startswith(b"_") and not name.startswith(b"__") and name != b"_"
