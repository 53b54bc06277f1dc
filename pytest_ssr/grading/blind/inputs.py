"""Vary the inputs of blind tests: the literals left in a blind test are what it computes from."""

from __future__ import annotations

import ast
import copy
import random
from collections.abc import Collection, Iterator, Mapping, Sequence

from pytest_ssr.grading.blind.assertions import RAISING
from pytest_ssr.grading.blind.data_flow import functions_of
from pytest_ssr.grading.blind.other_values import other_value
from pytest_ssr.grading.blind.rewrite import RECORDER
from pytest_ssr.grading.blind.tables import Definition, called, is_param, marks_of

_LARGEST, _LONGEST = 10**9, 400
_MANY, _REORDERED = 0.5, 0.3
_WITH_SHARED, _SHARED = 0.7, 0.7
"""Share of copies that vary what tests share, as constants and fixtures, and share of these inputs in such a copy."""
_TOGETHER, _COINCIDENT, _ADJACENT = 0.5, 0.2, 0.5
"""Share of draws in which equal inputs stay equal, in which an input becomes equal to another one, or nearly so."""
_BOUNDARY = 0.3
"""Share of draws of a number that lie at or beside a number of the code with the bug, if it has some."""
_REPEATS, _CALLED_TWICE = 3, 0.1
_SET_UPS = frozenset(("setUp", "setUpClass", "asyncSetUp", "setup_method", "setup_class", "setup_function", "setup"))
_BLOCKS = ast.If | ast.While | ast.Try | ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
_NOT_INPUT = frozenset(("encoding", "mode", "errors", "ids", "indirect", "reason", "match", "autospec", "scope"))
_BY_NAME = frozenset(
    ("sleep", "getattr", "setattr", "delattr", "hasattr", "patch", "fixture", "import_module", "importorskip")
)


def vary(
    tree: ast.Module,
    wanted: Collection[str],
    rng: random.Random,
    *,
    many: bool,
    far: bool,
    renamed: Mapping[str, str] | None = None,
    modules: Mapping[str, str] | None = None,
    words: Sequence[str] = (),
    bounds: Sequence[float] = (),
) -> ast.Module:
    """Return a copy of a blind file that has only the wanted tests, with other inputs drawn for them.

    wanted: qualified names of test functions. many: vary several inputs at a time, otherwise one for each test or row.
    far: draw large, long and unusual values, otherwise values near the tests' own. renamed: maps file names to the
    varied files that the copy reads instead. modules: the same for the modules that it imports from. words: strings
    that may be inputs, besides those of the file. bounds: numbers at or beside which code may behave differently.
    """
    tree = copy.deepcopy(tree)
    _keep_only(tree, wanted)
    changed = _rename(tree, renamed or {}, modules or {})
    fixed = changed | set(_field_names(tree))
    pool = [*words, *(n.value for n in ast.walk(tree) if isinstance(n, ast.Constant) and isinstance(n.value, str))]
    tests = [f.node for f in functions_of(tree) if f.is_test]
    groups = [_literals(ast.Module(node.body, [])) for node in tests]
    owners: list[Definition | ast.ClassDef] = [*tests, *(n for n in ast.walk(tree) if isinstance(n, ast.ClassDef))]
    for owner in owners:
        for _, _, rows in marks_of(owner):
            groups += [_row_literals(row) for row in getattr(rows, "elts", ())]
    groups = [inputs for group in groups if (inputs := [n for n in group if id(n) not in fixed])]
    # Code that runs at import may fail with other inputs, and then the copy proves nothing.
    share = 1.0 if not groups else _SHARED if rng.random() < _WITH_SHARED else 0.0
    shared_groups = ([n for n in group if id(n) not in fixed] for group in _shared_inputs(tree, tests))
    groups += [group for group in shared_groups if group and rng.random() < share]
    calls = {id(n): copy.deepcopy(n) for value in _values_at_import(tree) for n in ast.walk(value) if _is_guarded(n)}
    for group in groups:
        picked = [n for n in group if rng.random() < _MANY] if many else []
        for literal in picked or [rng.choice(group)]:
            changed |= _change(literal, group, rng, pool, bounds, far=far)
    for node in tests:
        changed |= _reorder(node, rng, far=far)
    _Guard(calls, changed).visit(tree)
    return tree


def _change(
    literal: ast.Constant,
    group: Sequence[ast.Constant],
    rng: random.Random,
    pool: Sequence[str],
    bounds: Sequence[float],
    *,
    far: bool,
) -> set[int]:
    """Give a literal another value, sometimes with all literals of the group that equal it; return the ids of these."""
    alike = [n for n in group if type(n.value) is type(literal.value)]
    together = [n for n in alike if n.value == literal.value] if rng.random() < _TOGETHER else [literal]
    others = [n.value for n in alike if n.value != literal.value]
    numbers = [n for n in bounds if type(n) is type(literal.value)]
    value: object
    if numbers and not far and rng.random() < _BOUNDARY:
        value = rng.choice(numbers) + rng.choice((-1, 0, 1))
    elif others and not far and rng.random() < _COINCIDENT:
        value = rng.choice(others)
        if isinstance(value, int | float) and not isinstance(value, bool) and rng.random() < _ADJACENT:
            # What lies beside a bound, or has the same last digits.
            value += rng.choice((-1, 1)) * 10 ** rng.choice((0, 0, 1, 2))
    else:
        value = other_value(literal.value, rng, pool, far=far)
    for each in together:
        each.value = value  # type: ignore[assignment] # of the same kind
    return {id(each) for each in together}


def rename_tests(tree: ast.Module, suffix: str) -> frozenset[str]:
    """Give the tests of a file other names, so that code cannot recognize them; return those that have got one."""
    tests = [f.node for f in functions_of(tree) if f.is_test and not f.is_fixture]
    nodes = list(ast.walk(tree))
    used = {n.id for n in nodes if isinstance(n, ast.Name)} | {n.attr for n in nodes if isinstance(n, ast.Attribute)}
    renamed = frozenset(node.name for node in tests) - used
    for node in tests:
        node.name += suffix if node.name in renamed else ""
    return renamed


def _values_at_import(tree: ast.Module) -> Iterator[ast.expr]:
    """Yield the tables and constants that are computed when a file is imported, outside of classes."""
    for node in tree.body:
        if isinstance(node, Definition):
            yield from (rows for _, _, rows in marks_of(node))
        elif isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            yield node.value


def _is_guarded(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and not is_param(node)


class _Guard(ast.NodeTransformer):
    """Makes calls with changed inputs fall back to their own inputs: if one failed, all tests of the file would."""

    def __init__(self, calls: Mapping[int, ast.AST], changed: Collection[int]) -> None:
        self._calls, self._changed = calls, changed

    def visit_Call(self, node: ast.Call) -> ast.Call:
        own = self._calls.get(id(node))
        if not isinstance(own, ast.Call) or not any(id(n) in self._changed for n in ast.walk(node)):
            self.generic_visit(node)
            return node
        no_parameters = ast.arguments([], [], None, [], [], None, [])
        attempt = ast.Attribute(ast.Name(RECORDER, ast.Load()), "attempt", ast.Load())
        return ast.Call(attempt, [ast.Lambda(no_parameters, node), ast.Lambda(no_parameters, own)], [])


def _field_names(tree: ast.Module) -> Iterator[int]:
    """Yield the ids of the literals that are dictionary keys and also used for lookups in the file."""
    nodes = list(ast.walk(tree))
    looked_up = [n.slice for n in nodes if isinstance(n, ast.Subscript) and isinstance(n.slice, ast.Constant)]
    keys = [k for n in nodes if isinstance(n, ast.Dict) for k in n.keys if isinstance(k, ast.Constant)]
    both = {k.value for k in keys} & {k.value for k in looked_up}
    yield from (id(k) for k in (*keys, *looked_up) if k.value in both)


def vary_module(tree: ast.Module, rng: random.Random, *, far: bool) -> ast.Module:
    """Return a copy of a module imported by tests, with other inputs."""
    tree = copy.deepcopy(tree)
    parts: list[ast.AST] = [ast.Module(f.node.body, []) for f in functions_of(tree)]
    for statement in tree.body:
        value = getattr(statement, "value", None) if isinstance(statement, ast.Assign | ast.AnnAssign) else None
        parts += _rows(value) if value is not None else ()
    for part in parts:
        if group := _literals(part):
            literal = rng.choice(group)
            literal.value = other_value(literal.value, rng, far=far)  # type: ignore[assignment] # of the same kind
    return tree


def _rename(tree: ast.Module, renamed: Mapping[str, str], modules: Mapping[str, str]) -> set[int]:
    """Make a file read renamed files; return the ids of literals that name them."""
    literals = set[int]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            folder, slash, name = node.value.rpartition("/")
            if name in renamed:
                node.value = folder + slash + renamed[name]
                literals.add(id(node))
        elif isinstance(node, ast.ImportFrom) and (module := written_module(node)) in modules:
            node.module = modules[module].lstrip(".")
    return literals


def written_module(node: ast.ImportFrom) -> str:
    """Return the module that a statement imports from, as it is written: with leading dots if it is relative."""
    return "." * node.level + (node.module or "")


def _literals(node: ast.AST) -> list[ast.Constant]:
    """Return the literals that a test computes from; if there are none, those that are rarely inputs."""
    return list(_inputs(node)) or list(_inputs(node, every=True))


def _row_literals(row: ast.AST) -> list[ast.Constant]:
    """Return the literals of a row, without those in subscripts, and in calls if there are others.

    They are evaluated when the file is imported, and what fails there hides all tests of the file.
    """
    nodes = list(ast.walk(row))
    calls = (n for n in nodes if isinstance(n, ast.Call) and not is_param(n))
    inside = {id(n) for call in calls for n in ast.walk(call)}
    indices = {id(n) for node in nodes if isinstance(node, ast.Subscript) for n in ast.walk(node.slice)}
    literals = [n for n in _literals(row) if id(n) not in indices]
    return [n for n in literals if id(n) not in inside] or literals


def _shared_inputs(tree: ast.Module, tests: Sequence[Definition]) -> Iterator[list[ast.Constant]]:
    """Yield the literals in constants, fixtures, helpers, set-ups and attributes that the tests use in their file."""
    used, size = {n for node in tests for n in _used_names(node)}, -1
    functions = [f.node for f in functions_of(tree) if f.node not in tests]
    while size < len(used):
        size = len(used)
        for node in functions:
            if node.name in used or node.name in _SET_UPS:
                used |= set(_used_names(node))
    for node in functions:
        if node.name in used or node.name in _SET_UPS:
            yield _literals(ast.Module(node.body, []))
    holders: list[ast.Module | ast.ClassDef] = [tree, *(n for n in tree.body if isinstance(n, ast.ClassDef))]
    for holder in holders:
        for statement in holder.body:
            value = statement.value if isinstance(statement, ast.Assign | ast.AnnAssign) else None
            if value is not None and _targets(statement) & used:
                yield from (_row_literals(row) for row in _rows(value))


def _rows(value: ast.expr) -> Sequence[ast.expr]:
    """Return the parts of a literal that are varied independently."""
    if isinstance(value, ast.Dict):
        items = zip(value.keys, value.values, strict=True)
        return [ast.Tuple([key, inner], ast.Load()) if key is not None else inner for key, inner in items]
    return value.elts if isinstance(value, ast.List | ast.Tuple | ast.Set) else [value]


def _targets(node: ast.stmt) -> set[str]:
    """Return the names that an assignment binds."""
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", node)]
    return {n.id for target in targets for n in ast.walk(target) if isinstance(n, ast.Name)}


def _used_names(node: ast.AST) -> Iterator[str]:
    """Yield the names that a function uses."""
    for inner in ast.walk(node):
        if isinstance(inner, ast.Name | ast.Attribute | ast.arg):
            names = {ast.Name: "id", ast.Attribute: "attr", ast.arg: "arg"}
            yield getattr(inner, names[type(inner)])


def names_of_tests(holder: ast.Module | ast.ClassDef, above: str = "") -> Iterator[str]:
    """Yield the qualified names of the tests that a file defines."""
    for node in holder.body:
        if isinstance(node, ast.ClassDef):
            yield from names_of_tests(node, f"{above}{node.name}::")
        elif isinstance(node, Definition):
            yield f"{above}{node.name}"


def _keep_only(holder: ast.Module | ast.ClassDef, wanted: Collection[str], above: str = "") -> None:
    """Drop the other tests, except tests with a wanted name in classes, which others may inherit."""
    names = {name.rpartition("::")[2] for name in wanted}
    for node in list(holder.body):
        if isinstance(node, ast.ClassDef):
            _keep_only(node, wanted, f"{above}{node.name}::")
        elif isinstance(node, Definition) and node.name.startswith("test") and f"{above}{node.name}" not in wanted:
            if not above or node.name not in names:
                holder.body.remove(node)
    if not holder.body and isinstance(holder, ast.ClassDef):
        holder.body.append(ast.Pass())


def _inputs(node: ast.AST, *, every: bool = False) -> Iterator[ast.Constant]:
    """Yield the literals that a test computes from; every: include long ones, and those in subscripts and f-strings."""
    if isinstance(node, ast.Constant):
        if _varies(node.value, every=every):
            yield node
        return
    if isinstance(node, ast.Import | ast.ImportFrom | ast.ClassDef | ast.arguments):
        return
    if isinstance(node, ast.JoinedStr | ast.Subscript) and not every:
        yield from _inputs(node.value) if isinstance(node, ast.Subscript) else ()
        return
    if isinstance(node, ast.Call):
        if called(node) in _BY_NAME:
            return
        is_ours = _is_ours(node)
        yield from () if is_ours else _inputs(node.func, every=every)
        arguments: Sequence[ast.expr] = node.args[1:] if is_ours else node.args
        if called(node) in RAISING:
            arguments = ()
        keywords = (k.value for k in node.keywords if every or k.arg not in _NOT_INPUT or is_param(node))
        for part in [*arguments, *keywords]:
            yield from _inputs(part, every=every)
        return
    for child in ast.iter_child_nodes(node):
        yield from _inputs(child, every=every)


def _varies(value: object, *, every: bool) -> bool:
    if isinstance(value, int):
        return every or abs(value) < _LARGEST
    return isinstance(value, float) or (isinstance(value, str | bytes) and (every or len(value) < _LONGEST))


def _reorder(node: Definition, rng: random.Random, *, far: bool) -> set[int]:
    """Change lists and what is called how often; return the ids of changed literals.

    A list literal may be shuffled, repeat or lose an item; a call whose result is not used may be
    made twice. far: repeat several times.
    """
    changed = set()
    for holder in ast.walk(node):
        for _, value in ast.iter_fields(holder):
            if isinstance(value, list) and any(isinstance(item, ast.stmt) for item in value):
                value[:] = [each for item in value for each in _repeated(item, rng)]
    for literal in ast.walk(ast.Module(node.body, [])):
        if isinstance(literal, ast.List) and len(literal.elts) > 1 and rng.random() < _REORDERED:
            index = rng.randrange(len(literal.elts))
            operation = rng.choice(("shuffle", "repeat", "repeat", "remove"))
            if operation == "shuffle":
                rng.shuffle(literal.elts)
            elif operation == "repeat":
                literal.elts += [copy.deepcopy(literal.elts[index]) for _ in range(_REPEATS if far else 1)]
            else:
                del literal.elts[index]
            changed.add(id(literal))
    return changed


def _repeated(item: ast.AST, rng: random.Random) -> Iterator[ast.AST]:
    """Yield a statement, sometimes twice if it only calls something."""
    yield item
    call = item.value if isinstance(item, ast.Expr) else None
    if isinstance(call, ast.Call) and not _is_ours(call) and rng.random() < _CALLED_TWICE:
        yield copy.deepcopy(item)


def _is_ours(call: ast.Call) -> bool:
    """Return whether a call is one of the recorder."""
    return isinstance(call.func, ast.Attribute) and getattr(call.func.value, "id", "") == RECORDER
