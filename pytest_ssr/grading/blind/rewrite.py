"""Rewrite a test file so that it writes the values it computes and does not hold the values it expects."""

from __future__ import annotations

import ast
import copy
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from pytest_ssr.grading.blind.assertions import (
    END,
    FALSE,
    NEAR,
    RAISES,
    RAISES_TEXT,
    RAISING,
    TRUE,
    Check,
    Site,
    called_in,
    checks_of,
    choices_of,
    compared,
    expects_text,
    mock_check,
    parts_of,
    raised_class,
    unittest_check,
    without_pattern,
)
from pytest_ssr.grading.blind.data_flow import Flow, Function, Level
from pytest_ssr.grading.blind.pruning import Loads, prune
from pytest_ssr.grading.blind.tables import Definition, called, marks_of
from pytest_ssr.source.parsing import parse_source
from pytest_ssr.source.portable import unparse

RECORDER = "ssr_blind_recorder"
_ASSERTING = re.compile(r"_?(assert|check|verify|expect|ensure)(_|[A-Z])|assert\w")


@dataclass(frozen=True)
class Blind:
    """A rewritten test file."""

    tree: ast.Module
    sites: Mapping[int, Site]
    """Its assertions, by number."""

    @cached_property
    def text(self) -> bytes:
        """The file's content."""
        return unparse(self.tree).encode("utf-8", "surrogatepass") + b"\n"


def rewrite(
    data: bytes,
    *,
    own: Collection[str] = (),
    exported: Collection[str] = (),
    operated: Collection[int] = (),
    first: int = 0,
    full: bool = False,
) -> Blind:
    """Rewrite a test file; raises SyntaxError, ValueError or RecursionError if that is not possible.

    own: names by which the project's code and tests are imported. exported: names that other files use from this one.
    operated: the numbers of comparisons whose operators the code defines: they write all operands, and whether they
    hold. first: the number of the first assertion. full: keep and write the expected values as well; for runs on the
    original.
    """
    tree = parse_source(data)
    flow = Flow(tree, own)
    before = Loads.of(tree, flow.functions)
    for function in flow.functions:
        for owner in (function.node, function.holder):
            _number_rows(owner, flow)
    sites: dict[int, Site] = {}
    for function in flow.functions:
        writer = _Writer(flow, function, sites, first, operated, full=full)
        writer.rewrite_body()
    if not full:
        prune(tree, flow, before, exported)
    _drop_docstrings(tree)
    tree.body = [part for statement in tree.body for part in _without_warning(statement)]
    index = next((n for n, s in enumerate(tree.body) if not _is_future(s)), len(tree.body))
    tree.body.insert(index, ast.Import([ast.alias(RECORDER)]))
    return Blind(tree, sites)


def _without_warning(statement: ast.stmt) -> Sequence[ast.stmt]:
    """Return the body of a block that expects a warning: of the imports in a process, only the first one warns."""
    if not isinstance(statement, ast.With):
        return [statement]
    contexts = [item.context_expr for item in statement.items]
    warns = all(isinstance(c, ast.Call) and called(c) in ("warns", "deprecated_call") for c in contexts)
    return statement.body if warns else [statement]


def _is_future(node: ast.stmt) -> bool:
    return isinstance(node, ast.ImportFrom) and node.module == "__future__"


def _number_rows(owner: Definition | ast.ClassDef | None, flow: Flow) -> None:
    """Use row numbers as ids of table rows: ids made of values would reveal the expected values."""
    for mark, _, rows in marks_of(owner) if owner is not None else ():
        table = flow.table(rows)
        if (
            table is None
            or isinstance(table.node, ast.Dict)
            or any(isinstance(r, ast.Starred) for r in table.node.elts)
        ):
            continue
        for row in table.node.elts:
            if isinstance(row, ast.Call):
                row.keywords = [k for k in row.keywords if k.arg != "id"]
        mark.keywords = [k for k in mark.keywords if k.arg != "ids"]
        names: list[ast.expr] = [ast.Constant(str(n)) for n in range(len(table.node.elts))]
        mark.keywords.append(ast.keyword("ids", ast.List(names, ast.Load())))


def _drop_docstrings(tree: ast.Module) -> None:
    for node in ast.walk(tree):
        if isinstance(node, Definition | ast.ClassDef | ast.Module):
            body = [s for s in node.body if not (isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant))]
            node.body = body or ([] if isinstance(node, ast.Module) else [ast.Pass()])


def _ends_test(call: ast.Call) -> bool:
    """Return whether a call is `self.fail(...)` or `pytest.fail(...)`."""
    func = call.func
    owner = func.value if isinstance(func, ast.Attribute) and func.attr == "fail" else None
    return isinstance(owner, ast.Name) and owner.id in ("self", "pytest")


def _calls_something(call: ast.Call) -> bool:
    """Return whether arguments of a call are computed by other calls."""
    effects = ast.Call | ast.Await | ast.NamedExpr | ast.Yield | ast.YieldFrom
    return any(isinstance(node, effects) for part in parts_of(call) for node in ast.walk(part))


class _Writer(ast.NodeTransformer):
    """Replaces the assertions of a function with calls of the recorder."""

    def __init__(
        self,
        flow: Flow,
        function: Function,
        sites: dict[int, Site],
        first: int,
        operated: Collection[int],
        *,
        full: bool,
    ) -> None:
        self._flow, self._function, self._sites, self._full = flow, function, sites, full
        self._operated = operated
        self._first, self._depth = first, 0
        self._names = {f.node.name for f in flow.functions}

    def rewrite_body(self) -> None:
        """Rewrite the function; a test records that it has reached its end."""
        node = self._function.node
        body = ast.Module(node.body, [])
        self.generic_visit(body)
        node.body = body.body
        if self._function.is_test and not self._function.is_fixture:
            node.body.append(self._call("record", self._site((END,), ())))

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        """Rewrite a nested function as well."""
        self._depth += 1
        self.generic_visit(node)
        self._depth -= 1
        return node

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AsyncFunctionDef:
        """Rewrite a nested function as well."""
        self._depth += 1
        self.generic_visit(node)
        self._depth -= 1
        return node

    def visit_Return(self, node: ast.Return) -> ast.Return | list[ast.stmt]:
        """Record that a test ends here."""
        if self._depth or not self._function.is_test or self._function.is_fixture:
            return node
        return [self._call("record", self._site((END,), ())), node]

    def visit_Assert(self, node: ast.Assert) -> list[ast.stmt]:
        """Record the computed values of an assertion."""
        loop = self._loop(node.test)
        if loop is not None:
            return [loop]
        if choices := choices_of(node.test):
            first = self._first + len(self._sites)
            return [self._choice(check, first) for check in choices]
        return self._record_all(checks_of(node.test))

    def visit_Expr(self, node: ast.Expr) -> ast.stmt | list[ast.stmt]:
        """Record the computed values of a call that asserts."""
        call = node.value
        if not isinstance(call, ast.Call):
            return node
        checks = unittest_check(call) or mock_check(call) or self._match(call)
        if checks:
            return self._record_all(checks)
        if _ends_test(call):
            return [node, ast.Expr(ast.Call(ast.Attribute(ast.Name(RECORDER, ast.Load()), "fail", ast.Load()), [], []))]
        if called(call) in RAISING:
            statement = self._raising_call(call, None)
            return statement if statement is not None else node
        return self._asserting(node, call)

    def visit_Assign(self, node: ast.Assign) -> ast.stmt:
        """Rewrite `info = raises(E, f, x)`."""
        if isinstance(node.value, ast.Call) and called(node.value) in RAISING and len(node.targets) == 1:
            return self._raising_call(node.value, node.targets[0]) or node
        return node

    def visit_With(self, node: ast.With) -> list[ast.stmt]:
        """Write what is raised in a context that asserts, and whether another one fails if nothing happens in it."""
        controls = []
        for item in node.items:
            call = item.context_expr
            if not isinstance(call, ast.Call):
                continue
            if called(call) in RAISING:
                item.context_expr = self._raising(call) if call.args or call.keywords else call
            elif called(call).startswith("assert"):
                controls += [] if _calls_something(call) else [self._rejects(call)]
                item.context_expr = self._context(self._site((RAISES,), (True, True)), call)
        self.generic_visit(node)
        return [*controls, node]

    def _rejects(self, call: ast.Call) -> ast.Expr:
        empty = ast.arguments([], [], None, [], [], None, [])
        return self._call("rejects", self._site((TRUE,), (True,)), ast.Lambda(empty, copy.deepcopy(call)))

    def _context(self, site: int, manager: ast.Call, *pattern: ast.expr, kinds: ast.expr | None = None) -> ast.Call:
        context = self._call("Raising", site, manager, *pattern).value
        assert isinstance(context, ast.Call)
        context.keywords = [ast.keyword("kinds", copy.deepcopy(kinds))] if kinds is not None else []
        return context

    def _match(self, call: ast.Call) -> list[Check]:
        """Return the check of `info.match(pattern)`; empty for any other call."""
        if called(call) != "match" or not isinstance(call.func, ast.Attribute) or len(call.args) != 1:
            return []
        owner = call.func.value
        if not isinstance(owner, ast.Name) or self._flow.level(owner, self._function) is not Level.COMPUTED:
            return []
        text = ast.Call(ast.Name("str", ast.Load()), [ast.Attribute(owner, "value", ast.Load())], [])
        return [Check(("search",), [text, call.args[0]])]

    def _raising(self, call: ast.Call) -> ast.Call:
        manager, pattern = without_pattern(call)
        ops = (RAISES_TEXT,) if expects_text(call) else (RAISES,)
        site = self._site(ops, (True, True, *(False for _ in pattern)))
        return self._context(site, manager, *(pattern if self._full else ()), kinds=raised_class(call))

    def _raising_call(self, call: ast.Call, target: ast.expr | None) -> ast.With | None:
        invocation = called_in(call)
        if invocation is None:
            return None
        keywords = [k for k in call.keywords if k.arg not in ("match", "msg")]
        inside = ast.Call(invocation[0], invocation[1], keywords)
        call = ast.Call(call.func, call.args[: call.args.index(invocation[0])], [])
        return ast.With([ast.withitem(self._raising(call), target)], [ast.Expr(inside)])

    def _asserting(self, node: ast.Expr, call: ast.Call) -> ast.stmt | list[ast.stmt]:
        """Record the arguments of an asserting function that is not in this file."""
        name = called(call)
        plain = not call.keywords and not any(isinstance(a, ast.Starred | ast.Await) for a in ast.walk(call))
        if not _ASSERTING.match(name) or name in self._names or not plain or not call.args:
            return node
        levels = [self._flow.level(a, self._function) for a in call.args]
        values = [a for a, level in zip(call.args, levels, strict=True) if level is Level.COMPUTED]
        if not name.startswith("assert") or not values:
            site = self._site((NEAR,), tuple(True for _ in call.args))
            return self._call("held", site, call.func, *call.args)
        return self._call("record", self._site((NEAR,), tuple(True for _ in values)), *values)

    def _loop(self, test: ast.expr) -> ast.stmt | None:
        """Return a loop that asserts each item, as a replacement for `all(...)`; None for any other expression."""
        if not (isinstance(test, ast.Call) and called(test) == "all" and len(test.args) == 1):
            return None
        comprehension = test.args[0]
        unsupported = (ast.Await, ast.NamedExpr, ast.Yield)
        if not isinstance(comprehension, ast.GeneratorExp | ast.ListComp) or any(
            isinstance(n, unsupported) for n in ast.walk(comprehension)
        ):
            return None
        body: list[ast.stmt] = self._record_all(checks_of(comprehension.elt))
        for part in reversed(comprehension.generators):
            for condition in reversed(part.ifs):
                body = [ast.If(condition, body, [])]
            body = [ast.For(part.target, part.iter, body, [])]
        name = f"ssr_each_{len(self._sites)}"
        empty = ast.arguments([], [], None, [], [], None, [])
        each = ast.FunctionDef(name, empty, [*body, self._call("record", self._site((END,), ()))], [])
        # A separate function, because a comprehension has its own scope.
        return ast.If(ast.Constant(True), [each, ast.Expr(ast.Call(ast.Name(name, ast.Load()), [], []))], [])

    def _record_all(self, checks: list[Check]) -> list[ast.stmt]:
        return [self._record(check) for check in checks]

    def _recorded(self, check: Check) -> tuple[bool, ...]:
        """Return for each operand whether it is computed."""
        asserted = len(check.operands) - check.expected
        levels = [self._flow.level(o, self._function) for o in check.operands[:asserted]]
        highest = max(levels)
        return (*(level is highest for level in levels), *(False for _ in range(check.expected)))

    def _record(self, check: Check) -> ast.Expr:
        """Return the call that records the computed values of one comparison."""
        if check.ops in ((TRUE,), (FALSE,)):
            return self._call("truth", self._site(check.ops, (True,)), check.operands[0])
        is_operated = check.is_compare and self._first + len(self._sites) in self._operated
        recorded = tuple(True for _ in check.operands) if is_operated else self._recorded(check)
        site = self._site(check.ops, recorded)
        if all(recorded) and check.is_compare:
            return self._call("both", site, compared(check), *check.operands)
        chosen = [o for o, r in zip(check.operands, recorded, strict=True) if r or self._full]
        return self._call("record", site, *chosen)

    def _choice(self, check: Check, first: int) -> ast.Expr:
        """Return the call that records the computed values of one of several comparisons, or a failure."""
        recorded = self._recorded(check)
        site = self._site(check.ops, recorded, first)
        chosen = [o for o, r in zip(check.operands, recorded, strict=True) if r or self._full]
        empty = ast.arguments([], [], None, [], [], None, [])
        return self._call("choice", site, *(ast.Lambda(empty, operand) for operand in chosen))

    def _site(self, ops: tuple[str, ...], recorded: tuple[bool, ...], choice: int = -1) -> int:
        number = self._first + len(self._sites)
        self._sites[number] = Site(ops, recorded, choice)
        return number

    def _call(self, name: str, site: int, *values: ast.expr) -> ast.Expr:
        func = ast.Attribute(ast.Name(RECORDER, ast.Load()), name, ast.Load())
        return ast.Expr(ast.Call(func, [ast.Constant(site), *values], []))
