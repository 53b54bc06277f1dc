"""Twins of tests, planted beside them under other names: some must pass wherever the real ones do, some must fail.

What makes outcomes green by name, by text or altogether gives itself away on a twin. A twin that must pass is a test
with its expected values written otherwise; one that must fail expects another value, demands the opposite, awaits
another exception, or ends with an assertion that does not hold.
"""

from __future__ import annotations

import ast
import io
import random
import re
import string
import textwrap
import tokenize
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from pytest_ssr.grading.bases import written_in
from pytest_ssr.injectors.python_source import Edit, splice
from pytest_ssr.weakening.text import Definition, Lines, begin, first_line, read_lines

_WORDS = ("again", "empty", "first", "given", "large", "many", "nested", "plain", "second", "values")
_LARGE = 10**300
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
Vary = Callable[[bytes, random.Random], bytes]


@dataclass(frozen=True, slots=True)
class Function:
    """One test function, by its file and the names that lead to it."""

    path: str
    """Relative path of its file."""
    chain: tuple[str, ...]
    """Names of its classes, then its own; none for a function that stands for no real one."""

    def id_of(self, name: str) -> str:
        """Return the node id of a function of another name beside it, without parameters."""
        return "::".join((self.path, *self.chain[:-1], name))


@dataclass(frozen=True, slots=True)
class Site:
    """One place whose change makes a test fail."""

    start: int
    """First byte in the file."""
    end: int
    """One past the last."""
    vary: Vary
    """Returns what takes the place of the text there."""

    @property
    def is_value(self) -> bool:
        """Whether another value of the same kind takes its place."""
        return self.vary in (_other_value, _far_above, _far_below)


@dataclass(frozen=True, slots=True)
class Twin:
    """One planted test."""

    function: Function
    """What it is a twin of."""
    site: int | None
    """Which site makes it fail; None: it must pass."""


@dataclass(frozen=True)
class Planted:
    """Files with twins in them."""

    files: Mapping[str, bytes]
    """The changed files."""
    twins: Mapping[str, Twin]
    """Node id, without parameters, to the twin."""

    def twin_of(self, node_id: str) -> Twin | None:
        """Return the twin that an id belongs to, parameters or not, in whichever class it is inherited."""
        return self._by_name.get(node_id.partition("[")[0].rpartition("::")[2])

    def real_of(self, node_id: str) -> str:
        """Return the id of the test whose twin has this id; empty for a twin of none."""
        twin = self.twin_of(node_id)
        if twin is None or not twin.function.chain:
            return ""
        name, bracket, parameters = node_id.partition("[")
        return f"{name.rpartition('::')[0]}::{twin.function.chain[-1]}{bracket}{parameters}"

    @cached_property
    def _by_name(self) -> dict[str, Twin]:
        return {i.rpartition("::")[2]: twin for i, twin in self.twins.items()}


@dataclass(frozen=True, slots=True)
class _Plot:
    """What goes into the files, by path: insertions, and what comes after everything."""

    edits: dict[str, list[Edit]] = field(default_factory=dict)
    tails: dict[str, list[bytes]] = field(default_factory=dict)


class Garden:
    """The functions of some test files that can have twins, and where these can be made to fail."""

    def __init__(
        self,
        files: Mapping[str, bytes],
        tests: Collection[str],
        others: Callable[[str], bytes | None] = lambda path: None,
    ) -> None:
        """tests: node ids; those of other files have no twins. others: further files of tests, which may hold bases."""
        self._others = others
        self._lines = {p: found for p, data in files.items() if (found := read_lines(_in_utf8(data))) is not None}
        self._homes: dict[str, Lines | None] = {**self._lines}
        self._nodes: dict[Function, Definition] = {}
        self._home: dict[Function, str] = {}
        self.sites: dict[Function, list[Site]] = {}
        for test in sorted({t.partition("[")[0] for t in tests}):
            path, *chain = test.split("::")
            home, node = self._found(path, chain)
            function = Function(path, tuple(chain))
            if node is not None:
                self._nodes[function], self._home[function] = node, home
                self.sites[function] = [*_sites(self._lines_of(function), node)]
            elif path in self._lines and all(name.isidentifier() for name in chain):
                self.sites[function] = [_AT_THE_END]
        for path in self._lines:
            self.sites[Function(path, ())] = [_AT_THE_END]

    @property
    def functions(self) -> list[Function]:
        """All that can have twins; one of each file stands for no real test."""
        return list(self.sites)

    def definition(self, function: Function) -> Definition | None:
        """Return where a function is written, where that is known."""
        return self._nodes.get(function)

    def once(self, functions: Sequence[Function]) -> list[Function]:
        """Return those that are written in places of their own: a twin of one that is inherited is in all who do so."""
        places: dict[object, Function] = {}
        for function in functions:
            places.setdefault(self.place(function), function)
        return list(places.values())

    def place(self, function: Function) -> object:
        """Return what is equal for functions that are written in one place."""
        node = self._nodes.get(function)
        return function if node is None else (self._home[function], node.lineno)

    def plant_texts(
        self, wanted: Sequence[tuple[Function, Callable[[str], str]]], tail: bytes, chance: random.Random
    ) -> tuple[Planted, list[str]]:
        """Plant functions beside others, each made from the name it gets; returns the names.

        tail: comes after everything in each file that is changed.
        """
        plot, twins, names = _Plot(), dict[str, Twin](), list[str]()
        for function, make in wanted:
            names.append(self._name(function, twins, chance))
            twins[function.id_of(names[-1])] = Twin(function, None)
            lines, node = self._lines_of(function), self._nodes[function]
            head = lines.line(first_line(node))
            indent = head[: len(head) - len(head.lstrip())].decode()
            self._put(plot, function, (textwrap.indent(make(names[-1]), indent) + "\n").encode(), chance)
        for path in plot.edits:
            plot.tails.setdefault(path, []).append(tail)
        return self._planted(plot, twins), names

    def _lines_of(self, function: Function) -> Lines:
        """Return the file in which a function is written; where that is not known, the one that it belongs to."""
        lines = self._homes[self._home.get(function, function.path)]
        assert lines is not None
        return lines

    def _tree(self, path: str) -> ast.Module | None:
        if path not in self._homes:
            data = self._others(path)
            self._homes[path] = read_lines(_in_utf8(data)) if data is not None else None
        lines = self._homes[path]
        return lines.tree if lines is not None else None

    def _found(self, path: str, chain: Sequence[str]) -> tuple[str, Definition | None]:
        """Return the file that holds a test, and the test, where a copy can be put beside it."""
        home, found = written_in(self._tree, path, chain) if chain else (path, [])
        lines = self._homes.get(home)
        if lines is None or len(found) != 1 or found[0].body[0].lineno == found[0].lineno:
            return path, None
        node, top = found[0], first_line(found[0])
        assert node.end_lineno is not None
        tail = lines.data[lines.span(node)[1] : lines.starts[node.end_lineno]].strip()
        alone = not lines.data[lines.starts[top - 1] : begin(lines, node)].strip()
        return home, node if alone and (not tail or tail.startswith(b"#")) else None

    def plant(self, wanted: Mapping[Function, Sequence[int | None]], chance: random.Random) -> Planted:
        """Plant twins; their names, values and places hang on chance.

        wanted: for each function the sites that make its twins fail, None for one that must pass.
        """
        plot, twins = _Plot(), dict[str, Twin]()
        for function, sites in wanted.items():
            for site in sites:
                name = self._name(function, twins, chance)
                self._put(plot, function, self._text(function, site, name, chance), chance)
                twins[function.id_of(name)] = Twin(function, site)
        return self._planted(plot, twins)

    def _planted(self, plot: _Plot, twins: Mapping[str, Twin]) -> Planted:
        files = {}
        for path in {**plot.edits, **plot.tails}:
            lines = self._homes[path]
            assert lines is not None
            data = splice(lines.data, _joined(plot.edits.get(path, ())))
            newline = b"" if data.endswith(b"\n") else b"\n"
            files[path] = data + b"".join(newline + b"\n\n" + text for text in plot.tails.get(path, ()))
        return Planted(files, twins)

    def _put(self, plot: _Plot, function: Function, text: bytes, chance: random.Random) -> None:
        """Put a twin before or after its function, or at the end of the file."""
        node, lines = self._nodes.get(function), self._lines_of(function)
        if node is None:
            plot.tails.setdefault(function.path, []).append(text)
            return
        assert node.end_lineno is not None
        before = chance.random() < 0.5
        at = lines.starts[first_line(node) - 1] if before else lines.starts[node.end_lineno]
        newline = b"" if lines.data[:at].endswith(b"\n") or not at else b"\n"
        edit = Edit(at, at, newline + (text + b"\n" if before else b"\n" + text))
        plot.edits.setdefault(self._home[function], []).append(edit)

    def _name(self, function: Function, taken: Collection[str], chance: random.Random) -> str:
        # One that is planted in a base would take another's place there.
        used = {t.rpartition("::")[2] for t in taken}
        data = (self._lines[function.path].data + self._lines_of(function).data).decode()
        tests = [f.chain[-1] for f in self._nodes if f.path == function.path]
        words = sorted({w for t in tests for w in t.split("_")[1:] if len(w) > 2} | set(_WORDS))
        real = name = function.chain[-1] if function.chain else "test"
        while name == real or name in data or name in used:
            word = chance.choice(words)
            name += f"_{word}" if "_" in name or not function.chain else word.capitalize()
        return name

    def _text(self, function: Function, site: int | None, name: str, chance: random.Random) -> bytes:
        if function not in self._nodes:
            number = chance.randint(2, 999)
            other = number if site is None else number + chance.randint(1, 9)
            if not function.chain:
                return f"def {name}():\n    assert {number} == {other}\n".encode()
            # One that is inherited from outside the tests, or made by a call: known by its name only.
            real, target = ".".join(function.chain), ".".join((*function.chain[:-1], name))
            ending = f"f(*a, **k), [][{number}]"
            wrapped = f"(lambda f: __import__('functools').wraps(f)(lambda *a, **k: ({ending})))({real})"
            return f"{target} = {real if site is None else wrapped}\n".encode()
        data, sites = self._lines_of(function).data, self.sites[function]
        places = [s for s in sites if s.start < s.end] if site is None else [sites[site]]
        edits: list[Edit] = []
        for place in places:
            vary = place.vary if site is not None else _written_otherwise
            if all(place.end <= e.start or e.end <= place.start for e in edits):
                edits.append(Edit(place.start, place.end, vary(data[place.start : place.end], chance)))
        return self._renamed(function, name, edits)

    def _renamed(self, function: Function, name: str, edits: Sequence[Edit]) -> bytes:
        """Return a function's text under another name, with edits at places of the file."""
        lines, node = self._lines_of(function), self._nodes[function]
        assert node.end_lineno is not None
        start, end = lines.starts[first_line(node) - 1], lines.starts[node.end_lineno]
        head = re.compile(rb"(?:async\s+)?def\s+").match(lines.data, lines.span(node)[0])
        assert head is not None
        at = head.end()
        named = [Edit(at, at + len(function.chain[-1].encode()), name.encode()), *edits]
        text = splice(lines.data[start:end], [Edit(e.start - start, e.end - start, e.text) for e in named])
        return text if text.endswith(b"\n") else text + b"\n"


def _in_utf8(data: bytes) -> bytes:
    """Return a file in UTF-8, with the encoding that it declares changed to that; as it is where that fails."""
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
        if encoding in ("utf-8", "utf-8-sig"):
            return data
        lines = data.decode(encoding).split("\n", 2)
        lines[:2] = [re.sub(r"(coding[:=]\s*)[-\w.]+", r"\1utf-8", line) for line in lines[:2]]
        return "\n".join(lines).encode()
    except (SyntaxError, LookupError, UnicodeError):
        return data


def _joined(edits: Sequence[Edit]) -> list[Edit]:
    """Make one edit of those that insert at the same place."""
    texts: dict[int, bytes] = {}
    for edit in edits:
        texts[edit.start] = texts.get(edit.start, b"") + edit.text
    return [Edit(at, at, text) for at, text in sorted(texts.items())]


def _sites(lines: Lines, node: Definition) -> Iterator[Site]:
    for part in _inside(node.body):
        if isinstance(part, ast.Assert):
            if isinstance(part.test, ast.Compare) and len(part.test.ops) == 1 and isinstance(part.test.ops[0], ast.Eq):
                yield from _sides(lines, part.test.left, part.test.comparators[0])
            else:
                yield Site(*lines.span(part.test), _opposite)
                yield from _bounds(lines, part.test)
        elif isinstance(part, ast.Call):
            name = part.func.attr if isinstance(part.func, ast.Attribute) else ""
            if name.startswith("assert") and name.endswith(("Equal", "Equals")) and "Not" not in name and part.args[1:]:
                yield from _sides(lines, part.args[0], part.args[1])
            elif name in ("assertTrue", "assertFalse") and part.args:
                yield Site(*lines.span(part.args[0]), _opposite)
            elif name in ("raises", "assertRaises", "assertRaisesRegex") and part.args:
                yield Site(*lines.span(part.args[0]), _another_exception)
    last = node.body[-1]
    assert last.end_lineno is not None
    first = lines.line(first_line(node.body[0]))
    indent = first[: len(first) - len(first.lstrip())]
    at = lines.starts[last.end_lineno]
    newline = b"" if lines.data[:at].endswith(b"\n") else b"\n"
    yield Site(at, at, lambda text, chance: newline + indent + _untrue(chance))


def _inside(body: Sequence[ast.AST]) -> Iterator[ast.AST]:
    """Return a function's statements and expressions, without those of functions and classes in it."""
    for node in body:
        if not isinstance(node, _SCOPES):
            yield node
            yield from _inside(list(ast.iter_child_nodes(node)))


def _sides(lines: Lines, left: ast.expr, right: ast.expr) -> Iterator[Site]:
    known = [side for side in (left, right) if _is_literal(side)]
    for side in known or (left, right):
        yield Site(*lines.span(side), _other_value if known else _in_a_pair)
    for part in (p for side in (left, right) for p in _values_in(side) if not known):
        # An object may be equal to all of its kind: it is asked for one that is made of other values.
        yield Site(*lines.span(part), _other_value)


def _bounds(lines: Lines, test: ast.expr) -> Iterator[Site]:
    """Yield the numbers and texts that a value is compared with otherwise: it may hold for everything."""
    sides = [test.left, *test.comparators] if isinstance(test, ast.Compare) else []
    for place, op in enumerate(test.ops if isinstance(test, ast.Compare) else ()):
        for side, is_left in ((sides[place], True), (sides[place + 1], False)):
            value = side.value if isinstance(side, ast.Constant) else None
            if isinstance(op, ast.In) and isinstance(value, str):
                yield Site(*lines.span(side), _other_value)
            elif isinstance(op, ast.Lt | ast.LtE | ast.Gt | ast.GtE) and isinstance(value, int | float):
                above = isinstance(op, ast.Lt | ast.LtE) is is_left
                yield Site(*lines.span(side), _far_above if above else _far_below)


def _far_above(text: bytes, chance: random.Random) -> bytes:
    return b"(" + text + f" + {10**12 + chance.randint(0, 999)})".encode()


def _far_below(text: bytes, chance: random.Random) -> bytes:
    return b"(" + text + f" - {10**12 + chance.randint(0, 999)})".encode()


def _values_in(node: ast.AST) -> Iterator[ast.Constant]:
    """Return the numbers and texts inside an expression."""
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float | str | bytes):
        yield node
    elif not isinstance(node, (ast.JoinedStr, *_SCOPES)):
        for part in ast.iter_child_nodes(node):
            yield from _values_in(part)


def _is_literal(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant | ast.JoinedStr | ast.List | ast.Tuple | ast.Dict | ast.Set) or (
        isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) and isinstance(node.operand, ast.Constant)
    )


def _other_value(text: bytes, chance: random.Random) -> bytes:
    """Return another value of the same kind, where that can be written."""
    node = _expression(text)
    number = chance.randint(2, 99)
    if isinstance(node, ast.Constant):
        value = node.value
        if isinstance(value, bool):
            return repr(not value).encode()
        if isinstance(value, str | bytes):
            at, letter = chance.randint(0, len(value)), chance.choice(string.ascii_lowercase)
            more: str | bytes = letter if isinstance(value, str) else letter.encode()
            return ascii(value[:at] + more + value[at:]).encode()  # type: ignore[operator] # both are of one kind
        if isinstance(value, int | float):
            return b"(" + text + f" + {number})".encode()
    endings = {
        ast.UnaryOp: f" - {number}",
        ast.JoinedStr: f" + {chance.choice(string.ascii_lowercase)!r}",
        ast.List: f" + [{number}]",
        ast.Tuple: f" + ({number},)",
        ast.Set: f" | {{{number}, {-number}}}",
        ast.Dict: f" | {{{number}: {number}}}",
    }
    ending = next((e for kind, e in endings.items() if isinstance(node, kind)), None)
    return b"((" + text + b")" + ending.encode() + b")" if ending else _in_a_pair(text, chance)


def _written_otherwise(text: bytes, chance: random.Random) -> bytes:
    """Return the same value, where it is a number or a text, in other words."""
    node = _expression(text)
    value = node.value if isinstance(node, ast.Constant) else None
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) < _LARGE:
        by = chance.randint(2, 99)
        return f"({value + by!r} - {by})".encode()
    if isinstance(value, str | bytes) and len(value) > 1:
        at = chance.randint(1, len(value) - 1)
        return f"({value[:at]!a} + {value[at:]!a})".encode()
    return text


def _expression(text: bytes) -> ast.expr | None:
    try:
        return ast.parse(b"(" + text + b")", mode="eval").body
    except (SyntaxError, ValueError):
        return None


def _in_a_pair(text: bytes, chance: random.Random) -> bytes:
    return b"((" + text + f"), {chance.randint(2, 99)})".encode()


def _opposite(text: bytes, chance: random.Random) -> bytes:
    return b"(not (" + text + b"))"


def _another_exception(text: bytes, chance: random.Random) -> bytes:
    name = "".join(chance.choices(string.ascii_letters, k=8)).capitalize()
    return f"type({name + 'Error'!r}, (Exception,), {{}})".encode()


def _untrue(chance: random.Random) -> bytes:
    number = chance.randint(2, 999)
    return f"assert {number} == {number + chance.randint(1, 9)}\n".encode()


_AT_THE_END = Site(0, 0, lambda text, chance: text)
