"""Rewrite a function of the original in other styles, for repairs other than the reverse of the bug.

Each style takes a function of the original and returns what replaces it in the file, and a new module if the style
needs one. It returns None if the function cannot be rewritten without a change in behaviour (`super()` without
arguments in a function that moves, a generator behind a cache).
"""

from __future__ import annotations

import ast
import copy
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

Function = ast.FunctionDef | ast.AsyncFunctionDef
_REFLECTING = frozenset(
    (
        "locals",
        "vars",
        "eval",
        "exec",
        "dir",
        "globals",
        "super",
        "__class__",
        "currentframe",
        "_getframe",
        "stacklevel",
    )
)
_IMPURE = frozenset(
    ("time", "random", "os", "sys", "datetime", "environ", "open", "print", "input", "getenv", "uuid", "warnings", "id")
)
_MEMO = """\
_MEMO_{n} = {{}}


def _plain_{n}(value):
    if type(value) is tuple:
        return all(_plain_{n}(v) for v in value)
    return value is None or type(value) in (bool, int, float, str, bytes)


"""
_CACHED = """\
given = ({given})
if not _plain_{n}(given):
    return {call}
key = repr(given)
if key not in _MEMO_{n}:
    found = {call}
    if not _plain_{n}(found):
        return found
    _MEMO_{n}[key] = found
return _MEMO_{n}[key]
"""


@dataclass(frozen=True, slots=True)
class Location:
    """The location of a function."""

    path: str
    source: str
    """The source of its file in the original."""
    classes: tuple[str, ...]

    @property
    def tag(self) -> str:
        return "".join(f"{c.strip('_').lower()}_" for c in self.classes)


@dataclass(frozen=True, slots=True)
class Rewrite:
    """A function rewritten in another style."""

    function: Function
    before: str = ""
    """Source of the module that comes before the function, or the class around it."""
    module: tuple[str, str] | None = None
    """The path and the source of a new module."""


def parsed(source: str) -> Function:
    (node,) = ast.parse(textwrap.dedent(source)).body
    assert isinstance(node, Function)
    return node


def moved(function: Function, location: Location) -> Rewrite | None:
    """Move the body to a new module, which reads the globals of the old one, and leave only a call in the file."""
    function = _with_explicit_super(function, location)
    path = PurePosixPath(location.path)
    module_names = _globals_of(ast.parse(location.source))
    if not _may_move(function) or module_names is None or path.name == "__init__.py":
        return None
    name = f"moved_{function.name.strip('_')}"
    body = _signed(function, name)
    own = _bound_in(function)
    for node in ast.walk(body):
        if isinstance(node, ast.Name) and node.id in module_names and node.id in own:
            return None
    tree = _OfModule(module_names - own).visit(body)
    package = "__package__ + '." if _is_package(path) else "'"
    text = "import sys\n\n_origin = sys.modules[" + package + path.stem + "']\n\n\n" + ast.unparse(_fixed(tree)) + "\n"
    stem = f"{path.stem.strip('_')}_{location.tag}{name}"
    dot = "." if _is_package(path) else ""
    short = [*ast.parse(f"from {dot}{stem} import {name}").body, *_calling(function, name)]
    return Rewrite(_with_body(function, short), module=(str(path.with_name(f"{stem}.py")), text))


def _with_explicit_super(function: Function, location: Location) -> Function:
    """Return the function with arguments for `super()`, so that it does not depend on the class around it."""
    given = [a.arg for a in (*function.args.posonlyargs, *function.args.args)]
    changed = copy.deepcopy(function)
    for node in ast.walk(changed):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "super" and not node.args:
            if len(location.classes) == 1 and given:
                node.args = [ast.Name(location.classes[0], ast.Load()), ast.Name(given[0], ast.Load())]
    return changed


def _is_package(path: PurePosixPath) -> bool:
    return path.parent.name not in ("", "src", "lib")


def cached(function: Function, location: Location) -> Rewrite | None:
    """Cache results for arguments that are plain data, if the result is plain data as well."""
    names = {n.id for n in ast.walk(function) if isinstance(n, ast.Name)}
    names |= {n.attr for n in ast.walk(function) if isinstance(n, ast.Attribute)}
    arguments = function.args
    star = arguments.vararg or arguments.kwarg
    if location.classes or star or names & _IMPURE or not _may_move(function) or not _arguments(function):
        return None
    if isinstance(function, ast.AsyncFunctionDef) or _yields(function) or function.decorator_list:
        return None
    if any(isinstance(n, ast.Global) for n in ast.walk(function)):
        return None
    name = f"_{function.name.strip('_')}_once"
    given = "".join(f"{a}, " for a in _arguments(function))
    number = function.name.strip("_")
    body = ast.parse(_CACHED.format(given=given, n=number, call=_call(function, name))).body
    before = _MEMO.format(n=number) + ast.unparse(_fixed(_signed(function, name))) + "\n\n\n"
    return Rewrite(_with_body(function, body), before=before)


def refactored(function: Function, location: Location) -> Rewrite | None:
    """Move the body to a helper if it may move; use other names, guard clauses, loops for comprehensions."""
    module_names = _globals_of(ast.parse(location.source))
    if module_names is None:
        return None
    function = _with_explicit_super(function, location)
    changed = _Refactored(function, module_names).visit(copy.deepcopy(function))
    if not _may_move(function) or isinstance(function, ast.AsyncFunctionDef):
        return None if ast.dump(changed) == ast.dump(function) else Rewrite(_fixed(changed))
    name = f"_{location.tag}{function.name.strip('_')}_steps"
    helper = ast.unparse(_fixed(_signed(changed, name)))
    return Rewrite(_with_body(function, _calling(function, name)), before=f"{helper}\n\n\n")


def validating(function: Function, location: Location) -> Rewrite | None:
    """Check the arguments before anything else: None is refused where the function does not allow for it."""
    arguments = function.args
    positional = [*arguments.posonlyargs, *arguments.args]
    required = positional[: len(positional) - len(arguments.defaults)]
    names = [a.arg for a in required if a.arg not in ("self", "cls")]
    compared = {
        node.left.id
        for node in ast.walk(function)
        if isinstance(node, ast.Compare)
        and isinstance(node.left, ast.Name)
        and isinstance(node.ops[0], ast.Is | ast.IsNot)
    }
    checked = [n for n in names if n not in compared]
    if not checked or _yields(function):
        return None
    checks = "\n".join(f"if {n} is None:\n    raise TypeError('{n} is missing')" for n in checked)
    body = function.body[1:] if ast.get_docstring(function) is not None else function.body
    return Rewrite(_with_body(function, [*ast.parse(checks).body, *body]))


def vectorised(function: Function, location: Location) -> Rewrite | None:
    """Replace list comprehensions by `map` and `filter`."""
    changed = _Mapped().visit(copy.deepcopy(function))
    return None if ast.dump(changed) == ast.dump(function) else Rewrite(_fixed(changed))


class _Mapped(ast.NodeTransformer):
    """Replaces list comprehensions with one name and one loop."""

    def visit_ListComp(self, node: ast.ListComp) -> ast.expr:
        self.generic_visit(node)
        (generator, *others) = node.generators
        target = generator.target
        is_odd = others or generator.is_async or not isinstance(target, ast.Name)
        if is_odd or any(isinstance(n, ast.NamedExpr | ast.Await) for n in ast.walk(node)):
            return node
        assert isinstance(target, ast.Name)

        def lambda_of(body: ast.expr) -> ast.Lambda:
            arguments = ast.arguments([], [ast.arg(target.id)], None, [], [], None, [])
            return ast.Lambda(arguments, body)

        def call(name: str, *given: ast.expr) -> ast.expr:
            return ast.Call(ast.Name(name, ast.Load()), list(given), [])

        values = generator.iter
        for test in generator.ifs:
            values = call("filter", lambda_of(test), values)
        return call("list", call("map", lambda_of(node.elt), values))


class _Refactored(ast.NodeTransformer):
    """Rewrites the statements of one function; inner functions stay unchanged."""

    def __init__(self, function: Function, module_names: set[str]) -> None:
        nodes = list(ast.walk(function))
        inner = [n for n in nodes if isinstance(n, Function | ast.Lambda | ast.ClassDef)]
        fixed = set(_arguments(function)) | {name for n in nodes if isinstance(n, ast.Global) for name in n.names}
        fixed |= {a.asname or a.name for n in nodes if isinstance(n, ast.Import | ast.ImportFrom) for a in n.names}
        fixed |= {n.name for n in nodes if isinstance(n, ast.ExceptHandler) and n.name}
        fixed |= module_names | {"_", "__tracebackhide__"}
        plain = len(inner) == 1 and not _reflects(function) and not any(isinstance(n, ast.Match) for n in nodes)
        self._names = {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)} - fixed
        self._names = self._names if plain else set()
        self._loops, self._plain, self._function = 0, plain, function

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        if ast.dump(node) == ast.dump(self._function):
            node.body = self._block(node.body)
        return node

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AsyncFunctionDef:
        if ast.dump(node) == ast.dump(self._function):
            node.body = self._block(node.body)
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.ClassDef:
        return node

    def visit_Lambda(self, node: ast.Lambda) -> ast.Lambda:
        return node

    def visit_Name(self, node: ast.Name) -> ast.Name:
        return ast.Name(f"the_{node.id}", node.ctx) if node.id in self._names else node

    def visit_Return(self, node: ast.Return) -> ast.Return | list[ast.stmt]:
        value = node.value
        if isinstance(value, ast.IfExp):
            return self._block([ast.If(value.test, [ast.Return(value.body)], []), ast.Return(value.orelse)])
        if isinstance(value, ast.ListComp) and self._plain and len(value.generators) == 1 and self._is_simple(value):
            return self._loop(value)
        if value is not None and not isinstance(value, ast.Name | ast.Constant):
            result = ast.Name("its_outcome", ast.Store())
            value = self.visit(value)
            return [ast.Assign([result], value, lineno=1), ast.Return(ast.Name("its_outcome", ast.Load()))]
        self.generic_visit(node)
        return node

    def visit_If(self, node: ast.If) -> ast.If | list[ast.stmt]:
        if node.orelse and isinstance(node.body[-1], ast.Return | ast.Raise | ast.Continue | ast.Break):
            return [ast.If(self.visit(node.test), self._block(node.body), []), *self._block(node.orelse)]
        if node.orelse and not isinstance(node.orelse[0], ast.If):
            test = ast.UnaryOp(ast.Not(), self.visit(node.test))
            return ast.If(test, self._block(node.orelse), self._block(node.body))
        self.generic_visit(node)
        return node

    def _block(self, body: Sequence[ast.stmt]) -> list[ast.stmt]:
        statements: list[ast.stmt] = []
        for number, statement in enumerate(body):
            is_docstring = number == 0 and isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
            new = statement if is_docstring else self.visit(statement)
            statements += new if isinstance(new, list) else [new]
        return statements

    @staticmethod
    def _is_simple(value: ast.ListComp) -> bool:
        (generator,) = value.generators
        return not generator.is_async and not any(isinstance(n, ast.NamedExpr | ast.Await) for n in ast.walk(value))

    def _loop(self, value: ast.ListComp) -> list[ast.stmt]:
        (generator,) = value.generators
        self._loops += 1
        gathered = f"gathered_{self._loops}"
        append = ast.parse(f"{gathered}.append(None)").body[0]
        assert isinstance(append, ast.Expr)
        assert isinstance(append.value, ast.Call)
        append.value.args = [value.elt]
        body: list[ast.stmt] = [append]
        for test in reversed(generator.ifs):
            body = [ast.If(test, body, [])]
        loop = ast.For(generator.target, generator.iter, body, [], lineno=1)
        # A comprehension has a scope of its own: the variables of the loop need unique names.
        own = {n.id for n in ast.walk(generator.target) if isinstance(n, ast.Name)}
        iterated = self.visit(copy.deepcopy(generator.iter))
        renamed = _Renamed({n: f"{n}_in_{gathered}" for n in own}).visit(loop)
        renamed = self.generic_visit(renamed)
        assert isinstance(renamed, ast.For)
        renamed.iter = iterated
        start = ast.parse(f"{gathered} = []").body[0]
        return [start, renamed, ast.Return(ast.Name(gathered, ast.Load()))]


class _Renamed(ast.NodeTransformer):
    def __init__(self, names: dict[str, str]) -> None:
        self._names = names

    def visit_Name(self, node: ast.Name) -> ast.Name:
        return ast.Name(self._names.get(node.id, node.id), node.ctx)


class _OfModule(ast.NodeTransformer):
    """Reads global names from the function's original module, at the time of each use."""

    def __init__(self, names: set[str]) -> None:
        self._names = names

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id in self._names and isinstance(node.ctx, ast.Load):
            return ast.Attribute(ast.Name("_origin", ast.Load()), node.id, node.ctx)
        return node


def _globals_of(tree: ast.Module) -> set[str] | None:
    """Return the names that a module binds; None if one import is a star import."""
    names: set[str] = set()
    for node in tree.body:
        if isinstance(node, Function | ast.ClassDef):
            names.add(node.name)
            continue
        for part in ast.walk(node):
            if isinstance(part, ast.Import | ast.ImportFrom):
                names |= {a.asname or a.name.partition(".")[0] for a in part.names}
            elif isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store):
                names.add(part.id)
            elif isinstance(part, Function | ast.ClassDef):
                names.add(part.name)
    for node in ast.walk(tree):
        if isinstance(node, ast.Global):
            names |= set(node.names)
    return None if "*" in names else names


def _bound_in(function: Function) -> set[str]:
    """Return all names that a function, or anything inside it, binds."""
    names = {a.arg for n in ast.walk(function) if isinstance(n, ast.arguments) for a in _all(n)}
    for node in ast.walk(function):
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            names.add(node.id)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names |= {a.asname or a.name.partition(".")[0] for a in node.names}
        elif (isinstance(node, Function | ast.ClassDef | ast.ExceptHandler) and node is not function) and node.name:
            names.add(node.name)
    return names


def _may_move(function: Function) -> bool:
    """Return whether a body does the same in another function: nothing in it depends on its location."""
    nodes = list(ast.walk(function))
    if _reflects(function) or any(isinstance(n, ast.Global | ast.Nonlocal | ast.Match) for n in nodes):
        return False
    if any(isinstance(n, ast.ImportFrom) and n.level for n in nodes):
        return False
    if isinstance(function, ast.AsyncFunctionDef) or any(isinstance(n, ast.Await) for n in nodes):
        return False
    names = [n.id for n in nodes if isinstance(n, ast.Name)] + [n.attr for n in nodes if isinstance(n, ast.Attribute)]
    return not any(n.startswith("__") and not n.endswith("__") for n in names)


def _reflects(function: Function) -> bool:
    for node in ast.walk(function):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "super" and not node.args:
            return True
        name = getattr(node, "id", getattr(node, "attr", getattr(node, "arg", None)))
        if isinstance(node, ast.Name | ast.Attribute | ast.keyword) and name in _REFLECTING:
            return True
    return False


def _yields(function: Function) -> bool:
    return any(isinstance(n, ast.Yield | ast.YieldFrom) for s in function.body for n in _own(s))


def _own(node: ast.AST) -> Iterator[ast.AST]:
    """Yield a node and its descendants outside inner functions."""
    if isinstance(node, Function | ast.Lambda | ast.ClassDef):
        return
    yield node
    for child in ast.iter_child_nodes(node):
        yield from _own(child)


def _all(arguments: ast.arguments) -> list[ast.arg]:
    star = [a for a in (arguments.vararg, arguments.kwarg) if a is not None]
    return [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, *star]


def _arguments(function: Function) -> list[str]:
    return [a.arg for a in _all(function.args)]


def _call(function: Function, name: str) -> str:
    given = function.args
    parts = [a.arg for a in (*given.posonlyargs, *given.args)]
    parts += [f"*{given.vararg.arg}"] if given.vararg else []
    parts += [f"{a.arg}={a.arg}" for a in given.kwonlyargs]
    parts += [f"**{given.kwarg.arg}"] if given.kwarg else []
    return f"{name}({', '.join(parts)})"


def _calling(function: Function, name: str) -> list[ast.stmt]:
    """Return the body that calls a helper with the function's own arguments."""
    yielding = "(yield from %s)" if _yields(function) else "%s"
    return ast.parse(f"return {yielding % _call(function, name)}").body


def _signed(function: Function, name: str) -> Function:
    """Return a helper with the function's body that takes all arguments."""
    helper = copy.deepcopy(function)
    helper.name, helper.decorator_list, helper.returns = name, [], None
    helper.args.defaults, helper.args.kw_defaults = [], [None for _ in helper.args.kwonlyargs]
    for argument in _all(helper.args):
        argument.annotation = None
    first = helper.body[0]
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and len(helper.body) > 1:
        del helper.body[0]
    return helper


def _with_body(function: Function, body: Sequence[ast.stmt]) -> Function:
    """Return the function with another body below its docstring."""
    other = copy.deepcopy(function)
    first = other.body[0]
    is_docstring = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
    other.body = [*([first] if is_docstring else []), *body]
    return _fixed(other)


def _fixed(node: Function) -> Function:
    return ast.fix_missing_locations(node)


STYLES = {
    "another file": moved,
    "with a cache": cached,
    "refactored": refactored,
    "vectorised": vectorised,
    "more validation": validating,
}
