"""Put tokens into a hole, as a repair."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from harness.solvers.search.generator.code_stream import code_of
from harness.solvers.search.generator.holes import Hole, HoleKind
from harness.solvers.search.patterns import Repair
from pytest_ssr.source.parsing import is_utf8
from pytest_ssr.source.syntax_tree import ParsedSource, Scope, parse

GENERATED, NAMESAKE = "generated", "namesake"
WRITTEN = (GENERATED, NAMESAKE)
"""The patterns whose repairs are written from tokens: they do not have the line breaks of the original."""
_LEAST = 1e-12
"""Least weight of a repair, as a share of all, so that it has a logarithm."""
_TEMPLATES = {
    HoleKind.VALUE: b"x = %s\n",
    HoleKind.SUFFIX: b"x%s\n",
    HoleKind.ARGUMENT: b"f(a%s)\n",
    HoleKind.RIGHT: b"a %s\n",
    HoleKind.LEFT: b"%s a\n",
    HoleKind.BASES: b"class A%s: pass\n",
}


def filled(
    source: ParsedSource, scope: Scope, hole: Hole, texts: Sequence[bytes], *, pattern: str, weight: float = 0.0
) -> Repair | None:
    """Return the repair that writes tokens into a hole of a function.

    None if they are no code of the form that the hole needs, or change nothing.
    """
    code = code_of(_fitted(source, hole, texts), hole.indentation, in_brackets=hole.kind is HoleKind.ARGUMENT)
    if not code or not _is_code(code, hole) or not (code.isascii() or is_utf8(source.data)):
        return None
    edit = hole.edit(code)
    if source.data[edit.start : edit.end] == edit.text:
        return None
    span = (scope.node.start_point.row + 1, scope.node.end_point.row + 1)
    first = source.line(edit.start)
    last = max(first, min(source.line(edit.end), span[1]))
    return Repair(source.path, pattern, weight, (edit,), first, last, span)


def with_share(
    repairs: Sequence[Repair], further: Sequence[Repair], share_of: Callable[[float], float]
) -> list[Repair]:
    """Return the repairs of a function and further ones; the sum of the weights stays as it is.

    share_of: returns the share of the new ones, from the sum of their weights.
    """
    present = {r.edits for r in repairs}
    new = [r for r in further if r.edits not in present]
    if not new:
        return list(repairs)
    of_new = sum(r.weight for r in new)
    share = share_of(of_new) if repairs else 1.0
    total = sum(r.weight for r in repairs) or 1.0
    return [
        *(replace(r, weight=(1 - share) * r.weight) for r in repairs),
        *(replace(r, weight=max(share * total * r.weight / of_new, _LEAST * total)) for r in new),
    ]


def _fitted(source: ParsedSource, hole: Hole, texts: Sequence[bytes]) -> Sequence[bytes]:
    """Return tokens with what the hole's place needs; none if they cannot stand there."""
    if hole.kind is HoleKind.ARGUMENT:
        is_first = source.data[: hole.start].rstrip().endswith(b"(")
        without = texts[1:] if texts[:1] in ([b","], (b",",)) else texts
        return without if is_first or not without else [b",", *without]
    if hole.kind is HoleKind.ELSE and texts[0] == b"else":
        return () if source.data[hole.end :].lstrip().startswith((b"else", b"elif")) else texts
    return texts


def _is_code(code: bytes, hole: Hole) -> bool:
    """Return whether code has the form that its hole needs; the grammar alone decides, nothing is run."""
    if hole.kind is HoleKind.ELSE:
        text = b"if a:\n    pass\n" + code.replace(b"\n" + hole.indentation, b"\n") + b"\n"
    elif hole.kind in _TEMPLATES:
        inner = b"a" if hole.kind is HoleKind.ARGUMENT and code.startswith(b",") else b""
        template = b"f(%s)\n" if hole.kind is HoleKind.ARGUMENT else _TEMPLATES[hole.kind]
        text = template.replace(b"%s", inner + code)
    else:
        text = code.replace(b"\n" + hole.indentation, b"\n") + b"\n"
    return parse("a.py", text) is not None
