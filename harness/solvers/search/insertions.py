"""Repairs that put statements in: from elsewhere in the file, guards on parameters, another function's body."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from harness.solvers.search.donors import (
    SIGNATURE,
    Donor,
    Found,
    body_of,
    fitting,
    known_everywhere,
    locals_of,
    names_in,
    near,
    parameters,
    put,
    statement_donors,
)
from pytest_ssr.injectors.python_source import Edit, ParsedSource, Scope, indentation, statements, walk

_TURNED = {b" < ": b" > ", b" > ": b" < ", b" <= ": b" >= ", b" >= ": b" <= "}
_DIRECTION = re.compile(rb" (?:<|>|<=|>=) ")


def insertions(source: ParsedSource, scope: Scope, others: Sequence[Scope]) -> Found:
    """A statement of the file, or a guard on a parameter, before or after each statement."""
    donors = fitting(source, scope, [d for s in near(scope, others) for d in statement_donors(source, s)])
    texts = [(d.text, 0.3 if d.home == scope.start else 0.15) for d in donors]
    for name in sorted(parameters(source, scope)):
        texts += [(b"if %s is None:\n    return None" % name, 0.1), (b"if not %s:\n    return %s" % (name, name), 0.1)]
        texts += [(b"self.%s = %s" % (name, name), 0.2)] if b"self" in source.text(scope.node)[:SIGNATURE] else []
    texts += [(t, 0.2) for d in donors if d.home == scope.start for t in _mirrored(d, locals_of(source, scope))]
    for block in (n for n in walk(scope.node) if n.type == "block"):
        inside = statements(block)
        if not inside or source.data[source.line_start(inside[0].start_byte) : inside[0].start_byte].strip():
            continue
        inner = indentation(source, inside[0])
        present = {source.text(s) for s in inside}
        for text, weight in texts:
            if text in present:
                continue
            lines = (b"\n" + inner).join(text.split(b"\n"))
            for node in inside:
                yield "insert-statement", weight, (Edit(node.start_byte, node.start_byte, lines + b"\n" + inner),)
            yield "insert-statement", weight, (Edit(inside[-1].end_byte, inside[-1].end_byte, b"\n" + inner + lines),)


def _mirrored(donor: Donor, names: frozenset[bytes]) -> Iterator[bytes]:
    """Yield an `if` of the function for another of its names and for the other direction: code is often symmetric."""
    if not donor.text.startswith(b"if "):
        return
    turned = _DIRECTION.sub(lambda m: _TURNED[m[0]], donor.text, count=1)
    for text in dict.fromkeys((donor.text, turned)):
        if text != donor.text:
            yield text
        for old in sorted(donor.names & names):
            for new in sorted(names - donor.names):
                yield re.sub(rb"(?<![\w.])%s(?!\w)" % re.escape(old), new, text)


def bodies(source: ParsedSource, scope: Scope, others: Sequence[Scope]) -> Found:
    """For a function that does next to nothing, the body of another one."""
    own = body_of(source, scope)
    if len(own) != 1 or own[0].end_point.row - own[0].start_point.row > 1 or not own:
        return
    inner = indentation(source, own[0])
    usable = names_in(source, scope.node) | known_everywhere(source) | parameters(source, scope) | {b"self", b"cls"}
    for other in others:
        body = body_of(source, other) if other.kind == "function" and other != scope else []
        if not body or not parameters(source, other) <= usable:
            continue
        start = source.line_start(body[0].start_byte)
        outer = indentation(source, body[0])
        lines = source.data[start : body[-1].end_byte].split(b"\n")
        moved = [inner + line[len(outer) :] if line.startswith(outer) else line for line in lines]
        text = b"\n".join(moved)[len(inner) :]
        like = _alike(scope.qualname, other.qualname)
        yield "other-body", 0.3 + 0.6 * like, put(own[0], text)


def _alike(one: str, other: str) -> float:
    first, second = (set(q.rpartition(".")[2].strip("_").split("_")) for q in (one, other))
    return len(first & second) / max(1, len(first | second))
