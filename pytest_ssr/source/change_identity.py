"""Name a change so that its name survives moved lines, a reformatting, and a move of its function to another file.

A file is compared unit by unit: functions with all that is nested in them, and statements outside functions. A unit is
its qualified name and its syntax tree, without docstrings, comments and positions. The identity of a change consists of
the hashes of the units that it replaces, and of a hash of its operator and of what replaces them; so it changes as soon
as one of these functions does. The path is no part of it: in two files with the same function, a change of either has
the same identity.
"""

from __future__ import annotations

import ast
import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from pytest_ssr.source.parsing import recorded_warnings

_HEX = 6
_MOST_BITS = 14_000
_PARTS_LEFT_OUT = frozenset(("ctx", "kind", "type_comment", "type_ignores"))


def identity_of(operator: str, changes: Iterable[tuple[bytes, bytes | None]]) -> str:
    """Return the identity of a change, such as `3f9a1c-5d6071`.

    changes: the original and the new content of each file; None if it is deleted. With several replaced units, the
    identity has several hashes before the last one; without any, only that one.
    """
    replaced: list[str] = []
    new: list[str] = []
    for before, after in changes:
        old_units, new_units = Counter(_units(before)), Counter(_units(after or b""))
        replaced += (old_units - new_units).elements()
        new += (new_units - old_units).elements()
    return "-".join((*sorted({_hash(unit) for unit in replaced}), _hash(operator, *sorted(replaced), *sorted(new))))


def replaced_units(identity: str) -> tuple[str, ...]:
    """Return the hashes of the units that a change replaces."""
    return tuple(identity.split("-")[:-1])


def unit_hashes(contents: Iterable[bytes]) -> frozenset[str]:
    """Return the hashes of all units of files."""
    return frozenset(_hash(unit) for data in contents for unit in _units(data))


def _hash(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()[:_HEX]


@lru_cache(maxsize=32)
def _units(data: bytes) -> tuple[str, ...]:
    """Return the units of a file; its lines, without space around them, if it cannot be parsed."""
    try:
        # Python remarks on escapes such as `"\\d"`; as an error, that would give the change another identity.
        with recorded_warnings():
            return tuple(_units_of(ast.parse(data).body, ""))
    except (SyntaxError, ValueError, RecursionError):
        return tuple(line.strip() for line in data.decode("utf-8", "replace").splitlines())


def _units_of(body: Iterable[ast.stmt], prefix: str) -> Iterator[str]:
    for node in body:
        if isinstance(node, ast.ClassDef):
            header = [_shape(part) for part in (*node.decorator_list, *node.bases, *node.keywords)]
            yield f"{prefix}{node.name}: {', '.join(header)}"
            yield from _units_of(node.body, f"{prefix}{node.name}.")
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or not _has_definitions(node):
            yield f"{prefix}: {_shape(node)}"
        else:
            # `if` or `try` around definitions: these are units, and what else there is.
            for name, value in ast.iter_fields(node):
                parts = value if isinstance(value, list) else [value]
                statements = [part for part in parts if isinstance(part, ast.stmt)]
                yield from _units_of(statements, prefix)
                others = [part for part in parts if not isinstance(part, ast.stmt)]
                if others:
                    yield f"{prefix}{type(node).__name__}.{name}: {', '.join(map(_shape, others))}"


def _has_definitions(node: ast.AST) -> bool:
    return any(isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) for n in ast.walk(node))


def _shape(value: object) -> str:
    """Return a syntax tree as text that is the same in all versions of Python, unlike that of `ast.dump`."""
    written: list[str] = []
    # Without recursion: how deep that may go depends on the version of Python, and on who calls.
    pending: list[_Text | object] = [value]
    while pending:
        part = pending.pop()
        if isinstance(part, _Text):
            written.append(part.text)
        elif isinstance(part, list):
            pending += reversed((_Text("["), *_separated([(item,) for item in part]), _Text("]")))
        elif isinstance(part, ast.AST):
            fields = [(_Text(f"{name}="), of_it) for name, of_it in _fields(part)]
            pending += reversed((_Text(f"{type(part).__name__}("), *_separated(fields), _Text(")")))
        else:
            written.append(_literal(part))
    return "".join(written)


@dataclass(frozen=True, slots=True)
class _Text:
    """A part of the text of a syntax tree that is written as it is."""

    text: str


def _separated(groups: Sequence[Sequence[object]]) -> Iterator[object]:
    """Yield the parts of groups, with a comma between the groups."""
    for number, group in enumerate(groups):
        if number:
            yield _Text(", ")
        yield from group


def _fields(node: ast.AST) -> Iterator[tuple[str, object]]:
    """Yield what a node consists of, without docstrings and what is empty."""
    has_docstring = (
        isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and ast.get_docstring(node) is not None
    )
    for name, part in ast.iter_fields(node):
        value = part[1:] if has_docstring and name == "body" else part
        if name not in _PARTS_LEFT_OUT and value is not None and value != []:
            yield name, value


def _literal(value: object) -> str:
    # `repr` does not write integers of more than 4,300 digits.
    return hex(value) if type(value) is int and value.bit_length() > _MOST_BITS else repr(value)
