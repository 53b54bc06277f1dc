"""Find indirect access to modules and their members: by a string, under another name, or by passing a module on.

The input is a syntax tree, the output a short description of each access. A module that gets another name is
recognized at the place where it gets it.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator

_CALLS = frozenset(("__import__", "compile", "eval", "exec", "globals"))
_NAMES = frozenset(("__builtins__", "__globals__", "__loader__"))
# Every other module can be reached from these, so the use of a passed module is unknown.
_GATES = frozenset(("builtins", "ctypes", "gc", "importlib", "inspect", "os", "posix", "sys"))
_MEMBERS = _GATES - {"importlib", "inspect"}
_BY_NAME = frozenset(("__getattribute__", "attrgetter", "delattr", "getattr", "setattr"))
_HELD = _GATES | {"environ", "modules"}


def indirect_uses(tree: ast.Module, own: Collection[str] = ()) -> Iterator[str]:
    """Yield the indirect accesses in a tree; own: names by which the project itself is imported."""
    finder = _Finder(tree, own)
    for node in ast.walk(tree):
        yield from finder.accesses(node)


class _Finder:
    """Analyzes one tree, outer nodes first."""

    def __init__(self, tree: ast.Module, own: Collection[str]) -> None:
        self._own = own
        self._aliases: dict[str, str] = {}
        self._members: dict[str, str] = {}
        self._modules: set[str] = set()
        self._outside: set[str] = set()
        self._handled, self._held = set[ast.AST](), set[ast.AST]()
        for node in ast.walk(tree):
            if isinstance(node, ast.Import | ast.ImportFrom):
                self._record_import(node)
            elif isinstance(node, ast.Assign | ast.NamedExpr | ast.AnnAssign) and isinstance(node.value, ast.Name):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                target = self._aliases.get(node.value.id, node.value.id)
                self._aliases |= {t.id: target for t in targets if isinstance(t, ast.Name)}
            elif isinstance(node, ast.Attribute):
                self._held.add(node.value)

    def _record_import(self, node: ast.Import | ast.ImportFrom) -> None:
        """Record what the bound names refer to, which are modules, and which are not from the project."""
        holder = node.module or "" if isinstance(node, ast.ImportFrom) else ""
        level = node.level if isinstance(node, ast.ImportFrom) else 0
        for alias in node.names:
            bound = alias.asname or (alias.name if holder else alias.name.partition(".")[0])
            if alias.asname:
                self._aliases[bound] = alias.name.rpartition(".")[2]
            outside = not level and (holder or alias.name).partition(".")[0] not in self._own
            if outside:
                self._outside.add(bound)
            if not holder or (outside and bound.islower()):
                self._modules.add(bound)
            if outside and holder and alias.name.lstrip("_") in _MEMBERS:
                self._members[bound] = f"{holder}.{alias.name}"

    def _last(self, node: ast.AST) -> str:
        """Return the name of an expression: its last attribute, or the name that its own name refers to."""
        if isinstance(node, ast.NamedExpr):
            node = node.value
        if isinstance(node, ast.Attribute):
            return node.attr.lstrip("_")
        return self._aliases.get(node.id, node.id) if isinstance(node, ast.Name) else ""

    def _gate(self, node: ast.AST) -> str:
        """Return the gate module that an expression refers to; an empty string if it is not one."""
        last = self._last(node)
        named = isinstance(node, ast.Name) and node.id in self._modules & self._outside
        held = isinstance(node, ast.Attribute) and _root(node) in self._modules | self._outside
        return last if last in _GATES and (named or held) else ""

    def _is_module(self, node: ast.AST) -> bool:
        return bool(self._gate(node)) or (isinstance(node, ast.Name) and node.id in self._modules)

    def accesses(self, node: ast.AST) -> Iterator[str]:
        """Yield the indirect accesses of one node."""
        if node in self._handled:
            return
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield from self._imports(node)
        elif isinstance(node, ast.Attribute):
            yield from self._attribute(node)
        elif isinstance(node, ast.Name):
            yield from self._name(node)
        elif isinstance(node, ast.Call):
            yield from self._call(node)

    def _imports(self, node: ast.Import | ast.ImportFrom) -> Iterator[str]:
        holder = f"{node.module or ''}." if isinstance(node, ast.ImportFrom) else ""
        for alias in node.names:
            name = holder + alias.name
            top = name.partition(".")[0]
            leads = top == "importlib" or (holder and alias.name.lstrip("_") in _MEMBERS)
            if leads and not getattr(node, "level", 0) and top not in self._own:
                yield f"imports {name}"

    def _name(self, node: ast.Name) -> Iterator[str]:
        if not isinstance(node.ctx, ast.Load):
            return
        if node.id in _CALLS:
            yield f"calls {node.id}"
        elif node.id in _NAMES or node.id in self._members:
            yield f"uses {self._members.get(node.id, node.id)}"
        elif node not in self._held and self._gate(node):
            yield f"passes {self._gate(node)} on"

    def _attribute(self, node: ast.Attribute) -> Iterator[str]:
        if node.attr in _NAMES:
            yield f"uses {node.attr}"
        elif self._gate(node) in _MEMBERS or (node.attr == "__dict__" and self._is_module(node.value)):
            yield f"uses {self._last(node.value)}.{node.attr}"

    def _call(self, node: ast.Call) -> Iterator[str]:
        called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        first = node.args[0] if node.args else node
        if called in ("hasattr", "vars") and self._is_module(first):
            self._handled.add(first)
        if called == "vars" and self._is_module(first):
            yield f"calls vars of {self._last(first)}"
        elif called in _BY_NAME and not (called in ("delattr", "setattr") and _root(first) in self._outside):
            names = [a.value for a in node.args[:2] if isinstance(a, ast.Constant) and isinstance(a.value, str)]
            bad = {part for name in names for part in name.split(".")} & _HELD
            if bad and _root(first) not in ("self", "cls"):
                yield f"looks up {min(bad)} by name"
            elif called == "getattr" and self._is_module(first):
                self._handled.add(first)
                if not names:
                    yield f"looks up a computed name in {self._last(first)}"


def _root(node: ast.AST) -> str:
    """Return the name at the start of an attribute chain; an empty string for any other expression."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""
