"""Copies of blind test files with other inputs, drawn for the tests of one artifact."""

from __future__ import annotations

import ast
import random
import string
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from pytest_ssr.codebase import CodebaseState
from pytest_ssr.grading.blind.data_files import varied_data
from pytest_ssr.grading.blind.files import BlindFiles
from pytest_ssr.grading.blind.inputs import names_of_tests, vary, vary_module
from pytest_ssr.grading.blind.rewrite import Blind
from pytest_ssr.outcomes import SuiteRun
from pytest_ssr.surface import is_test_surface

_LEAST_COPIES, _MOST_COPIES, _ROOM_S = 4, 12, 1.0
_TEST_S, _FILE_S = 0.004, 0.04
"""What a test and a file of tests take besides."""
_EACH = 5
"""Copies of a PASS_TO_PASS test."""
_FIVE, _FAR = 5, (0, 2, 4)
"""Which copies have inputs far from the tests' own: more than half, so that they can decide."""


@dataclass(frozen=True)
class Copy:
    """A file of tests with other inputs."""

    path: str
    blind: Blind
    unchanged: frozenset[int]
    """The numbers of the assertions that have the tests' own inputs."""
    targets: tuple[str, ...]
    """The ids of its tests."""
    files: Mapping[str, bytes] = field(default_factory=dict)
    """By path the modules and data files that it reads in place of the tests' own."""


class Copies:
    """Draws copies of the tests of one artifact."""

    def __init__(
        self,
        original: CodebaseState,
        files: Sequence[str],
        written: BlindFiles,
        usual: SuiteRun,
        tests: Collection[str],
        failing: Collection[str],
        chance: random.Random,
    ) -> None:
        """usual: a run of the files on the original. tests, failing: ids of all recorded tests, of FAIL_TO_PASS."""
        self._files, self._blind, self._usual = files, written.blind, usual
        self._tests, self._failing, self._chance = tests, failing, chance
        self.token = "".join(chance.choices(string.ascii_lowercase, k=8))
        self._original = original
        surface = (PurePosixPath(p) for p in original.snapshot.files if not p.endswith(".py") and is_test_surface(p))
        self._data = {path.name: str(path) for path in surface}
        self._modules = {PurePosixPath(p).stem: p for p in written.blind if p not in files}

    def drawn(self, endless: Collection[str]) -> Iterator[Copy]:
        """Yield copies of as many tests as there is time for, FAIL_TO_PASS first; endless: functions to leave out."""
        defined = {f"{p}::{n}" for p in self._files if p in self._blind for n in names_of_tests(self._blind[p].tree)}
        spent: dict[str, float] = defaultdict(float)
        for node_id, result in self._usual.results.items():
            if node_id in self._tests:
                spent[node_id.partition("[")[0]] += result.duration_s + _TEST_S
        heirs = {f"{p}::{n.name}" for p in self._files if p in self._blind for n in _classes_with_bases(self._blind[p])}
        defined |= {n for n in spent if n.rpartition("::")[0] in heirs}
        failing = {i.partition("[")[0] for i in self._failing}
        names = [n for n in spent if n in defined and n not in endless]
        self._chance.shuffle(names)
        names.sort(key=lambda n: n not in failing)
        room = max(_ROOM_S, sum(spent.values()))
        files = {n.partition("::")[0] for n in names if n in failing}
        needed = sum(spent[n] for n in names if n in failing) + _FILE_S * len(files)
        copies = int(min(_MOST_COPIES, max(_LEAST_COPIES, room / 2 / max(needed, _FILE_S))))
        left, given = 0.0, dict.fromkeys(names, 0)
        for number in range(copies):
            left += room / 2 / copies
            wanted: dict[str, set[str]] = {path: set() for path in files}
            for name in names:
                path, _, chain = name.partition("::")
                cost = 0.0 if name in failing else spent[name] + (0.0 if path in wanted else _FILE_S)
                if name in failing or (cost <= left and given[name] < _EACH):
                    left, given[name] = left - cost, given[name] + 1
                    wanted.setdefault(path, set()).add(chain)
            for path, chains in wanted.items():
                yield self._copy(path, chains, number)

    def _copy(self, path: str, chains: Collection[str], number: int) -> Copy:
        """Return a file with some of the tests of another, with inputs drawn for them."""
        blind, place, far = self._blind[path], PurePosixPath(path), number % _FIVE in _FAR
        suffix = f"_{self.token}{number}"
        files = dict(self._read_by(blind.tree, suffix, far=far))
        renamed = {PurePosixPath(p).name.replace(suffix, ""): PurePosixPath(p).name for p in files}
        tree, unchanged = vary(blind.tree, chains, self._chance, many=number % 2 == 0, far=far, renamed=renamed)
        name = str(place.with_name(f"{place.stem}{suffix}.py"))
        targets = tuple(f"{name}::{c}" for c in sorted(chains))
        return Copy(name, Blind(tree, blind.sites), unchanged, targets, files)

    def _read_by(self, tree: ast.Module, suffix: str, *, far: bool) -> Iterator[tuple[str, bytes]]:
        """Yield the modules of tests that a file imports and the data files that it names, with other inputs."""
        texts = {n.value for n in ast.walk(tree) if isinstance(n, ast.Constant) and isinstance(n.value, str)}
        for name in sorted({PurePosixPath(t).name for t in texts} & self._data.keys()):
            path = PurePosixPath(self._data[name])
            entry = self._original.entry(str(path))
            found = varied_data(entry.data, self._chance, far=far) if entry is not None else None
            if found is not None:
                yield str(path.with_name(f"{path.stem}{suffix}{path.suffix}")), found
        imports = [n for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) and n.module]
        for name in sorted({(n.module or "").rpartition(".")[2] for n in imports} & self._modules.keys()):
            path = PurePosixPath(self._modules[name])
            varied = vary_module(self._blind[str(path)].tree, self._chance, far=far)
            yield str(path.with_name(f"{path.stem}{suffix}.py")), Blind(varied, {}).text

    def function_of(self, node_id: str) -> str:
        """Return the real test function of a copy's node id."""
        path, _, rest = node_id.partition("[")[0].partition("::")
        place = PurePosixPath(path)
        return f"{place.with_name(place.stem.rpartition('_' + self.token)[0] + '.py')}::{rest}"


def _classes_with_bases(blind: Blind) -> Iterator[ast.ClassDef]:
    return (node for node in blind.tree.body if isinstance(node, ast.ClassDef) and node.bases)
