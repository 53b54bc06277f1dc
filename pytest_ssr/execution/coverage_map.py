"""Map the statements of a project to the tests that reach them, and so find the tests that a change can touch.

`reach_probe` measures it while the tests run. If one test fills a cache that another reads, then which of them reaches
a statement depends on the order: so it is measured in two orders before a change counts as survived. When in doubt, a
test is selected: what runs at import concerns every test, and tests that start processes, leave threads running, or
read the changed file are selected although no statement shows it.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pytest_ssr.project.state import CodebaseState
from pytest_ssr.records.decoding import damaged, decode, pack, unpack
from pytest_ssr.source.function_diff import ChangedFunction, Spot, changed_functions

IMPORT_HOLDER = "import"


@dataclass(slots=True)
class CoverageLog:
    """The statements that one run reached, by holder."""

    spots: list[tuple[str, Spot]] = field(default_factory=list)
    """Path, then line and column of each watched statement; the other fields refer to them by index."""
    sets: list[list[int]] = field(default_factory=list)
    """Sets of statements."""
    reached: dict[str, set[int]] = field(default_factory=dict)
    """Holder (a test's id, `file PATH`, `all` or `import`) to the indices of the sets that it reached."""
    starts_processes: set[str] = field(default_factory=set)
    """Holders that started processes."""
    opens: dict[str, set[str]] = field(default_factory=dict)
    """Path of a file of the tree to the holders that opened it."""
    early: set[str] = field(default_factory=set)
    """Modules that were loaded before they could be watched."""
    is_complete: bool = False
    """Whether the run wrote its last record."""

    def statements(self, sets: Collection[int]) -> set[int]:
        """Return the indices of the statements in some sets."""
        return {spot for index in sets for spot in self.sets[index]}

    @classmethod
    def parse(cls, raw: bytes) -> CoverageLog:
        """Parse a log; skip lines that are torn or that the probe did not write."""
        log = cls()
        for line in raw.splitlines():
            try:
                log._add(json.loads(line))
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
                continue
        log.sets = [[i for i in indices if 0 <= i < len(log.spots)] for indices in log.sets]
        log.reached = {h: {i for i in sets if 0 <= i < len(log.sets)} for h, sets in log.reached.items()}
        return log

    def _add(self, record: Mapping[str, Any]) -> None:
        if "spots" in record:
            self.spots += [(str(path), (int(line), int(column))) for path, line, column in record["spots"]]
        elif "set" in record:
            self.sets.append([int(index) for index in record["set"]])
        elif "reaches" in record:
            self.reached.setdefault(str(record["holder"]), set()).add(int(record["reaches"]))
        elif "starts_processes" in record:
            self.starts_processes.add(str(record["holder"]))
        elif "opens" in record:
            self.opens.setdefault(str(record["opens"]), set()).add(str(record["holder"]))
        elif "early" in record:
            self.early.add(str(record["early"]))
        elif "end" in record:
            self.is_complete = True


_UNSEEN = ("__del__",)


@dataclass(frozen=True, slots=True)
class Touched:
    """What a change can touch."""

    tests: frozenset[str] | None
    """The tests to run; None: all."""
    functions: Mapping[str, tuple[ChangedFunction, ...]] | None
    """By path the functions that differ; None if the change acts at import, or may do so."""
    quiet: frozenset[str] = frozenset()
    """Paths whose own changes do not act at import."""
    unreached: frozenset[str] = frozenset()
    """Watched paths whose changed statements no test reaches: they need not even be loaded."""


@dataclass(slots=True)
class CoverageMap:
    """Statements by the tests that reach them."""

    tests: tuple[str, ...]
    """Every test, in order; a set of tests is an integer, whose lowest bit is the first test."""
    spots: dict[str, dict[Spot, int]] = field(default_factory=dict)
    """Path, then line and column of a statement, to the tests that reach it."""
    at_import: dict[str, set[Spot]] = field(default_factory=dict)
    """Path to the statements that are reached while modules are imported."""
    always: int = 0
    """Tests that start processes."""
    opens: dict[str, int] = field(default_factory=dict)
    """Path of a file of the tree to the tests that read it."""
    collected_by_processes: bool = False
    """Whether processes are started while modules are imported: a swap does not repeat what they did."""

    @property
    def everything(self) -> int:
        """All tests."""
        return (1 << len(self.tests)) - 1

    @classmethod
    def from_logs(cls, tests: Sequence[str], logs: Sequence[CoverageLog]) -> CoverageMap:
        """Build the map from the logs of one run, or of the parts of one run, which ran different tests."""
        reach = cls(tuple(tests))
        bit_of = {name: 1 << index for index, name in enumerate(tests)}
        for log in logs:
            reach._add_log(log, bit_of)
        for path in set().union(*(log.early for log in logs)):
            # Loaded before the probe could watch it: which tests reach it is unknown.
            reach.spots.pop(path, None)
        return reach

    def confirmed_by(self, other: CoverageMap) -> CoverageMap:
        """Return the map that follows from two runs of the same tests in different orders.

        If a statement is reached by other tests in another order, then the first test to need its effect reaches it,
        and the others rely on that effect: it concerns every test. So does a file that other tests open.
        """
        merged = CoverageMap(
            self.tests,
            always=self.always | other.always,
            collected_by_processes=self.collected_by_processes or other.collected_by_processes,
        )
        for path in {*self.spots, *other.spots}:
            ours, theirs = self.spots.get(path, {}), other.spots.get(path, {})
            merged.spots[path] = {}
            for spot in {**theirs, **ours}:
                bits = ours.get(spot, theirs.get(spot, 0))
                merged.spots[path][spot] = bits if bits == theirs.get(spot, bits) else self.everything
        for path in {*self.opens, *other.opens}:
            bits = self.opens.get(path, 0)
            merged.opens[path] = bits if bits == other.opens.get(path, 0) else self.everything
        for path in {*self.at_import, *other.at_import}:
            merged.at_import[path] = self.at_import.get(path, set()) | other.at_import.get(path, set())
        return merged

    def is_dear(self, state: CodebaseState, most: int) -> bool:
        """Return whether a change acts at import, or is reached by more than `most` tests."""
        bits = 0
        for path, entry in state.changes.items():
            functions = self._functions(state, path, entry.data if entry is not None else None)
            at_import = self.at_import.get(path, set())
            if functions is None or any(f.inside & at_import for f in functions):
                return True
            for spot in (spot for function in functions for spot in function.spots):
                bits |= self.spots[path][spot]
        return bits.bit_count() > most

    def _add_log(self, log: CoverageLog, bit_of: Mapping[str, int]) -> None:
        """Add the data of a log."""
        for path, spot in log.spots:
            self.spots.setdefault(path, {}).setdefault(spot, 0)
        bits_of_set: dict[int, int] = {}
        for holder, sets in log.reached.items():
            if holder == IMPORT_HOLDER:
                for statement in log.statements(sets):
                    path, spot = log.spots[statement]
                    self.at_import.setdefault(path, set()).add(spot)
                continue
            bits = self._bits(holder, bit_of)
            for index in sets:
                bits_of_set[index] = bits_of_set.get(index, 0) | bits
        for index, bits in bits_of_set.items():
            for statement in log.sets[index]:
                path, spot = log.spots[statement]
                self.spots[path][spot] |= bits
        for path, holders in log.opens.items():
            self.opens[path] = self.opens.get(path, 0) | self._bits_of(holders, bit_of)
        self.always |= self._bits_of(log.starts_processes, bit_of)
        self.collected_by_processes |= IMPORT_HOLDER in log.starts_processes

    def _bits_of(self, holders: Collection[str], bit_of: Mapping[str, int]) -> int:
        return functools.reduce(int.__or__, (self._bits(holder, bit_of) for holder in holders), 0)

    def add_always(self, names: Collection[str]) -> None:
        """Select these tests for every change."""
        self.always |= sum(1 << index for index, name in enumerate(self.tests) if name in names)

    def _bits(self, holder: str, bit_of: Mapping[str, int]) -> int:
        if holder.startswith("file "):
            prefix = f"{holder.removeprefix('file ')}::"
            return sum(bit for name, bit in bit_of.items() if name.startswith(prefix))
        return bit_of.get(holder, self.everything)

    def touched_by(self, state: CodebaseState) -> Touched:
        """Return what the changes of a state can touch."""
        bits = self.always
        functions: dict[str, tuple[ChangedFunction, ...]] | None = None if self.collected_by_processes else {}
        quiet, unreached = set(state.changes), set(state.changes)
        for path, entry in state.changes.items():
            changed = self._functions(state, path, entry.data if entry is not None else None)
            if changed is None:
                return Touched(None, None)
            if self.opens.get(path, 0):
                # A test that reads the source sees lines that move; a swap does not move them in the functions below.
                bits, functions = bits | self.opens[path], None
            at_import = self.at_import.get(path, set())
            if any(self.spots[path][spot] for function in changed for spot in function.spots):
                unreached.discard(path)
            for function in changed:
                if function.spots & at_import or function.name in _UNSEEN:
                    return Touched(None, None)
                if function.inside & at_import:
                    functions = None
                    quiet.discard(path)
                for spot in function.spots:
                    bits |= self.spots[path][spot]
            if functions is not None:
                functions[path] = changed
        return Touched(self.names(bits), functions, frozenset(quiet), frozenset(unreached))

    def near(self, state: CodebaseState) -> frozenset[str]:
        """Return the tests that reach the changed statements while they run, even if the change can touch more."""
        bits = 0
        for path, entry in state.changes.items():
            for function in self._functions(state, path, entry.data if entry is not None else None) or ():
                for spot in function.spots:
                    bits |= self.spots[path][spot]
        return self.names(bits)

    def inside(self, paths: Collection[str]) -> frozenset[str]:
        """Return the tests that reach any statement of these files while they run."""
        bits = functools.reduce(int.__or__, (b for path in paths for b in self.spots.get(path, {}).values()), 0)
        return self.names(bits)

    def _functions(self, state: CodebaseState, path: str, new: bytes | None) -> tuple[ChangedFunction, ...] | None:
        spots = self.spots.get(path)
        old = state.snapshot.entry(path) if path in state.snapshot.files else None
        if spots is None or old is None or new is None:
            return None
        changed = changed_functions(old.data, new)
        if changed is None or any(spot not in spots for function in changed for spot in function.spots):
            return None
        return changed

    def is_run(self, path: str, first: int, last: int) -> bool:
        """Return whether a test reaches a statement on these 1-based lines; True for a file that is not watched."""
        spots = self.spots.get(path)
        return spots is None or any(bits and first <= line <= last for (line, _), bits in spots.items())

    def comes_to(self, path: str, spot: Spot) -> bool:
        """Return whether a test, or an import, reaches the statement at a spot; True if the spot is not observed."""
        return bool(self.spots.get(path, {}).get(spot, True)) or spot in self.at_import.get(path, ())

    def runs_some(self, path: str, lines: Collection[int]) -> bool:
        """Return whether a test, or an import, runs a statement that begins on one of these 1-based lines.

        Also if no statement begins on them, or the file is not watched.
        """
        own = {spot: bits for spot, bits in self.spots.get(path, {}).items() if spot[0] in lines}
        return not own or any(own.values()) or not own.keys().isdisjoint(self.at_import.get(path, ()))

    def names(self, bits: int) -> frozenset[str]:
        """Return the ids of a set of tests, given as bits."""
        names = []
        while bits:
            lowest = bits & -bits
            names.append(self.tests[lowest.bit_length() - 1])
            bits ^= lowest
        return frozenset(names)

    def to_json(self) -> dict[str, Any]:
        """Return plain data for JSON; large parts are compressed."""
        sets: dict[int, int] = {}
        table = {
            path: [[line, column, sets.setdefault(bits, len(sets))] for (line, column), bits in spots.items()]
            for path, spots in self.spots.items()
        }
        return {
            "tests": list(self.tests),
            "spots": pack(json.dumps([table, [f"{bits:x}" for bits in sets]]).encode()),
            "at_import": {path: sorted(spots) for path, spots in sorted(self.at_import.items())},
            "always": f"{self.always:x}",
            "opens": {path: f"{bits:x}" for path, bits in sorted(self.opens.items())},
            "collected_by_processes": self.collected_by_processes,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> CoverageMap:
        """Read plain data back; raises StoreError for other data."""
        stored = decode(_StoredMap, data)
        try:
            table = decode(_Table, json.loads(unpack(cls, stored.spots)))
            sets = [int(bits, 16) for bits in table.sets]
            return cls(
                tests=stored.tests,
                spots={
                    path: {(line, column): sets[i] for line, column, i in spots} for path, spots in table.spots.items()
                },
                at_import=stored.at_import,
                always=int(stored.always, 16),
                opens={path: int(bits, 16) for path, bits in stored.opens.items()},
                collected_by_processes=stored.collected_by_processes,
            )
        except (ValueError, IndexError) as error:
            raise damaged(cls, str(error)) from None


class _Table(NamedTuple):
    """Statements and the tests that reach them, as they are stored."""

    spots: dict[str, list[tuple[int, int, int]]]
    """Path to line, column and the index of a set of tests."""
    sets: list[str]
    """The sets, as hexadecimal numbers."""


@dataclass(frozen=True, slots=True)
class _StoredMap:
    """The fields of a coverage map as `to_json` writes them: a set of tests is a hexadecimal number."""

    tests: tuple[str, ...]
    spots: str
    """A packed `_Table`."""
    at_import: dict[str, set[Spot]]
    always: str
    opens: dict[str, str]
    collected_by_processes: bool
