"""Find the lines of a project's other files that tell about a function: where it is called, and what its tests say."""

from __future__ import annotations

import bisect
import hashlib
import re
from collections.abc import Callable, Collection, Mapping, Sequence

from harness.solvers.search.generator.code_stream import LAYOUT, NEWLINE, logical_lines, stream_of
from harness.solvers.search.generator.line_index import LineIndex, best_lines
from pytest_ssr.project.file_roles import is_test_surface
from pytest_ssr.project.solver_checkout import omitted_paths
from pytest_ssr.project.state import CodebaseState
from pytest_ssr.source.syntax_tree import Scope, parse, scopes

MOST_TOKENS = 64
"""Most tokens of the lines of code, and of those of tests."""
MAX_FILE_BYTES = 150_000
"""Larger files are data, or generated."""
_MOST_BYTES = 1_000_000
"""Size of all files of code that are read, and of all tests."""
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

    def __init__(
        self, paths: Collection[str], read: Callable[[str], bytes | None], failing: Mapping[str, str] | None = None
    ) -> None:
        """Read the files, those of failing tests first, until they are too large together.

        read: returns the content of a file; None if it has none. failing: node ids of the failing tests, whose lines
        count more, with the messages of their failures, whose names are looked up.
        """
        chosen = sorted((failing or {}).items())[:_MOST_FAILING]
        messages = (message.encode(errors="replace") for _, message in chosen)
        self.named = sorted({name for message in messages for name in _NAME.findall(message)})
        """The names in the messages of failing tests."""
        by_path: dict[str, set[str]] = {}
        for test, _ in chosen:
            path, _, name = test.partition("::")
            by_path.setdefault(path, set()).add(name.partition("[")[0].replace("::", "."))
        self._code, self._tests, digest = _Lines(), _Lines(), hashlib.sha256(repr(chosen).encode())
        python = {path for path in paths if path.endswith(".py")}
        for path in sorted(python - omitted_paths(python), key=lambda p: (p not in by_path, p)):
            lines = self._tests if is_test_surface(path) else self._code
            data = read(path) if not lines.is_full else None
            if data is not None:
                lines.add(path, data, by_path.get(path, ()))
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


def project_lines(state: CodebaseState, failing: Mapping[str, str] | None = None) -> ProjectLines:
    """Return the lines of a state; see `ProjectLines`."""

    def read(path: str) -> bytes | None:
        entry = state.entry(path)
        return entry.data if entry is not None and entry.mode != 0o120000 else None

    return ProjectLines({*state.snapshot.files, *state.changes}, read, failing)


class _Lines:
    """The lines of code, or those of tests; an empty line separates files."""

    def __init__(self) -> None:
        self.is_full = False
        self._size = 0
        self._texts = list[bytes]()
        """The tokens of each line, joined, which takes a tenth of the memory of lists."""
        self._index = LineIndex()
        self._spans: dict[str, tuple[int, int]] = {}
        """The lines of each file; copies have the same."""
        self._by_content: dict[bytes, tuple[int, int]] = {}
        self._in_failing = list[tuple[int, int]]()

    def add(self, path: str, data: bytes, failing: Collection[str]) -> None:
        """Add the lines of a file. failing: the names of its failing tests."""
        # The bytes between the tokens of a line must not be in them.
        if len(data) > MAX_FILE_BYTES or b"\0" in data:
            return
        content = hashlib.sha256(data).digest()
        if content not in self._by_content:
            self.is_full = self._size + len(data) > _MOST_BYTES
            if self.is_full:
                return
            self._size += len(data)
            start, offsets = len(self._texts), self._read(data)
            self._by_content[content] = start, len(self._texts)
            self._add_line(b"", ())
            if failing:
                self._mark(path, data, failing, start, offsets)
        self._spans[path] = self._by_content[content]

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
