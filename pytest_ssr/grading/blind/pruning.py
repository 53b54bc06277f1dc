"""Remove code from a blind test file that only fed the expected sides of its assertions."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from pytest_ssr.grading.blind.assertions import own_attribute
from pytest_ssr.grading.blind.data_flow import Flow, Function, Level, argument, is_plain_helper, returned
from pytest_ssr.grading.blind.tables import Definition, Table, columns_of, marks_of

_ROUNDS = 6
_NAMES_BY_TEXT = frozenset(("locals", "eval", "exec", "vars", "globals"))


@dataclass(frozen=True)
class Loads:
    """The names that are read, in each function and in the whole file."""

    by_function: dict[int, frozenset[str]]
    names: Counter[str]
    attributes: frozenset[str]
    texts: frozenset[str]

    @classmethod
    def of(cls, tree: ast.Module, functions: Iterable[Function]) -> Loads:
        """Collect the names that a file reads."""
        by_function = {id(f.node): frozenset(_names(f.node)) for f in functions}
        nodes = list(ast.walk(tree))
        attributes = frozenset(n.attr for n in nodes if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Load))
        texts = frozenset(n.value for n in nodes if isinstance(n, ast.Constant) and isinstance(n.value, str))
        return cls(by_function, Counter(_names(tree)), attributes, texts)


def _names(node: ast.AST) -> Iterable[str]:
    return (n.id for n in ast.walk(node) if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Store))


def prune(tree: ast.Module, flow: Flow, before: Loads, exported: Collection[str]) -> None:
    """Remove code that was read before the assertions were rewritten, and is not read any more."""
    for _ in range(_ROUNDS):
        now = Loads.of(tree, flow.functions)
        changed = [_locals(f, flow, before, now) for f in flow.functions]
        changed.append(_tables(tree, flow, before, now))
        changed += [_arguments(f, flow, before, now) for f in flow.functions]
        changed += [_fixture(f, flow, before, now) for f in flow.functions]
        changed.append(_constants(tree, flow, before, now, exported))
        changed.append(_helpers(tree, flow, before, now, exported))
        if not any(changed):
            return


def _idle(function: Function, before: Loads, now: Loads) -> frozenset[str]:
    """Return the names that a function read before and no longer reads."""
    read = now.by_function[id(function.node)]
    if read & _NAMES_BY_TEXT:
        return frozenset()
    return before.by_function[id(function.node)] - read


def _locals(function: Function, flow: Flow, before: Loads, now: Loads) -> bool:
    return _drop(function.node, _idle(function, before, now), flow, function)


def _constants(tree: ast.Module, flow: Flow, before: Loads, now: Loads, exported: Collection[str]) -> bool:
    idle = {n for n in before.names if not now.names[n] and n not in exported and n not in now.texts}
    changed = _drop(tree, idle, flow, None)
    lost = before.attributes - now.attributes - now.texts - set(exported)
    for holder in {id(f.holder): f.holder for f in flow.functions if f.holder is not None}.values():
        changed |= _drop(holder, lost - set(now.names), flow, None)
    for function in flow.functions:
        changed |= _drop(function.node, {f"self.{name}" for name in lost}, flow, function)
    return changed


def _helpers(tree: ast.Module, flow: Flow, before: Loads, now: Loads, exported: Collection[str]) -> bool:
    """Drop the functions of a file that are no longer called."""
    changed = False
    for function in flow.functions:
        name = function.node.name
        idle = before.names[name] and not now.names[name] and name not in exported and name not in now.texts
        if idle and is_plain_helper(function) and function.node in tree.body:
            tree.body.remove(function.node)
            changed = True
    return changed


def _drop(holder: ast.AST, names: Collection[str], flow: Flow, function: Function | None) -> bool:
    """Drop assignments of uncomputed values to names in a function, class or file, but not in nested ones."""
    changed = False
    for field in ("body", "orelse", "finalbody", "handlers"):
        block = getattr(holder, field, None)
        if not isinstance(block, list):
            continue
        for node in list(block):
            if function is not None or not isinstance(node, Definition | ast.ClassDef):
                changed |= _drop(node, names, flow, function)
            if _is_dropped(node, names, flow, function):
                block.remove(node)
                changed = True
        if not block and changed and field == "body" and not isinstance(holder, ast.Module):
            block.append(ast.Pass())
    return changed


def _is_dropped(node: ast.stmt, names: Collection[str], flow: Flow, function: Function | None) -> bool:
    if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
        return False
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    for target in targets:
        parts = node.value.elts if isinstance(node.value, ast.Tuple) else []
        if isinstance(target, ast.Tuple) and len(parts) == len(target.elts):
            for number, part in enumerate(target.elts):
                if isinstance(part, ast.Name) and part.id in names and flow.level(parts[number], function) < 2:
                    parts[number] = ast.Constant(None)
    if not all((f"self.{own}" if (own := own_attribute(t)) else getattr(t, "id", None)) in names for t in targets):
        return False
    return flow.level(node.value, function) is not Level.COMPUTED


def _tables(tree: ast.Module, flow: Flow, before: Loads, now: Loads) -> bool:
    """Empty the table columns that are not read."""
    users: dict[int, tuple[Table, list[set[int]], list[tuple[ast.AST, str]]]] = {}

    def use(rows: ast.expr, names: Sequence[str], idle: Collection[str], function: Function | None) -> None:
        table = flow.table(rows, function)
        if table is None:
            return
        columns = {c for c, n in zip(columns_of(names), names, strict=True) if c is not None and n in idle}
        source = rows.func.value if isinstance(rows, ast.Call) and isinstance(rows.func, ast.Attribute) else rows
        _, unread, names_used = users.setdefault(id(table.node), (table, [], []))
        unread.append(columns)
        if isinstance(source, ast.Name):
            is_local = function is not None and flow.is_local(source.id, function)
            names_used.append((function.node if function is not None and is_local else tree, source.id))

    for function in flow.functions:
        idle = _idle(function, before, now)
        for node in ast.walk(function.node):
            if isinstance(node, ast.For | ast.AsyncFor | ast.comprehension):
                parts = node.target.elts if isinstance(node.target, ast.Tuple | ast.List) else [node.target]
                use(node.iter, [getattr(p, "id", "") for p in parts], idle, function)
    for owner, inner in _owners(flow):
        idle = frozenset.intersection(*(_unread(f, before, now) for f in inner))
        for _, names, rows in marks_of(owner):
            use(rows, names, idle, None)
    changed = False
    for table, unread, names_used in users.values():
        if all(Counter(_names(scope))[name] == names_used.count((scope, name)) for scope, name in names_used):
            for column in set.intersection(*unread):
                cells = table.column(column)
                if cells is not None and all(flow.level(c, None) is not Level.COMPUTED for c in cells):
                    changed |= table.empty(column)
    return changed


def _unread(function: Function, before: Loads, now: Loads) -> frozenset[str]:
    """Return the parameters that a function no longer reads, or never did."""
    idle = _idle(function, before, now)
    never = frozenset(function.parameters) - before.by_function[id(function.node)]
    return idle | never


def _owners(flow: Flow) -> list[tuple[Definition | ast.ClassDef, list[Function]]]:
    """Return the definitions that may have marks, with the functions these apply to."""
    owners: list[tuple[Definition | ast.ClassDef, list[Function]]] = [(f.node, [f]) for f in flow.functions]
    holders = {id(f.holder): f.holder for f in flow.functions if f.holder is not None}
    owners += [(h, [f for f in flow.functions if f.holder is h and f.is_test]) for h in holders.values()]
    return [(owner, inner) for owner, inner in owners if inner]


def _arguments(function: Function, flow: Flow, before: Loads, now: Loads) -> bool:
    """Pass None for the parameters that a helper no longer reads."""
    changed = False
    for name in _idle(function, before, now).intersection(function.parameters):
        for call in flow.calls_of(function):
            value = argument(function, call, name)
            if value is None or (isinstance(value, ast.Constant) and value.value is None):
                continue
            call.args = [ast.Constant(None) if a is value else a for a in call.args]
            for keyword in call.keywords:
                keyword.value = ast.Constant(None) if keyword.value is value else keyword.value
            changed = True
    return changed


def _fixture(function: Function, flow: Flow, before: Loads, now: Loads) -> bool:
    """Empty a fixture that no function reads any longer."""
    name = function.node.name
    if not function.is_fixture or name in now.texts or isinstance(function.node.body[0], ast.Pass):
        return False
    users = [f for f in flow.functions if name in f.parameters]
    if not users or not all(name in _idle(f, before, now) for f in users):
        return False
    sources = returned(function)
    if any(isinstance(s, Level) or flow.level(s, function) is Level.COMPUTED for s in sources):
        return False
    function.node.body = [ast.Pass()]
    return True
