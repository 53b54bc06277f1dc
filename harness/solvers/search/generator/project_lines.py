"""Find the lines of a project's other files that tell about a function: where it is called, and what its tests say."""

from __future__ import annotations

import bisect
import hashlib
import re
from collections.abc import Collection, Sequence

from harness.solvers.search.generator.code_stream import LAYOUT, NEWLINE, logical_lines, stream_of
from harness.solvers.search.generator.line_index import LineIndex, best_lines
from harness.solvers.search.project_files import ProjectFiles
from pytest_ssr.source.syntax_tree import Scope, parse, scopes

MOST_TOKENS = 64
"""Most tokens of the lines of code, and of those of tests."""
_MOST_BYTES = 1_000_000
"""Size of all files of code whose lines are looked at, and of all tests."""
_LONGEST_LINE, _LONGEST_LINE_BYTES = 24, 1000
_LINES = 8
_MOST_FAILING = 200
"""Most failing tests that are looked at."""
_OWN_NAME, _OF_FAILING = 3.0, 2.0
"""Factors of the score of a line with the function's name, and of one in a failing test."""
_NAME = re.compile(rb"[A-Za-z_]\w*")
_CONSTRUCTORS = (b"__init__", b"__new__", b"__post_init__", b"__call__")


class ProjectLines:
    """The lines of a project's Python files, those that a solver does not get left out."""

    def __init__(self, files: ProjectFiles) -> None:
        """Read the files, those of failing tests first, until they are too large together.

        The lines of failing tests count more, and the names in the messages of their failures are looked up.
        """
        chosen = sorted(files.failing.items())[:_MOST_FAILING]
        messages = (message.encode(errors="replace") for _, message in chosen)
        self.named = sorted({name for message in messages for name in _NAME.findall(message)})
        """The names in the messages of failing tests."""
        by_path: dict[str, set[str]] = {}
        for test, _ in chosen:
            path, _, name = test.partition("::")
            by_path.setdefault(path, set()).add(name.partition("[")[0].replace("::", "."))
        digest = hashlib.sha256(repr(chosen).encode())
        self._code, self._tests = _Lines(), _Lines()
        for lines, contents in ((self._code, files.code), (self._tests, files.tests)):
            for path, data in contents.items():
                if lines.add(path, data, by_path.get(path, ())):
                    digest.update(f"{path!r} {hashlib.sha256(data).hexdigest()}".encode())
        self.key = digest.hexdigest()
        """A hash of what was read."""

    def about(self, path: str, scope: Scope, names: Collection[bytes]) -> tuple[list[bytes], list[bytes]]:
        """Return the tokens of lines of code outside of a function's file, and of lines of tests.

        names: those in the function.
        """
        *outer, own = scope.qualname.encode().split(b".")
        if own in _CONSTRUCTORS and outer:
            own = outer[-1]
        return self._code.about(own, names, without=path), self._tests.about(own, names, without=path)


class _Lines:
    """The lines of code, or those of tests; an empty line separates files."""

    def __init__(self) -> None:
        self._size = 0
        self._texts = list[bytes]()
        """The tokens of each line, joined, which takes a tenth of the memory of lists."""
        self._index = LineIndex()
        self._spans: dict[str, tuple[int, int]] = {}
        """The lines of each file; copies have the same."""
        self._by_content: dict[bytes, tuple[int, int]] = {}
        self._in_failing = list[tuple[int, int]]()

    def add(self, path: str, data: bytes, failing: Collection[str]) -> bool:
        """Add the lines of a file, and return whether there is room. failing: the names of its failing tests."""
        content = hashlib.sha256(data).digest()
        if content not in self._by_content:
            if self._size + len(data) > _MOST_BYTES:
                return False
            self._size += len(data)
            start, offsets = len(self._texts), self._read(data)
            self._by_content[content] = start, len(self._texts)
            self._add_line(b"", ())
            if failing:
                self._mark(path, data, failing, start, offsets)
        self._spans[path] = self._by_content[content]
        return True

    def _read(self, data: bytes) -> list[int]:
        """Add the lines of a file, and return their offsets."""
        stream, offsets = stream_of(data), list[int]()
        for first, last in logical_lines(stream):
            text = b"\0".join([t for t in stream.texts[first:last] if t not in LAYOUT])
            names = {stream.texts[i] for i in range(first, last) if stream.is_name[i]}
            is_long = len(text) > _LONGEST_LINE_BYTES
            self._add_line(b"" if is_long else text, () if is_long else names)
            offsets.append(stream.starts[first])
        return offsets

    def _add_line(self, text: bytes, names: Collection[bytes]) -> None:
        self._texts.append(text)
        self._index.add(names)

    def _mark(self, path: str, data: bytes, failing: Collection[str], start: int, offsets: Sequence[int]) -> None:
        source = parse(path, data)
        for scope in scopes(source) if source is not None else ():
            if scope.qualname in failing:
                span = (bisect.bisect_left(offsets, offset) for offset in (scope.start, scope.end))
                first, last = span
                self._in_failing.append((start + first, start + last))

    def about(self, own: bytes, names: Collection[bytes], without: str) -> list[bytes]:
        """Return the tokens of the best lines, in the order of the files."""
        start, end = self._spans.get(without, (0, 0))
        scores = self._index.scores(names)
        calls = [n for n in self._index.uses(own) if not start <= n < end]
        weight = self._index.weight(len(calls))
        for number in calls if weight else ():
            scores[number] += _OWN_NAME * weight
            # Arguments are made in front of a call, and its result is checked behind it.
            scores[number - 1] += weight
            scores[number + 1] += weight
        for first, last in self._in_failing:
            for number in range(first, last):
                scores[number] = _OF_FAILING * scores[number] + 1

        def size(number: int) -> int:
            if not 0 <= number < len(self._texts) or start <= number < end or not self._texts[number]:
                return 0
            return min(self._texts[number].count(b"\0") + 1, _LONGEST_LINE) + 1

        result = list[bytes]()
        for number in best_lines(scores, size, room=MOST_TOKENS, most=_LINES):
            result += self._texts[number].split(b"\0")[:_LONGEST_LINE]
            result.append(NEWLINE)
        return result
