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
from collections.abc import Iterable, Iterator
from functools import lru_cache

_HEX = 6
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
        module = ast.parse(data)
    except (SyntaxError, ValueError, RecursionError):
        return tuple(line.strip() for line in data.decode("utf-8", "replace").splitlines())
    return tuple(_units_of(module.body, ""))


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
    if isinstance(value, list):
        return f"[{', '.join(map(_shape, value))}]"
    if not isinstance(value, ast.AST):
        return repr(value)
    fields = [(name, part) for name, part in ast.iter_fields(value) if name not in _PARTS_LEFT_OUT]
    if (
        isinstance(value, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        and ast.get_docstring(value) is not None
    ):
        fields = [(name, part[1:] if name == "body" else part) for name, part in fields]
    shown = (f"{name}={_shape(part)}" for name, part in fields if part is not None and part != [])
    return f"{type(value).__name__}({', '.join(shown)})"
