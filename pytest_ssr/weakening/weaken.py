"""Remove failing tests from their files by node id, and leave everything else as it was.

A function is removed if all of its parameter sets fail, or if the failing ones cannot be distinguished in its source;
otherwise only its failing parameter sets are removed. An inherited test is removed from its base class if it fails in
every class; otherwise it is disabled in the class in which it fails. A test that is defined in the body of a function,
which makes classes or tests at import, is removed for all of them.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from pytest_ssr.source.definitions import (
    class_names,
    definitions_of,
    find_class,
    is_constant,
    nested_definitions,
    parameter_lists,
    statements_to_remove,
)
from pytest_ssr.source.spans import (
    Definition,
    Lines,
    first_byte,
    first_line,
    identifiers,
    read_lines,
    remove_elements,
    remove_statements,
)
from pytest_ssr.source.syntax_tree import Edit, splice
from pytest_ssr.weakening.doctests import edits_in_document, edits_in_module
from pytest_ssr.weakening.unused_names import clean_up, names_in

Parameters = Mapping[str, tuple[tuple[str, int], ...]]
Key = tuple[str, tuple[str, ...]]
Location = tuple[str, Definition]
_POSITION = re.compile(r"\[#\d+\]\Z")
_DEFINITION = re.compile(r"\bdef[ \t\\\n]+(\w+)")


@dataclass(frozen=True, slots=True)
class Weakening:
    """New test files without the failing tests."""

    changes: Mapping[str, bytes]
    """Path of a test file to its new content."""
    unremovable: tuple[str, ...]
    """Failing ids for which no definition was found; nothing was changed for them."""
    removed: tuple[str, ...]
    """Removed ids: the failing ones, and passing ones whose whole function had to be removed."""


def weaken(
    read: Callable[[str], bytes],
    test_paths: Sequence[str],
    *,
    failing: Collection[str],
    collected: Sequence[str],
    parameters: Parameters,
    doctests: Collection[str] = (),
) -> Weakening:
    """Remove the failing tests from their files.

    read: returns a file's content. test_paths: every file that may define tests. parameters: id to (argument, index).
    doctests: the collected tests that are doctests.
    """
    weakener = _Weakener(read, test_paths, frozenset(failing), collected, parameters)
    weakener.doctests = frozenset(doctests)
    return weakener.run()


def key_of(node_id: str) -> Key:
    """Split an id into its file and the names of class and function, without the parameters."""
    path, _, rest = node_id.partition("::")
    return path, tuple(rest.partition("[")[0].split("::"))


def without_definition(read: Callable[[str], bytes], paths: Collection[str], tests: Collection[str]) -> frozenset[str]:
    """Return the tests whose function no test file defines by its name: `weaken` cannot remove them.

    They were made at run time, or come from a module outside of the test surface. read: returns a file's content.
    paths: every file that may define tests.
    """
    sources = (read(path).decode("utf-8", "replace") for path in paths if path.endswith(".py"))
    defined = {name for source in sources for name in _DEFINITION.findall(source)}
    return frozenset(test for test in tests if key_of(test)[1][-1] not in defined)


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
        self.removed_nodes: dict[str, list[ast.stmt]] = {}
        self.edits: dict[str, list[Edit]] = {}
        self.used: dict[str, set[str]] = {}
        self.removed: set[str] = set()
        self.unremovable: list[str] = []

    def lines(self, path: str) -> Lines | None:
        """Return a test file as lines, parsed on first use; None if it cannot be parsed."""
        if path not in self._lines:
            self._lines[path] = read_lines(self.original[path]) if path in self.original else None
        return self._lines[path]

    def run(self) -> Weakening:
        for key, names in self.groups.items():
            failing = [n for n in names if n in self.failing]
            if failing and self.doctests.issuperset(names):
                self.unremovable += [n for n in failing if not self._skip_doctest(n)]
            elif failing and not self._remove(key, names, failing):
                self.unremovable += failing
        self._add_inherited()
        changes: dict[str, bytes] = {}
        for path in sorted({*self.removed_nodes, *self.edits}):
            new = self._rewritten(path) if path in self.original else None
            if path not in self.original:
                changes[path] = splice(self.read(path), self.edits[path])
            elif new is None or read_lines(new) is None:
                self.unremovable += [n for n in self.failing if key_of(n)[0] == path]
            else:
                elsewhere = frozenset[str]().union(*(identifiers_in(d) for p, d in self.original.items() if p != path))
                changes[path] = clean_up(new, self.used.get(path, set()), elsewhere)
        unremovable = set(self.unremovable)
        return Weakening(changes, tuple(sorted(unremovable)), tuple(sorted(self.removed - unremovable)))

    def _skip_doctest(self, name: str) -> bool:
        """Mark the examples of a doctest as skipped; return False if they cannot be found."""
        path, _, dotted = name.partition("::")
        lines = self.lines(path)
        if not path.endswith(".py"):
            edits = edits_in_document(self.read(path))
        else:
            edits = edits_in_module(lines.data, lines.tree, dotted) if lines is not None else []
        self.edits.setdefault(path, []).extend(edits)
        self.removed.update([name] if edits else [])
        return bool(edits)

    def _remove(self, key: Key, names: list[str], failing: list[str]) -> bool:
        """Mark what has to be removed for one test function; return False if it cannot be found."""
        path, chain = key
        lines = self.lines(path)
        if lines is None:
            return False
        holder = find_class(lines.tree, chain[:-1]) if len(chain) > 1 else lines.tree
        definitions = definitions_of(holder, chain[-1]) if holder is not None else []
        if not definitions:
            found = self._remove_inherited(key, holder) if len(chain) > 1 else self._remove_imported(key)
            return found or self._remove_nested(chain[-1])
        # Without one of them, other parameter sets would have its position.
        are_positions = any(_POSITION.search(name) for name in names)
        if (
            len(failing) < len(names)
            and len(definitions) == 1
            and not are_positions
            and self._drop_parameters(lines, path, definitions[0], names, failing)
        ):
            self.removed.update(failing)
            return True
        if len(chain) > 1 and len(self._origins(key)) > 1:
            self._disable(lines, path, definitions)
        else:
            self._mark([(path, n) for n in definitions])
        self.removed.update(names)
        return True

    def _mark(self, locations: Sequence[Location]) -> None:
        for path, node in locations:
            if node not in self.removed_nodes.setdefault(path, []):
                self.removed_nodes[path].append(node)
                self.used.setdefault(path, set()).update(names_in(node))

    def _disable(self, lines: Lines, path: str, definitions: Sequence[Definition]) -> None:
        """Replace a function with `name = None`: the name is imported, or a base class has a method of that name."""
        for node in definitions:
            edit = Edit(first_byte(lines, node), lines.span(node)[1], f"{node.name} = None".encode())
            self.edits.setdefault(path, []).append(edit)
            self.used.setdefault(path, set()).update(names_in(node))

    def _remove_inherited(self, key: Key, holder: ast.Module | ast.ClassDef | None) -> bool:
        """Remove a method from the classes that define it if it fails in all their subclasses; else disable it here."""
        path, chain = key
        origins = self._origins(key)
        sharing = [k for k in self.groups if k[1][-1] == chain[-1] and set(self._origins(k)) & set(origins)]
        if not origins:
            return False
        if all(n in self.failing for k in sharing for n in self.groups[k]):
            self._mark(origins)
        elif not isinstance(holder, ast.ClassDef):
            if not self._is_removed_with_its_class(key):
                return False
        else:
            lines = self.lines(path)
            assert lines is not None
            docstring = holder.body[0] if is_constant(holder.body[0]) else None
            head = lines.line(first_line(holder.body[0]))
            indent = head[: len(head) - len(head.lstrip())]
            bound = {n.id for n in ast.walk(holder) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
            if head[: holder.body[0].col_offset].strip(b"@ \t") or chain[-1] in bound:
                return False
            # Insert before the first statement and its comments: after the last one, it could lie in removed code.
            number = (docstring.end_lineno or 0) if docstring else first_line(holder.body[0]) - 1
            while not docstring and lines.line(number).strip()[:1] in (b"", b"#"):
                number -= 1
            at = lines.starts[number]
            newline = b"" if lines.data[:at].endswith(b"\n") else b"\n"
            self.edits.setdefault(path, []).append(Edit(at, at, newline + indent + chain[-1].encode() + b" = None\n"))
        self.removed.update(self.groups[key])
        return True

    def _is_removed_with_its_class(self, key: Key) -> bool:
        """Return whether a test of an imported class also fails in the file that defines it: it is removed there."""
        path, chain = key
        sources = [p for p in self.original if p != path and self._defines_class(p, chain[:-1])]
        original_ids = self.groups.get((sources[0], chain), []) if len(sources) == 1 else []
        return bool(original_ids) and self.failing.issuperset([*original_ids, *self.groups[key]])

    def _defines_class(self, path: str, names: tuple[str, ...]) -> bool:
        lines = self.lines(path)
        return lines is not None and find_class(lines.tree, names) is not None

    def _remove_imported(self, key: Key) -> bool:
        """Remove an imported function from the test file that defines it, if it fails everywhere."""
        name = key[1][-1]
        sharing = [n for k, group in self.groups.items() if k[1] == (name,) for n in group]
        if not all(n in self.failing for n in sharing):
            return False
        for path in self.original:
            lines = self.lines(path)
            definitions = definitions_of(lines.tree, name) if lines is not None else []
            if lines is not None and definitions:
                # The import of the name stays.
                self._disable(lines, path, definitions)
                self.removed.update(self.groups[key])
                return True
        return False

    def _remove_nested(self, name: str) -> bool:
        """Remove the definitions of a name in bodies of functions, and the tests that nothing else defines."""
        made = [n for k, group in self.groups.items() if k[1][-1] == name and not self._is_found(k) for n in group]
        definitions = [
            (path, node)
            for path in self.original
            if (lines := self.lines(path)) is not None
            for node in nested_definitions(lines.tree, name)
        ]
        self._mark(definitions)
        self.removed.update(made if definitions else [])
        return bool(definitions)

    def _is_found(self, key: Key) -> bool:
        """Return whether a test is defined in its module, in its class or in a base class."""
        lines = self.lines(key[0])
        own = definitions_of(lines.tree, key[1][-1]) if lines is not None and len(key[1]) == 1 else []
        return bool(own or self._origins(key))

    def _add_inherited(self) -> None:
        """Add the tests that disappear because every class that defines their method has lost it."""
        removed = {(p, n) for p, nodes in self.removed_nodes.items() for n in nodes}
        names = {getattr(n, "name", "") for _, n in removed}
        for key, ids in self.groups.items():
            origins = self._origins(key) if len(key[1]) > 1 and key[1][-1] in names else []
            if origins and all(origin in removed for origin in origins):
                self.removed.update(ids)

    def _origins(self, key: Key) -> list[Location]:
        """Return the definitions of a class's method, its own first, then inherited ones, in any of the test files."""
        path, chain = key
        return self._origins_in(path, chain[:-1], chain[-1], set())

    def _origins_in(self, path: str, names: tuple[str, ...], method: str, seen: set[Key]) -> list[Location]:
        for file in [path, *(p for p in self.original if p != path)]:
            lines = self.lines(file)
            holder = find_class(lines.tree, names) if lines is not None else None
            if holder is None or (file, names) in seen:
                continue
            seen.add((file, names))
            locations: list[Location] = [(file, n) for n in definitions_of(holder, method)]
            for base in holder.bases:
                if isinstance(base, ast.Name):
                    locations += self._origins_in(file, (base.id,), method, seen)
                elif isinstance(base, ast.Attribute):
                    locations += self._origins_in(file, (base.attr,), method, seen)
            if locations:
                return locations
        return []

    def _drop_parameters(
        self, lines: Lines, path: str, function: Definition, names: list[str], failing_names: list[str]
    ) -> bool:
        """Remove only the failing parameter sets, if they are all the combinations of some sets of one mark."""
        failing = set(failing_names)
        for mark in function.decorator_list:
            lists = parameter_lists(mark)
            if lists is None:
                continue
            argument, values, labels, in_tuple = lists
            index = {n: dict(self.parameters.get(n, ())).get(argument) for n in names}
            indices = {index[n] for n in failing_names}
            covered = {n for n in names if index[n] in indices}
            if (
                None in indices
                or covered != failing
                or len(indices) >= len(values)
                or max(i or 0 for i in indices) >= len(values)
            ):
                continue
            removed = [i for i in indices if i is not None]
            if not labels and self._renames({n: i for n, i in index.items() if i is not None}, set(removed)):
                continue
            edits = remove_elements(lines, values, removed, in_tuple=in_tuple)
            if labels:
                edits += remove_elements(lines, labels, removed)
            for i in removed:
                self.used.setdefault(path, set()).update(names_in(values[i]))
            self.edits.setdefault(path, []).extend(edits)
            return True
        return False

    def _renames(self, index: Mapping[str, int], removed: set[int]) -> bool:
        """Return whether the remaining tests would get other ids, because pytest counts parameter sets in them."""
        # pytest appends 0, 1, 2 to equal ids.
        alike: dict[str, list[tuple[int, str]]] = {}
        for name, position in index.items():
            label = name.partition("[")[2].removesuffix("]")
            counted = {f"{a}{i}" for a, i in self.parameters.get(name, ()) if i == position}
            if counted & set(label.split("-")):
                if position not in removed and position > min(removed):
                    return True
                continue
            stem, digits = re.fullmatch(r"(.*?)_?(\d*)", label, re.DOTALL).groups()  # type: ignore[union-attr]
            alike.setdefault(stem, []).append((position, digits))
        return any(
            len(group) > 1
            and [d for _, d in sorted(group)] == [str(k) for k in range(len(group))]
            and any(position in removed for position, _ in group)
            for group in alike.values()
        )

    def _rewritten(self, path: str) -> bytes | None:
        lines = self.lines(path)
        assert lines is not None
        kept = frozenset[str]().union(*map(bases_in, self.original.values()))
        # A class that is imported from here, or that a function makes, is named elsewhere.
        kept |= class_names(lines.tree, only_nested=any(key[0] == path for key in self.groups))
        nodes = statements_to_remove(lines.tree, self.removed_nodes.get(path, []), kept)
        if nodes is None:
            return None
        whole, hollow = nodes
        edits = remove_statements(lines, whole)
        if edits is None:
            return None
        for block in hollow:
            start, end = lines.at(first_line(block[0]), block[0].col_offset), lines.span(block[-1])[1]
            edits.append(Edit(lines.starts[first_line(block[0]) - 1] + block[0].col_offset, max(start, end), b"pass"))
        inner = [e for e in self.edits.get(path, []) if not any(_contains(o, e) for o in edits)]
        try:
            return splice(lines.data, edits + inner)
        except ValueError:
            return None


def _contains(outer: Edit, inner: Edit) -> bool:
    """Return whether one edit removes what another changes; an insertion directly before the removal is kept."""
    return outer.start <= inner.start and inner.end <= outer.end and not inner.start == inner.end == outer.start


identifiers_in = functools.lru_cache(maxsize=4096)(identifiers)


@functools.lru_cache(maxsize=4096)
def bases_in(data: bytes) -> frozenset[str]:
    """Return the names of the base classes of all classes in a file."""
    lines = read_lines(data)
    return frozenset(
        base.id if isinstance(base, ast.Name) else base.attr
        for node in ast.walk(lines.tree if lines is not None else ast.Module([], []))
        if isinstance(node, ast.ClassDef)
        for base in node.bases
        if isinstance(base, ast.Name | ast.Attribute)
    )
