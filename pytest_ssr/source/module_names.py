"""Find the names that the scopes of a Python file bind and read, as Python's own compiler does (`symtable`).

What it cannot know is not reported: a file with a star import, or that handles names by itself (`exec`, `globals`,
`builtins`), has no names, and annotations are left out.
"""

from __future__ import annotations

import ast
import builtins
import symtable
import types
from collections.abc import Iterator

from pytest_ssr.source.parsing import parse_module, recorded_warnings

_DYNAMIC = frozenset(
    ("exec", "eval", "globals", "locals", "vars", "builtins", "__builtins__", "modules", "NameError", "__import__")
)
"""Names that appear where a module may bind names at run time, or reads one that may be missing."""
_OF_MODULES = frozenset((*vars(types.ModuleType("m")), "__annotations__", "__cached__", "__file__", "__path__"))
_OF_OTHER_RELEASES = frozenset(("PythonFinalizationError", "WindowsError", "__debug__", "exit", "quit", "reveal_type"))
_BUILTINS = frozenset(dir(builtins)) | _OF_MODULES | _OF_OTHER_RELEASES
_Scope = tuple[str, ...]
"""The names of a scope and of those around it, from the module inwards."""


class ModuleNames:
    """The names that the scopes of one file bind and read; without arguments, those of an empty file."""

    def __init__(self) -> None:
        self._bound: dict[_Scope, set[str]] = {(): set()}
        self._read: dict[_Scope, set[str]] = {}
        self._classes: set[_Scope] = set()

    @classmethod
    def of(cls, data: bytes) -> ModuleNames | None:
        """Return the names of a file; None if it cannot be parsed, or may bind names in ways that do not show."""
        tree = parse_module(data)
        if tree is None or any(map(_is_dynamic, ast.walk(tree))):
            return None
        names = cls()
        with recorded_warnings():
            try:
                text = ast.unparse(_WithoutAnnotations().visit(tree))
                names._add(symtable.symtable(text, "module", "exec"), ())
            except (SyntaxError, ValueError, RecursionError, MemoryError):
                return None
        return names

    def _add(self, table: symtable.SymbolTable, scope: _Scope) -> None:
        bound, read = self._bound.setdefault(scope, set()), self._read.setdefault(scope, set())
        if table.get_type() == "class":
            self._classes.add(scope)
        for symbol in table.get_symbols():
            name = symbol.get_name()
            if symbol.is_assigned() or symbol.is_imported() or symbol.is_parameter() or symbol.is_namespace():
                (self._bound[()] if symbol.is_declared_global() else bound).add(name)
            if symbol.is_referenced() and (symbol.is_global() or not scope):
                read.add(name)
        for child in table.get_children():
            self._add(child, (*scope, child.get_name()))

    def unbound(self) -> Iterator[tuple[_Scope, str]]:
        """Yield each scope with the names that it looks up in the module and the builtins, and that are in neither."""
        for scope, names in self._read.items():
            yield from ((scope, name) for name in sorted(names - self._bound[()] - _BUILTINS))

    def has(self, scope: _Scope, name: str) -> bool:
        """Return whether a scope or one around it binds a name, or the file read it although nothing bound it."""
        around = [scope[:length] for length in range(len(scope)) if scope[:length] not in self._classes] + [scope]
        return any(name in self._bound.get(s, ()) for s in around) or any(name in read for read in self._read.values())


class _WithoutAnnotations(ast.NodeTransformer):
    """Removes annotations: some are never evaluated, and which ones differs from release to release."""

    def visit_arg(self, node: ast.arg) -> ast.arg:
        node.annotation = None
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        self.generic_visit(node)
        node.annotation = ast.Constant(None)
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.returns = None
        return self.generic_visit(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        node.returns = None
        return self.generic_visit(node)


def _is_dynamic(node: ast.AST) -> bool:
    if isinstance(node, ast.ImportFrom):
        return any(alias.name == "*" for alias in node.names) or node.module == "builtins"
    if isinstance(node, ast.Import):
        return any(alias.name in _DYNAMIC for alias in node.names)
    return getattr(node, "id", None) in _DYNAMIC or getattr(node, "attr", None) in _DYNAMIC
