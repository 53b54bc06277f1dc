"""Find the definitions of tests in a syntax tree: classes, functions, blocks, and literal `parametrize` lists."""

from __future__ import annotations

import ast
import functools
from collections.abc import Sequence

from pytest_ssr.source.spans import Definition


def find_class(tree: ast.Module, names: Sequence[str]) -> ast.ClassDef | None:
    """Return the class with the given nested names, or None."""
    body: Sequence[ast.stmt] = tree.body
    result: ast.ClassDef | None = None
    for name in names:
        classes = [n for n in _flat(body) if isinstance(n, ast.ClassDef) and n.name == name]
        if not classes:
            return None
        result = classes[-1]
        body = result.body
    return result


def definitions_of(holder: ast.Module | ast.ClassDef, name: str) -> list[Definition]:
    """Return all definitions of a function in a scope; the last one wins, and without it an earlier one would."""
    return list(_functions_in(holder).get(name, ()))


def nested_definitions(tree: ast.Module, name: str) -> list[Definition]:
    """Return all definitions of a function in the bodies of other functions."""
    return [n for n in _in_functions(tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef) and n.name == name]


def class_names(tree: ast.Module, *, only_nested: bool) -> frozenset[str]:
    """Return the names of the classes; only_nested: those in bodies of functions only."""
    nodes = _in_functions(tree) if only_nested else ast.walk(tree)
    return frozenset(n.name for n in nodes if isinstance(n, ast.ClassDef))


def _in_functions(tree: ast.Module) -> list[ast.AST]:
    functions = (n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef))
    return list(dict.fromkeys(inner for f in functions for statement in f.body for inner in ast.walk(statement)))


@functools.lru_cache(maxsize=8)
def _functions_in(holder: ast.Module | ast.ClassDef) -> dict[str, list[Definition]]:
    functions: dict[str, list[Definition]] = {}
    for node in _flat(holder.body):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            functions.setdefault(node.name, []).append(node)
    return functions


def _flat(body: Sequence[ast.stmt]) -> list[ast.stmt]:
    """Return the statements of a scope, including those under `if`, `try` and `with`."""
    statements: list[ast.stmt] = []
    for node in body:
        statements.append(node)
        for block in _blocks(node):
            statements += _flat(block)
    return statements


def _blocks(node: ast.stmt) -> list[list[ast.stmt]]:
    if isinstance(node, ast.If):
        return [node.body, node.orelse]
    if isinstance(node, ast.With):
        return [node.body]
    if isinstance(node, ast.Try):
        return [node.body, *(h.body for h in node.handlers), node.orelse, node.finalbody]
    return []


def statements_to_remove(
    tree: ast.Module, nodes: Sequence[ast.stmt], bases: frozenset[str]
) -> tuple[list[ast.stmt], list[list[ast.stmt]]] | None:
    """Return the statements to remove, emptied test classes included, and the blocks that need a `pass`."""
    removed = list(nodes)
    hollow: list[list[ast.stmt]] = []

    def visit(node: ast.AST) -> None:
        for child in ast.iter_child_nodes(node):
            visit(child)
        blocks = [node.body] if isinstance(node, ast.ClassDef) and node.body else []
        if isinstance(node, ast.stmt):
            blocks += [b for b in _blocks(node) if b]
        for block in blocks:
            remaining = [s for s in block if s not in removed and not is_constant(s)]
            if remaining or not any(s in removed for s in block):
                continue
            if isinstance(node, ast.ClassDef) and node.name not in bases:
                removed[:] = [s for s in removed if s not in block] + [node]
            elif all(s in removed for s in block):
                hollow.append(block)
                removed[:] = [s for s in removed if s not in block]

    visit(tree)
    return removed, hollow


def is_constant(node: ast.stmt) -> bool:
    """Return whether a statement is a docstring or another constant."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def parameter_lists(mark: ast.expr) -> tuple[str, list[ast.expr], list[ast.expr], bool] | None:
    """Return a literal `parametrize`'s first argument name, sets, labels, and whether the sets are a tuple."""
    if not isinstance(mark, ast.Call) or not isinstance(mark.func, ast.Attribute) or mark.func.attr != "parametrize":
        return None
    keywords = {k.arg: k.value for k in mark.keywords}
    names = mark.args[0] if mark.args else keywords.get("argnames")
    values = mark.args[1] if len(mark.args) > 1 else keywords.get("argvalues")
    labels = keywords.get("ids")
    if isinstance(names, ast.List | ast.Tuple) and names.elts:
        names = names.elts[0]
    if not (isinstance(names, ast.Constant) and isinstance(names.value, str)):
        return None
    if not isinstance(values, ast.List | ast.Tuple) or any(isinstance(v, ast.Starred) for v in values.elts):
        return None
    if isinstance(labels, ast.List | ast.Tuple):
        if len(labels.elts) != len(values.elts):
            return None
        label_list = labels.elts
    elif labels is None or isinstance(labels, ast.Constant | ast.Name | ast.Attribute | ast.Lambda):
        label_list = []
    else:
        return None
    return names.value.split(",")[0].strip(), values.elts, label_list, isinstance(values, ast.Tuple)
