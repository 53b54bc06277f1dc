"""Copies of blind tests with other inputs: what is left of the literals in a blind test is what it computes from."""

from __future__ import annotations

import ast
import copy
import random
import string
from collections.abc import Collection, Iterator, Sequence

from pytest_ssr.grading.blind.assertions import RAISING
from pytest_ssr.grading.blind.flow import functions_of, root_of
from pytest_ssr.grading.blind.rewrite import RECORDER
from pytest_ssr.grading.blind.tables import Definition, called, is_param, marks_of

_SEPARATORS = " \t\n,;:.-_/|=&?#"
_UNICODE = "äßéİ中😀\u00a0\u0301"
_LARGEST, _LONGEST = 10**9, 400
_MANY, _REORDERED, _TABLES = 0.5, 0.2, 0.5
_BLOCKS = ast.If | ast.While | ast.Try | ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
_NOT_INPUT = frozenset(("encoding", "mode", "errors", "ids", "indirect", "reason", "match", "autospec", "scope"))
_BY_NAME = frozenset(("getattr", "setattr", "delattr", "hasattr", "patch", "fixture", "import_module", "importorskip"))


def vary(
    tree: ast.Module, wanted: Collection[str], chance: random.Random, *, many: bool
) -> tuple[ast.Module, frozenset[int]]:
    """Return a copy of a blind file that has only the wanted tests, with other inputs drawn for them.

    The second item holds the numbers of the assertions that no changed input leads to. wanted: qualified names of test
    functions. many: vary several inputs at a time, else one of each test or row.
    """
    tree = copy.deepcopy(tree)
    _keep_only(tree, wanted)
    pool = [n.value for n in ast.walk(tree) if isinstance(n, ast.Constant) and isinstance(n.value, str)]
    chosen = [f.node for f in functions_of(tree) if f.is_test]
    groups = [list(_inputs(ast.Module(node.body, []))) for node in chosen]
    owners: list[Definition | ast.ClassDef] = [*chosen, *(n for n in ast.walk(tree) if isinstance(n, ast.ClassDef))]
    for owner in owners:
        for _, _, rows in marks_of(owner):
            groups += [list(_inputs(row)) for row in getattr(rows, "elts", ())]
    read = {n.id for node in owners for n in ast.walk(node) if isinstance(n, ast.Name)}
    for statement in tree.body:
        if isinstance(statement, ast.Assign) and chance.random() < _TABLES:
            if any(isinstance(t, ast.Name) and t.id in read for t in statement.targets):
                groups += [list(_inputs(row)) for row in getattr(statement.value, "elts", [statement.value])]
    changed: set[int] = set()
    for group in groups:
        if not group:
            continue
        picked = [n for n in group if chance.random() < _MANY] if many else []
        for literal in picked or [chance.choice(group)]:
            literal.value = another(literal.value, chance, pool)  # type: ignore[assignment] # of the same kind
            changed.add(id(literal))
    for node in chosen:
        changed |= _reorder(node, chance)
    shared = {name for statement in tree.body for name in _bound(statement) if _mentions(statement, changed, set())}
    return tree, frozenset(site for node in chosen for site in _unchanged(node, changed, shared))


def _unchanged(node: Definition, changed: Collection[int], shared: Collection[str]) -> Iterator[int]:
    """Yield the numbers of the assertions of a test that no changed input leads to."""
    names = set(shared)
    for _, bound, rows in marks_of(node):
        names |= set(bound) if _mentions(rows, changed, names) else set()
    parts = [n for n in ast.walk(ast.Module(node.body, [])) if isinstance(n, ast.stmt | ast.Call | ast.comprehension)]
    known = -1
    while known < len(names):
        known = len(names)
        for part in parts:
            if not isinstance(part, _BLOCKS) and _mentions(_head(part), changed, names):
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
    """Return the number of the assertion that a call of the recorder writes."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return None
    first = node.args[0] if getattr(node.func.value, "id", "") == RECORDER and node.args else None
    return first.value if isinstance(first, ast.Constant) and isinstance(first.value, int) else None


def _head(node: ast.AST) -> ast.AST:
    """Return what of a statement gives values to its names: of a loop what it goes through."""
    return node.iter if isinstance(node, ast.For | ast.AsyncFor | ast.comprehension) else node


def _bound(node: ast.AST) -> set[str]:
    """Return the names that a node gives values, or may change: what a call is given, and what it is called on."""
    if isinstance(node, ast.Call):
        given = [*node.args, *(k.value for k in node.keywords)]
        roots = {root_of(node.func.value)} if isinstance(node.func, ast.Attribute) else set()
        found = {n.id for value in given for n in ast.walk(value) if isinstance(n, ast.Name)} | roots
        return found - {"", RECORDER}
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
    for node in list(holder.body):
        if isinstance(node, ast.ClassDef):
            _keep_only(node, wanted, f"{above}{node.name}::")
        elif isinstance(node, Definition) and node.name.startswith("test") and f"{above}{node.name}" not in wanted:
            holder.body.remove(node)
    if not holder.body and isinstance(holder, ast.ClassDef):
        holder.body.append(ast.Pass())


def _inputs(node: ast.AST) -> Iterator[ast.Constant]:
    """Yield the literals that a test computes from."""
    if isinstance(node, ast.Constant):
        if _varies(node.value):
            yield node
        return
    if isinstance(node, ast.JoinedStr | ast.Import | ast.ImportFrom | ast.ClassDef | ast.arguments):
        return
    if isinstance(node, ast.Subscript):
        yield from _inputs(node.value)
        return
    if isinstance(node, ast.Call):
        if called(node) in _BY_NAME:
            return
        is_ours = isinstance(node.func, ast.Attribute) and getattr(node.func.value, "id", "") == RECORDER
        yield from () if is_ours else _inputs(node.func)
        given: Sequence[ast.expr] = node.args[1:] if is_ours else node.args
        if called(node) in RAISING:
            given = ()
        for part in [*given, *(k.value for k in node.keywords if k.arg not in _NOT_INPUT or is_param(node))]:
            yield from _inputs(part)
        return
    for child in ast.iter_child_nodes(node):
        yield from _inputs(child)


def _varies(value: object) -> bool:
    if isinstance(value, int):
        return abs(value) < _LARGEST
    return isinstance(value, float) or (isinstance(value, str | bytes) and len(value) < _LONGEST)


def another(value: object, chance: random.Random, pool: Sequence[str] = ()) -> object:
    """Return another value of the same kind."""
    for _ in range(10):
        found = _drawn(value, chance, pool)
        if found != value:
            return found
    return found


def _drawn(value: object, chance: random.Random, pool: Sequence[str]) -> object:
    if isinstance(value, bool):
        return not value
    if isinstance(value, bytes):
        text = _text(value.decode("latin-1"), chance, [p for p in pool if p.isascii()])
        return text.encode("latin-1", "ignore")
    if isinstance(value, str):
        return _text(value, chance, pool)
    if isinstance(value, float):
        return chance.choice((-value, value * 10, value / 3, value + chance.uniform(-2, 2), float(round(value) + 1)))
    assert isinstance(value, int)
    size = 10 * abs(value) + 10
    near = (value + chance.randint(1, 9), value - chance.randint(1, 9), value + chance.randint(1, 9))
    return chance.choice(
        (*near, -value, 0, value * 2, value * 10, chance.randint(0, size), chance.randint(-size, size))
    )


def _text(text: str, chance: random.Random, pool: Sequence[str]) -> str:
    """Return another text, mostly of the same shape."""
    draw = chance.random()
    if text and draw < 0.5:
        places = chance.sample(range(len(text)), min(len(text), chance.randint(1, 3)))
        return "".join(_letter(c, chance) if n in places else c for n, c in enumerate(text))
    start, end = sorted((chance.randint(0, len(text)), chance.randint(0, len(text))))
    if draw < 0.65:
        new: str = chance.choice((*string.ascii_letters, *string.digits, *_SEPARATORS, *_UNICODE))
        return text[:start] + new + text[start:]
    if draw < 0.75:
        return text[:start] + text[end:]
    if draw < 0.8:
        return text[:start] + text[start:end] * 2 + text[end:]
    if draw < 0.85:
        turned: str = chance.choice((text.swapcase(), text.upper(), text.lower(), text.title(), text[::-1]))
        return turned
    if draw < 0.9:
        return chance.choice((f" {text}", f"{text} ", f"{text}\n", ""))
    other = chance.choice(pool) if pool else "x"
    joined = (text[:start] + other + text[end:], text + other, other + text, other)
    return chance.choice(joined)


def _letter(letter: str, chance: random.Random) -> str:
    """Return another letter of the same class."""
    for letters in (string.digits, string.ascii_lowercase, string.ascii_uppercase, _SEPARATORS):
        if letter in letters:
            return chance.choice(letters) if letters is not _SEPARATORS or chance.random() < 0.2 else letter
    return letter if chance.random() < 0.7 else chance.choice(string.ascii_lowercase)


def _reorder(node: Definition, chance: random.Random) -> set[int]:
    """Order, repeat or remove what is in lists; return the ids of these."""
    changed = set()
    for found in ast.walk(ast.Module(node.body, [])):
        if isinstance(found, ast.List) and len(found.elts) > 1 and chance.random() < _REORDERED:
            place = chance.randrange(len(found.elts))
            how = chance.randrange(3)
            if how == 0:
                chance.shuffle(found.elts)
            elif how == 1:
                found.elts.append(copy.deepcopy(found.elts[place]))
            else:
                del found.elts[place]
            changed.add(id(found))
    return changed
