"""Repairs that put statements in: from elsewhere in the file, guards on parameters."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from harness.solvers.search.donors import (
    SIGNATURE,
    Donor,
    Found,
    fitting,
    locals_of,
    near,
    parameters,
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
