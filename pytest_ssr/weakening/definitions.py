"""Where a test is defined in a syntax tree: classes, functions, blocks, and the literal lists of `parametrize`."""

from __future__ import annotations

import ast
import functools
from collections.abc import Sequence

from pytest_ssr.weakening.text import Definition


def find_class(tree: ast.Module, names: Sequence[str]) -> ast.ClassDef | None:
    """Return the class of a dotted name, or None."""
    body: Sequence[ast.stmt] = tree.body
    found: ast.ClassDef | None = None
    for name in names:
        classes = [n for n in _flat(body) if isinstance(n, ast.ClassDef) and n.name == name]
        if not classes:
            return None
        found = classes[-1]
        body = found.body
    return found


def definitions_of(holder: ast.Module | ast.ClassDef, name: str) -> list[Definition]:
    """Return every definition of a function in a scope; the last wins, the others would come to life without it."""
    return list(_functions_in(holder).get(name, ()))


@functools.lru_cache(maxsize=8)
def _functions_in(holder: ast.Module | ast.ClassDef) -> dict[str, list[Definition]]:
    found: dict[str, list[Definition]] = {}
    for node in _flat(holder.body):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found.setdefault(node.name, []).append(node)
    return found


def _flat(body: Sequence[ast.stmt]) -> list[ast.stmt]:
    """Return the statements of a scope, those under `if`, `try` and `with` included."""
    found: list[ast.stmt] = []
    for node in body:
        found.append(node)
        for block in _blocks(node):
            found += _flat(block)
    return found


def _blocks(node: ast.stmt) -> list[list[ast.stmt]]:
    if isinstance(node, ast.If):
        return [node.body, node.orelse]
    if isinstance(node, ast.With):
        return [node.body]
    if isinstance(node, ast.Try):
        return [node.body, *(h.body for h in node.handlers), node.orelse, node.finalbody]
    return []


def with_emptied(
    tree: ast.Module, gone: Sequence[ast.stmt], bases: frozenset[str]
) -> tuple[list[ast.stmt], list[list[ast.stmt]]] | None:
    """Return what to take out whole, emptied test classes included, and the blocks that must keep a `pass`."""
    out = list(gone)
    hollow: list[list[ast.stmt]] = []

    def visit(node: ast.AST) -> None:
        for child in ast.iter_child_nodes(node):
            visit(child)
        blocks = [b for b in ([node.body] if isinstance(node, ast.ClassDef) else []) if b]
        if isinstance(node, ast.stmt):
            blocks += [b for b in _blocks(node) if b]
        for block in blocks:
            left = [s for s in block if s not in out and not is_text(s)]
            if left or not any(s in out for s in block):
                continue
            if isinstance(node, ast.ClassDef) and node.name not in bases:
                out[:] = [s for s in out if s not in block] + [node]
            elif all(s in out for s in block):
                hollow.append(block)
                out[:] = [s for s in out if s not in block]

    visit(tree)
    return out, hollow


def is_text(node: ast.stmt) -> bool:
    """Tell whether a statement is a docstring, or another constant."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def parameter_lists(mark: ast.expr) -> tuple[str, list[ast.expr], list[ast.expr], bool] | None:
    """Return the first argument name, the sets, the labels, and whether it is a tuple, of a literal `parametrize`."""
    if not isinstance(mark, ast.Call) or not isinstance(mark.func, ast.Attribute) or mark.func.attr != "parametrize":
        return None
    given = {k.arg: k.value for k in mark.keywords}
    names = mark.args[0] if mark.args else given.get("argnames")
    values = mark.args[1] if len(mark.args) > 1 else given.get("argvalues")
    labels = given.get("ids")
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
