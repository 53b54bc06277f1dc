"""Repairs that put another value: what is returned, a literal, a default, a call on what is there."""

from __future__ import annotations

from collections.abc import Sequence

from tree_sitter import Node

from harness.solvers.search.donors import (
    SIGNATURE,
    Found,
    fitting,
    locals_of,
    near,
    put,
    statement_donors,
)
from pytest_ssr.injectors.python_source import ParsedSource, Scope, walk

_DEFAULTS = (b"None", b"True", b"False", b"0", b"1", b'""', b"()")
_JOINED = (b"+", b"-", b"*", b"/", b"//", b"%", b"and", b"or")
_MOST_NAMES, _MOST_LITERALS, _LONGEST_LITERAL = 5, 24, 40
_COMMON = (b"", b" ", b".", b",", b"-", b"_", b"/", b":", b"=", b"\\n", b"\\x00", b"utf-8")


def returns(source: ParsedSource, node: Node) -> Found:
    """A usual value where nothing is returned; what is computed and dropped."""
    if node.type == "return_statement" and (not node.named_children or node.named_children[0].type == "none"):
        for text in (b"self", b"True", b"False", b"result", b"[]", b"{}"):
            yield "return-value", 0.3, put(node, b"return " + text)
    if node.type == "expression_statement" and node.named_child_count == 1:
        inner = node.named_children[0]
        if inner.type not in ("string", "assignment", "augmented_assignment", "yield", "ellipsis"):
            yield "return-it", 0.5, put(node, b"return " + source.text(inner))
    if node.type == "call" and node.parent is not None and node.parent.type != "await":
        if b"async def" in source.data:
            yield "await", 0.3, put(node, b"await " + source.text(node))


def values(source: ParsedSource, scope: Scope) -> Found:
    """A small expression of the function's names, where nothing or next to nothing is returned."""
    names = sorted(locals_of(source, scope))
    bare = [b"self"] if b"self" in source.text(scope.node)[:SIGNATURE] else []
    for node in walk(scope.node):
        if node.type != "return_statement":
            continue
        value = node.named_children[0] if node.named_children else None
        if value is not None and value.type not in ("none", "identifier", "true", "false", "integer"):
            continue
        for one in [*names, *bare]:
            yield "return-name", 0.4, put(node, b"return " + one)
        for one in names[:_MOST_NAMES]:
            for other in names[:_MOST_NAMES]:
                for sign in _JOINED if one != other else ():
                    yield "return-both", 0.2, put(node, b"return %s %s %s" % (one, sign, other))
            for called in sorted(_functions_of(source))[:_MOST_NAMES]:
                yield "return-call", 0.1, put(node, b"return %s(%s)" % (called, one))


def lost_values(source: ParsedSource, scope: Scope, others: Sequence[Scope]) -> Found:
    """Where nothing is returned: what other functions of the file return, and what this one has of its object."""
    places = [n for n in walk(scope.node) if n.type == "return_statement"]
    places = [n for n in places if not n.named_children or n.named_children[0].type == "none"]
    if not places:
        return
    donors = fitting(source, scope, [d for s in near(scope, others) for d in statement_donors(source, s)])
    texts = [d.text for d in donors if d.text.startswith(b"return ") and b"\n" not in d.text]
    own = scope.qualname.rpartition(".")[0]
    if own and b"self" in source.text(scope.node)[:SIGNATURE]:
        of_class = next((s for s in others if s.kind == "class" and s.qualname == own), scope)
        attributes = [n for n in walk(of_class.node) if n.type == "attribute"]
        known = dict.fromkeys(source.text(n) for n in attributes if source.text(n).count(b".") == 1)
        texts += [b"return " + t for t in known if t.startswith(b"self.")]
    for node in places:
        for text in dict.fromkeys(texts):
            yield "other-return", 0.5, put(node, text)


def literals(source: ParsedSource, scope: Scope) -> Found:
    """Another literal of the file in a literal's place, the nearest first; of a kind that a string may have lost."""
    places = [n for n in walk(scope.node) if _literal(source, n)]
    pool: dict[str, dict[bytes, int]] = {}
    for node in walk(source.root) if places else ():
        if kind := _literal(source, node):
            known = pool.setdefault(kind, {})
            far = abs(node.start_byte - scope.start)
            known[source.text(node)] = min(far, known.get(source.text(node), far))
    for node in places:
        kind = _literal(source, node)
        near = sorted(pool[kind].items(), key=lambda pair: (pair[1], pair[0]))[:_MOST_LITERALS]
        mark = source.text(node).partition(b"'" if source.text(node).endswith(b"'") else b'"')[0]
        common = [mark + b'"%s"' % text for text in _COMMON] if kind != "number" else [b"2", b"10", b"100", b"-1"]
        for text in dict.fromkeys((*(t for t, _ in near), *common)):
            yield f"other-{kind}", 0.4, put(node, text)


def _literal(source: ParsedSource, node: Node) -> str:
    """Return what kind of literal a node is, if one that another may stand for."""
    if node.type in ("integer", "float"):
        return "number"
    text = source.text(node) if node.type == "string" else b""
    if not text or b"\n" in text or len(text) > _LONGEST_LITERAL or b"f" in text.partition(text[-1:])[0].lower():
        return ""
    return "bytes" if b"b" in text.partition(text[-1:])[0].lower() else "text"


def _functions_of(source: ParsedSource) -> list[bytes]:
    found = []
    for node in source.root.named_children:
        target = node.child_by_field_name("definition") if node.type == "decorated_definition" else node
        name = target.child_by_field_name("name") if target is not None else None
        if name is not None and target is not None and target.type == "function_definition":
            found.append(source.text(name))
    return found


def defaults(source: ParsedSource, node: Node) -> Found:
    """A usual value for a parameter or a keyword."""
    if node.type in ("default_parameter", "typed_default_parameter", "keyword_argument"):
        value = node.child_by_field_name("value")
        for text in _DEFAULTS if value is not None else ():
            assert value is not None
            yield "other-default", 0.5, put(value, text)
