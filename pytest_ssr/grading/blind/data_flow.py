"""Determine by data flow which expressions of a test file depend on the code under test.

An expression is a literal, a constant (built from literals by libraries), or computed: it depends on a call into the
project, or on an object that such a call received and may have changed.
"""

from __future__ import annotations

import ast
import builtins
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from enum import IntEnum

from pytest_ssr.grading.blind.assertions import first_attribute, is_immutable, own_attribute, parts_of, root_of
from pytest_ssr.grading.blind.tables import Definition, Table, called, columns_of, marks_of

_ROUNDS = 12
_CHANGING = frozenset(("setattr", "delattr", "exec", "next"))


class Level(IntEnum):
    """How far an expression depends on the code under test."""

    LITERAL = 0
    CONSTANT = 1
    COMPUTED = 2


Source = ast.expr | Level


@dataclass
class Function:
    """A function of a test file that is not nested in another function."""

    node: Definition
    holder: ast.ClassDef | None
    bindings: list[tuple[str, Source]] = field(default_factory=list)
    calls: list[ast.Call] = field(default_factory=list)
    levels: dict[str, Level] = field(default_factory=dict)

    @property
    def parameters(self) -> list[str]:
        """The names of its parameters, in order."""
        arguments = self.node.args
        more = [a for a in (arguments.vararg, arguments.kwarg) if a is not None]
        return [a.arg for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, *more)]

    @property
    def is_fixture(self) -> bool:
        """Whether it is a fixture of pytest."""
        marks = (m.func if isinstance(m, ast.Call) else m for m in self.node.decorator_list)
        return any(getattr(m, "attr", getattr(m, "id", "")) == "fixture" for m in marks)

    @property
    def is_test(self) -> bool:
        """Whether it is a test, or a fixture or method that pytest or unittest calls."""
        return self.node.name.startswith("test") or self.node.name.endswith("test")


def functions_of(tree: ast.Module) -> list[Function]:
    """Return the functions of a file and of its classes, in order."""
    return list(_functions(tree, None))


def _functions(holder: ast.AST, owner: ast.ClassDef | None) -> Iterator[Function]:
    for node in ast.iter_child_nodes(holder):
        if isinstance(node, Definition):
            yield Function(node, owner)
        elif isinstance(node, ast.ClassDef):
            yield from _functions(node, node)
        elif isinstance(node, ast.If | ast.Try | ast.With | ast.ExceptHandler):
            yield from _functions(node, owner)


class Flow:
    """The levels of all names in a test file."""

    def __init__(self, tree: ast.Module, own: Collection[str]) -> None:
        """Analyze a file; own: the names by which the project's code and tests are imported."""
        self._own = own
        self.functions = functions_of(tree)
        self._module = Function(ast.FunctionDef("", ast.arguments([], [], None, [], [], None, []), [], []), None)
        self._module.node.body = [s for s in tree.body if not isinstance(s, Definition | ast.ClassDef)]
        self._single_assignments = _assigned_once(tree)
        self._local_assignments = {id(f.node): _assigned_once(f.node) for f in self.functions}
        self._attributes = _attributes(self.functions)
        self._fixtures = {f.node.name: f for f in reversed(self.functions) if f.is_fixture}
        self._function_counts = Counter(f.node.name for f in self.functions)
        self._helpers = self._called_directly(tree)
        for function in (self._module, *self.functions):
            self._collect(function)
        for node in tree.body:
            if isinstance(node, Definition | ast.ClassDef):
                self._module.levels[node.name] = Level.COMPUTED
        helpers = [f for f in self.functions if is_plain_helper(f)]
        self._module.levels |= {f.node.name: Level.CONSTANT for f in helpers if self._function_counts[f.node.name] == 1}
        for _ in range(_ROUNDS):
            raised = [self._propagate(f) for f in (self._module, *self.functions)]
            raised += [self._raise_helper(f) for f in helpers]
            if not any(raised):
                break

    def _raise_helper(self, function: Function) -> bool:
        """Mark a helper as computed if it uses anything computed; return whether that is new."""
        name = function.node.name
        names = (n for n in ast.walk(function.node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load))
        if self._module.levels[name] is Level.COMPUTED or all(self.level(n, function) < Level.COMPUTED for n in names):
            return False
        self._module.levels[name] = Level.COMPUTED
        return True

    def table(self, rows: ast.expr, function: Function | None = None) -> Table | None:
        """Return the literal that a loop in a function, or in the module, iterates over, directly or by name."""
        if isinstance(rows, ast.Call) and called(rows) == "items" and isinstance(rows.func, ast.Attribute):
            inner = self.table(rows.func.value, function)
            return inner if inner is not None and isinstance(inner.node, ast.Dict) else None
        if isinstance(rows, ast.Name):
            assignments = self._single_assignments
            if function is not None and self.is_local(rows.id, function):
                assignments = self._local_assignments[id(function.node)]
            value = assignments.get(rows.id)
            return self.table(value, function) if value is not None and not isinstance(value, ast.Name) else None
        return Table(rows) if isinstance(rows, ast.List | ast.Tuple | ast.Set | ast.Dict) else None

    def is_local(self, name: str, function: Function) -> bool:
        """Return whether a name is assigned once in a function; other functions may assign it as well."""
        return name in self._local_assignments.get(id(function.node), ())

    def level(self, node: ast.AST | None, function: Function | None) -> Level:
        """Return the level of an expression in a function, or in the module if the function is None."""
        if node is None or isinstance(node, ast.Constant):
            return Level.LITERAL
        if isinstance(node, ast.Name):
            return self._name_level(node.id, function)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in ("self", "cls"):
            return self._attribute_level(node.attr, function)
        least = Level.LITERAL
        if isinstance(node, ast.Call | ast.Await | ast.Attribute | ast.Lambda):
            least = Level.CONSTANT
        if isinstance(node, ast.Yield | ast.YieldFrom):
            return Level.COMPUTED
        children = (self.level(child, function) for child in parts_of(node))
        return max([least, *children])

    def _name_level(self, name: str, function: Function | None) -> Level:
        if function is not None and name in function.levels:
            return function.levels[name]
        if name in self._module.levels:
            return self._module.levels[name]
        return Level.LITERAL if hasattr(builtins, name) else Level.COMPUTED

    def _attribute_level(self, name: str, function: Function | None) -> Level:
        holder = function.holder if function is not None else None
        sources = self._attributes.get((id(holder), name))
        if holder is None or not sources:
            return Level.COMPUTED
        return max(s if isinstance(s, Level) else self.level(s, owner) for s, owner in sources)

    def _collect(self, function: Function) -> None:
        """Collect the bindings and calls of a function."""
        for part in function.node.body:
            for node in ast.walk(part):
                function.bindings += self._bindings_of(node, function)
                if isinstance(node, ast.Call):
                    function.calls.append(node)
        for name in function.parameters:
            function.bindings += [(name, source) for source in self._parameter_sources(function, name)]
        # Levels are only ever raised.
        function.levels = {name: Level.LITERAL for name, _ in function.bindings}

    def _bindings_of(self, node: ast.AST, function: Function) -> Iterator[tuple[str, Source]]:
        """Yield the names that a node binds, with their values."""
        if isinstance(node, ast.Assign):
            for target in node.targets:
                yield from self._target_bindings(target, node.value)
        elif isinstance(node, ast.AnnAssign | ast.AugAssign | ast.NamedExpr) and node.value is not None:
            yield from self._target_bindings(node.target, node.value)
        elif isinstance(node, ast.For | ast.AsyncFor | ast.comprehension):
            yield from self._loop_bindings(node.target, node.iter, function)
        elif isinstance(node, ast.withitem) and node.optional_vars is not None:
            yield from self._target_bindings(node.optional_vars, Level.COMPUTED)
        elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name:
            yield node.name, Level.COMPUTED
        elif isinstance(node, Definition | ast.Lambda):
            names = [a.arg for a in ast.walk(node.args) if isinstance(a, ast.arg)]
            names += [] if isinstance(node, ast.Lambda) else [node.name]
            yield from ((name, Level.COMPUTED) for name in names)
        elif isinstance(node, ast.ClassDef):
            yield node.name, Level.COMPUTED
        elif isinstance(node, ast.Import | ast.ImportFrom):
            yield from self._import_bindings(node)

    def _import_bindings(self, node: ast.Import | ast.ImportFrom) -> Iterator[tuple[str, Source]]:
        for alias in node.names:
            module = (node.module or "") if isinstance(node, ast.ImportFrom) else alias.name
            own = module.partition(".")[0] in self._own or bool(getattr(node, "level", 0))
            name = alias.asname or alias.name.partition(".")[0]
            yield name, Level.COMPUTED if own or alias.name == "*" else Level.CONSTANT

    def _target_bindings(self, target: ast.expr, value: Source) -> Iterator[tuple[str, Source]]:
        if isinstance(target, ast.Name):
            yield target.id, value
        elif isinstance(target, ast.Tuple | ast.List):
            parts = getattr(value, "elts", None) if isinstance(value, ast.Tuple | ast.List) else None
            same = parts is not None and len(parts) == len(target.elts)
            for number, inner in enumerate(target.elts):
                yield from self._target_bindings(inner, parts[number] if same and parts is not None else value)
        elif isinstance(target, ast.Starred):
            yield from self._target_bindings(target.value, value)
        elif isinstance(target, ast.Attribute | ast.Subscript) and (root := root_of(target)):
            yield root, value

    def _loop_bindings(self, target: ast.expr, rows: ast.expr, function: Function) -> Iterator[tuple[str, Source]]:
        targets = target.elts if isinstance(target, ast.Tuple | ast.List) else [target]
        table = self.table(rows, function)
        for inner, number in zip(targets, columns_of(targets), strict=True):
            cells = table.column(number) if table is not None else None
            for cell in cells if cells is not None else [rows]:
                yield from self._target_bindings(inner, cell)

    def _parameter_sources(self, function: Function, name: str) -> Iterator[Source]:
        """Yield the possible values of a parameter."""
        owners = [function.node, *([function.holder] if function.holder is not None else [])]
        for owner in owners:
            for _, names, rows in marks_of(owner):
                if name in names:
                    table = self.table(rows)
                    cells = table.column(columns_of(names)[names.index(name)]) if table is not None else None
                    yield from cells if cells is not None else [rows]
                    return
        fixture = self._fixtures.get(name)
        if fixture is not None and (function.is_test or function.is_fixture):
            yield from returned(fixture)
            return
        calls = self._helpers.get(id(function.node))
        if calls is None:
            yield Level.COMPUTED
            return
        for call, _ in calls:
            arg = argument(function, call, name)
            # `_propagate` evaluates its level in the function that makes the call.
            yield arg if arg is not None else Level.LITERAL

    def _propagate(self, function: Function) -> bool:
        """Raise the levels of a function's names as far as known so far; return whether any was raised."""
        before = dict(function.levels)
        inner = None if function is self._module else function
        callers = self._helpers.get(id(function.node)) or []
        whose = {id(argument(function, c, n)): f for c, f in callers for n in function.parameters}
        for name, source in function.bindings:
            if isinstance(source, Level):
                raised = source
            else:
                raised = self.level(source, whose.get(id(source), self._owner_of(source, name, inner)))
            function.levels[name] = max(function.levels.get(name, Level.LITERAL), raised)
        for call in function.calls:
            if self.level(call, inner) is Level.COMPUTED or called(call) in _CHANGING:
                self._mark_arguments(call, function)
        return function.levels != before

    def _owner_of(self, source: ast.expr, name: str, function: Function | None) -> Function | None:
        fixture = self._fixtures.get(name)
        return fixture if fixture is not None and any(source is r for r in returned(fixture)) else function

    def _mark_arguments(self, call: ast.Call, function: Function) -> None:
        """Mark the objects that a call into the project receives, and may change, as computed."""
        arguments = [*call.args, *(k.value for k in call.keywords)]
        roots = [root_of(call.func.value)] if isinstance(call.func, ast.Attribute) else []
        # An item or attribute is passed without the object that holds it.
        parts = {
            id(n.value) for value in arguments for n in ast.walk(value) if isinstance(n, ast.Subscript | ast.Attribute)
        }
        roots += [n.id for v in arguments for n in ast.walk(v) if isinstance(n, ast.Name) and id(n) not in parts]
        bound = {n for n, _ in function.bindings}
        for name in roots:
            if name in bound and not self._is_fixed(name, function, set()):
                function.levels[name] = Level.COMPUTED

    def _is_fixed(self, name: str, function: Function, seen: set[str]) -> bool:
        """Return whether the value of a name is immutable: numbers, strings, and tuples of these."""
        sources = [s for n, s in function.bindings if n == name]
        seen.add(name)

        def fixed(node: Source) -> bool:
            if isinstance(node, ast.Name):
                return (
                    node.id in seen
                    or not any(n == node.id for n, _ in function.bindings)
                    or self._is_fixed(node.id, function, seen)
                )
            if isinstance(node, ast.Tuple | ast.BinOp | ast.UnaryOp | ast.JoinedStr | ast.FormattedValue):
                return all(fixed(n) for n in ast.iter_child_nodes(node) if isinstance(n, ast.expr))
            return isinstance(node, ast.Constant)

        return all(fixed(s) for s in sources)

    def _called_directly(self, tree: ast.Module) -> dict[int, list[tuple[ast.Call, Function | None]]]:
        """Return the calls of each helper that is used only in calls, by the id of its definition."""
        loads: dict[str, int] = {}
        calls: dict[str, list[tuple[ast.Call, Function | None]]] = {}
        inside = {id(n): f for f in self.functions for n in ast.walk(f.node)}
        for node in ast.walk(tree):
            name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
            if name:
                loads[name] = loads.get(name, 0) + 1
            if isinstance(node, ast.Call) and not any(isinstance(a, ast.Starred) for a in node.args):
                if None not in {k.arg for k in node.keywords}:
                    calls.setdefault(called(node), []).append((node, inside.get(id(node))))
        names = [f.node.name for f in self.functions]
        return {
            id(f.node): calls[n]
            for f in self.functions
            if not (f.is_test or f.is_fixture) and not f.node.decorator_list and names.count(n := f.node.name) == 1
            if n in calls and loads[n] == len(calls[n])
        }

    def calls_of(self, function: Function) -> list[ast.Call]:
        """Return the calls of a helper that is used only in calls; empty for any other function."""
        return [call for call, _ in self._helpers.get(id(function.node)) or []]


def _assigned_once(scope: ast.AST) -> dict[str, ast.expr]:
    """Return the values of names that are assigned once in a file, or in a function and only there."""
    nodes = list(ast.walk(scope))
    stores = Counter(n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store))
    stores.update(n.arg for n in nodes if isinstance(n, ast.arg))
    if isinstance(scope, Definition):
        stores.update(name for n in nodes if isinstance(n, ast.Global | ast.Nonlocal) for name in n.names)
    values = {}
    for node in nodes:
        value = node.value if isinstance(node, ast.Assign | ast.AnnAssign) else None
        target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
        if value is not None and isinstance(target, ast.Name) and stores[target.id] == 1:
            values[target.id] = value
    return values


def is_plain_helper(function: Function) -> bool:
    """Return whether a function is at module level, undecorated, and not a test."""
    return function.holder is None and not function.is_test and not function.node.decorator_list


def argument(function: Function, call: ast.Call, name: str) -> ast.expr | None:
    """Return the expression that a call passes to a parameter; None if it does not exist."""
    for keyword in call.keywords:
        if keyword.arg == name:
            return keyword.value
    names = function.parameters[1 if function.holder is not None else 0 :]
    position = names.index(name) if name in names else len(call.args)
    return call.args[position] if position < len(call.args) else None


def returned(function: Function) -> list[Source]:
    """Return the possible values of a fixture; a fixture that yields or has parameters counts as computed."""
    inner = [n for part in function.node.body for n in ast.walk(part)]
    if "request" in function.parameters or any(isinstance(n, ast.Yield | ast.YieldFrom) for n in inner):
        return [Level.COMPUTED]
    return [n.value for n in inner if isinstance(n, ast.Return) and n.value is not None] or [Level.LITERAL]


def _attributes(functions: list[Function]) -> dict[tuple[int, str], list[tuple[Source, Function | None]]]:
    """Return the values assigned to attributes of each test class, by the id of the class and the attribute name."""
    assignments: dict[tuple[int, str], list[tuple[Source, Function | None]]] = {}
    touched: set[tuple[int, str]] = set()
    holders = {id(f.holder): f.holder for f in functions if f.holder is not None}
    for number, holder in holders.items():
        for node in holder.body:
            for target in node.targets if isinstance(node, ast.Assign) else ():
                if isinstance(target, ast.Name) and isinstance(node, ast.Assign):
                    assignments.setdefault((number, target.id), []).append((node.value, None))
    for function in functions:
        nodes = list(ast.walk(function.node)) if function.holder is not None else []
        plain = {id(n.targets[0]): n.value for n in nodes if isinstance(n, ast.Assign) and len(n.targets) == 1}
        calls = (n for n in nodes if isinstance(n, ast.Call) and not called(n).startswith("assert"))
        call_parts = {id(a) for n in calls for a in (n.func, *n.args, *n.keywords)}
        used = {own_attribute(i) for n in nodes if id(n) in call_parts for i in ast.walk(n)}
        for inner in nodes:
            if isinstance(inner, ast.Attribute) and isinstance(inner.ctx, ast.Store) and root_of(inner) == "self":
                value = plain.get(id(inner)) if own_attribute(inner) else None
                assignments.setdefault((id(function.holder), first_attribute(inner)), []).append(
                    (value, function) if value is not None else (Level.COMPUTED, None)
                )
        for name in used - {""}:
            # A call may change the value, unless it is immutable.
            key = (id(function.holder), name)
            assignments.setdefault(key, [])
            touched.add(key)
    for key in touched & assignments.keys():
        if not all(not isinstance(s, Level) and is_immutable(s) for s, _ in assignments[key]):
            assignments[key].append((Level.COMPUTED, None))
    return {key: sources for key, sources in assignments.items() if sources}
