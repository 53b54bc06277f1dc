"""Rewrite the test files of a codebase into blind ones."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from pathlib import PurePosixPath

from pytest_ssr.grading.blind.assertions import SYMBOLS, Site
from pytest_ssr.grading.blind.compare import OBJECT, Line, Records
from pytest_ssr.grading.blind.rewrite import Blind, rewrite
from pytest_ssr.patch import FileEntry
from pytest_ssr.project.file_roles import import_names, is_test_surface
from pytest_ssr.project.state import CodebaseState
from pytest_ssr.records.test_run import SuiteRun
from pytest_ssr.source.parsing import parse_module
from pytest_ssr.source.spans import identifiers

_DOTTED = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+")
"""Not a single word, which may be anything."""


class BlindFiles:
    """Test files and the test modules they import: unchanged, blind, and with the values they expect."""

    def __init__(self, original: CodebaseState, files: Sequence[str], operated: Collection[int] = ()) -> None:
        """Rewrite the files; those that cannot be rewritten are missing in `blind`. operated: see `rewrite`."""
        self._original, self._files = original, files
        self.entries = {p: e for p in _surface_of(original, files) if (e := original.entry(p)) is not None}
        self.blind: dict[str, Blind] = {}
        self.full: dict[str, Blind] = {}
        self.sites: dict[int, Site] = {}
        own = import_names(original.snapshot.files)
        words_by_file = {p: identifiers(e.data) for p, e in self.entries.items()}
        for path, entry in self.entries.items():
            stem = PurePosixPath(path).stem
            exported = {w for p, others in words_by_file.items() if p != path and stem in others for w in others}
            try:
                first = len(self.sites)
                self.blind[path], self.full[path] = (
                    rewrite(entry.data, own=own, exported=exported, operated=operated, first=first, full=full)
                    for full in (False, True)
                )
                # An expression may be nested too deeply to be unparsed.
                _ = self.blind[path].text, self.full[path].text
                self.sites |= self.blind[path].sites
            except (SyntaxError, ValueError, RecursionError):
                self.blind.pop(path, None)

    def with_operators(self, records: Records) -> BlindFiles | None:
        """Return files whose comparisons of objects write whether they hold; None if these are such files.

        An object's class can define the operator, so that its state does not decide the comparison.

        records: the lines of a run of these files on the original.
        """
        operated = {
            key.site
            for test in records.values()
            for key, line in test.items()
            if key.site in self.sites and _is_operated(self.sites[key.site], line)
        }
        return BlindFiles(self._original, self._files, operated) if operated else None

    def rewritten(self, *, full: bool = False) -> dict[str, FileEntry]:
        """Return the rewritten files by path; full: those that hold the expected values."""
        chosen = self.full if full else self.blind
        return {path: FileEntry(chosen[path].text, self.entries[path].mode) for path in self.blind}

    def put_into(self, state: CodebaseState, *, full: bool = False) -> CodebaseState:
        """Return a state with the rewritten files in it; full: with the files that hold the expected values."""
        return state.replace(self.rewritten(full=full))


def _is_operated(site: Site, line: Line) -> bool:
    """Return whether a comparison writes an object, and not all of its operands."""
    compares = all(op in SYMBOLS.values() and not op.startswith("is") for op in site.ops)
    return compares and not all(site.recorded) and any(isinstance(v, list) and v[:1] == [OBJECT] for v in line.values)


def _surface_of(original: CodebaseState, files: Sequence[str]) -> list[str]:
    """Return the test files and the test modules that they import, sorted."""
    modules = _TestModules(original)
    paths, waiting = list[str](), list(files)
    while waiting:
        path = waiting.pop()
        entry = original.entry(path)
        if path in paths or entry is None:
            continue
        paths.append(path)
        waiting += modules.imported_by(path, entry.data)
    return sorted(paths)


class _TestModules:
    """The modules of the test surface, by the names under which test files can import them."""

    def __init__(self, original: CodebaseState) -> None:
        self._by_stem: dict[str, list[tuple[str, ...]]] = defaultdict(list)
        for path in original.snapshot.files:
            posix = PurePosixPath(path)
            if posix.suffix == ".py" and posix.stem not in ("conftest", "__init__") and is_test_surface(path):
                self._by_stem[posix.stem].append(posix.with_suffix("").parts)

    def imported_by(self, path: str, data: bytes) -> set[str]:
        """Return the paths of the modules that a file imports, or names in a string such as `package.urls`.

        Any folder may be on the import path, so a module matches if its path ends with the imported name.
        """
        tree = parse_module(data)
        folder = PurePosixPath(path).parent.parts
        names = {name for node in (ast.walk(tree) if tree is not None else ()) for name in names_imported(node, folder)}
        return {
            "/".join(parts) + ".py"
            for name in names
            for parts in self._by_stem.get(name[-1], ())
            if parts[-len(name) :] == name
        }


def names_imported(node: ast.AST, folder: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Yield the names that a node may import, split at the dots; relative ones begin with the folder."""
    if isinstance(node, ast.Import):
        yield from (tuple(alias.name.split(".")) for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        base = folder[: len(folder) + 1 - node.level] if node.level else ()
        module = (*base, *(node.module.split(".") if node.module else ()))
        yield from (name for name in (module, *((*module, alias.name) for alias in node.names)) if name)
    elif isinstance(node, ast.Constant) and isinstance(node.value, str) and _DOTTED.fullmatch(node.value):
        yield tuple(node.value.split("."))


def paired(blind: SuiteRun, usual: SuiteRun) -> dict[str, str]:
    """Map the id of each blind test to its real id: table rows have other ids there, but the same order."""
    ids: dict[str, list[str]] = defaultdict(list)
    for node_id in usual.collected:
        ids[node_id.partition("[")[0]].append(node_id)
    cases: dict[str, list[str]] = defaultdict(list)
    for node_id in blind.collected:
        cases[node_id.partition("[")[0]].append(node_id)
    return {
        case: name
        for function, case_ids in cases.items()
        if len(case_ids) == len(ids[function])
        for case, name in zip(case_ids, ids[function], strict=True)
    }
