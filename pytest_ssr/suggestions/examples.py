"""Find expressions that show how functions are called: in docstrings, in texts such as README, in tests.

Nothing is run. An expression is taken if all names in it are known: built-in functions, imports from the project and
from a few modules of the standard library, and variables that are assigned once before, which are replaced by what they
were assigned.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import copy
import doctest
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence

from pytest_ssr.source.parsing import parse_module
from pytest_ssr.suggestions.chains import extended, has_one_chain_at_most
from pytest_ssr.suggestions.expressions import written
from pytest_ssr.suggestions.literals import Expression

PLAIN_MODULES = frozenset(("builtins", "operator", "math"))
"""Modules of the standard library whose functions may be arguments, if `PLAIN_BUILTINS` does not exclude them."""
_IMPORTABLE = frozenset(
    (
        "operator",
        "math",
        "datetime",
        "decimal",
        "fractions",
        "functools",
        "itertools",
        "collections",
        "re",
        "string",
        "enum",
        "statistics",
    )
)
_EXCLUDED = (
    "breakpoint compile copyright credits delattr dir eval exec exit getattr globals hash help id input license locals "
    "memoryview object open print quit setattr super vars __import__ __build_class__ __debug__ __doc__ __loader__ "
    "__name__ __package__ __spec__ _"
)
PLAIN_BUILTINS = frozenset(dir(builtins)) - frozenset(_EXCLUDED.split())
"""Built-in names that an expression may contain: what they do depends on nothing else and changes nothing."""
_MOST_CHARACTERS, _MOST_NAMES, _MOST_NODES = 300, 12, 200
_MOST_TEXT, _MOST_OF_FILE = 200_000, 2_000
_TEXTS = (".md", ".rst", ".txt")
_Names = dict[str, "ast.expr | str"]
"""What a name stands for: an expression, or the import statement that binds it."""


def examples_in(
    sources: Mapping[str, bytes], tests: Mapping[str, bytes], texts: Mapping[str, bytes]
) -> list[Expression]:
    """Return the expressions without repeats: those of docstrings, of texts, of tests and of the code, in this order.

    sources, tests: Python files by path, the code and its tests. texts: files that may contain doctests.
    """
    finder = _Finder(frozenset(filter(None, map(module_name, sources))))
    found: list[Expression] = []
    trees = {path: tree for path, data in sources.items() if (tree := parse_module(data)) is not None}
    for path, tree in trees.items():
        names = finder.module_names(path, tree)
        for text in _docstrings(tree):
            found += _complete(finder.in_doctest(text, names))
    for data in texts.values():
        found += _complete(finder.in_doctest(data[:_MOST_TEXT].decode("utf-8", "replace"), {}))
    for data in tests.values():
        test_tree = parse_module(data)
        if test_tree is not None:
            found += _complete(finder.in_body(test_tree.body, {}))
    for path, tree in trees.items():
        found += _complete(finder.in_body(tree.body, finder.module_names(path, tree), tree.body))
    return list(dict.fromkeys(found))


def _complete(found: Iterator[Expression]) -> list[Expression]:
    """Return what is found in a file, up to a number, or an expression that is nested too deeply to be read."""
    expressions: list[Expression] = []
    with contextlib.suppress(RecursionError):
        expressions.extend(itertools.islice(found, _MOST_OF_FILE))
    return expressions


def is_text(path: str) -> bool:
    """Return whether a file may contain examples for people."""
    return path.lower().endswith(_TEXTS)


def module_name(path: str) -> str:
    """Return the name with which tests import a file; empty if it has none."""
    name = path.removesuffix(".py").removesuffix("/__init__").removeprefix("src/").replace("/", ".")
    return name if all(part.isidentifier() for part in name.split(".")) else ""


class _Finder:
    """Finds expressions about the modules of a project."""

    def __init__(self, modules: frozenset[str]) -> None:
        self.modules = modules

    def module_names(self, path: str, tree: ast.Module) -> _Names:
        """Return what the names of a module stand for: its imports, its own functions and classes, and other names."""
        names: _Names = {}
        module = module_name(path)
        for node in tree.body:
            self.bind(node, names)
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and module:
                names[node.name] = f"from {module} import {node.name}"
        return {name: value for name, value in names.items() if isinstance(value, str | ast.Name)}

    def in_doctest(self, text: str, names: _Names) -> Iterator[Expression]:
        """Yield what stands in the doctests of a text."""
        names = dict(names)
        try:
            examples = doctest.DocTestParser().get_examples(text) if ">>>" in text else []
        except ValueError:
            return
        for example in examples:
            tree = parse_module(example.source.encode("utf-8", "replace"))
            if tree is not None:
                yield from self.in_body(tree.body, names)

    def in_body(self, body: Sequence[ast.stmt], names: _Names, own: Sequence[ast.stmt] = ()) -> Iterator[Expression]:
        """Yield what stands in statements.

        names: known before, and extended. own: definitions that tests can import.
        """
        for node in body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                if node not in own:
                    names.pop(node.name, None)
                local = dict(names)
                for argument in _parameters(node):
                    local.pop(argument, None)
                yield from self.in_body(node.body, local)
                continue
            for child in ast.iter_child_nodes(node):
                if isinstance(child, ast.expr):
                    yield from self.in_expression(child, names)
            self.bind(node, names)
            for block in ("body", "orelse", "finalbody"):
                yield from self.in_body(getattr(node, block, ()), names)
            for item in getattr(node, "items", ()):
                yield from self.in_expression(item.context_expr, names)

    def in_expression(self, node: ast.expr, names: _Names) -> Iterator[Expression]:
        """Yield the largest parts of an expression that are known and not just a comparison."""
        found = None if isinstance(node, ast.Compare | ast.BoolOp) or _is_negated(node) else self.known(node, names)
        if found is not None:
            yield found
            return
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.keyword):
                child = child.value
            if isinstance(child, ast.expr) and not isinstance(node, ast.Lambda):
                yield from self.in_expression(child, names)

    def known(self, node: ast.expr, names: _Names) -> Expression | None:
        """Return an expression with the imports it needs; None if it is no call about the project, or unknown."""
        # The last three cannot stand alone.
        is_part = isinstance(node, ast.Name | ast.Starred | ast.Slice | ast.FormattedValue)
        whole = _with_values(node, names) if not is_part else None
        if whole is None or not any(isinstance(n, ast.Call | ast.Subscript | ast.BinOp) for n in ast.walk(whole)):
            return None
        imports = {names[name] for name in _free_names(whole) if name in names}
        statements = frozenset(i for i in imports if isinstance(i, str))
        if len(statements) < len(imports) or not any(map(self.is_own, statements)):
            return None
        source = written(whole)
        return Expression(source, statements) if len(source) <= _MOST_CHARACTERS else None

    def is_own(self, statement: str) -> bool:
        """Return whether an import statement is about the project."""
        module = statement.split()[1]
        return any(name == module or name.startswith(f"{module}.") for name in self.modules)

    def bind(self, node: ast.stmt, names: _Names) -> None:
        """Remember what a statement binds, and forget what it hides."""
        if isinstance(node, ast.Import | ast.ImportFrom):
            for alias in node.names:
                name = alias.asname or alias.name.partition(".")[0]
                statement = _statement(node, alias)
                is_known = statement is not None and (
                    self.is_own(statement) or statement.split()[1].partition(".")[0] in _IMPORTABLE
                )
                if is_known and statement is not None:
                    names[name] = statement
                else:
                    names.pop(name, None)
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            self.bind_method(node.value, names)
        elif isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            value = _with_values(node.value, names)
            names.pop(node.targets[0].id, None)
            if value is not None:
                names[node.targets[0].id] = value
        else:
            own = (n for n in ast.walk(node) if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load))
            for changed in list(own):
                names.pop(changed.id, None)

    def bind_method(self, call: ast.Call, names: _Names) -> None:
        """Remember that a method of a variable was called."""
        if isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Name):
            name = call.func.value.id
            value = names.get(name)
            arguments = [*call.args, *(keyword.value for keyword in call.keywords)]
            known = [_with_values(argument, names) for argument in arguments]
            if isinstance(value, ast.expr) and None not in known:
                own = {n: v for n, v in names.items() if isinstance(v, ast.expr) and n != name}
                after = extended(value, name, _Replacer(own).visit(copy.deepcopy(call)))
                names.pop(name)
                if after is not None:
                    names[name] = after


def _statement(node: ast.Import | ast.ImportFrom, alias: ast.alias) -> str | None:
    """Return the statement of one imported name; None if it is relative, or imports all names."""
    renamed = f" as {alias.asname}" if alias.asname else ""
    if isinstance(node, ast.Import):
        return f"import {alias.name}{renamed}"
    if node.level or alias.name == "*":
        return None
    return f"from {node.module} import {alias.name}{renamed}"


def _with_values(node: ast.expr, names: _Names) -> ast.expr | None:
    """Return an expression with the values of its variables; None if it has an unknown name, or cannot be repeated."""
    if not _is_small(node):
        return None
    inner = _bound_inside(node)
    for part in ast.walk(node):
        if isinstance(part, ast.Await | ast.Yield | ast.YieldFrom | ast.NamedExpr | ast.JoinedStr):
            return None
        if isinstance(part, ast.Name) and part.id not in inner:
            if part.id not in names and part.id not in PLAIN_BUILTINS:
                return None
    values = {name: value for name, value in names.items() if isinstance(value, ast.expr) and name not in inner}
    whole: ast.expr = _Replacer(values).visit(copy.deepcopy(node))
    if not _is_small(whole) or not has_one_chain_at_most(whole):
        return None
    return whole if sum(isinstance(n, ast.Name) for n in ast.walk(whole)) <= _MOST_NAMES else None


def _is_small(node: ast.expr) -> bool:
    """Return whether an expression can be copied and written; values of variables could double with each line."""
    return sum(1 for _ in itertools.islice(ast.walk(node), _MOST_NODES + 1)) <= _MOST_NODES


class _Replacer(ast.NodeTransformer):
    """Puts values in the place of names."""

    def __init__(self, values: Mapping[str, ast.expr]) -> None:
        self.values = values

    def visit_Name(self, node: ast.Name) -> ast.expr:
        """Return the value of a name."""
        return copy.deepcopy(self.values[node.id]) if node.id in self.values else node


def _free_names(node: ast.expr) -> list[str]:
    inner = _bound_inside(node)
    return [n.id for n in ast.walk(node) if isinstance(n, ast.Name) and n.id not in inner]


def _bound_inside(node: ast.expr) -> set[str]:
    """Return the names that lambdas and comprehensions in an expression bind."""
    found = {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load)}
    return found.union(*(_parameters(n) for n in ast.walk(node) if isinstance(n, ast.Lambda)))


def _parameters(node: ast.AST) -> set[str]:
    return {n.arg for n in ast.walk(node.args) if isinstance(n, ast.arg)} if hasattr(node, "args") else set()


def _is_negated(node: ast.expr) -> bool:
    return isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)


def _docstrings(tree: ast.Module) -> Iterable[str]:
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for node in ast.walk(tree):
        if isinstance(node, kinds):
            text = ast.get_docstring(node)
            if text:
                yield text
