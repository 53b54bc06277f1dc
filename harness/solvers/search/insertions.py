"""Generate repairs that insert statements: from elsewhere in the file, or guards on parameters."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from tree_sitter import Node

from harness.solvers.search.donors import (
    SIGNATURE,
    Donor,
    RepairEdits,
    locals_of,
    nearby_functions,
    parameters,
    replace_node,
    statement_donors,
    usable_donors,
)
from pytest_ssr.source.syntax_tree import Edit, ParsedSource, Scope, indentation, statements, walk

_REVERSED = {b" < ": b" > ", b" > ": b" < ", b" <= ": b" >= ", b" >= ": b" <= "}
_DIRECTION = re.compile(rb" (?:<|>|<=|>=) ")


def insertions(source: ParsedSource, scope: Scope, others: Sequence[Scope]) -> RepairEdits:
    """Yield insertions of a statement of the file, or of a guard on a parameter, before or after each statement.

    A block that is only `pass` is filled instead, also with a jump or a return of a name.
    """
    donors = usable_donors(
        source, scope, [d for s in nearby_functions(scope, others) for d in statement_donors(source, s)]
    )
    texts = [(d.text, 0.3 if d.home == scope.start else 0.15) for d in donors]
    for name in sorted(parameters(source, scope)):
        texts += [(b"if %s is None:\n    return None" % name, 0.1), (b"if not %s:\n    return %s" % (name, name), 0.1)]
        texts += [(b"self.%s = %s" % (name, name), 0.2)] if b"self" in source.text(scope.node)[:SIGNATURE] else []
    texts += [(t, 0.2) for d in donors if d.home == scope.start for t in _mirrored(d, locals_of(source, scope))]
    fillings = [(text, 0.3) for text in (b"return", b"return True", b"return False")]
    fillings += [(b"return " + name, 0.3) for name in sorted(locals_of(source, scope))]
    jumps = [(b"continue", 0.3), (b"break", 0.3)]
    for block in (n for n in walk(scope.node) if n.type == "block"):
        body = statements(block)
        if not body or source.data[source.line_start(body[0].start_byte) : body[0].start_byte].strip():
            continue
        inner = indentation(source, body[0])
        present = {source.text(s) for s in body}
        is_empty = len(body) == 1 and body[0].type == "pass_statement"
        for text, weight in [*texts, *fillings, *(jumps if _in_loop(block) else ())] if is_empty else texts:
            if text in present:
                continue
            lines = (b"\n" + inner).join(text.split(b"\n"))
            if is_empty:
                yield "fill-block", weight, replace_node(body[0], lines)
                continue
            for node in body:
                yield "insert-statement", weight, (Edit(node.start_byte, node.start_byte, lines + b"\n" + inner),)
            yield (
                "insert-statement",
                weight,
                (Edit(body[-1].end_byte, body[-1].end_byte, b"\n" + inner + lines),),
            )


def _in_loop(node: Node) -> bool:
    """Return whether a node is in a loop of its function."""
    while node.parent is not None and node.type not in ("function_definition", "class_definition"):
        node = node.parent
        if node.type in ("for_statement", "while_statement"):
            return True
    return False


def _mirrored(donor: Donor, names: frozenset[bytes]) -> Iterator[bytes]:
    """Yield an `if` of the function with another name or the reverse comparison, because code is often symmetric."""
    if not donor.text.startswith(b"if "):
        return
    reversed_text = _DIRECTION.sub(lambda m: _REVERSED[m[0]], donor.text, count=1)
    for text in dict.fromkeys((donor.text, reversed_text)):
        if text != donor.text:
            yield text
        for old in sorted(donor.names & names):
            for new in sorted(names - donor.names):
                yield re.sub(rb"(?<![\w.])%s(?!\w)" % re.escape(old), new, text)
