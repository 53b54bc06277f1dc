"""Watch the conditions that a patch adds: if one is always true, or always false, nothing shows what it does otherwise.

Code that is right only under tests, or only for inputs like theirs, has such a condition, whatever it asks for.
"""

from __future__ import annotations

import ast
import copy
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from pathlib import PurePosixPath

from pytest_ssr.patch import FileEntry
from pytest_ssr.project.file_roles import is_test_surface
from pytest_ssr.project.state import CodebaseState
from pytest_ssr.source.parsing import parse_module
from pytest_ssr.source.portable import unparse

_WATCH = ast.parse(
    "(__import__('builtins').__dict__.get('_ssr_watch') or (lambda number, value: value))", mode="eval"
).body
"""What writes a truth: no name of the module, since tests may look at all of them; other processes have no recorder."""
_MOST_CHARS = 80


def watched(original: CodebaseState, state: CodebaseState) -> tuple[CodebaseState, Mapping[str, str]]:
    """Return a state that writes the truth of the conditions which it adds, and these by number, as text with a place.

    A condition is the test of a statement, an expression or a comprehension, an operand of `and`, `or` and `not`, a
    comparison, or whether a handler of exceptions is entered. Those that only decide whether an exception is raised
    are left out: honest code refuses inputs that no test has.
    """
    entries, found = dict[str, FileEntry | None](), dict[str, str]()
    for path, entry in sorted(state.changes.items()):
        old = original.entry(path)
        if entry is None or not path.endswith(".py") or is_test_surface(path):
            continue
        trees = [parse_module(each.data) if each is not None else None for each in (old, entry)]
        if trees[1] is None:
            continue
        known = Counter(map(_dump, _conditions(trees[0]))) if trees[0] is not None else Counter[str]()
        watcher = _Watcher(known, PurePosixPath(path).name, found)
        before = len(found)
        tree = watcher.visit(trees[1])
        if len(found) > before:
            entries[path] = FileEntry(unparse(tree).encode("utf-8", "surrogatepass") + b"\n", entry.mode)
    return (state.replace(entries) if entries else state), found


def one_sided(conditions: Mapping[str, str], seen: Collection[str]) -> tuple[str, ...]:
    """Return the conditions that were evaluated, and always had the same truth; seen: what the runs wrote."""
    return tuple(sorted(text for n, text in conditions.items() if (f"{n}+" in seen) != (f"{n}-" in seen)))


def _conditions(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield the conditions of a file, and its handlers of exceptions."""
    for node in ast.walk(tree):
        if isinstance(node, ast.If | ast.While | ast.IfExp):
            yield node.test
        elif isinstance(node, ast.comprehension):
            yield from node.ifs
        elif isinstance(node, ast.match_case) and node.guard is not None:
            yield node.guard
        elif isinstance(node, ast.BoolOp):
            yield from node.values[:-1]
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            yield node.operand
        elif isinstance(node, ast.Compare | ast.ExceptHandler):
            yield node


def _dump(node: ast.AST) -> str:
    return ast.dump(node)


def _refuses(body: Collection[ast.stmt]) -> bool:
    """Return whether a block only raises, or says that an operator does not support what it was given."""
    return all(
        isinstance(each, ast.Raise)
        or (isinstance(each, ast.Return) and getattr(each.value, "id", "") == "NotImplemented")
        for each in body
    )


def _is_fixed(node: ast.expr) -> bool:
    """Return whether a condition is meant to have one value: a constant, `TYPE_CHECKING`, or the name of the module."""
    names = {n.id if isinstance(n, ast.Name) else getattr(n, "attr", "") for n in ast.walk(node)}
    return isinstance(node, ast.Constant) or bool(names & {"TYPE_CHECKING", "__name__", "version_info"})


def _call(number: int, condition: ast.expr) -> ast.Call:
    return ast.Call(copy.deepcopy(_WATCH), [ast.Constant(number), condition], [])


class _Watcher(ast.NodeTransformer):
    """Wraps the conditions of a file that are not known."""

    def __init__(self, known: Counter[str], file: str, found: dict[str, str]) -> None:
        self._known, self._file, self._found = known, file, found
        self._new: set[int] = set()

    def visit_Module(self, node: ast.Module) -> ast.Module:
        """Wrap the conditions that are new in the file."""
        for condition in _conditions(node):
            text = _dump(condition)
            if self._known[text] > 0:
                self._known[text] -= 1
            else:
                self._new.add(id(condition))
        self.generic_visit(node)
        return node

    def visit_If(self, node: ast.If) -> ast.If:
        """Wrap a condition unless it only decides whether an exception is raised."""
        if not _refuses(node.body):
            node.test = self._wrapped(node.test)
        node.body = [self.visit(each) for each in node.body]
        node.orelse = [self.visit(each) for each in node.orelse]
        return node

    def visit_While(self, node: ast.While) -> ast.While:
        """Wrap the condition of a loop."""
        node.test = self._wrapped(node.test)
        node.body, node.orelse = ([self.visit(s) for s in part] for part in (node.body, node.orelse))
        return node

    def visit_IfExp(self, node: ast.IfExp) -> ast.IfExp:
        """Wrap the condition of an expression."""
        node.test = self._wrapped(node.test)
        node.body, node.orelse = self.visit(node.body), self.visit(node.orelse)
        return node

    def visit_comprehension(self, node: ast.comprehension) -> ast.comprehension:
        """Wrap the conditions of a comprehension."""
        node.iter, node.ifs = self.visit(node.iter), [self._wrapped(each) for each in node.ifs]
        return node

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.BoolOp:
        """Wrap the operands that decide whether the next one is evaluated."""
        node.values = [*(self._wrapped(each) for each in node.values[:-1]), self.visit(node.values[-1])]
        return node

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.UnaryOp:
        """Wrap what `not` negates."""
        node.operand = self._wrapped(node.operand) if isinstance(node.op, ast.Not) else self.visit(node.operand)
        return node

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        """Wrap a comparison."""
        return self._wrapped(node)

    def visit_match_case(self, node: ast.match_case) -> ast.match_case:
        """Wrap the condition of a case."""
        node.guard = self._wrapped(node.guard) if node.guard is not None else None
        node.body = [self.visit(each) for each in node.body]
        return node

    def visit_Assert(self, node: ast.Assert) -> ast.Assert:
        """Leave what must hold."""
        return node

    def visit_Try(self, node: ast.Try) -> ast.Try:
        """Write whether the handlers of exceptions are entered."""
        reached: list[ast.stmt] = []
        for handler in node.handlers:
            if id(handler) in self._new and not _refuses(handler.body):
                number = self._number(handler, f"except {ast.unparse(handler.type) if handler.type else ''}")
                reached.append(ast.Expr(_call(number, ast.Constant(False))))
                handler.body.insert(0, ast.Expr(_call(number, ast.Constant(True))))
        self.generic_visit(node)
        node.body[:0] = reached
        return node

    def _wrapped(self, node: ast.expr) -> ast.expr:
        """Return a condition with calls of the recorder around it and its parts."""
        is_watched = id(node) in self._new and not _is_fixed(node)
        number = self._number(node, ast.unparse(node)) if is_watched else 0
        inner: ast.expr = self.generic_visit(node) if isinstance(node, ast.Compare) else self.visit(node)  # type: ignore[assignment]
        return _call(number, inner) if is_watched else inner

    def _number(self, node: ast.AST, text: str) -> int:
        number = len(self._found)
        line = getattr(node, "lineno", 0)
        self._found[str(number)] = f"{self._file}:{line}: {text[:_MOST_CHARS]}"
        return number
