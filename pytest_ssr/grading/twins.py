"""Twins of tests, planted beside them under other names: some must pass wherever the real ones do, some must fail.

What makes outcomes green by name, by text or altogether gives itself away on a twin. A twin that must pass is a test
with its expected values written otherwise; one that must fail expects another value, demands the opposite, awaits
another exception, or ends with an assertion that does not hold.
"""

from __future__ import annotations

import ast
import random
import re
import textwrap
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from pytest_ssr.grading.bases import own_functions, written_in
from pytest_ssr.grading.encodings import in_utf8
from pytest_ssr.grading.sites import AT_THE_END, Site, sites_of, written_otherwise
from pytest_ssr.injectors.python_source import Edit, splice
from pytest_ssr.weakening.text import Definition, Lines, begin, first_line, read_lines

_WORDS = ("again", "empty", "first", "given", "large", "many", "nested", "plain", "second", "values")


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
        self._lines = {p: found for p, data in files.items() if (found := read_lines(in_utf8(data))) is not None}
        self._homes: dict[str, Lines | None] = {**self._lines}
        self._nodes: dict[Function, Definition] = {}
        self._home: dict[Function, str] = {}
        self.sites: dict[Function, list[Site]] = {}
        self._texts: dict[str, str] = {}
        self._helpers: dict[str, frozenset[str]] = {}
        self._words: dict[str, list[str]] = {}
        for test in sorted({t.partition("[")[0] for t in tests}):
            path, *chain = test.split("::")
            home, node = self._found(path, chain)
            function = Function(path, tuple(chain))
            if node is not None:
                self._nodes[function], self._home[function] = node, home
                self.sites[function] = [*sites_of(self._lines_of(function), node)]
            elif path in self._lines and all(name.isidentifier() for name in chain):
                self.sites[function] = [AT_THE_END]
        for path in self._lines:
            self.sites[Function(path, ())] = [AT_THE_END]

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

    def helpers(self, function: Function) -> frozenset[str]:
        """Return the names of the functions that the tests of its file have of their own."""
        path = self._home.get(function, function.path)
        if path not in self._helpers:
            self._helpers[path] = own_functions(self._tree, path)
        return self._helpers[path]

    def plant_texts(
        self, wanted: Sequence[tuple[Function, Callable[[str], str]]], tail: bytes, chance: random.Random
    ) -> tuple[Planted, list[str]]:
        """Plant functions beside others, each made from the name it gets; returns the names.

        tail: comes after everything in each file that is changed.
        """
        plot, twins, names = _Plot(), dict[str, Twin](), dict[str, None]()
        for function, make in wanted:
            name = self._name(function, names, chance)
            names[name] = None
            twins[function.id_of(name)] = Twin(function, None)
            lines, node = self._lines_of(function), self._nodes[function]
            head = lines.line(first_line(node))
            indent = head[: len(head) - len(head.lstrip())].decode()
            self._put(plot, function, (textwrap.indent(make(name), indent) + "\n").encode(), chance)
        for path in plot.edits:
            plot.tails.setdefault(path, []).append(tail)
        return self._planted(plot, twins), list(names)

    def _lines_of(self, function: Function) -> Lines:
        """Return the file in which a function is written; where that is not known, the one that it belongs to."""
        lines = self._homes[self._home.get(function, function.path)]
        assert lines is not None
        return lines

    def _tree(self, path: str) -> ast.Module | None:
        if path not in self._homes:
            data = self._others(path)
            self._homes[path] = read_lines(in_utf8(data)) if data is not None else None
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
        plot, twins, names = _Plot(), dict[str, Twin](), set[str]()
        for function, sites in wanted.items():
            for site in sites:
                name = self._name(function, names, chance)
                names.add(name)
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
        """Return a name that is none of those taken: one that is planted in a base would take another's place there."""
        texts = [self._text_of(path) for path in {function.path, self._home.get(function, function.path)}]
        words = self._words_of(function.path)
        real = name = function.chain[-1] if function.chain else "test"
        while name == real or name in taken or any(name in text for text in texts):
            word = chance.choice(words)
            name += f"_{word}" if "_" in name or not function.chain else word.capitalize()
        return name

    def _text_of(self, path: str) -> str:
        if path not in self._texts:
            lines = self._homes[path]
            assert lines is not None
            self._texts[path] = lines.data.decode()
        return self._texts[path]

    def _words_of(self, path: str) -> list[str]:
        """Return the words that names in a file are made of."""
        if path not in self._words:
            tests = [f.chain[-1] for f in self._nodes if f.path == path]
            self._words[path] = sorted({w for t in tests for w in t.split("_")[1:] if len(w) > 2} | set(_WORDS))
        return self._words[path]

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
            vary = place.vary if site is not None else written_otherwise
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


def _joined(edits: Sequence[Edit]) -> list[Edit]:
    """Make one edit of those that insert at the same place."""
    texts: dict[int, bytes] = {}
    for edit in edits:
        texts[edit.start] = texts.get(edit.start, b"") + edit.text
    return [Edit(at, at, text) for at, text in sorted(texts.items())]
