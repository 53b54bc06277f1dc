"""Draw copies of blind test files with other inputs, for the tests of one artifact."""

from __future__ import annotations

import ast
import json
import math
import random
import re
import string
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from pytest_ssr.grading.blind.files import BlindFiles, names_imported
from pytest_ssr.grading.blind.inputs import names_of_tests, vary, vary_module, written_module
from pytest_ssr.grading.blind.other_values import other_value
from pytest_ssr.grading.blind.rewrite import Blind
from pytest_ssr.grading.blind.suite import Copy
from pytest_ssr.project.file_roles import is_test_surface
from pytest_ssr.project.state import CodebaseState
from pytest_ssr.records.test_run import SuiteRun

_MAX_BYTES = 100_000
_SHARE = 0.3
_NUMBER = re.compile(r"\d+")


def varied_data(data: bytes, rng: random.Random, *, far: bool) -> bytes | None:
    """Return a data file with some JSON values or some numbers in its text varied; None if there is nothing to vary."""
    try:
        text = data.decode() if len(data) <= _MAX_BYTES else ""
    except UnicodeDecodeError:
        return None
    try:
        varied = json.dumps(_varied(json.loads(text), rng, far=far), ensure_ascii=False)
    except (ValueError, RecursionError):
        varied = _NUMBER.sub(lambda m: _other_number(m[0], rng, far=far), text)
    return varied.encode("utf-8", "surrogatepass") if varied != text else None


def _varied(value: Any, rng: random.Random, *, far: bool) -> Any:
    if isinstance(value, dict):
        return {key: _varied(inner, rng, far=far) for key, inner in value.items()}
    if isinstance(value, list):
        return [_varied(inner, rng, far=far) for inner in value]
    if value is None or rng.random() >= _SHARE:
        return value
    return other_value(value, rng, far=far)


def _other_number(text: str, rng: random.Random, *, far: bool) -> str:
    return str(abs(int(str(other_value(int(text), rng, far=far))))) if rng.random() < _SHARE else text


_LEAST_COPIES, _MOST_COPIES = 4, 12
_LEAST_COPIES_OF_TABLE = 2
_FAILING_SHARE, _PASSING_SHARE = 0.3, 0.1
"""Time of the copies of FAIL_TO_PASS tests and of others, as a share of the time of the whole run on the original."""
_LEAST_PASSING_S = 0.08
"""Time that the copies of other tests may always take: that of all tests in a small suite."""
_TEST_S, _FILE_S = 0.002, 0.004
"""Overhead in seconds of a test and of a test file."""
_MOST_COPIES_OF_PASSING = 5
"""Most copies of a PASS_TO_PASS test."""
_MOST_PASSING_S = 0.1
"""Seconds of a PASS_TO_PASS test above which other inputs are not tried: with these it may take much longer."""
_CYCLE, _FAR = 5, (0, 2, 4)
"""The copies, modulo five, with inputs far from the tests' own: more than half, so that they can decide."""


class CopyGenerator:
    """Draws copies of the tests of one artifact."""

    def __init__(
        self,
        original: CodebaseState,
        files: Sequence[str],
        blind_files: BlindFiles,
        original_run: SuiteRun,
        tests: Collection[str],
        failing: Collection[str],
        rng: random.Random,
    ) -> None:
        """Prepare to draw copies.

        original_run: a run of the files on the original. tests, failing: ids of all recorded tests, of FAIL_TO_PASS.
        """
        self._files, self._blind, self._original_run = files, blind_files.blind, original_run
        self._tests, self._failing, self._rng = tests, failing, rng
        self.token = "".join(rng.choices(string.ascii_lowercase, k=8))
        self._original = original
        surface = (PurePosixPath(p) for p in original.snapshot.files if not p.endswith(".py") and is_test_surface(p))
        self._data = {path.name: str(path) for path in surface}
        self._modules = {p: b for p, b in blind_files.blind.items() if p not in files and not _defines_types(b)}

    def draw(self) -> Iterator[Copy]:
        """Yield copies of as many tests as the time budget allows, FAIL_TO_PASS first."""
        seconds = self._seconds_by_function()
        failing = {i.partition("[")[0] for i in self._failing}
        names = list(seconds)
        self._rng.shuffle(names)
        names.sort(key=lambda n: n not in failing)
        most_copies = {n: self._copies_of(n) if n in failing else _MOST_COPIES_OF_PASSING for n in names}
        files = {n.partition("::")[0] for n in names if n in failing}
        copies = self._number_of_copies({n: (seconds[n], most_copies[n]) for n in names if n in failing}, len(files))
        passing_s = max(_LEAST_PASSING_S, _PASSING_SHARE * self._original_run.seconds)
        remaining_s, counts = 0.0, dict.fromkeys(names, 0)
        for number in range(copies):
            remaining_s += passing_s / copies
            wanted: dict[str, set[str]] = {path: set() for path in files}
            for name in names:
                path, _, chain = name.partition("::")
                cost = 0.0 if name in failing else seconds[name] + (0.0 if path in wanted else _FILE_S)
                if counts[name] < most_copies[name] and cost <= remaining_s:
                    remaining_s, counts[name] = remaining_s - cost, counts[name] + 1
                    wanted.setdefault(path, set()).add(chain)
            for path, chains in wanted.items():
                if chains:
                    yield self._copy(path, chains, number)

    def _seconds_by_function(self) -> dict[str, float]:
        """Return how long each test function that can be varied takes, with all rows of its table."""
        defined = {f"{p}::{n}" for p in self._files if p in self._blind for n in names_of_tests(self._blind[p].tree)}
        inheriting = {
            f"{p}::{n.name}" for p in self._files if p in self._blind for n in _classes_with_bases(self._blind[p])
        }
        seconds: dict[str, float] = defaultdict(float)
        for node_id, result in self._original_run.results.items():
            name = node_id.partition("[")[0]
            is_wanted = node_id in self._failing or (node_id in self._tests and result.duration_s <= _MOST_PASSING_S)
            if is_wanted and (name in defined or name.rpartition("::")[0] in inheriting):
                seconds[name] += result.duration_s + _TEST_S
        return seconds

    def _number_of_copies(self, failing: Mapping[str, tuple[float, int]], files: int) -> int:
        """Return how many copies of FAIL_TO_PASS tests fit into their share of the time.

        failing: the seconds of each function, and the most copies that it is in. files: the number of their files.
        """
        for copies in range(_MOST_COPIES, _LEAST_COPIES, -1):
            needed_s = sum(s * min(copies, most) for s, most in failing.values()) + _FILE_S * copies * files
            if needed_s <= _FAILING_SHARE * self._original_run.seconds:
                return copies
        return _LEAST_COPIES

    def _copies_of(self, function: str) -> int:
        """Return in how many copies a FAIL_TO_PASS test is wanted: a table with many rows is varied as a whole."""
        rows = sum(i.partition("[")[0] == function for i in self._failing)
        return max(_LEAST_COPIES_OF_TABLE, math.ceil(_MOST_COPIES / max(1, rows)))

    def _copy(self, path: str, chains: Collection[str], number: int) -> Copy:
        """Return a copy of a file with some of its tests, with inputs drawn for them."""
        blind, posix, far = self._blind[path], PurePosixPath(path), number % _CYCLE in _FAR
        suffix = f"_{self.token}{number}"
        data = dict(self._data_read_by(blind.tree, suffix, far=far))
        renamed = {PurePosixPath(p).name.replace(suffix, ""): PurePosixPath(p).name for p in data}
        modules, sources = self._modules_of(path, suffix, far=far)
        many = number % 2 == 0
        tree, unchanged = vary(blind.tree, chains, self._rng, many=many, far=far, renamed=renamed, modules=modules)
        name = str(posix.with_name(f"{posix.stem}{suffix}.py"))
        targets = tuple(f"{name}::{c}" for c in sorted(chains))
        return Copy(name, Blind(tree, blind.sites).text, unchanged, targets, {**data, **sources})

    def _data_read_by(self, tree: ast.Module, suffix: str, *, far: bool) -> Iterator[tuple[str, bytes]]:
        """Yield the data files that a file names, with other inputs."""
        texts = {n.value for n in ast.walk(tree) if isinstance(n, ast.Constant) and isinstance(n.value, str)}
        for name in sorted({PurePosixPath(t).name for t in texts} & self._data.keys()):
            path = PurePosixPath(self._data[name])
            entry = self._original.entry(str(path))
            data = varied_data(entry.data, self._rng, far=far) if entry is not None else None
            if data is not None:
                yield str(path.with_name(f"{path.stem}{suffix}{path.suffix}")), data

    def _modules_of(self, path: str, suffix: str, *, far: bool) -> tuple[dict[str, str], dict[str, bytes]]:
        """Return the names of the test modules that a file imports from and of their copies, and the copies by path."""
        names, sources = dict[str, str](), dict[str, bytes]()
        folder = PurePosixPath(path).parent.parts
        for node in ast.walk(self._blind[path].tree):
            if not isinstance(node, ast.ImportFrom) or not node.module:
                continue
            imported = next(names_imported(node, folder))
            for module in sorted(self._modules):
                posix = PurePosixPath(module)
                if posix.with_suffix("").parts[-len(imported) :] == imported:
                    varied = vary_module(self._modules[module].tree, self._rng, far=far)
                    names[written_module(node)] = f"{written_module(node)}{suffix}"
                    sources[str(posix.with_name(f"{posix.stem}{suffix}.py"))] = Blind(varied, {}).text
        return names, sources


def _defines_types(blind: Blind) -> bool:
    """Return whether a module defines classes other than tests: a copy's are not those that other files import."""
    defines_classes = any(isinstance(node, ast.ClassDef) for node in ast.walk(blind.tree))
    return defines_classes and not any(names_of_tests(blind.tree))


def _classes_with_bases(blind: Blind) -> Iterator[ast.ClassDef]:
    return (node for node in blind.tree.body if isinstance(node, ast.ClassDef) and node.bases)
