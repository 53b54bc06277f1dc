"""What code computes in the tests of a bug, written down and compared outside: with their inputs, and with others.

Tests are planted that assert nothing: they write the values that the real ones compare, once as they stand, once with
an argument changed at random. The original says what the values are, the buggy state which of them the bug shows in.
A process can report what it likes, but for inputs drawn just now it has to compute the right value to write it.
"""

from __future__ import annotations

import ast
import copy
import math
import random
import string
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from pytest_ssr.codebase import CodebaseState
from pytest_ssr.errors import SandboxError
from pytest_ssr.execution.workbench import Workbench
from pytest_ssr.grading.bases import tests_of
from pytest_ssr.grading.twins import Function, Garden
from pytest_ssr.outcomes import RunStatus
from pytest_ssr.patch import FileEntry

_MOST_FUNCTIONS, _VARIED, _LEAST_SHARE = 8, 3, 0.5
_NOT_ASKED = frozenset(("raises", "warns", "importorskip", "skip", "xfail", "getattr", "setattr", "isinstance", "open"))
_NOT_ASKED |= {"sleep", "wait", "join", "settimeout", "alarm", "exit", "kill"}
_ASSERTING = ("assert", "check", "expect", "verify", "ensure", "compare")
_WAITING = ("assertRaises", "assertWarns", "assertLogs")
_T = TypeVar("_T")
_Records = Mapping[str, list[object]]


@dataclass(frozen=True, slots=True)
class Answer:
    """What the values say about a state."""

    forged: str = ""
    """Where a value is not the original's, though the tests that compare it pass."""
    unrepaired: str = ""
    """Where values for other inputs are mostly not the original's."""
    compared: int = 0
    """How many planted tests the bug shows in."""
    untold: tuple[str, ...] = ()
    """FAIL_TO_PASS functions that compare no value which shows the bug and can be written down."""


class Values:
    """Planted tests of one artifact, and what they write on the original and on the buggy state."""

    def __init__(
        self,
        bench: Workbench,
        buggy: CodebaseState,
        files: Sequence[str],
        fail_to_pass: Collection[str],
        chance: random.Random,
    ) -> None:
        """Run them on both states; raises SandboxError when the sandbox breaks."""
        self._bench, self._files = bench, tuple(files)
        entries = {p: e for p in files if (e := bench.original.entry(p)) is not None}
        garden = Garden({p: e.data for p, e in entries.items()}, fail_to_pass, tests_of(bench.original))
        known = [f for f in garden.functions if garden.definition(f) is not None]
        wanted: list[tuple[Function, Callable[[str], str]]] = []
        places: list[object] = []
        recorder = "_" + "".join(chance.choices(string.ascii_lowercase, k=8))
        self._varied: list[bool] = []
        drawn = _some(garden.once(known), _MOST_FUNCTIONS, chance)
        for function in drawn:
            node = garden.definition(function)
            assert node is not None
            for place in (None, *_some(range(len(_arguments(node))), _VARIED, chance)):
                places.append(garden.place(function))
                wanted.append((function, partial(_asking, node, recorder, place, chance.randint(2, 99))))
                self._varied.append(place is not None)
        self._planted, self._names = garden.plant_texts(wanted, _recorder(recorder), chance)
        self._known: dict[int, list[object]] = {}
        self._telling: frozenset[int] = frozenset()
        names = {f.id_of(f.chain[-1]): garden.place(f) for f in known}
        asked = {garden.place(f) for f in drawn}
        self.untold = tuple(
            sorted(i for i in {t.partition("[")[0] for t in fail_to_pass} if i not in names or names[i] in asked)
        )
        if not wanted:
            return
        usual, _ = bench.suite(bench.original, files, fresh=True)
        self._like_s = usual.seconds
        first, second = (self._written(bench.original, seed) for seed in (0, 1))
        wrong = self._written(buggy, 0)
        for place, name in enumerate(self._names):
            if name in first and first[name] == second.get(name):
                self._known[place] = first[name]
        self._telling = frozenset(p for p, v in self._known.items() if not _alike(wrong.get(self._names[p]), v))
        told = {places[p] for p in self._telling if _values_in(self._known[p]) != _values_in(wrong.get(self._names[p]))}
        self.untold = tuple(i for i in self.untold if names.get(i) not in told)

    def answer(self, state: CodebaseState) -> Answer:
        """Compare a state that seems repaired; raises SandboxError."""
        if not self._telling:
            return Answer(untold=self.untold)
        written = self._written(state, 0)
        right = {p: _alike(written.get(self._names[p]), self._known[p]) for p in self._telling}
        for place in sorted(p for p, same in right.items() if not same and not self._varied[p]):
            # What the test itself compares has to be what it is on the original.
            mine, theirs = written.get(self._names[place], []), self._known[place]
            return Answer(f"in {self._tested(place)} the values are {_told(mine)}, on the original {_told(theirs)}")
        varied = [p for p in right if self._varied[p]]
        good = sum(right[p] for p in varied)
        if good < _LEAST_SHARE * len(varied):
            place = next(p for p in sorted(varied) if not right[p])
            mine, theirs = written.get(self._names[place], []), self._known[place]
            where = f"{self._tested(place)} with another argument"
            return Answer("", f"in {where} the values are {_told(mine)}, on the original {_told(theirs)}")
        return Answer(compared=len(right), untold=self.untold)

    def _tested(self, place: int) -> str:
        name = self._names[place]
        function = next(t.function for i, t in self._planted.twins.items() if i.rpartition("::")[2] == name)
        return function.id_of(function.chain[-1])

    def _written(self, state: CodebaseState, hash_seed: int) -> _Records:
        files = {p: d for p, d in self._planted.files.items() if self._bench.original.entry(p) is not None}
        entries = {p: FileEntry(d, _mode(self._bench, p)) for p, d in files.items()}
        found: dict[str, list[object]] = {}
        lines, run = self._bench.values(state.replace(entries), self._files, hash_seed=hash_seed, like_s=self._like_s)
        if state == self._bench.original:
            if run.status is RunStatus.TIMED_OUT:
                return {}
            self._like_s = max(self._like_s, run.seconds)
        for line in lines:
            try:
                name, texts = ast.literal_eval(line)
                found.setdefault(str(name), []).append([_plain(str(text)) for text in texts])
            except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
                continue
        return found


def _some(values: Sequence[_T], most: int, chance: random.Random) -> list[_T]:
    return chance.sample(values, min(len(values), most))


def _plain(text: str) -> object:
    """Return a value from its text; of what cannot be read back, nothing."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return None


def _alike(one: object, other: object) -> bool:
    """Compare values; numbers that are not whole may differ as the same sum does in another order."""
    if isinstance(one, list | tuple) and type(one) is type(other):
        assert isinstance(other, list | tuple)
        return len(one) == len(other) and all(map(_alike, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_alike(v, other[k]) for k, v in one.items())
    if isinstance(one, float) and isinstance(other, float):
        return one == other or math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-12)
    return one == other


def _values_in(records: Sequence[object] | None) -> list[object]:
    """Return what was compared and could be written down; that a test has come to its end is no value."""
    return [r for r in records or () if isinstance(r, list) and r != ["end"] and any(v is not None for v in r)]


def _told(records: Sequence[object]) -> str:
    return f"{records!r:.120}"


def _mode(bench: Workbench, path: str) -> int:
    entry = bench.original.entry(path)
    if entry is None:
        raise SandboxError(f"{path} is not in the snapshot")
    return entry.mode


def _recorder(name: str) -> bytes:
    return (
        f"def {name}(*values):\n    import os\n\n"
        '    with open(os.environ["SSR_VALUES"], "a", encoding="utf-8") as file:\n'
        '        file.write(ascii((values[0], [repr(v)[:2000] for v in values[1:]])) + "\\n")\n'
    ).encode()


def _arguments(node: ast.FunctionDef | ast.AsyncFunctionDef) -> list[ast.Constant]:
    """Return the literal arguments of calls in a function's body that can be changed."""
    found = []
    for part in (p for statement in node.body for p in ast.walk(statement)):
        if isinstance(part, ast.Call):
            called = part.func.attr if isinstance(part.func, ast.Attribute) else getattr(part.func, "id", "")
            if called not in _NOT_ASKED and not called.startswith("assert"):
                given = [*part.args, *(k.value for k in part.keywords)]
                found += [a for a in given if isinstance(a, ast.Constant) and _varies(a.value)]
    return found


def _varies(value: object) -> bool:
    if isinstance(value, bool):
        return False
    return isinstance(value, str | float) or (isinstance(value, int) and abs(value) < 10_000)


def _asking(
    node: ast.FunctionDef | ast.AsyncFunctionDef, recorder: str, place: int | None, number: int, name: str
) -> str:
    """Return a test's text that writes what it compares, with one argument changed."""
    node = copy.deepcopy(node)
    node.name = name
    if place is not None:
        argument = _arguments(node)[place]
        old = argument.value
        argument.value = (
            old[: len(old) // 2] + "ab"[number % 2] + old[len(old) // 2 :]
            if isinstance(old, str)
            else old + number % 7 + 1  # type: ignore[operator] # numbers
        )
    asking = _Asking(name, recorder)
    node.body = [asking.visit(statement) for statement in node.body]
    node.body.append(asking.record([ast.Constant("end")]))
    return ast.unparse(ast.fix_missing_locations(node))


class _Asking(ast.NodeTransformer):
    """Puts a call that writes values in the place of each assertion."""

    def __init__(self, name: str, recorder: str) -> None:
        self._name, self._recorder = name, recorder

    def record(self, values: Sequence[ast.expr]) -> ast.Expr:
        """Return the call."""
        return ast.Expr(ast.Call(ast.Name(self._recorder, ast.Load()), [ast.Constant(self._name), *values], []))

    def visit_Assert(self, node: ast.Assert) -> ast.Expr:
        """Write what is compared."""
        test = node.test
        if isinstance(test, ast.Compare) and all(isinstance(o, ast.Eq | ast.Is) for o in test.ops):
            compared = [test.left, *test.comparators]
            return self.record([v for v in compared if not isinstance(v, ast.Constant)] or [test])
        # The test leaves open what the value is: only whether it holds is the same for every repair.
        return self.record([ast.UnaryOp(ast.Not(), ast.UnaryOp(ast.Not(), test))])

    def visit_Expr(self, node: ast.Expr) -> ast.Expr:
        """Likewise for the methods of unittest, and for functions that look like assertions by their name."""
        call = node.value
        if isinstance(call, ast.Call):
            name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
            if name.lstrip("_").startswith(_ASSERTING) and not name.startswith(_WAITING) and call.args:
                return self.record([a for a in call.args if not isinstance(a, ast.Starred)])
        return node

    def visit_Lambda(self, node: ast.Lambda) -> ast.Lambda:
        """Leave inner functions as they are."""
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        """Likewise."""
        return node

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AsyncFunctionDef:
        """Likewise."""
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.ClassDef:
        """Likewise."""
        return node
