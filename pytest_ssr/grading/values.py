"""What code computes in the tests of a bug, written down and compared outside: with their inputs, and with others.

Tests are planted that assert nothing: they write the values that the real ones compare, once as they stand, once with
an input changed at random. The original says what the values are, the buggy state which of them the bug shows in.
A process can report what it likes, but for inputs drawn just now it has to compute the right value to write it. What a
test leaves open, a repair may do otherwise: two values that are equal as the test asks are right whatever they are, and
of what is only bounded, whether it holds is compared.
"""

from __future__ import annotations

import ast
import copy
import math
import random
import string
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar
from unittest import TestCase

from pytest_ssr.codebase import CodebaseState
from pytest_ssr.errors import SandboxError
from pytest_ssr.execution.workbench import Workbench
from pytest_ssr.grading.bases import tests_of
from pytest_ssr.grading.twins import Function, Garden
from pytest_ssr.outcomes import RunStatus
from pytest_ssr.patch import FileEntry
from pytest_ssr.quiet import recorded_warnings

_MOST_FUNCTIONS, _VARIED, _LEAST_SHARE, _NEAR = 8, 4, 0.5, 1e-3
_MOST_CHARS, _MOST_LINE, _ROOM_S = 2000, 50_000, 10.0
_NOT_ASKED = frozenset(("raises", "warns", "importorskip", "skip", "xfail", "getattr", "setattr", "isinstance", "open"))
_NOT_ASKED |= {"sleep", "wait", "join", "settimeout", "alarm", "exit", "kill"}
_ASSERTING = ("assert", "check", "expect", "verify", "ensure", "compare")
_WAITING = ("assertRaises", "assertWarns", "assertLogs")
_EQUAL = frozenset(
    (
        *("assertEqual", "assertEquals", "assertListEqual", "assertTupleEqual", "assertSetEqual", "assertDictEqual"),
        *("assertMultiLineEqual", "assertSequenceEqual", "assertIs"),
    )
)
_EQ, _NEARLY, _HOLDS, _END = "equal", "near", "holds", "end"
_T = TypeVar("_T")


class _Unread:
    """Stands for a value that cannot be written down."""

    def __repr__(self) -> str:
        return "?"


_UNREAD = _Unread()


@dataclass(frozen=True, slots=True)
class _Record:
    """One comparison of a test."""

    kind: str
    """`equal`: two values, then whether they are. `near`: what an assertion of one's own gets. `holds`: whether."""
    values: tuple[object, ...]

    @property
    def is_read(self) -> bool:
        """Whether it compares values, and all of them could be written down."""
        return self.kind in (_EQ, _NEARLY) and not any(v is _UNREAD for v in self.values)

    @property
    def computed(self) -> tuple[object, ...]:
        """What hangs on the test's inputs."""
        return self.values[:1] if self.kind == _EQ else self.values


_Records = Mapping[str, list[_Record]]


@dataclass(frozen=True, slots=True)
class Answer:
    """What the values say about a state."""

    forged: str = ""
    """Where a value is not the original's, though the tests that compare it pass."""
    unrepaired: str = ""
    """Where values for other inputs are mostly not the original's."""
    told: frozenset[str] = frozenset()
    """FAIL_TO_PASS functions that compare a value which shows the bug, and is right here."""
    untold: tuple[str, ...] = ()
    """The others."""
    untried: tuple[str, ...] = ()
    """FAIL_TO_PASS functions for which no other input was found that shows the bug."""
    left_out: tuple[str, ...] = ()
    """Other functions that were not asked, as there was no time."""


class Values:
    """Planted tests of one artifact, and what they write on the original and on the buggy state."""

    def __init__(
        self,
        bench: Workbench,
        buggy: CodebaseState,
        files: Sequence[str],
        fail_to_pass: Collection[str],
        others: Collection[str],
        chance: random.Random,
        *,
        every: bool = False,
    ) -> None:
        """Run them on both states; raises SandboxError when the sandbox breaks.

        others: further tests, asked as they stand. every: ask all, also where the tests are slow.
        """
        usual, _ = bench.suite(bench.original, files, fresh=True)
        self._like_s = usual.seconds
        every = every or usual.seconds <= _ROOM_S
        self._bench, self._files = bench, tuple(files)
        self._failing = frozenset(t.partition("[")[0] for t in fail_to_pass)
        entries = {p: e for p in files if (e := bench.original.entry(p)) is not None}
        texts = {p: e.data for p, e in entries.items()}
        garden = Garden(texts, [*fail_to_pass, *others], tests_of(bench.original))
        known = [f for f in garden.functions if garden.definition(f) is not None]
        failing = [f for f in known if _id(f) in self._failing]
        drawn = _some(garden.once(failing), len(failing) if every else _MOST_FUNCTIONS, chance)
        places = {garden.place(f) for f in failing}
        rest = garden.once([f for f in known if garden.place(f) not in places])
        drawn += rest if every else []
        self._left_out = () if every else tuple(sorted(_id(f) for f in rest))
        wanted: list[tuple[Function, Callable[[str], str]]] = []
        recorder = "_" + "".join(chance.choices(string.ascii_lowercase, k=8))
        self._varied: list[bool] = []
        self._unvaried: list[int] = []
        self._owners: list[frozenset[str]] = []
        for function in drawn:
            node = garden.definition(function)
            assert node is not None
            first, owners = len(wanted), {_id(f) for f in known if garden.place(f) == garden.place(function)}
            inputs = _some(range(len(_inputs(node))), _VARIED, chance) if owners & self._failing else []
            for place in (None, *inputs):
                wanted.append((function, partial(_asking, node, recorder, place, chance.randint(2, 99))))
                self._varied.append(place is not None)
                self._unvaried.append(first)
                self._owners.append(frozenset(owners) & self._failing)
        self._planted, self._names = garden.plant_texts(wanted, _recorder(recorder), chance)
        self._known: dict[int, list[_Record]] = {}
        self._telling: frozenset[int] = frozenset()
        if wanted:
            self._measure(buggy)

    def _measure(self, buggy: CodebaseState) -> None:
        """Find what the values are, and where the bug shows in them."""
        first, second = (self._written(self._bench.original, seed) for seed in (0, 1))
        wrong = self._written(buggy, 0)
        for place, name in enumerate(self._names):
            if name in first and first[name] == second.get(name):
                self._known[place] = first[name]
        telling = {p for p, v in self._known.items() if self._owners[p] and not _right(wrong.get(self._names[p]), v)}
        self._telling = frozenset(p for p in telling if not self._varied[p] or self._is_another_input(p))

    def _is_another_input(self, place: int) -> bool:
        """Tell whether a varied test computes something else than the one that it was made of."""
        plain = self._known.get(self._unvaried[place], [])
        return [r.computed for r in plain] != [r.computed for r in self._known[place]]

    def answer(self, state: CodebaseState) -> Answer:
        """Compare a state that seems repaired; raises SandboxError."""
        written = self._written(state, 0) if self._known else {}
        right = {p: _right(written.get(self._names[p]), v) for p, v in self._known.items()}
        for place in sorted(p for p, same in right.items() if not same and not self._varied[p]):
            # What the test itself compares has to be as the test asks.
            return Answer(f"in {self._tested(place)} {self._difference(place, written)}")
        varied = sorted(p for p in self._telling if self._varied[p])
        wrong = [p for p in varied if not right[p]]
        if len(varied) - len(wrong) < _LEAST_SHARE * len(varied):
            where = f"{self._tested(wrong[0])} with another input"
            return Answer("", f"in {where} {self._difference(wrong[0], written)}")
        # Every unread value could be one that is equal to everything.
        read = (p for p in self._telling if all(r.is_read for r in self._values_in(p, written)))
        told = frozenset(owner for p in read if self._values_in(p, written) for owner in self._owners[p])
        tried = frozenset(owner for p in varied for owner in self._owners[p])
        untold, untried = (tuple(sorted(self._failing - found)) for found in (told, tried))
        return Answer("", "", told, untold, untried, self._left_out)

    def _values_in(self, place: int, written: _Records) -> list[_Record]:
        """Return the comparisons of values in a test that could be read on the original, as they are here."""
        pairs = zip(written.get(self._names[place], []), self._known[place], strict=False)
        return [mine for mine, theirs in pairs if theirs.is_read]

    def _difference(self, place: int, written: _Records) -> str:
        mine, theirs = written.get(self._names[place], []), self._known[place]
        return f"the values are {_told(mine)}, on the original {_told(theirs)}"

    def _tested(self, place: int) -> str:
        name = self._names[place]
        function = next(t.function for i, t in self._planted.twins.items() if i.rpartition("::")[2] == name)
        return function.id_of(function.chain[-1])

    def _written(self, state: CodebaseState, hash_seed: int) -> _Records:
        files = {p: d for p, d in self._planted.files.items() if self._bench.original.entry(p) is not None}
        entries = {p: FileEntry(d, _mode(self._bench, p)) for p, d in files.items()}
        found: dict[str, list[_Record]] = {}
        lines, run = self._bench.values(state.replace(entries), self._files, hash_seed=hash_seed, like_s=self._like_s)
        if state == self._bench.original:
            if run.status is RunStatus.TIMED_OUT:
                return {}
            self._like_s = max(self._like_s, run.seconds)
        with recorded_warnings():
            for line in lines:
                try:
                    name, kind, texts = ast.literal_eval(line) if len(line) < _MOST_LINE else ("", "", ())
                    record = _Record(str(kind), tuple(_plain(str(text)) for text in texts))
                except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
                    continue
                found.setdefault(str(name), []).append(record)
        return found


def _id(function: Function) -> str:
    return function.id_of(function.chain[-1]) if function.chain else ""


def _some(values: Sequence[_T], most: int, chance: random.Random) -> list[_T]:
    return chance.sample(values, min(len(values), most))


def _plain(text: str) -> object:
    """Return a value from its text, where it can be read back."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return _UNREAD


def _right(mine: Sequence[_Record] | None, theirs: Sequence[_Record]) -> bool:
    """Tell whether a test that wrote `mine` compares what is right, as the original wrote `theirs`."""
    if mine is None or [r.kind for r in mine] != [r.kind for r in theirs]:
        return False
    return all(map(_is_right, mine, theirs))


def _is_right(mine: _Record, theirs: _Record) -> bool:
    if len(mine.values) != len(theirs.values):
        return False
    if mine.kind == _EQ:
        (left, right, holds), (left_there, right_there, holds_there) = mine.values, theirs.values
        if any(v is _UNREAD for v in (left, right, left_there, right_there)):
            return holds == holds_there
        if _alike(left, left_there) and _alike(right, right_there):
            return True
        return _alike(left, right) and _alike(left_there, right_there)
    by = _NEAR if mine.kind == _NEARLY else 1e-9
    return all(
        a is _UNREAD or b is _UNREAD or _alike(a, b, by) for a, b in zip(mine.values, theirs.values, strict=True)
    )


def _alike(one: object, other: object, by: float = 1e-9) -> bool:
    """Compare values; numbers that are not whole may differ as the same sum does in another order."""
    if isinstance(one, list | tuple) and type(one) is type(other):
        assert isinstance(other, list | tuple)
        return len(one) == len(other) and all(_alike(a, b, by) for a, b in zip(one, other, strict=True))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_alike(v, other[k], by) for k, v in one.items())
    if isinstance(one, int | float) and isinstance(other, int | float) and float in (type(one), type(other)):
        return one == other or math.isclose(one, other, rel_tol=by, abs_tol=1e-12)
    return one == other


def _told(records: Sequence[_Record]) -> str:
    return f"{[r.values[:2] if r.kind == _EQ else r.values for r in records if r.kind != _END]!r:.120}"


def _mode(bench: Workbench, path: str) -> int:
    entry = bench.original.entry(path)
    if entry is None:
        raise SandboxError(f"{path} is not in the snapshot")
    return entry.mode


_RECORDER = """
def NAME(kind, name, *values):
    import collections.abc, numbers, os

    def plain(value, depth=0):
        for exact in (bool, int, float, str, bytes):
            if isinstance(value, exact):
                return value if type(value) is exact else exact.__add__(value, exact())
        if value is None or isinstance(value, complex) or depth > 20:
            return value
        if isinstance(value, numbers.Number):
            return int(value) if int(value) == value else float(value)
        if isinstance(value, collections.abc.Mapping):
            return {plain(k, depth + 1): plain(value[k], depth + 1) for k in value}
        for exact in (tuple, list):
            if isinstance(value, exact):
                return exact(plain(v, depth + 1) for v in value)
        if isinstance(value, collections.abc.Set):
            return {plain(v, depth + 1) for v in value}
        return value

    def text(value):
        try:
            return repr(plain(value))[:MOST]
        except Exception:
            return "?"

    if kind == "equal":
        try:
            holds = bool(values[0] == values[1])
        except Exception:
            holds = None
        values = (*values, holds)
    if kind == "holds":
        try:
            values = (bool(values[0]),)
        except Exception:
            values = (None,)
    with open(os.environ["SSR_VALUES"], "a", encoding="utf-8") as file:
        file.write(ascii((name, kind, [text(v) for v in values])) + "\\n")
"""


def _recorder(name: str) -> bytes:
    return _RECORDER.replace("NAME", name).replace("MOST", str(_MOST_CHARS)).encode()


def _inputs(node: ast.FunctionDef | ast.AsyncFunctionDef) -> list[ast.Constant]:
    """Return the literals that a test computes from: of its calls, its variables and its parameters."""
    tables = [a for d in node.decorator_list if isinstance(d, ast.Call) and _is_table(d) for a in d.args[1:2]]
    return [*_literals(node.body), *_literals(tables)]


def _is_table(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Attribute) and call.func.attr == "parametrize"


def _literals(nodes: Sequence[ast.AST]) -> Iterator[ast.Constant]:
    for node in nodes:
        if isinstance(node, ast.Call):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if called in _NOT_ASKED:
                continue
            # The second of these is what is expected.
            given = node.args[:1] if called in _EQUAL else [*node.args, *(k.value for k in node.keywords)]
            yield from _literals([node.func, *given])
        elif isinstance(node, ast.Assert):
            yield from _literals([node.test])
        elif isinstance(node, ast.Compare):
            yield from _literals([s for s in (node.left, *node.comparators) if not isinstance(s, ast.Constant)])
        elif isinstance(node, ast.Constant):
            if _varies(node.value):
                yield node
        elif isinstance(node, ast.Subscript):
            yield from _literals([node.value])
        elif not isinstance(node, ast.JoinedStr) and not (
            isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        ):
            yield from _literals(list(ast.iter_child_nodes(node)))


def _varies(value: object) -> bool:
    if isinstance(value, bool):
        return False
    return isinstance(value, str | bytes | float) or (isinstance(value, int) and abs(value) < 10_000)


def _another(value: object, number: int) -> object:
    """Return another value of the same kind; a text keeps its shape where it has digits."""
    if isinstance(value, bytes):
        return value[: len(value) // 2] + b"ab"[number % 2 :][:1] + value[len(value) // 2 :]
    if isinstance(value, str):
        digits = [n for n, letter in enumerate(value) if letter.isascii() and letter.isdigit()]
        if digits:
            at = digits[number % len(digits)]
            return f"{value[:at]}{(int(value[at]) + 1 + number % 8) % 10}{value[at + 1 :]}"
        return value[: len(value) // 2] + "ab"[number % 2] + value[len(value) // 2 :]
    return value + number % 7 + 1  # type: ignore[operator] # a number


def _asking(
    node: ast.FunctionDef | ast.AsyncFunctionDef, recorder: str, place: int | None, number: int, name: str
) -> str:
    """Return a test's text that writes what it compares, with one input changed."""
    node = copy.deepcopy(node)
    node.name = name
    if place is not None:
        changed = _inputs(node)[place]
        changed.value = _another(changed.value, number)  # type: ignore[assignment] # of the same kind
    asking = _Asking(name, recorder)
    node.body = [asking.visit(statement) for statement in node.body]
    node.body.append(asking.record(_END))
    return ast.unparse(ast.fix_missing_locations(node))


class _Asking(ast.NodeTransformer):
    """Puts a call that writes values in the place of each assertion."""

    def __init__(self, name: str, recorder: str) -> None:
        self._name, self._recorder = name, recorder

    def record(self, kind: str, *values: ast.expr) -> ast.Expr:
        """Return the call."""
        words = [ast.Constant(kind), ast.Constant(self._name)]
        return ast.Expr(ast.Call(ast.Name(self._recorder, ast.Load()), [*words, *values], []))

    def visit_Assert(self, node: ast.Assert) -> ast.Expr:
        """Write what is compared."""
        test = node.test
        if isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], ast.Eq | ast.Is):
            return self.record(_EQ, test.left, test.comparators[0])
        return self.record(_HOLDS, test)

    def visit_Expr(self, node: ast.Expr) -> ast.stmt:
        """Likewise for the methods of unittest, and for functions that look like assertions by their name."""
        call = node.value
        if not isinstance(call, ast.Call):
            return node
        name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
        if not name.lstrip("_").startswith(_ASSERTING) or name.startswith(_WAITING) or not call.args:
            return node
        if name in _EQUAL and call.args[1:]:
            return self.record(_EQ, *call.args[:2])
        if isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Name) and name in dir(TestCase):
            failed = ast.ExceptHandler(
                ast.Name("AssertionError", ast.Load()), None, [self.record(_HOLDS, ast.Constant(False))]
            )
            return ast.Try([node], [failed], [self.record(_HOLDS, ast.Constant(True))], [])
        return self.record(_NEARLY, *(a for a in call.args if not isinstance(a, ast.Starred)))

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
