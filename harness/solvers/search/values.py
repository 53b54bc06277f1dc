"""Generate repairs that replace a value: a return value, a literal, a default."""

from __future__ import annotations

from collections.abc import Sequence

from tree_sitter import Node

from harness.solvers.search.analogies import empty_returns
from harness.solvers.search.donors import (
    SIGNATURE,
    RepairEdits,
    locals_of,
    nearby_functions,
    nodes_of,
    replace_node,
    statement_donors,
    usable_donors,
)
from pytest_ssr.source.syntax_tree import ParsedSource, Scope, walk

_DEFAULTS = (b"None", b"True", b"False", b"0", b"1", b'""', b"()")
_JOINED = (b"+", b"-", b"*", b"/", b"//", b"%", b"and", b"or")
_MAX_NAMES, _MAX_LITERALS, _MAX_LITERAL_BYTES = 5, 24, 40
_COMMON = (b"", b" ", b".", b",", b"-", b"_", b"/", b":", b"=", b"\\n", b"\\x00", b"utf-8")


def returns(source: ParsedSource, node: Node) -> RepairEdits:
    """Yield common values for empty returns, returns of unused expressions, and missing `await`s."""
    if node.type == "return_statement" and (not node.named_children or node.named_children[0].type == "none"):
        for text in (b"self", b"True", b"False", b"result", b"[]", b"{}"):
            yield "return-value", 0.3, replace_node(node, b"return " + text)
    if node.type == "expression_statement" and node.named_child_count == 1:
        inner = node.named_children[0]
        if inner.type not in ("string", "assignment", "augmented_assignment", "yield", "ellipsis"):
            yield "return-it", 0.5, replace_node(node, b"return " + source.text(inner))
    if node.type == "call" and node.parent is not None and node.parent.type != "await":
        if b"async def" in source.data:
            yield "await", 0.3, replace_node(node, b"await " + source.text(node))


def values(source: ParsedSource, scope: Scope) -> RepairEdits:
    """Yield small expressions of the function's names for returns of nothing or of a simple value."""
    names = sorted(locals_of(source, scope))
    self_names = [b"self"] if b"self" in source.text(scope.node)[:SIGNATURE] else []
    for node in walk(scope.node):
        if node.type != "return_statement":
            continue
        value = node.named_children[0] if node.named_children else None
        if value is not None and value.type not in ("none", "identifier", "true", "false", "integer"):
            continue
        for name in [*names, *self_names]:
            yield "return-name", 0.4, replace_node(node, b"return " + name)
        for name in names[:_MAX_NAMES]:
            for other in names[:_MAX_NAMES]:
                for sign in _JOINED if name != other else ():
                    yield "return-both", 0.2, replace_node(node, b"return %s %s %s" % (name, sign, other))
            for called in sorted(_functions_of(source))[:_MAX_NAMES]:
                yield "return-call", 0.1, replace_node(node, b"return %s(%s)" % (called, name))


def lost_values(source: ParsedSource, scope: Scope, others: Sequence[Scope]) -> RepairEdits:
    """Yield, for each of the `empty_returns`, return values of other functions, and attributes of the object."""
    targets = empty_returns(source, scope)
    if not targets:
        return
    donors = usable_donors(
        source, scope, [d for s in nearby_functions(scope, others) for d in statement_donors(source, s)]
    )
    texts = [d.text for d in donors if d.text.startswith(b"return ") and b"\n" not in d.text]
    own = scope.qualname.rpartition(".")[0]
    if own and b"self" in source.text(scope.node)[:SIGNATURE]:
        of_class = next((s for s in others if s.kind == "class" and s.qualname == own), scope)
        attributes = [n for n in walk(of_class.node) if n.type == "attribute"]
        plain = dict.fromkeys(source.text(n) for n in attributes if source.text(n).count(b".") == 1)
        texts += [b"return " + t for t in plain if t.startswith(b"self.")]
    for node in targets:
        for text in dict.fromkeys(texts):
            yield "other-return", 0.5, replace_node(node, text)


def literals(source: ParsedSource, scope: Scope) -> RepairEdits:
    """Yield replacements of a literal by another one of the file, the nearest first, or by a common one."""
    targets = [n for n in walk(scope.node) if _literal(source, n)]
    own = [name.encode() for name in reversed(scope.qualname.split("."))]
    pool: dict[str, dict[bytes, int]] = {}
    for node in nodes_of(source) if targets else ():
        if kind := _literal(source, node):
            distances = pool.setdefault(kind, {})
            distance = abs(node.start_byte - scope.start)
            distances[source.text(node)] = min(distance, distances.get(source.text(node), distance))
    for node in targets:
        kind = _literal(source, node)
        nearest = sorted(pool[kind].items(), key=lambda pair: (pair[1], pair[0]))[:_MAX_LITERALS]
        mark = source.text(node).partition(b"'" if source.text(node).endswith(b"'") else b'"')[0]
        common = (
            [mark + b'"%s"' % text for text in (*own, *_COMMON)] if kind != "number" else [b"2", b"10", b"100", b"-1"]
        )
        for text in dict.fromkeys((*(t for t, _ in nearest), *common)):
            yield f"other-{kind}", 0.4, replace_node(node, text)


def _literal(source: ParsedSource, node: Node) -> str:
    """Return the kind of a literal that can be replaced; an empty string for any other node."""
    if node.type in ("integer", "float"):
        return "number"
    text = source.text(node) if node.type == "string" else b""
    if not text or b"\n" in text or len(text) > _MAX_LITERAL_BYTES or b"f" in text.partition(text[-1:])[0].lower():
        return ""
    return "bytes" if b"b" in text.partition(text[-1:])[0].lower() else "text"


def _functions_of(source: ParsedSource) -> list[bytes]:
    names = []
    for node in source.root.named_children:
        target = node.child_by_field_name("definition") if node.type == "decorated_definition" else node
        name = target.child_by_field_name("name") if target is not None else None
        if name is not None and target is not None and target.type == "function_definition":
            names.append(source.text(name))
    return names


def defaults(source: ParsedSource, node: Node) -> RepairEdits:
    """Yield common values for the default of a parameter or for a keyword."""
    if node.type in ("default_parameter", "typed_default_parameter", "keyword_argument"):
        value = node.child_by_field_name("value")
        for text in _DEFAULTS if value is not None else ():
            assert value is not None
            yield "other-default", 0.5, replace_node(value, text)
