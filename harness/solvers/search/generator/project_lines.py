"""Find the lines of a project's other files that tell about a function: where it is called, and what its tests say."""

from __future__ import annotations

import heapq
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from harness.solvers.search.generator.code_stream import LAYOUT, NEWLINE, stream_of
from harness.solvers.search.generator.line_index import LineIndex
from pytest_ssr.project.file_roles import is_test_surface
from pytest_ssr.project.state import CodebaseState
from pytest_ssr.source.syntax_tree import Scope, parse, scopes

MOST_TOKENS = 64
"""Most tokens of the lines of code, and of those of tests."""
MAX_FILE_BYTES = 150_000
"""Larger files are data, or generated."""
_MOST_BYTES = 2_000_000
"""Files beyond this size together are left out, of code and of tests."""
_MOST_MESSAGE = 300
"""Most characters of a message that are read."""
_LONGEST_LINE = 24
_LINES = 8
_OWN_NAME, _OF_FAILING = 3.0, 2.0
"""Factors of the score of a line with the function's name, and of one in a failing test."""
_NAME = re.compile(rb"[A-Za-z_]\w*")
_CONSTRUCTORS = (b"__init__", b"__new__", b"__post_init__", b"__call__")


class ProjectLines:
    """The lines of a project's Python files."""

    def __init__(self, files: Iterable[tuple[str, bytes]], failing: Mapping[str, str] | None = None) -> None:
        """Read the files.

        files: path and content of each; those in front are read if they are too large together. failing: node ids of
        the failing tests, whose lines count more, with the messages of their failures.
        """
        failing = failing or {}
        messages = (message[:_MOST_MESSAGE].encode(errors="replace") for message in failing.values())
        self.named = sorted({name for message in messages for name in _NAME.findall(message)})
        """The names in the messages of failing tests."""
        by_path: dict[str, list[str]] = {}
        for test in failing:
            path, _, name = test.partition("::")
            by_path.setdefault(path, []).append(name.partition("[")[0].replace("::", "."))
        code, tests = list[tuple[str, bytes]](), list[tuple[str, bytes]]()
        for path, data in files:
            (tests if is_test_surface(path) else code).append((path, data))
        self._code, self._tests = _Lines(code, {}), _Lines(tests, by_path)

    def about(self, path: str, scope: Scope, names: Collection[bytes]) -> tuple[list[bytes], list[bytes]]:
        """Return the tokens of lines of code outside of a function's file, and of lines of tests.

        names: those in the function.
        """
        *outer, own = scope.qualname.encode().split(b".")
        if own in _CONSTRUCTORS and outer:
            own = outer[-1]
        return self._code.about(own, names, without=path), self._tests.about(own, names, without=path)


def project_lines(state: CodebaseState, failing: Mapping[str, str] | None = None) -> ProjectLines:
    """Return the lines of a state, those of the files of failing tests first; see `ProjectLines`."""
    first = {test.partition("::")[0] for test in failing or ()}
    paths = [p for p in sorted({*state.snapshot.files, *state.changes}) if p.endswith(".py")]
    entries = ((path, state.entry(path)) for path in sorted(paths, key=lambda p: (p not in first, p)))
    return ProjectLines(((path, entry.data) for path, entry in entries if entry is not None), failing)


@dataclass(slots=True)
class _Lines:
    files: Sequence[tuple[str, bytes]]
    failing: Mapping[str, Collection[str]]
    _texts: list[bytes] = field(default_factory=list)
    """The tokens of each line, joined, which takes a tenth of the memory of lists."""
    _spans: dict[str, tuple[int, int]] = field(default_factory=dict)
    """The lines of each file."""
    _in_failing: list[tuple[int, int]] = field(default_factory=list)
    _index: LineIndex = field(init=False)

    def __post_init__(self) -> None:
        names, size = list[set[bytes]](), 0
        for path, data in self.files:
            if len(data) > MAX_FILE_BYTES or size + len(data) > _MOST_BYTES:
                continue
            size += len(data)
            start, starts = len(names), list[int]()
            self._read(data, names, starts)
            self._spans[path] = start, len(names)
            if path in self.failing:
                self._mark(path, data, start, starts)
        self.files = ()
        self._index = LineIndex(names)

    def _read(self, data: bytes, names: list[set[bytes]], starts: list[int]) -> None:
        stream, first = stream_of(data), 0
        for index, text in enumerate(stream.texts):
            if text != NEWLINE:
                continue
            span = range(first, index)
            names.append({stream.texts[i] for i in span if stream.is_name[i]})
            self._texts.append(b"\0".join([stream.texts[i] for i in span if stream.texts[i] not in LAYOUT]))
            starts.append(stream.starts[first])
            first = index + 1

    def _mark(self, path: str, data: bytes, start: int, starts: Sequence[int]) -> None:
        source = parse(path, data)
        for scope in scopes(source) if source is not None else ():
            if scope.qualname in self.failing[path]:
                within = [start + i for i, offset in enumerate(starts) if scope.start <= offset < scope.end]
                self._in_failing += [(within[0], within[-1] + 1)] if within else []

    def about(self, own: bytes, names: Collection[bytes], without: str) -> list[bytes]:
        """Return the tokens of the best lines, in the order of the files."""
        scores = self._index.scores(names)
        for number, score in self._index.scores([own]).items():
            scores[number] += _OWN_NAME * score
            # Arguments are made in front of a call, and its result is checked behind it.
            for beside in (number - 1, number + 1):
                scores[beside] += score
        for first, last in self._in_failing:
            for number in range(first, last):
                scores[number] = _OF_FAILING * scores[number] + 1
        start, end = self._spans.get(without, (0, 0))
        chosen, room = list[int](), MOST_TOKENS
        for number, _ in heapq.nsmallest(4 * _LINES, scores.items(), key=lambda pair: (-pair[1], pair[0])):
            if not 0 <= number < len(self._texts) or start <= number < end:
                continue
            size = min(self._texts[number].count(b"\0") + 1, _LONGEST_LINE) + 1
            if size <= room:
                chosen.append(number)
                room -= size
            if len(chosen) == _LINES:
                break
        result = list[bytes]()
        for number in sorted(chosen):
            result += self._texts[number].split(b"\0")[:_LONGEST_LINE]
            result.append(NEWLINE)
        return result
