"""Draw copies of blind test files with other inputs, for the tests of one artifact."""

from __future__ import annotations

import ast
import json
import random
import re
import string
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from pathlib import PurePosixPath
from typing import Any

from pytest_ssr.grading.blind.files import BlindFiles, names_imported
from pytest_ssr.grading.blind.inputs import names_of_tests, rename_tests, vary, vary_module, written_module
from pytest_ssr.grading.blind.other_values import other_value
from pytest_ssr.grading.blind.rewrite import Blind
from pytest_ssr.grading.blind.suite import Copy
from pytest_ssr.project.file_roles import is_test_surface
from pytest_ssr.project.state import CodebaseState
from pytest_ssr.records.test_run import SuiteRun
from pytest_ssr.source.parsing import parse_module

_MAX_BYTES, _LONGEST_WORD = 100_000, 20
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


_LEAST_COPIES, _MOST_COPIES, _LEAST_BUDGET_S = 4, 12, 1.0
_COPIES_S = 1.25
"""Seconds that the copies of FAIL_TO_PASS may always take: quick tests have most copies, on a busy machine too."""
_SPARE, _SPARE_S, _PLAIN_TEST_S = 4, 0.12, 0.002
"""How many times as many copies of FAIL_TO_PASS are drawn, if they take no more seconds than these without pytest.

A test of a copy has the last as its overhead there.
"""
_TEST_S, _FILE_S = 0.004, 0.04
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
        buggy: CodebaseState,
        rng: random.Random,
    ) -> None:
        """Prepare to draw copies.

        original_run: a run of the files on the original. tests, failing: ids of all recorded tests, of FAIL_TO_PASS.
        buggy: a state whose changed files have strings, and whose changed statements numbers, that may be inputs.
        """
        self._words = [word for path in sorted(buggy.changes) for word in _words_of(original, path)]
        self._bounds = [n for path in sorted(buggy.changes) for n in _numbers_changed(original, buggy, path)]
        self._files, self._blind, self._original_run = files, blind_files.blind, original_run
        self._tests, self._failing, self._rng = tests, failing, rng
        self.token = "".join(rng.choices(string.ascii_lowercase, k=8))
        self.most = 0
        """Copies of each FAIL_TO_PASS test that are to be kept."""
        self._original = original
        surface = (PurePosixPath(p) for p in original.snapshot.files if not p.endswith(".py") and is_test_surface(p))
        self._data = {path.name: str(path) for path in surface}
        self._modules = {p: b for p, b in blind_files.blind.items() if p not in files and not _defines_types(b)}

    def draw(self) -> Iterator[Copy]:
        """Yield copies of as many tests as the time budget allows, FAIL_TO_PASS first.

        Of quick FAIL_TO_PASS tests there are more copies than `most`, from which those can be chosen that tell most.
        """
        defined = {f"{p}::{n}" for p in self._files if p in self._blind for n in names_of_tests(self._blind[p].tree)}
        seconds: dict[str, float] = defaultdict(float)
        for node_id, result in self._original_run.results.items():
            if node_id in self._failing or (node_id in self._tests and result.duration_s <= _MOST_PASSING_S):
                seconds[node_id.partition("[")[0]] += result.duration_s + _TEST_S
        inheriting = {
            f"{p}::{n.name}" for p in self._files if p in self._blind for n in _classes_with_bases(self._blind[p])
        }
        defined |= {n for n in seconds if n.rpartition("::")[0] in inheriting}
        failing = {i.partition("[")[0] for i in self._failing}
        names = [n for n in seconds if n in defined]
        self._rng.shuffle(names)
        names.sort(key=lambda n: n not in failing)
        budget_s = max(_LEAST_BUDGET_S, sum(seconds.values()))
        files = {n.partition("::")[0] for n in names if n in failing}
        needed = sum(seconds[n] for n in names if n in failing) + _FILE_S * len(files)
        copies = int(min(_MOST_COPIES, max(_LEAST_COPIES, max(_COPIES_S, budget_s / 2) / max(needed, _FILE_S))))
        self.most = copies
        durations = [r.duration_s for i, r in self._original_run.results.items() if i.partition("[")[0] in failing]
        plain_s = sum(durations) + _PLAIN_TEST_S * len(failing)
        spare = int(min(_SPARE * copies, _SPARE_S / max(plain_s, _PLAIN_TEST_S)))
        remaining_s, counts = 0.0, dict.fromkeys(names, 0)
        for number in range(max(copies, spare)):
            remaining_s += budget_s / 2 / copies if number < copies else 0.0
            wanted: dict[str, set[str]] = {path: set() for path in files}
            for name in names:
                path, _, chain = name.partition("::")
                cost = 0.0 if name in failing else seconds[name] + (0.0 if path in wanted else _FILE_S)
                is_drawn = number < copies and cost <= remaining_s and counts[name] < _MOST_COPIES_OF_PASSING
                if name in failing or is_drawn:
                    remaining_s, counts[name] = remaining_s - cost, counts[name] + 1
                    wanted.setdefault(path, set()).add(chain)
            for path, chains in wanted.items():
                yield self._copy(path, chains, number)

    def _copy(self, path: str, chains: Collection[str], number: int) -> Copy:
        """Return a copy of a file with some of its tests, with inputs drawn for them."""
        blind, posix, far = self._blind[path], PurePosixPath(path), number % _CYCLE in _FAR
        suffix = f"_{self.token}{number}"
        data = dict(self._data_read_by(blind.tree, suffix, far=far))
        renamed = {PurePosixPath(p).name.replace(suffix, ""): PurePosixPath(p).name for p in data}
        modules, sources = self._modules_of(path, suffix, far=far)
        many = number % 2 == 0
        names = {"renamed": renamed, "modules": modules}
        tree = vary(blind.tree, chains, self._rng, many=many, far=far, **names, words=self._words, bounds=self._bounds)
        name = str(posix.with_name(f"{posix.stem}{suffix}.py"))
        others = rename_tests(tree, f"_{self.token}")
        named = (f"{c}_{self.token}" if c.rpartition("::")[2] in others else c for c in sorted(chains))
        targets = tuple(f"{name}::{c}" for c in named)
        return Copy(name, Blind(tree, blind.sites).text, targets, {**data, **sources})

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


def _words_of(state: CodebaseState, path: str) -> Iterator[str]:
    """Yield the short strings without spaces in a Python file."""
    entry = state.entry(path)
    tree = parse_module(entry.data) if entry is not None and path.endswith(".py") else None
    for node in ast.walk(tree) if tree is not None else ():
        value = node.value if isinstance(node, ast.Constant) else None
        if isinstance(value, str) and value and len(value) <= _LONGEST_WORD and not any(map(str.isspace, value)):
            yield value


def _numbers_changed(original: CodebaseState, buggy: CodebaseState, path: str) -> Iterator[float]:
    """Yield the numbers in the functions and other statements of a Python file that are not in the buggy one."""
    try:
        remaining = {ast.dump(statement) for statement in _statements(buggy, path)}
        changed = [each for each in _statements(original, path) if ast.dump(each) not in remaining]
    except RecursionError:
        # A chain of hundreds of branches or operators.
        return
    for node in (node for statement in changed for node in ast.walk(statement)):
        value = node.value if isinstance(node, ast.Constant) else None
        if isinstance(value, int | float) and not isinstance(value, bool):
            yield value


def _statements(state: CodebaseState, path: str) -> Iterator[ast.stmt]:
    """Yield the statements of a Python file and of its classes."""
    entry = state.entry(path)
    holders: list[ast.stmt | ast.Module | None] = [
        parse_module(entry.data) if entry is not None and path.endswith(".py") else None
    ]
    for holder in holders:
        for node in holder.body if isinstance(holder, ast.Module | ast.ClassDef) else ():
            if isinstance(node, ast.ClassDef):
                holders.append(node)
            else:
                yield node


def _defines_types(blind: Blind) -> bool:
    """Return whether a module defines classes other than tests: a copy's are not those that other files import."""
    defines_classes = any(isinstance(node, ast.ClassDef) for node in ast.walk(blind.tree))
    return defines_classes and not any(names_of_tests(blind.tree))


def _classes_with_bases(blind: Blind) -> Iterator[ast.ClassDef]:
    return (node for node in blind.tree.body if isinstance(node, ast.ClassDef) and node.bases)
