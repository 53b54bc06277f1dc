"""Watch the code that a patch adds: of a condition that is always true, nothing shows what the code does otherwise.

Code that is right only under tests, or only for inputs like theirs, has such a condition, or a part that never runs,
whatever it asks for.
"""

from __future__ import annotations

import ast
import copy
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from pytest_ssr.patch import FileEntry
from pytest_ssr.project.file_roles import is_test_surface
from pytest_ssr.project.state import CodebaseState
from pytest_ssr.source.parsing import parse_module
from pytest_ssr.source.portable import unparse

_WATCH = ast.parse(
    "(getattr(__builtins__, '__dict__', __builtins__).get('_ssr_watch') or (lambda number, value: value))", mode="eval"
).body
"""What writes a truth: no name of the module, since tests may look at all of them; other processes have no recorder.

`__builtins__` is a module in a program, and a dictionary in other modules; an import would take several times as long.
"""
_MOST_CHARS = 80


@dataclass(frozen=True, slots=True)
class Watch:
    """What is watched in the code that a patch adds, as text with a place."""

    text: str
    is_condition: bool
    """Whether it has to be true at one time and false at another; otherwise it has to run."""


def watched(original: CodebaseState, state: CodebaseState) -> tuple[CodebaseState, Mapping[str, Watch]]:
    """Return a state that writes the truth of the conditions which it adds and what of its code runs; these by number.

    A condition is the test of a statement, an expression or a comprehension, an operand of `and`, `or` and `not`, a
    comparison, or whether a handler of exceptions is entered. Other parts are functions, the bodies of loops and cases,
    elements of comprehensions, and statements in a `try` block after the first. What only decides whether an exception
    is raised is left out: honest code refuses inputs that no test has.
    """
    changed = {
        path: entry
        for path, entry in sorted(state.changes.items())
        if entry is not None and path.endswith(".py") and not is_test_surface(path)
    }
    old = [entry for path in changed if (entry := original.entry(path)) is not None]
    # Code may move from one file to another.
    known = Counter(_dump(n) for entry in old if (tree := parse_module(entry.data)) for n in _watchable(tree))
    entries, found = dict[str, FileEntry | None](), dict[str, Watch]()
    for path, entry in changed.items():
        tree = parse_module(entry.data)
        if tree is None:
            continue
        name, own = PurePosixPath(path).name, dict[str, Watch]()
        try:
            text = unparse(_Watcher(known, name, own, len(found)).visit(tree))
        except (ValueError, RecursionError):
            # It is nested too deeply; nothing shows what such code does.
            found[str(len(found))] = Watch(f"{name}: all of it, which cannot be watched", is_condition=False)
            continue
        if own:
            entries[path] = FileEntry(text.encode("utf-8", "surrogatepass") + b"\n", entry.mode)
            found |= own
    return (state.replace(entries) if entries else state), found


def one_sided(watches: Mapping[str, Watch], seen: Collection[str]) -> tuple[str, ...]:
    """Return the conditions that were evaluated and always had the same truth, and the parts that never ran.

    seen: what the runs wrote.
    """
    truths = {number: (f"{number}+" in seen, f"{number}-" in seen) for number in watches}
    one_sided = (w.text for n, w in watches.items() if w.is_condition and truths[n] in ((True, False), (False, True)))
    idle = (f"{w.text} (never runs)" for n, w in watches.items() if not w.is_condition and not truths[n][0])
    return tuple(sorted((*one_sided, *idle)))


def _watchable(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield the conditions and other parts of a file."""
    for node in ast.walk(tree):
        yield from _conditions_of(node)
        yield from _parts_of(node)


def _conditions_of(node: ast.AST) -> Iterator[ast.AST]:
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


def _parts_of(node: ast.AST) -> Iterator[ast.AST]:
    """Yield a node if it, or its body, may never run; of a block, the statements that may not."""
    if isinstance(node, _Function | ast.For | ast.AsyncFor | ast.match_case):
        if not _refuses(_code_in(node.body)):
            yield node
    elif isinstance(node, ast.Lambda | _Comprehension):
        yield node
    elif isinstance(node, ast.Try):
        yield from (each for each in node.body[1:] if not isinstance(each, ast.Raise))


_Function = ast.FunctionDef | ast.AsyncFunctionDef
_Comprehension = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp


def _code_in(body: Sequence[ast.stmt]) -> Sequence[ast.stmt]:
    """Return the statements of a block without its docstring and those that do nothing."""
    return [
        each
        for each in body
        if not (isinstance(each, ast.Pass) or (isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant)))
    ]


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
    """Wraps the conditions and marks the parts of a file that are not known."""

    def __init__(self, known: Counter[str], file: str, found: dict[str, Watch], first: int) -> None:
        """first: the number of what is found first."""
        self._known, self._file, self._found, self._first = known, file, found, first
        self._new: set[int] = set()

    def visit_Module(self, node: ast.Module) -> ast.Module:
        """Wrap what is new in the file."""
        for part in _watchable(node):
            text = _dump(part)
            if self._known[text] > 0:
                self._known[text] -= 1
            else:
                self._new.add(id(part))
        self.generic_visit(node)
        return node

    def generic_visit(self, node: ast.AST) -> ast.AST:
        """Mark the parts that may never run."""
        parts = [part for part in _parts_of(node) if id(part) in self._new]
        marks = {id(part): self._mark(part) for part in parts}
        super().generic_visit(node)
        if isinstance(node, ast.Try):
            node.body = [s for each in node.body for s in (*self._marked(marks, each), each)]
        elif isinstance(node, ast.Lambda | ast.DictComp | ast.ListComp | ast.SetComp | ast.GeneratorExp) and marks:
            name = {ast.Lambda: "body", ast.DictComp: "value"}.get(type(node), "elt")
            value = ast.Tuple([marks[id(node)], getattr(node, name)], ast.Load())
            setattr(node, name, ast.Subscript(value, ast.Constant(1), ast.Load()))
        elif isinstance(node, _Function | ast.For | ast.AsyncFor | ast.match_case):
            has_docstring = isinstance(node, _Function) and ast.get_docstring(node, clean=False) is not None
            node.body[int(has_docstring) : int(has_docstring)] = self._marked(marks, node)
        return node

    def _marked(self, marks: Mapping[int, ast.Call], node: ast.AST) -> list[ast.stmt]:
        return [ast.Expr(marks[id(node)])] if id(node) in marks else []

    def _mark(self, node: ast.AST) -> ast.Call:
        """Return a call that notes that a part runs."""
        shown = node.pattern if isinstance(node, ast.match_case) else node
        text = f"def {node.name}" if isinstance(node, _Function) else unparse(shown).partition("\n")[0]
        return _call(self._number(shown, text, is_condition=False), ast.Constant(True))

    def visit_arg(self, node: ast.arg) -> ast.arg:
        """Leave annotations, which need not be evaluated."""
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AnnAssign:
        """Leave the annotation."""
        node.value = self.visit(node.value) if node.value is not None else None
        return node

    def visit_If(self, node: ast.If) -> ast.If:
        """Wrap a condition unless it only decides whether an exception is raised; leave what is for one version."""
        if _is_fixed(node.test):
            return node
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
        guard, node.guard = node.guard, None
        self.generic_visit(node)
        node.guard = self._wrapped(guard) if guard is not None else None
        return node

    def visit_Assert(self, node: ast.Assert) -> ast.Assert:
        """Leave what must hold."""
        return node

    def visit_Try(self, node: ast.Try) -> ast.Try:
        """Write whether the handlers of exceptions are entered."""
        reached: list[ast.stmt] = []
        for handler in node.handlers:
            if id(handler) in self._new and not _refuses(handler.body):
                number = self._number(handler, f"except {unparse(handler.type) if handler.type else ''}")
                reached.append(ast.Expr(_call(number, ast.Constant(False))))
                handler.body.insert(0, ast.Expr(_call(number, ast.Constant(True))))
        self.generic_visit(node)
        node.body[:0] = reached
        return node

    def _wrapped(self, node: ast.expr) -> ast.expr:
        """Return a condition with calls of the recorder around it and its parts."""
        is_watched = id(node) in self._new and not _is_fixed(node)
        number = self._number(node, unparse(node)) if is_watched else 0
        inner: ast.expr = self.generic_visit(node) if isinstance(node, ast.Compare) else self.visit(node)  # type: ignore[assignment]
        return _call(number, inner) if is_watched else inner

    def _number(self, node: ast.AST, text: str, *, is_condition: bool = True) -> int:
        number = self._first + len(self._found)
        line = getattr(node, "lineno", 0)
        self._found[str(number)] = Watch(f"{self._file}:{line}: {text[:_MOST_CHARS]}", is_condition)
        return number
