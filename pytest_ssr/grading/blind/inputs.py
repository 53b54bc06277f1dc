"""Vary the inputs of blind tests: the literals left in a blind test are what it computes from."""

from __future__ import annotations

import ast
import copy
import random
from collections.abc import Collection, Iterator, Mapping, Sequence

from pytest_ssr.grading.blind.assertions import RAISING, root_of
from pytest_ssr.grading.blind.data_flow import functions_of
from pytest_ssr.grading.blind.other_values import other_value
from pytest_ssr.grading.blind.rewrite import RECORDER
from pytest_ssr.grading.blind.tables import Definition, called, is_param, marks_of

_LARGEST, _LONGEST = 10**9, 400
_MANY, _REORDERED, _SHARED = 0.5, 0.2, 0.5
_REPEATS = 3
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
) -> tuple[ast.Module, frozenset[int]]:
    """Return a copy of a blind file that has only the wanted tests, with other inputs drawn for them.

    The second item holds the numbers of the assertions that no changed input reaches. wanted: qualified names of test
    functions. many: vary several inputs at a time, otherwise one for each test or row. far: draw large, long and
    unusual values, otherwise values near the tests' own. renamed: maps file names to the varied files that the copy
    reads instead. modules: the same for the modules that it imports from.
    """
    tree = copy.deepcopy(tree)
    _keep_only(tree, wanted)
    changed, names = _rename(tree, renamed or {}, modules or {})
    fixed = changed | set(_field_names(tree))
    pool = [n.value for n in ast.walk(tree) if isinstance(n, ast.Constant) and isinstance(n.value, str)]
    tests = [f.node for f in functions_of(tree) if f.is_test]
    groups = [_literals(ast.Module(node.body, [])) for node in tests]
    owners: list[Definition | ast.ClassDef] = [*tests, *(n for n in ast.walk(tree) if isinstance(n, ast.ClassDef))]
    for owner in owners:
        for _, _, rows in marks_of(owner):
            groups += [_row_literals(row) for row in getattr(rows, "elts", ())]
    groups = [inputs for group in groups if (inputs := [n for n in group if id(n) not in fixed])]
    share = _SHARED if groups else 1.0
    shared_groups = ([n for n in group if id(n) not in fixed] for group in _shared_inputs(tree, tests))
    groups += [group for group in shared_groups if group and rng.random() < share]
    calls = {id(n): copy.deepcopy(n) for value in _values_at_import(tree) for n in ast.walk(value) if _is_guarded(n)}
    for group in groups:
        picked = [n for n in group if rng.random() < _MANY] if many else []
        for literal in picked or [rng.choice(group)]:
            literal.value = other_value(literal.value, rng, pool, far=far)  # type: ignore[assignment] # of the same kind
            changed.add(id(literal))
    for node in tests:
        changed |= _reorder(node, rng, far=far)
    _Guard(calls, changed).visit(tree)
    shared = _reached_names(tree, changed, names)
    return tree, frozenset(site for node in tests for site in _unchanged(node, changed, shared))


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
        if not isinstance(own, ast.Call) or not _mentions(node, self._changed, ()):
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


def _rename(tree: ast.Module, renamed: Mapping[str, str], modules: Mapping[str, str]) -> tuple[set[int], set[str]]:
    """Make a file read renamed files; return the ids of literals that name them, and the names imported from them."""
    literals, names = set[int](), set[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            folder, slash, name = node.value.rpartition("/")
            if name in renamed:
                node.value = folder + slash + renamed[name]
                literals.add(id(node))
        elif isinstance(node, ast.ImportFrom) and (module := written_module(node)) in modules:
            node.module = modules[module].lstrip(".")
            names |= {alias.asname or alias.name for alias in node.names}
    return literals, names


def written_module(node: ast.ImportFrom) -> str:
    """Return the module that a statement imports from, as it is written: with leading dots if it is relative."""
    return "." * node.level + (node.module or "")


def _literals(node: ast.AST) -> list[ast.Constant]:
    """Return the literals that a test computes from; if there are none, those that are rarely inputs."""
    return list(_inputs(node)) or list(_inputs(node, every=True))


def _row_literals(row: ast.AST) -> list[ast.Constant]:
    """Return the literals of a row, without those in calls if there are others.

    The calls are made when the file is imported, and a call that fails there hides all tests of the file.
    """
    calls = (n for n in ast.walk(row) if isinstance(n, ast.Call) and not is_param(n))
    inside = {id(n) for call in calls for n in ast.walk(call)}
    literals = _literals(row)
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
            if value is not None and _bound(statement) & used:
                yield from (_row_literals(row) for row in _rows(value))


def _rows(value: ast.expr) -> Sequence[ast.expr]:
    """Return the parts of a literal that are varied independently."""
    if isinstance(value, ast.Dict):
        items = zip(value.keys, value.values, strict=True)
        return [ast.Tuple([key, inner], ast.Load()) if key is not None else inner for key, inner in items]
    return value.elts if isinstance(value, ast.List | ast.Tuple | ast.Set) else [value]


def _used_names(node: ast.AST) -> Iterator[str]:
    """Yield the names that a function uses."""
    for inner in ast.walk(node):
        if isinstance(inner, ast.Name | ast.Attribute | ast.arg):
            names = {ast.Name: "id", ast.Attribute: "attr", ast.arg: "arg"}
            yield getattr(inner, names[type(inner)])


def _reached_names(tree: ast.Module, changed: Collection[int], names: set[str]) -> set[str]:
    """Return the given names, and all names of a file that changed inputs reach."""
    size = -1
    while size < len(names):
        size = len(names)
        for statement in tree.body:
            parts = statement.body if isinstance(statement, ast.ClassDef) else [statement]
            for part in parts:
                is_test = isinstance(part, Definition) and part.name.startswith("test")
                if is_test or not _mentions(part, changed, names):
                    continue
                names |= {part.name} if isinstance(part, Definition) else _bound(part)
                if part is not statement and isinstance(statement, ast.ClassDef):
                    names |= {"self", "cls", statement.name}
    return names


def _unchanged(node: Definition, changed: Collection[int], shared: Collection[str]) -> Iterator[int]:
    """Yield the numbers of the assertions of a test that no changed input reaches."""
    names = set(shared)
    for _, bound, rows in marks_of(node):
        names |= set(bound) if _mentions(rows, changed, names) else set()
    parts = [n for n in ast.walk(ast.Module(node.body, [])) if isinstance(n, ast.stmt | ast.Call | ast.comprehension)]
    size = -1
    while size < len(names):
        size = len(names)
        for part in parts:
            if isinstance(part, Definition):
                names |= {part.name} if _mentions(part, changed, names) else set()
            elif not isinstance(part, _BLOCKS) and _mentions(_head(part), changed, names):
                names |= _bound(part)
    for part in parts:
        if isinstance(part, ast.With):
            for item in part.items:
                if (site := _site(item.context_expr)) is not None and not _mentions(part, changed, names):
                    yield site
        elif isinstance(part, ast.Expr) and (site := _site(part.value)) is not None:
            if isinstance(part.value, ast.Call) and part.value.args[1:] and not _mentions(part, changed, names):
                yield site


def _site(node: ast.expr) -> int | None:
    """Return the number of the assertion that a recorder call writes; None for any other node."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return None
    first = node.args[0] if getattr(node.func.value, "id", "") == RECORDER and node.args else None
    return first.value if isinstance(first, ast.Constant) and isinstance(first.value, int) else None


def _head(node: ast.AST) -> ast.AST:
    """Return the part of a statement that provides the values of its names: for a loop, its iterable."""
    return node.iter if isinstance(node, ast.For | ast.AsyncFor | ast.comprehension) else node


def _bound(node: ast.AST) -> set[str]:
    """Return the names that a node binds or may change: the arguments of a call, and the object it is called on."""
    if isinstance(node, ast.Call):
        arguments = [*node.args, *(k.value for k in node.keywords)]
        roots = {root_of(node.func.value)} if isinstance(node.func, ast.Attribute) else set()
        mentioned = {n.id for value in arguments for n in ast.walk(value) if isinstance(n, ast.Name)} | roots
        return mentioned - {"", RECORDER}
    targets = [*getattr(node, "targets", ()), *([t] if (t := getattr(node, "target", None)) is not None else [])]
    targets += [i.optional_vars for i in getattr(node, "items", ()) if i.optional_vars is not None]
    return {n.id for t in targets for n in ast.walk(t) if isinstance(n, ast.Name)}


def _mentions(node: ast.AST, changed: Collection[int], names: Collection[str]) -> bool:
    return any(id(n) in changed or (isinstance(n, ast.Name) and n.id in names) for n in ast.walk(node))


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
        is_ours = isinstance(node.func, ast.Attribute) and getattr(node.func.value, "id", "") == RECORDER
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
    """Shuffle list literals, repeat or remove an item; return the ids of changed lists. far: repeat several times."""
    changed = set()
    for literal in ast.walk(ast.Module(node.body, [])):
        if isinstance(literal, ast.List) and len(literal.elts) > 1 and rng.random() < _REORDERED:
            index = rng.randrange(len(literal.elts))
            operation = rng.randrange(3)
            if operation == 0:
                rng.shuffle(literal.elts)
            elif operation == 1:
                literal.elts += [copy.deepcopy(literal.elts[index]) for _ in range(_REPEATS if far else 1)]
            else:
                del literal.elts[index]
            changed.add(id(literal))
    return changed
