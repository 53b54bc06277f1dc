"""Bring functions into a normal form: two that have the same one do the same, under stated assumptions.

Each step rewrites a syntax tree into an equivalent one. The assumptions are those of
`pytest_ssr.source.equivalence_proofs`. A step that is not sure of what it needs leaves the tree as it is, so two
functions that do the same may well have different forms.
"""

from __future__ import annotations

import ast
import builtins
import copy
import functools
import operator
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from pytest_ssr.source.definite_reads import definite_reads
from pytest_ssr.source.value_kinds import is_number, kind_of, local_kinds

Function = ast.FunctionDef | ast.AsyncFunctionDef
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
# From Python 3.12 on, `type A = ...` looks for its names when it is used.
_SCOPES = (*_DEFINITIONS, ast.Lambda, getattr(ast, "TypeAlias", ast.Lambda))
_NAMED = (*_DEFINITIONS, ast.ExceptHandler, ast.MatchAs, ast.MatchStar)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_JUMPS = (ast.Return, ast.Raise, ast.Continue, ast.Break)
_DECLARATIONS = (ast.Global, ast.Nonlocal, ast.Import, ast.ImportFrom, ast.Delete, *_SCOPES)
_EFFECTS = (ast.Call, ast.NamedExpr, ast.Await, ast.Yield, ast.YieldFrom)
_DOCSTRING = " docstring"
"""The name that a docstring is assigned to in normal forms; no code can have it, and it comes before all others."""
_LOOK_AT_CALLER = frozenset(("query", "sql", "execute", "evaluate"))
"""Functions of pandas, DuckDB, Polars and NumExpr that find the local names of their caller in a text."""
_ROUNDS = 4


class EquivalenceProof(StrEnum):
    """Why a change cannot be noticed."""

    SAME_CODE = "same-code"
    """Another way to write the same, or code that is never reached."""
    DEAD_STORE = "dead-store"
    """A value of a local name that nothing reads."""
    ORDER = "order"
    """Statements that do not depend on each other."""
    EXCLUSIVE = "exclusive-branches"
    """Branches of which at most one is taken."""
    EARLY_RETURN = "early-return"
    """A return for an empty collection, before code that returns the same for it."""
    OPERANDS = "operands"
    """The operands of a sum or a product of numbers."""
    EXCEPTIONS = "covered-exception"
    """An exception of which the same clause catches a base class."""
    COPY = "needless-copy"
    """A copy of which only the elements are used, before anything else happens."""
    BOUND = "bound"
    """A comparison at a bound at which both branches give the same."""
    METHODS = "method-order"
    """Methods of a class in another order."""

    @property
    def reason(self) -> str:
        """The proof, as people read it after "equivalent:"."""
        return _REASONS[self]


_REASONS = {
    EquivalenceProof.SAME_CODE: "the code does the same",
    EquivalenceProof.DEAD_STORE: "nothing reads the value",
    EquivalenceProof.ORDER: "the statements do not depend on each other",
    EquivalenceProof.EXCLUSIVE: "the branches exclude each other",
    EquivalenceProof.EARLY_RETURN: "the code below returns the same",
    EquivalenceProof.OPERANDS: "the order of the operands does not matter",
    EquivalenceProof.EXCEPTIONS: "the clause catches it anyway",
    EquivalenceProof.COPY: "the copy is not needed",
    EquivalenceProof.BOUND: "both branches give the bound",
    EquivalenceProof.METHODS: "the order of methods does not matter",
}
STEPS = tuple(proof for proof in EquivalenceProof if proof is not EquivalenceProof.METHODS)
"""The proofs that a normal form of a function gives, in the order in which they are tried."""


@dataclass(frozen=True)
class Surroundings:
    """What is known of the code around a function."""

    builtins: frozenset[str]
    """The names that have their built-in meaning in the file."""
    plain_attributes: bool
    """Whether the function is a method of a class of which all bases are known, and none controls its attributes."""
    constructors: frozenset[str]
    """Names of classes, as the file writes them, of which an empty object can be made without effect."""
    reserved: frozenset[str]
    """The names of functions and class attributes of the file, which may be set in another way than attributes."""
    is_lenient: bool = False
    """Whether objects of unknown types count as numbers if they are added to one or compared with one."""
    annotations: Mapping[str, str] = field(default_factory=dict)
    """Annotations of known types, as the file writes them, and the kinds of their values."""


def normal_form(function: Function, around: Surroundings, steps: Collection[EquivalenceProof]) -> str:
    """Return the normal form of a function that these steps reach, as text; it also says which names are local."""
    own = copy.deepcopy(function)
    own.body = [_without_docstring_marks(own.body[0]), *own.body[1:]]
    declared = [(type(n).__name__, sorted(n.names)) for n in own_nodes(own) if isinstance(n, ast.Global | ast.Nonlocal)]
    not_local = {name for _, names in declared for name in names}
    form = ""
    for _ in range(_ROUNDS):
        # A declaration also counts in code that is never reached.
        rewritten = _Rewriter(own, around, frozenset(steps), not_local).function()
        if (dumped := ast.dump(rewritten)) == form:
            break
        form = dumped
    read = {n.id for n in ast.walk(own) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
    is_generator = any(isinstance(n, ast.Yield | ast.YieldFrom) for n in own_nodes(function))
    return f"{sorted(declared)} {sorted(_own_names(function) & read)} {is_generator} {form}"


def _without_docstring_marks(first: ast.stmt) -> ast.stmt:
    """Mark a docstring, so that it is not removed as an expression without effect."""
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
        return ast.Assign([ast.Name(_DOCSTRING, ast.Store())], first.value)
    return first


def own_nodes(function: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes that a function runs itself, of nested functions and classes only what defines them."""
    pending = list(ast.iter_child_nodes(function))
    while pending:
        node = pending.pop()
        yield node
        pending += _defining_parts(node) if isinstance(node, _SCOPES) else ast.iter_child_nodes(node)


def _defining_parts(scope: ast.AST) -> Iterator[ast.AST]:
    """Yield what is evaluated when a function or class is defined: decorators, default values, bases."""
    if isinstance(scope, _DEFINITIONS):
        yield from scope.decorator_list
    if isinstance(scope, ast.ClassDef):
        yield from (*scope.bases, *scope.keywords)
    elif isinstance(scope, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
        yield from (default for default in (*scope.args.defaults, *scope.args.kw_defaults) if default is not None)
        yield from (n.annotation for n in ast.walk(scope.args) if isinstance(n, ast.arg) and n.annotation is not None)


def has_effects(node: ast.AST) -> bool:
    """Return whether an expression calls something, binds a name or waits."""
    return any(isinstance(n, _EFFECTS) for n in ast.walk(node))


def _own_names(function: Function) -> set[str]:
    """Return the names that a function binds itself."""
    nodes = [*ast.walk(function.args), *own_nodes(function)]
    # The targets of comprehensions are theirs.
    targets = {id(n) for c in nodes if isinstance(c, ast.comprehension) for n in ast.walk(c.target)}
    return bound_by(n for n in nodes if id(n) not in targets)


def bound_names(scope: ast.AST) -> set[str]:
    """Return all names that a piece of code binds, also in nested scopes."""
    return bound_by(ast.walk(scope))


def bound_by(nodes: Iterable[ast.AST]) -> set[str]:
    """Return the names that nodes bind, without what is inside them."""
    found: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            found.add(node.id)
        elif isinstance(node, ast.arg):
            found.add(node.arg)
        elif isinstance(node, ast.alias):
            found.add((node.asname or node.name).partition(".")[0])
        elif isinstance(node, ast.Global | ast.Nonlocal):
            found.update(node.names)
        elif isinstance(node, _NAMED) and node.name is not None:
            found.add(node.name)
        elif isinstance(node, ast.MatchMapping) and node.rest:
            found.add(node.rest)
    return found


def _names(node: ast.AST) -> set[str]:
    """Return all names that a piece of code reads or binds."""
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name)} | bound_names(node)


def _reads(node: ast.AST) -> set[str]:
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}


def _private_locals(function: Function) -> set[str]:
    """Return the local names that nothing else uses: no nested function or class, and no generator expression."""
    own = [n for n in own_nodes(function) if not isinstance(n, _SCOPES)]
    if any(_called_name(n) in _LOOK_AT_CALLER for n in own):
        return set()
    declared = {name for n in own if isinstance(n, ast.Global | ast.Nonlocal) for name in n.names}
    nested = [n for n in own_nodes(function) if isinstance(n, _SCOPES)]
    # A generator expression reads its names when it is used, except for what it iterates first.
    lazy = [part for n in own if isinstance(n, ast.GeneratorExp) for part in _lazy_parts(n)]
    shared = set().union(*map(_names, (*nested, *lazy)), declared)
    targets = {
        name
        for n in own
        if isinstance(n, _COMPREHENSIONS)
        for generator in n.generators
        for name in _names(generator.target)
    }
    stored = {n.id for n in own if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load)}
    deleted = {n.id for n in own if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Del)}
    handled = {n.name for n in own if isinstance(n, ast.ExceptHandler) and n.name}
    arguments = {a.arg for a in ast.walk(function.args) if isinstance(a, ast.arg)}
    # `super()` reads the first parameter.
    implicit = {_first_parameter(function)} if any(_called_name(n) == "super" for n in own) else set()
    found = (stored | arguments) - shared - targets - deleted - handled - implicit - {_DOCSTRING}
    # Others read names such as `__tracebackhide__`, and in a class, `__x` is another spelling of `_Class__x`.
    return {name for name in found if not (name.startswith("_") and "__" in name)}


def _called_name(node: ast.AST) -> str:
    """Return the name of the function or method that a call calls; empty for everything else."""
    if not isinstance(node, ast.Call):
        return ""
    function = node.func
    return function.id if isinstance(function, ast.Name) else getattr(function, "attr", "")


def _first_parameter(function: Function) -> str:
    return next((a.arg for a in (*function.args.posonlyargs, *function.args.args)), "")


def _lazy_parts(node: ast.GeneratorExp) -> Iterator[ast.AST]:
    yield node.elt
    for number, generator in enumerate(node.generators):
        yield from (generator.target, *generator.ifs)
        if number:
            yield generator.iter


def _ends_in_jump(block: Sequence[ast.stmt]) -> bool:
    if not block:
        return False
    last = block[-1]
    if isinstance(last, ast.If):
        return _ends_in_jump(last.body) and _ends_in_jump(last.orelse)
    return isinstance(last, _JUMPS)


def _same(one: ast.AST, other: ast.AST) -> bool:
    return ast.dump(one) == ast.dump(other)


class _Rewriter:
    """Rewrites one function, once from the inside to the outside."""

    def __init__(
        self, function: Function, around: Surroundings, steps: frozenset[EquivalenceProof], not_local: Collection[str]
    ) -> None:
        """not_local: the names that the function declares as global or nonlocal."""
        self._function, self._around, self._steps = function, around, steps
        bound = bound_names(function)
        self._builtins = around.builtins - bound
        self._constructors = {name for name in around.constructors if name.partition(".")[0] not in bound}
        self._locals = _private_locals(function).difference(not_local)
        self._definite = definite_reads(function)
        """The reads of names that have a value; it also has those that are made up of them."""
        self._kinds = local_kinds(function, self._locals, self._builtins, around.annotations)
        loaded = [n.id for n in ast.walk(function) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)]
        added_to = [n.target.id for n in ast.walk(function) if _is_added_to(n)]  # type: ignore[attr-defined]
        self._read = {*loaded, *added_to}
        loops = [n for n in ast.walk(function) if isinstance(n, ast.For | ast.AsyncFor | ast.comprehension)]
        self._iterated = set().union(*(_reads(loop.target) for loop in loops))
        names = [n for n in ast.walk(function) if isinstance(n, ast.Name)]
        is_other = any(n.id == "self" and not isinstance(n.ctx, ast.Load) for n in names) or any(
            isinstance(mark, ast.Name) and mark.id == "staticmethod" for mark in function.decorator_list
        )
        is_own = _first_parameter(function) == "self" and "self" in self._locals and not is_other
        self._own_object = "self" if is_own else ""

    def function(self) -> Function:
        """Rewrite and return the function."""
        body = self._block(self._function.body, guarded=False, at_end=True)
        if not _ends_in_jump(body):
            body.append(ast.Return(ast.Constant(None)))
        self._function.body = self._merged(self._without_dead_stores(body, guarded=False))
        return self._function

    def _does(self, step: EquivalenceProof) -> bool:
        return step in self._steps

    def _block(self, block: Sequence[ast.stmt], *, guarded: bool, at_end: bool = False) -> list[ast.stmt]:
        """Rewrite a block. guarded: whether code of the function may go on after an exception in it.

        at_end: whether the function returns after it.
        """
        statements: list[ast.stmt] = []
        for number, statement in enumerate(block):
            is_last = at_end and number == len(block) - 1
            statements += self._statement(statement, guarded=guarded, at_end=is_last)
            if _ends_in_jump(statements):
                break
        if at_end and statements and _is_plain_return(statements[-1]):
            statements.pop()
        if self._does(EquivalenceProof.EARLY_RETURN):
            statements = self._without_early_returns(statements, at_end=at_end)
        statements = self._without_dead_stores(statements, guarded=guarded)
        return self._merged(self._ordered(statements, guarded=guarded))

    def _statement(self, statement: ast.stmt, *, guarded: bool, at_end: bool) -> list[ast.stmt]:
        if isinstance(statement, ast.Pass):
            return []
        if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
            return []
        if isinstance(statement, _SCOPES):
            return [statement]
        if isinstance(statement, ast.AnnAssign):
            # In a function, annotations are not evaluated.
            if statement.value is None:
                # The object whose attribute or element is annotated is evaluated.
                return [] if isinstance(statement.target, ast.Name) else [statement]
            statement = ast.Assign([statement.target], statement.value)
        statement = self._with_expressions(statement)
        if isinstance(statement, ast.Return) and statement.value is None:
            return [ast.Return(ast.Constant(None))]
        if isinstance(statement, ast.If):
            return self._if(statement, guarded=guarded, at_end=at_end)
        if isinstance(statement, ast.For | ast.AsyncFor | ast.While):
            body = self._block(statement.body, guarded=guarded)
            while body and isinstance(body[-1], ast.Continue):
                body.pop()
            statement.body = body or [ast.Pass()]
            statement.orelse = self._block(statement.orelse, guarded=guarded)
            if isinstance(statement, ast.While) and _constant(statement.test) is False:
                return statement.orelse
        elif isinstance(statement, ast.With | ast.AsyncWith):
            statement.body = self._block(statement.body, guarded=True) or [ast.Pass()]
        elif isinstance(statement, ast.Try | ast.TryStar):
            statement.body = self._block(statement.body, guarded=True) or [ast.Pass()]
            statement.orelse = self._block(statement.orelse, guarded=True)
            statement.finalbody = self._block(statement.finalbody, guarded=True)
            for handler in statement.handlers:
                handler.body = self._block(handler.body, guarded=True) or [ast.Pass()]
                # `except*` refuses groups of exceptions, also those that a base class covers.
                if self._does(EquivalenceProof.EXCEPTIONS) and handler.type and isinstance(statement, ast.Try):
                    handler.type = self._without_covered(handler.type)
        elif isinstance(statement, ast.Match):
            for case in statement.cases:
                case.body = self._block(case.body, guarded=guarded) or [ast.Pass()]
        return [statement]

    def _if(self, statement: ast.If, *, guarded: bool, at_end: bool) -> list[ast.stmt]:
        value = _constant(statement.test)
        if value is not None:
            return self._block(statement.body if value else statement.orelse, guarded=guarded, at_end=at_end)
        body = self._block(statement.body, guarded=guarded, at_end=at_end)
        orelse = self._block(statement.orelse, guarded=guarded, at_end=at_end)
        test = statement.test
        if orelse and isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            test, body, orelse = test.operand, orelse, body
        if not body and not orelse and self._has_sure_truth(test):
            return []
        if not body and orelse:
            test, body, orelse = ast.UnaryOp(ast.Not(), test), orelse, []
        after: list[ast.stmt] = []
        if _ends_in_jump(body):
            after, orelse = orelse, []
        swapped = self._with_branches_in_order(ast.If(test, body or [ast.Pass()], orelse))
        return [swapped, *after]

    def _with_branches_in_order(self, statement: ast.If) -> ast.If:
        """Exchange an `if` and the `elif` after it if both conditions exclude each other."""
        if not self._does(EquivalenceProof.EXCLUSIVE) or len(statement.orelse) != 1:
            return statement
        other = statement.orelse[0]
        if isinstance(other, ast.If) and self._exclude(statement.test, other.test):
            if ast.dump(other.test) < ast.dump(statement.test):
                rest = ast.If(statement.test, statement.body, other.orelse)
                return ast.If(other.test, other.body, [self._with_branches_in_order(rest)])
        return statement

    # Expressions.

    def _with_expressions(self, statement: ast.stmt) -> ast.stmt:
        """Rewrite the expressions of a statement, without those of the statements inside."""
        for name, value in ast.iter_fields(statement):
            if isinstance(value, ast.expr):
                setattr(statement, name, self._expression(value))
        return statement

    def _expression(self, node: ast.expr) -> ast.expr:
        if isinstance(node, ast.Lambda | ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp):
            return node
        for name, value in ast.iter_fields(node):
            if isinstance(value, ast.expr):
                setattr(node, name, self._expression(value))
            elif isinstance(value, list):
                setattr(node, name, [self._expression(v) if isinstance(v, ast.expr) else v for v in value])
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            return _negated(node)
        if isinstance(node, ast.IfExp):
            return self._conditional(node)
        if isinstance(node, ast.BinOp) and self._does(EquivalenceProof.OPERANDS):
            return self._with_operands_in_order(node)
        if isinstance(node, ast.Call) and self._does(EquivalenceProof.COPY):
            return self._without_copy(node)
        return node

    def _conditional(self, node: ast.IfExp) -> ast.expr:
        value = _constant(node.test)
        if value is not None:
            return node.body if value else node.orelse
        if isinstance(node.test, ast.UnaryOp) and isinstance(node.test.op, ast.Not):
            node = ast.IfExp(node.test.operand, node.orelse, node.body)
        if _same(node.body, node.orelse) and self._has_sure_truth(node.test):
            return node.body
        if self._does(EquivalenceProof.BOUND) and self._agrees_at_bound(node):
            (compares,) = node.test.ops  # type: ignore[attr-defined]
            node.test.ops = [_STRICT.get(type(compares), type(compares))()]  # type: ignore[attr-defined]
        return node

    def _agrees_at_bound(self, node: ast.IfExp) -> bool:
        """Return whether both branches have the same value if both sides of the comparison are equal."""
        test = node.test
        if not isinstance(test, ast.Compare) or len(test.ops) != 1 or type(test.ops[0]) not in _ORDERINGS:
            return False
        left, right = test.left, test.comparators[0]
        if not all(isinstance(side, ast.Constant) or _is_path(side) for side in (left, right)):
            return False
        if not self._are_same_if_equal(left, right):
            return False
        pair = {ast.dump(left), ast.dump(right)}
        if ast.dump(node.body) not in pair:
            return False
        other = _at_bound(node.orelse, left, right)
        return other is not None and ast.dump(other) in pair

    def _are_same_if_equal(self, left: ast.expr, right: ast.expr) -> bool:
        """Return whether equal values of two expressions cannot be distinguished.

        `1` equals `1.0` and `True`, and `0.0` equals `-0.0`: with a literal, both have to be of one type.
        """
        kinds = [kind_of(side, self._kinds, self._builtins) for side in (left, right)]
        literals = [side.value for side in (left, right) if isinstance(side, ast.Constant)]
        if literals:
            is_zero = any(isinstance(value, float) and not value for value in literals)
            if self._around.is_lenient and None in kinds:
                return not is_zero
            return kinds[0] == kinds[1] and kinds[0] in ("int", "str", "bytes", "float") and not is_zero
        if None in kinds:
            # The best of several elements may equal another one and yet be another object.
            return not (_reads(left) | _reads(right)) & self._iterated
        # Of two equal lists, the caller may change the one that it gets.
        return (kinds[0] == kinds[1] and kinds[0] in _CONSTANT_TRUTH) or all(map(is_number, kinds))

    def _with_operands_in_order(self, node: ast.BinOp) -> ast.BinOp:
        if not isinstance(node.op, ast.Add | ast.Mult | ast.BitAnd | ast.BitOr | ast.BitXor):
            return node
        sides = node.left, node.right
        kinds = [kind_of(side, self._kinds, self._builtins) for side in sides]
        is_with_literal = any(
            isinstance(side, ast.Constant) and is_number(k) for side, k in zip(sides, kinds, strict=True)
        )
        is_assumed = self._around.is_lenient and is_with_literal and isinstance(node.op, ast.Add | ast.Mult)
        # Integers alone have bits; of other numbers, the exception names the types in order.
        is_arithmetic = isinstance(node.op, ast.Add | ast.Mult)
        if not is_assumed and not all(is_number(k) if is_arithmetic else k == "int" for k in kinds):
            return node
        # Of two calls, the first that fails decides the exception.
        if sum(not self._is_total(side) for side in sides) > 1 and not all(map(self._is_length, sides)):
            return node
        node.left, node.right = sorted(sides, key=ast.dump)
        return node

    def _is_length(self, node: ast.expr) -> bool:
        """Return whether an expression is `len` of a local name that has a length, which cannot fail."""
        if not isinstance(node, ast.Call) or len(node.args) != 1 or node.keywords:
            return self._is_total(node)
        function, argument = node.func, node.args[0]
        is_len = isinstance(function, ast.Name) and function.id == "len" and "len" in self._builtins
        return is_len and kind_of(argument, self._kinds, self._builtins) in _COLLECTIONS and self._is_total(argument)

    def _without_copy(self, node: ast.Call) -> ast.Call:
        """Leave out a copy that is the argument of a function that makes another one at once."""
        if len(node.args) != 1 or not isinstance(node.func, ast.Name) or node.func.id not in _COPIERS & self._builtins:
            return node
        # Keyword arguments are evaluated after the copy was made.
        if any(not isinstance(k.value, ast.Constant | ast.Name | ast.Lambda) for k in node.keywords):
            return node
        inner = node.args[0]
        if isinstance(inner, ast.Call) and isinstance(inner.func, ast.Name) and not inner.keywords:
            if inner.func.id in {"list", "tuple"} & self._builtins and len(inner.args) == 1:
                if not isinstance(inner.args[0], ast.Starred):
                    node.args = [inner.args[0]]
        return node

    def _without_covered(self, caught: ast.expr) -> ast.expr:
        """Leave out exceptions of an `except` clause of which it catches a base class; the order does not matter."""
        if not isinstance(caught, ast.Tuple) or not all(isinstance(e, ast.Name) for e in caught.elts):
            return caught
        names = [e.id for e in caught.elts if isinstance(e, ast.Name)]
        if not set(names) <= self._builtins:
            return caught
        classes = [getattr(builtins, name) for name in names]
        if not all(isinstance(c, type) and issubclass(c, BaseException) for c in classes):
            return caught
        kept = sorted({c.__name__ for c in classes if not any(c is not d and issubclass(c, d) for d in classes)})
        if len(kept) == 1:
            return ast.Name(kept[0], ast.Load())
        return ast.Tuple([ast.Name(name, ast.Load()) for name in kept], ast.Load())

    def _is_total(self, node: ast.expr) -> bool:
        """Return whether an expression has no effect, cannot fail and depends on nothing but local names.

        Objects that the names refer to may change without changing its value.
        """
        kind = functools.partial(kind_of, kinds=self._kinds, builtins=self._builtins)
        match node:
            case ast.Constant():
                return True
            case ast.Name():
                return node.id in self._locals and node in self._definite
            case ast.Tuple() | ast.List():
                return all(map(self._is_total, node.elts))
            case ast.Set():
                return all(isinstance(e, ast.Constant) for e in node.elts)
            case ast.Dict():
                return all(isinstance(k, ast.Constant) for k in node.keys) and all(map(self._is_total, node.values))
            case ast.UnaryOp(op=ast.Not()):
                return self._is_total(node.operand) and kind(node.operand) in _CONSTANT_TRUTH
            case ast.UnaryOp():
                return self._is_total(node.operand) and is_number(kind(node))
            case ast.BinOp(op=ast.Add() | ast.Sub()):
                return self._is_total(node.left) and self._is_total(node.right) and kind(node) == "int"
            case ast.Compare(ops=[ast.Is() | ast.IsNot()]):
                return self._is_total(node.left) and self._is_total(node.comparators[0])
            case ast.Call(func=ast.Name("isinstance"), args=[value, _]):
                return self._is_total(value) and self._types_of(node) is not None
            case ast.Call(args=[], keywords=[]):
                made = ast.unparse(node.func)
                return made in self._constructors or made in _CONSTRUCTORS & self._builtins
        return False

    def _has_sure_truth(self, test: ast.expr) -> bool:
        """Return whether an expression has no effect and a truth value, which those of some objects do not."""
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            return self._has_sure_truth(test.operand)
        if isinstance(test, ast.Name):
            return self._is_total(test) and self._kinds.get(test.id) in _CERTAIN
        return self._is_total(test)

    # Statements of a block.

    def _store(self, statement: ast.stmt) -> tuple[set[str], set[str]] | None:
        """Return the name that a statement gives a total value, and the names that it reads; None for others."""
        if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
            target = statement.targets[0]
            is_own = isinstance(target, ast.Name) and target.id in self._locals
            if is_own and self._is_total(statement.value):
                return _reads(target), _reads(statement.value)
        if isinstance(statement, ast.AugAssign) and isinstance(statement.target, ast.Name):
            name, read = statement.target, ast.Name(statement.target.id, ast.Load())
            if name in self._definite:
                self._definite.add(read)
            added = ast.BinOp(read, statement.op, statement.value)
            if name.id in self._locals and self._is_total(added):
                return {name.id}, _reads(added)
        return None

    def _without_dead_stores(self, block: Sequence[ast.stmt], *, guarded: bool) -> list[ast.stmt]:
        if not self._does(EquivalenceProof.DEAD_STORE):
            return list(block)
        kept: list[ast.stmt] = []
        for statement in reversed(block):
            if not self._is_dead(statement, kept[-1] if kept else None, guarded=guarded):
                kept.append(statement)
        return kept[::-1]

    def _is_dead(self, statement: ast.stmt, following: ast.stmt | None, *, guarded: bool) -> bool:
        """Return whether a statement gives a local name a value that nothing reads."""
        store = self._store(statement)
        if store is None:
            return False
        (name,) = store[0]
        if name not in self._read:
            return True
        if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Name) and statement.value.id == name:
            return True
        if following is None or guarded:
            return False
        if isinstance(following, ast.Return | ast.Raise):
            return name not in _reads(following)
        if isinstance(following, ast.Assign) and any(_reads(t) == {name} for t in following.targets):
            return all(isinstance(t, ast.Name) for t in following.targets) and name not in _reads(following.value)
        return False

    def _ordered(self, block: list[ast.stmt], *, guarded: bool) -> list[ast.stmt]:
        """Sort neighbouring statements that can be exchanged."""
        dumps = list(map(ast.dump, block))
        for end in range(len(block), 1, -1):
            is_sorted = True
            for n in range(end - 1):
                one, other = block[n], block[n + 1]
                if dumps[n + 1] < dumps[n] and self._commute(one, other, guarded=guarded):
                    block[n], block[n + 1] = other, one
                    dumps[n], dumps[n + 1] = dumps[n + 1], dumps[n]
                    is_sorted = False
            if is_sorted:
                break
        return block

    def _commute(self, one: ast.stmt, other: ast.stmt, *, guarded: bool) -> bool:
        if self._does(EquivalenceProof.EXCLUSIVE) and isinstance(one, ast.If) and isinstance(other, ast.If):
            if not one.orelse and not other.orelse and self._exclude(one.test, other.test):
                kept = [s for s in (one, other) if not _ends_in_jump(s.body)]
                bound = set().union(*(bound_names(s) for s in kept))
                # A body that changes the object may change what it equals, but not its type.
                is_stable = not kept or self._types_of(one.test) is not None
                if is_stable and not bound & _reads(one.test):
                    return True
        if not self._does(EquivalenceProof.ORDER):
            return False
        pairs = (one, other), (other, one)
        return any(self._can_pass(a, b, guarded=guarded) for a, b in pairs) or self._set_attributes(one, other)

    def _can_pass(self, store: ast.stmt, other: ast.stmt, *, guarded: bool) -> bool:
        """Return whether a total store may stand on either side of another statement."""
        names = self._store(store)
        if names is None or isinstance(other, (*_JUMPS, *_DECLARATIONS)):
            return False
        targets, read = names
        if guarded and self._store(other) is None:
            return False
        if targets & _names(other) or read & bound_names(other):
            return False
        loops = isinstance(other, ast.For | ast.AsyncFor | ast.While) and not other.orelse
        return loops or not any(isinstance(n, ast.Break | ast.Continue) for n in ast.walk(other))

    def _set_attributes(self, one: ast.stmt, other: ast.stmt) -> bool:
        """Return whether two statements set different attributes of an object that does nothing when they are set."""
        attributes = [self._attribute_set(s) for s in (one, other)]
        known = {a for a in attributes if a is not None}
        return len(known) == 2 and self._around.plain_attributes and not known & self._around.reserved

    def _attribute_set(self, statement: ast.stmt) -> str | None:
        if not isinstance(statement, ast.Assign) or len(statement.targets) != 1 or not self._own_object:
            return None
        target = statement.targets[0]
        if not isinstance(target, ast.Attribute) or not isinstance(target.value, ast.Name):
            return None
        if target.value.id != self._own_object or target.attr.startswith("__"):
            return None
        return target.attr if self._is_total(statement.value) else None

    def _merged(self, block: list[ast.stmt]) -> list[ast.stmt]:
        """Turn a conditional return, or a conditional value of a name, into a conditional expression."""
        merged: list[ast.stmt] = []
        for statement in reversed(block):
            following = merged[-1] if merged else None
            if isinstance(statement, ast.If) and len(statement.body) == 1:
                (inner,) = statement.body
                if isinstance(inner, ast.Return) and not statement.orelse and isinstance(following, ast.Return):
                    if inner.value is not None and following.value is not None:
                        both = ast.IfExp(statement.test, inner.value, following.value)
                        merged[-1] = ast.Return(self._conditional(both))
                        continue
                if (assigned := self._conditional_assignment(statement, inner)) is not None:
                    statement = assigned
            merged.append(statement)
        return merged[::-1]

    def _conditional_assignment(self, statement: ast.If, inner: ast.stmt) -> ast.Assign | None:
        if not isinstance(inner, ast.Assign) or len(inner.targets) != 1:
            return None
        (target,) = inner.targets
        if not isinstance(target, ast.Name):
            return None
        other: ast.expr = ast.Name(target.id, ast.Load())
        if statement.orelse:
            last = statement.orelse[0]
            if len(statement.orelse) > 1 or not isinstance(last, ast.Assign):
                return None
            if len(last.targets) != 1 or not _same(last.targets[0], target):
                return None
            other = last.value
        elif not any(
            n in self._definite and n.id == target.id for n in ast.walk(statement.test) if isinstance(n, ast.Name)
        ):
            # Otherwise the name may have no value yet.
            return None
        return ast.Assign([target], self._conditional(ast.IfExp(statement.test, inner.value, other)))

    # Conditions that exclude each other.

    def _exclude(self, one: ast.expr, other: ast.expr) -> bool:
        """Return whether two conditions without effects are never both true."""
        first, second = self._types_of(one), self._types_of(other)
        if first is not None and second is not None:
            return first[0] == second[0] and not first[1] & second[1]
        values, others = self._values_of(one), self._values_of(other)
        if values is None or others is None or values[0] != others[0]:
            return False
        return all(value != another for value in values[1] for another in others[1])

    def _types_of(self, test: ast.expr) -> tuple[str, frozenset[str]] | None:
        """Return the local name and the built-in types of an `isinstance`; no class has two of them as bases."""
        if isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.Is) and len(test.ops) == 1:
            if isinstance(test.left, ast.Name) and test.left.id in self._locals:
                value = test.comparators[0]
                if isinstance(value, ast.Constant) and value.value is None:
                    return test.left.id, frozenset(("None",))
        if not isinstance(test, ast.Call) or len(test.args) != 2 or test.keywords:
            return None
        function, (value, given) = test.func, test.args
        if not isinstance(function, ast.Name) or function.id != "isinstance" or "isinstance" not in self._builtins:
            return None
        types = given.elts if isinstance(given, ast.Tuple) else [given]
        names = frozenset(t.id for t in types if isinstance(t, ast.Name))
        is_known = len(names) == len(types) and names <= _DISJOINT & self._builtins
        is_local = isinstance(value, ast.Name) and value.id in self._locals
        return (value.id, names) if is_known and isinstance(value, ast.Name) and is_local else None

    def _values_of(self, test: ast.expr) -> tuple[str, list[object]] | None:
        """Return the local name and the literals that a condition compares it with."""
        if not isinstance(test, ast.Compare) or len(test.ops) != 1 or not isinstance(test.left, ast.Name):
            return None
        compares, value = test.ops[0], test.comparators[0]
        if test.left.id not in self._locals:
            return None
        if isinstance(compares, ast.Eq) and isinstance(value, ast.Constant):
            return test.left.id, [value.value]
        if isinstance(compares, ast.In) and isinstance(value, ast.Tuple | ast.List):
            literals: list[object] = [e.value for e in value.elts if isinstance(e, ast.Constant)]
            return (test.left.id, literals) if len(literals) == len(value.elts) else None
        return None

    # Early returns for an empty collection.

    def _without_early_returns(self, block: list[ast.stmt], *, at_end: bool) -> list[ast.stmt]:
        kept: list[ast.stmt] = []
        for number, statement in enumerate(block):
            if isinstance(statement, ast.If) and len(statement.body) == 1 and not statement.orelse:
                name, inner = self._is_empty_test(statement.test), statement.body[0]
                if name and isinstance(inner, ast.Return) and inner.value is not None:
                    result = self._result_without_elements(block[number + 1 :], name, at_end=at_end)
                    if result is not None and _same(result, inner.value):
                        continue
            kept.append(statement)
        return kept

    def _is_empty_test(self, test: ast.expr) -> str:
        """Return the local name of a collection that a condition finds empty."""
        tested: ast.expr | None = None
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            tested = test.operand
        elif isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.Eq) and len(test.ops) == 1:
            if isinstance(test.comparators[0], ast.Constant) and test.comparators[0].value == 0:
                tested = test.left if isinstance(test.left, ast.Call) else None
        if isinstance(tested, ast.Call) and self._calls(tested, {"len"}) and len(tested.args) == 1:
            tested = tested.args[0]
        if isinstance(tested, ast.Name) and self._is_total(tested) and self._kinds.get(tested.id) in _COLLECTIONS:
            return tested.id
        return ""

    def _calls(self, node: ast.Call, functions: set[str]) -> bool:
        return isinstance(node.func, ast.Name) and node.func.id in functions & self._builtins and not node.keywords

    def _result_without_elements(self, block: Sequence[ast.stmt], name: str, *, at_end: bool) -> ast.expr | None:
        """Return what the rest of a function returns if a collection is empty; None if that is not known."""
        values: dict[str, ast.expr] = {name: ast.Name(name, ast.Load())}
        for statement in block:
            if isinstance(statement, ast.Return):
                return self._value_without_elements(statement.value, name, values) if statement.value else None
            if isinstance(statement, ast.For):
                if statement.orelse or not self._has_no_elements(statement.iter, name):
                    return None
                continue
            if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
                return None
            target = statement.targets[0]
            value = self._value_without_elements(statement.value, name, values)
            if not isinstance(target, ast.Name) or target.id == name or value is None:
                return None
            if target.id not in self._locals:
                return None
            values[target.id] = value
        return ast.Constant(None) if at_end else None

    def _has_no_elements(self, node: ast.expr, name: str) -> bool:
        if isinstance(node, ast.Name):
            return node.id == name
        if isinstance(node, ast.GeneratorExp | ast.ListComp | ast.SetComp | ast.DictComp):
            first = node.generators[0]
            return not first.is_async and self._has_no_elements(first.iter, name)
        if isinstance(node, ast.Call) and len(node.args) == 1 and self._calls(node, _ITERATORS):
            return self._has_no_elements(node.args[0], name)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and not node.args and not node.keywords:
            is_view = node.func.attr in ("items", "keys", "values") and self._kinds.get(name) == "dict"
            return is_view and isinstance(node.func.value, ast.Name) and node.func.value.id == name
        return False

    def _value_without_elements(self, node: ast.expr, name: str, values: Mapping[str, ast.expr]) -> ast.expr | None:
        """Return an expression's value as an expression without calls if a collection is empty."""
        if isinstance(node, ast.Name):
            return values.get(node.id)
        if isinstance(node, ast.Constant | ast.List | ast.Tuple | ast.Dict):
            return node if self._is_total(node) and not _reads(node) else None
        if isinstance(node, ast.ListComp) and self._has_no_elements(node, name):
            return ast.List([], ast.Load())
        if isinstance(node, ast.DictComp) and self._has_no_elements(node, name):
            return ast.Dict([], [])
        if not isinstance(node, ast.Call) or len(node.args) != 1 or node.keywords:
            return None
        function, argument = node.func, node.args[0]
        if not self._has_no_elements(argument, name):
            return None
        if isinstance(function, ast.Attribute) and function.attr == "join":
            separator = function.value
            if isinstance(separator, ast.Constant) and isinstance(separator.value, str | bytes):
                return ast.Constant(separator.value[:0])
        if isinstance(function, ast.Name) and function.id in self._builtins:
            made = _EMPTY.get(function.id)
            return copy.deepcopy(made) if made is not None else None
        return None


_DISJOINT = frozenset(
    ("int", "float", "complex", "str", "bytes", "bytearray", "list", "tuple", "dict", "set", "frozenset")
)
"""Types of which no class can have two as bases; `bool` is an `int`."""
_COLLECTIONS = frozenset(("list", "tuple", "dict", "set", "frozenset", "str", "bytes", "range", "collection"))
_CERTAIN = frozenset((*_COLLECTIONS, "int", "float", "number", "bool")) - {"collection"}
"""Kinds whose truth value cannot fail."""
_CONSTANT_TRUTH = _CERTAIN - {"list", "dict", "set"}
"""Those of them whose values do not change."""
_CONSTRUCTORS = frozenset(("list", "dict", "set", "tuple", "frozenset", "bytearray", "object"))
_COPIERS = frozenset(("list", "tuple", "sorted"))
_ITERATORS = {"enumerate", "list", "sorted", "tuple", "iter", "set", "frozenset"}
_EMPTY: Mapping[str, ast.expr] = {
    "list": ast.List([], ast.Load()),
    "sorted": ast.List([], ast.Load()),
    "tuple": ast.Tuple([], ast.Load()),
    "dict": ast.Dict([], []),
    "sum": ast.Constant(0),
    "len": ast.Constant(0),
    "any": ast.Constant(False),
    "all": ast.Constant(True),
}
"""What a call of a built-in function with an empty collection returns."""
_ORDERINGS = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)
_STRICT: Mapping[type[ast.cmpop], type[ast.cmpop]] = {ast.LtE: ast.Lt, ast.GtE: ast.Gt}
_OPPOSITES: Mapping[type[ast.cmpop], type[ast.cmpop]] = {
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}


def _is_added_to(node: ast.AST) -> bool:
    return isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name)


def _is_plain_return(statement: ast.stmt) -> bool:
    if not isinstance(statement, ast.Return):
        return False
    return statement.value is None or (isinstance(statement.value, ast.Constant) and statement.value.value is None)


def _constant(test: ast.expr) -> bool | None:
    """Return the truth value of a literal; None for other expressions."""
    return bool(test.value) if isinstance(test, ast.Constant) else None


def _negated(node: ast.UnaryOp) -> ast.expr:
    """Return `not (a in b)` as `a not in b`, which is the same code, and the same for `is`."""
    inner = node.operand
    if isinstance(inner, ast.Compare) and len(inner.ops) == 1 and type(inner.ops[0]) in _OPPOSITES:
        return ast.Compare(inner.left, [_OPPOSITES[type(inner.ops[0])]()], inner.comparators)
    return node


def _is_path(node: ast.expr) -> bool:
    """Return whether an expression is a name or an attribute of one."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return isinstance(node, ast.Name)


def _at_bound(node: ast.expr, left: ast.expr, right: ast.expr) -> ast.expr | None:
    """Return the part of a conditional expression that gives its value if two expressions are equal."""
    if not isinstance(node, ast.IfExp):
        return node
    test = node.test
    constants = [side for side in (left, right) if isinstance(side, ast.Constant)]
    if len(constants) != 1 or not isinstance(test, ast.Compare) or len(test.ops) != 1:
        return None
    sides = [
        constants[0] if _same(side, left) or _same(side, right) else side for side in (test.left, test.comparators[0])
    ]
    values = [side.value for side in sides if isinstance(side, ast.Constant) and isinstance(side.value, int)]
    holds = _COMPARISONS.get(type(test.ops[0]))
    if len(values) != 2 or holds is None:
        return None
    return _at_bound(node.body if holds(*values) else node.orelse, left, right)


_COMPARISONS: Mapping[type[ast.cmpop], Callable[[int, int], bool]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
