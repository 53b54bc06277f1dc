"""Read the Python files of a project that a solver gets, as sources of code for repairs."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from pytest_ssr.project.file_roles import is_injectable, is_test_surface
from pytest_ssr.project.solver_checkout import omitted_paths
from pytest_ssr.project.state import CodebaseState
from pytest_ssr.source.syntax_tree import ParsedSource, Scope, parse, scopes

if TYPE_CHECKING:
    from harness.solvers.search.generator.project_lines import ProjectLines

MAX_FILE_BYTES = 150_000
"""Larger files are data, or generated."""
_MOST_BYTES = 8_000_000
"""Size of all files of code that are read, and of all tests."""
_MOST_NAMESAKES, _MOST_PARSED = 12, 64
_LONGEST_BYTES = 8_000
"""Longest namesake."""
_DEFINITION = re.compile(rb"\bdef[ \t]+([\w\x80-\xff]+)")
_LINK = 0o120000


class ProjectFiles:
    """The Python files of a project; they are read when they are needed."""

    def __init__(
        self, paths: Collection[str], read: Callable[[str], bytes | None], failing: Mapping[str, str] | None = None
    ) -> None:
        """Choose the files that a solver gets.

        read: returns the content of a file; None if it has none. failing: node ids of failing tests with the messages
        of their failures; the files of these tests come first.
        """
        python = {path for path in paths if path.endswith(".py")}
        self.failing = dict(failing or {})
        first = {test.partition("::")[0] for test in self.failing}
        given = python - omitted_paths(paths)
        # If they are too large together, those beside the package, such as documentation, are left out.
        self._paths = sorted(given, key=lambda path: (path not in first, not is_injectable(path), path))
        self._read = read
        self._functions = functools.lru_cache(maxsize=_MOST_PARSED)(self._functions_of)

    @functools.cached_property
    def code(self) -> dict[str, bytes]:
        """The content of each file of code."""
        return self._contents(path for path in self._paths if not is_test_surface(path))

    @functools.cached_property
    def tests(self) -> dict[str, bytes]:
        """The content of each file of tests."""
        return self._contents(path for path in self._paths if is_test_surface(path))

    def _contents(self, paths: Iterable[str]) -> dict[str, bytes]:
        contents, size = dict[str, bytes](), 0
        for path in paths:
            data = self._read(path)
            # Zero bytes are in no source code, and would be a token.
            if data is None or len(data) > MAX_FILE_BYTES or b"\0" in data:
                continue
            size += len(data)
            if size > _MOST_BYTES:
                break
            contents[path] = data
        return contents

    @functools.cached_property
    def lines(self) -> ProjectLines:
        """The lines that a generator may see."""
        from harness.solvers.search.generator.project_lines import ProjectLines

        return ProjectLines(self)

    @functools.cached_property
    def _definitions(self) -> dict[bytes, list[str]]:
        """The files of code that may define a function of a name, by name."""
        definitions: dict[bytes, list[str]] = {}
        for path, data in self.code.items():
            for name in sorted(set(_DEFINITION.findall(data))):
                definitions.setdefault(name, []).append(path)
        return definitions

    def _functions_of(self, path: str) -> list[tuple[ParsedSource, Scope]]:
        source = parse(path, self.code[path])
        return _functions(source) if source is not None else []

    def namesakes(self, source: ParsedSource, scope: Scope) -> list[tuple[ParsedSource, Scope]]:
        """Return functions of the same name as one of a file: those of its file first, then those of its folder."""
        name = _name(scope)
        found = [pair for pair in _functions(source) if pair[1].start != scope.start and _name(pair[1]) == name]
        folder = PurePosixPath(source.path).parent
        paths = [path for path in self._definitions.get(name.encode(), ()) if path != source.path]
        for path in sorted(paths, key=lambda p: (folder not in PurePosixPath(p).parents, p))[:_MOST_PARSED]:
            if len(found) >= _MOST_NAMESAKES:
                break
            found += [pair for pair in self._functions(path) if _name(pair[1]) == name]
        return [pair for pair in found if pair[1].end - pair[1].start <= _LONGEST_BYTES][:_MOST_NAMESAKES]


def _functions(source: ParsedSource) -> list[tuple[ParsedSource, Scope]]:
    return [(source, scope) for scope in scopes(source) if scope.kind == "function"]


def _name(scope: Scope) -> str:
    return scope.qualname.rpartition(".")[2]


def files_of(state: CodebaseState, failing: Mapping[str, str] | None = None) -> ProjectFiles:
    """Return the files of a state; see `ProjectFiles`."""

    def read(path: str) -> bytes | None:
        entry = state.entry(path)
        return entry.data if entry is not None and entry.mode != _LINK else None

    return ProjectFiles({*state.snapshot.files, *state.changes}, read, failing)
