"""Failing node ids and the test files in, the files without those tests out; all that is not removed stays as it was.

A function goes when all of its parameter sets fail or the failing ones cannot be told apart in its source; else only
its failing parameter sets go. An inherited test goes from its base class when it fails in every class, else it is
switched off in the class where it fails.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from pytest_ssr.injectors.python_source import Edit, splice
from pytest_ssr.weakening.definitions import definitions_of, find_class, is_text, parameter_lists, with_emptied
from pytest_ssr.weakening.doctests import edits_in_document, edits_in_module
from pytest_ssr.weakening.leftovers import clean_up, names_in
from pytest_ssr.weakening.text import (
    Definition,
    Lines,
    begin,
    drop_elements,
    first_line,
    read_lines,
    take_out,
    words,
)

Parameters = Mapping[str, tuple[tuple[str, int], ...]]
Key = tuple[str, tuple[str, ...]]
Place = tuple[str, Definition]


@dataclass(frozen=True, slots=True)
class Weakening:
    """New test files without the failing tests."""

    changes: Mapping[str, bytes]
    """Test file to its new content."""
    unremovable: tuple[str, ...]
    """Failing ids for which no definition was found; nothing was changed for them."""
    removed: tuple[str, ...]
    """Ids that will be gone: the failing ones, and passing ones whose whole function had to go."""


def weaken(
    read: Callable[[str], bytes],
    test_paths: Sequence[str],
    *,
    failing: Collection[str],
    collected: Sequence[str],
    parameters: Parameters,
    doctests: Collection[str] = (),
) -> Weakening:
    """Take the failing tests out of their files.

    read: returns a file's content. test_paths: every file that holds tests. parameters: id to (argument, index).
    doctests: those of the collected tests that are examples in text.
    """
    weakener = _Weakener(read, test_paths, frozenset(failing), collected, parameters)
    weakener.doctests = frozenset(doctests)
    return weakener.run()


def key_of(node_id: str) -> Key:
    """Split an id into its file and the names of class and function, without the parameters."""
    path, _, rest = node_id.partition("::")
    return path, tuple(rest.partition("[")[0].split("::"))


class _Weakener:
    def __init__(
        self,
        read: Callable[[str], bytes],
        test_paths: Sequence[str],
        failing: frozenset[str],
        collected: Sequence[str],
        parameters: Parameters,
    ) -> None:
        self.failing, self.parameters = failing, parameters
        self.read = read
        self.doctests: frozenset[str] = frozenset()
        self.original = {p: read(p) for p in test_paths if p.endswith(".py")}
        self._lines: dict[str, Lines | None] = {}
        self.groups: dict[Key, list[str]] = {}
        for name in collected:
            self.groups.setdefault(key_of(name), []).append(name)
        self.gone: dict[str, list[ast.stmt]] = {}
        self.edits: dict[str, list[Edit]] = {}
        self.used: dict[str, set[str]] = {}
        self.removed: set[str] = set()
        self.unremovable: list[str] = []

    def lines(self, path: str) -> Lines | None:
        """Return a test file as lines, read when it is needed first; None when it cannot be parsed."""
        if path not in self._lines:
            self._lines[path] = read_lines(self.original[path]) if path in self.original else None
        return self._lines[path]

    def run(self) -> Weakening:
        for key, names in self.groups.items():
            bad = [n for n in names if n in self.failing]
            if bad and self.doctests.issuperset(names):
                self.unremovable += [n for n in bad if not self._skip_doctest(n)]
            elif bad and not self._remove(key, names, bad):
                self.unremovable += bad
        self._note_heirs()
        changes: dict[str, bytes] = {}
        for path in sorted({*self.gone, *self.edits}):
            new = self._rewritten(path) if path in self.original else None
            if path not in self.original:
                changes[path] = splice(self.read(path), self.edits[path])
            elif new is None or read_lines(new) is None:
                self.unremovable += [n for n in self.failing if key_of(n)[0] == path]
            else:
                elsewhere = frozenset[str]().union(*(words_in(d) for p, d in self.original.items() if p != path))
                changes[path] = clean_up(new, self.used.get(path, set()), elsewhere)
        left = set(self.unremovable)
        return Weakening(changes, tuple(sorted(left)), tuple(sorted(self.removed - left)))

    def _skip_doctest(self, name: str) -> bool:
        """Mark the examples of a doctest as skipped; False if they cannot be found."""
        path, _, dotted = name.partition("::")
        lines = self.lines(path)
        if not path.endswith(".py"):
            edits = edits_in_document(self.read(path))
        else:
            edits = edits_in_module(lines.data, lines.tree, dotted) if lines is not None else []
        self.edits.setdefault(path, []).extend(edits)
        self.removed.update([name] if edits else [])
        return bool(edits)

    def _remove(self, key: Key, names: list[str], bad: list[str]) -> bool:
        """Mark what has to go for one test function; False when it cannot be found."""
        path, chain = key
        lines = self.lines(path)
        if lines is None:
            return False
        holder = find_class(lines.tree, chain[:-1]) if len(chain) > 1 else lines.tree
        found = definitions_of(holder, chain[-1]) if holder is not None else []
        if not found:
            return self._remove_inherited(key, holder) if len(chain) > 1 else self._remove_imported(key)
        if len(bad) < len(names) and len(found) == 1 and self._drop_parameters(lines, path, found[0], names, bad):
            self.removed.update(bad)
            return True
        if len(chain) > 1 and len(self._origins(key)) > 1:
            self._switch_off(lines, path, found)
        else:
            self._mark([(path, n) for n in found])
        self.removed.update(names)
        return True

    def _mark(self, places: Sequence[Place]) -> None:
        for path, node in places:
            if node not in self.gone.setdefault(path, []):
                self.gone[path].append(node)
                self.used.setdefault(path, set()).update(names_in(node))

    def _switch_off(self, lines: Lines, path: str, found: Sequence[Definition]) -> None:
        """Put `name = None` in the place of a method whose base class has another, which would come to life."""
        for node in found:
            edit = Edit(begin(lines, node), lines.span(node)[1], f"{node.name} = None".encode())
            self.edits.setdefault(path, []).append(edit)
            self.used.setdefault(path, set()).update(names_in(node))

    def _remove_inherited(self, key: Key, holder: ast.Module | ast.ClassDef | None) -> bool:
        """Take a method out of the classes it comes from when it fails in all their heirs, else switch it off here."""
        path, chain = key
        origins = self._origins(key)
        sharing = [k for k in self.groups if k[1][-1] == chain[-1] and set(self._origins(k)) & set(origins)]
        if not origins:
            return False
        if all(n in self.failing for k in sharing for n in self.groups[k]):
            self._mark(origins)
        elif not isinstance(holder, ast.ClassDef):
            if not self._goes_with_its_twin(key):
                return False
        else:
            lines = self.lines(path)
            assert lines is not None
            text = holder.body[0] if is_text(holder.body[0]) else None
            head = lines.line(first_line(holder.body[0]))
            indent = head[: len(head) - len(head.lstrip())]
            bound = {n.id for n in ast.walk(holder) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
            if head[: holder.body[0].col_offset].strip(b"@ \t") or chain[-1] in bound:
                return False
            # Before the first statement and its comments: after the last, it could be inside of what goes.
            number = (text.end_lineno or 0) if text else first_line(holder.body[0]) - 1
            while not text and lines.line(number).strip()[:1] in (b"", b"#"):
                number -= 1
            at = lines.starts[number]
            newline = b"" if lines.data[:at].endswith(b"\n") else b"\n"
            self.edits.setdefault(path, []).append(Edit(at, at, newline + indent + chain[-1].encode() + b" = None\n"))
        self.removed.update(self.groups[key])
        return True

    def _goes_with_its_twin(self, key: Key) -> bool:
        """Tell whether a test of a class that a file imports fails where the class is, too: it is removed there."""
        path, chain = key
        homes = [p for p in self.original if p != path and self._holds_class(p, chain[:-1])]
        twin = self.groups.get((homes[0], chain), []) if len(homes) == 1 else []
        return bool(twin) and self.failing.issuperset([*twin, *self.groups[key]])

    def _holds_class(self, path: str, names: tuple[str, ...]) -> bool:
        lines = self.lines(path)
        return lines is not None and find_class(lines.tree, names) is not None

    def _remove_imported(self, key: Key) -> bool:
        """Take a function that a file imports out of the test file it comes from, if it fails everywhere."""
        name = key[1][-1]
        sharing = [n for k, group in self.groups.items() if k[1] == (name,) for n in group]
        if not all(n in self.failing for n in sharing):
            return False
        for where in self.original:
            lines = self.lines(where)
            found = definitions_of(lines.tree, name) if lines is not None else []
            if found:
                self._mark([(where, n) for n in found])
                self.removed.update(self.groups[key])
                return True
        return False

    def _note_heirs(self) -> None:
        """Add the tests that vanish because every class they have their method from has lost it."""
        gone = {(p, n) for p, nodes in self.gone.items() for n in nodes}
        names = {getattr(n, "name", "") for _, n in gone}
        for key, ids in self.groups.items():
            origins = self._origins(key) if len(key[1]) > 1 and key[1][-1] in names else []
            if origins and all(place in gone for place in origins):
                self.removed.update(ids)

    def _origins(self, key: Key) -> list[Place]:
        """Return where a class has a method from, its own definitions first, wherever in the test files they are."""
        path, chain = key
        return self._origins_in(path, chain[:-1], chain[-1], set())

    def _origins_in(self, path: str, names: tuple[str, ...], method: str, seen: set[Key]) -> list[Place]:
        for where in [path, *(p for p in self.original if p != path)]:
            lines = self.lines(where)
            holder = find_class(lines.tree, names) if lines is not None else None
            if holder is None or (where, names) in seen:
                continue
            seen.add((where, names))
            places: list[Place] = [(where, n) for n in definitions_of(holder, method)]
            for base in holder.bases:
                name = base.id if isinstance(base, ast.Name) else base.attr if isinstance(base, ast.Attribute) else ""
                places += self._origins_in(where, (name,), method, seen) if name else []
            if places:
                return places
        return []

    def _drop_parameters(self, lines: Lines, path: str, function: Definition, names: list[str], bad: list[str]) -> bool:
        """Take only the failing parameter sets out, when they are all the combinations of some sets of one mark."""
        failing = set(bad)
        for mark in function.decorator_list:
            lists = parameter_lists(mark)
            if lists is None:
                continue
            argument, values, labels, in_tuple = lists
            index = {n: dict(self.parameters.get(n, ())).get(argument) for n in names}
            out = {index[n] for n in bad}
            whole = {n for n in names if index[n] in out}
            if None in out or whole != failing or len(out) >= len(values) or max(i or 0 for i in out) >= len(values):
                continue
            gone = [i for i in out if i is not None]
            if not labels and self._renames({n: i for n, i in index.items() if i is not None}, set(gone)):
                continue
            edits = drop_elements(lines, values, gone, in_tuple=in_tuple)
            if labels:
                edits += drop_elements(lines, labels, gone)
            for i in gone:
                self.used.setdefault(path, set()).update(names_in(values[i]))
            self.edits.setdefault(path, []).extend(edits)
            return True
        return False

    def _renames(self, index: Mapping[str, int], gone: set[int]) -> bool:
        """Tell whether the tests that stay would get other ids, because pytest counts parameter sets in them."""
        # Equal ids are told apart by 0, 1, 2 at their end.
        alike: dict[str, list[tuple[int, str]]] = {}
        for name, place in index.items():
            label = name.partition("[")[2].removesuffix("]")
            counted = {f"{a}{i}" for a, i in self.parameters.get(name, ()) if i == place}
            if counted & set(label.split("-")):
                if place not in gone and place > min(gone):
                    return True
                continue
            stem, digits = re.fullmatch(r"(.*?)_?(\d*)", label, re.DOTALL).groups()  # type: ignore[union-attr]
            alike.setdefault(stem, []).append((place, digits))
        return any(
            len(group) > 1
            and [d for _, d in sorted(group)] == [str(k) for k in range(len(group))]
            and any(place in gone for place, _ in group)
            for group in alike.values()
        )

    def _rewritten(self, path: str) -> bytes | None:
        lines = self.lines(path)
        assert lines is not None
        inherited = frozenset[str]().union(*map(bases_in, self.original.values()))
        nodes = with_emptied(lines.tree, self.gone.get(path, []), inherited)
        if nodes is None:
            return None
        whole, hollow = nodes
        edits = take_out(lines, whole)
        if edits is None:
            return None
        for block in hollow:
            start, end = lines.at(first_line(block[0]), block[0].col_offset), lines.span(block[-1])[1]
            edits.append(Edit(lines.starts[first_line(block[0]) - 1] + block[0].col_offset, max(start, end), b"pass"))
        inner = [e for e in self.edits.get(path, []) if not any(_holds(o, e) for o in edits)]
        try:
            return splice(lines.data, edits + inner)
        except ValueError:
            return None


def _holds(outer: Edit, inner: Edit) -> bool:
    """Tell whether what one edit would change is gone by another; what is put in before it, stays."""
    return outer.start <= inner.start and inner.end <= outer.end and not inner.start == inner.end == outer.start


words_in = functools.lru_cache(maxsize=4096)(words)


@functools.lru_cache(maxsize=4096)
def bases_in(data: bytes) -> frozenset[str]:
    """Return the names of classes that some class in a file has as a base."""
    lines = read_lines(data)
    return frozenset(
        base.id if isinstance(base, ast.Name) else base.attr
        for node in ast.walk(lines.tree if lines is not None else ast.Module([], []))
        if isinstance(node, ast.ClassDef)
        for base in node.bases
        if isinstance(base, ast.Name | ast.Attribute)
    )
