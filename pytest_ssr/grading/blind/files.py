"""The test files of a codebase, rewritten into blind ones."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath

from pytest_ssr.codebase import CodebaseState
from pytest_ssr.grading.blind.assertions import Site
from pytest_ssr.grading.blind.rewrite import Blind, rewrite
from pytest_ssr.outcomes import SuiteRun
from pytest_ssr.patch import FileEntry
from pytest_ssr.surface import import_names, is_test_surface
from pytest_ssr.weakening.text import words


class BlindFiles:
    """Test files and the modules of tests that these import: as they are, blind, and with what they expect."""

    def __init__(self, original: CodebaseState, files: Sequence[str]) -> None:
        """Rewrite what can be rewritten; the others are missing in `blind`."""
        self.entries = {p: e for p in _surface_of(original, files) if (e := original.entry(p)) is not None}
        self.blind: dict[str, Blind] = {}
        self.full: dict[str, Blind] = {}
        self.sites: dict[int, Site] = {}
        own = import_names(original.snapshot.files)
        texts = {p: words(e.data) for p, e in self.entries.items()}
        for path, entry in self.entries.items():
            kept = {w for p, found in texts.items() if p != path and PurePosixPath(path).stem in found for w in found}
            try:
                first = len(self.sites)
                self.blind[path] = rewrite(entry.data, own=own, kept=kept, first=first)
                self.full[path] = rewrite(entry.data, own=own, kept=kept, first=first, full=True)
                # An expression may be too deep to be written.
                _ = self.blind[path].text, self.full[path].text
                self.sites |= self.blind[path].sites
            except (SyntaxError, ValueError, RecursionError):
                self.blind.pop(path, None)

    def put_into(self, state: CodebaseState, *, full: bool = False) -> CodebaseState:
        """Return a state with the rewritten files in it; full: those that hold what they expect."""
        chosen = self.full if full else self.blind
        return state.replace({p: FileEntry(chosen[p].text, self.entries[p].mode) for p in self.blind})


def _surface_of(original: CodebaseState, files: Sequence[str]) -> list[str]:
    """Return the test files, and the modules of tests that these import."""
    known: Mapping[str, list[str]] = _by_stem(original)
    found, waiting = list[str](), list(files)
    while waiting:
        path = waiting.pop()
        entry = original.entry(path)
        if path in found or entry is None:
            continue
        found.append(path)
        waiting += [p for word in words(entry.data) & known.keys() for p in known[word]]
    return sorted(found)


def _by_stem(original: CodebaseState) -> Mapping[str, list[str]]:
    found: dict[str, list[str]] = {}
    for path in original.snapshot.files:
        place = PurePosixPath(path)
        if place.suffix == ".py" and place.stem not in ("conftest", "__init__") and is_test_surface(path):
            found.setdefault(place.stem, []).append(path)
    return found


def paired(blind: SuiteRun, usual: SuiteRun) -> dict[str, str]:
    """Return the real id of each blind test: rows of a table have other ids there, and the same order."""
    ids: dict[str, list[str]] = defaultdict(list)
    for node_id in usual.collected:
        ids[node_id.partition("[")[0]].append(node_id)
    cases: dict[str, list[str]] = defaultdict(list)
    for node_id in blind.collected:
        cases[node_id.partition("[")[0]].append(node_id)
    return {
        case: name
        for function, found in cases.items()
        if len(found) == len(ids[function])
        for case, name in zip(found, ids[function], strict=True)
    }
