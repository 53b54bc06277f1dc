"""Copies of blind tests with other inputs: what is left of the literals in a blind test is what it computes from."""

from __future__ import annotations

import ast
import copy
import random
import string
from collections.abc import Collection, Iterator, Mapping, Sequence

from pytest_ssr.grading.blind.assertions import RAISING
from pytest_ssr.grading.blind.expressions import root_of
from pytest_ssr.grading.blind.flow import functions_of
from pytest_ssr.grading.blind.rewrite import RECORDER
from pytest_ssr.grading.blind.tables import Definition, called, is_param, marks_of

_SEPARATORS = " \t\n,;:.-_/|=&?#"
_UNICODE = "äßéİ中😀\u00a0\u0301"
_LARGEST, _LONGEST = 10**9, 400
_MANY, _REORDERED, _SHARED = 0.5, 0.2, 0.5
_FAR_TEXTS = 3
_SET_UPS = frozenset(("setUp", "setUpClass", "asyncSetUp", "setup_method", "setup_class", "setup_function", "setup"))
_BLOCKS = ast.If | ast.While | ast.Try | ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
_NOT_INPUT = frozenset(("encoding", "mode", "errors", "ids", "indirect", "reason", "match", "autospec", "scope"))
_BY_NAME = frozenset(
    ("sleep", "getattr", "setattr", "delattr", "hasattr", "patch", "fixture", "import_module", "importorskip")
)


def vary(
    tree: ast.Module,
    wanted: Collection[str],
    chance: random.Random,
    *,
    many: bool,
    far: bool,
    renamed: Mapping[str, str] | None = None,
) -> tuple[ast.Module, frozenset[int]]:
    """Return a copy of a blind file that has only the wanted tests, with other inputs drawn for them.

    The second item holds the numbers of the assertions that no changed input leads to. wanted: qualified names of test
    functions. many: vary several inputs at a time, else one of each test or row. far: draw large, long and unusual
    values, else those near the tests' own. renamed: by name the files that the copy reads in place of others, which
    have other inputs.
    """
    tree = copy.deepcopy(tree)
    _keep_only(tree, wanted)
    changed, names = _rename(tree, renamed or {})
    fixed = changed | set(_field_names(tree))
    pool = [n.value for n in ast.walk(tree) if isinstance(n, ast.Constant) and isinstance(n.value, str)]
    tests = [f.node for f in functions_of(tree) if f.is_test]
    groups = [_literals(ast.Module(node.body, [])) for node in tests]
    owners: list[Definition | ast.ClassDef] = [*tests, *(n for n in ast.walk(tree) if isinstance(n, ast.ClassDef))]
    for owner in owners:
        for _, _, rows in marks_of(owner):
            groups += [_literals(row) for row in getattr(rows, "elts", ())]
    groups = [kept for group in groups if (kept := [n for n in group if id(n) not in fixed])]
    share = _SHARED if groups else 1.0
    shared_groups = ([n for n in group if id(n) not in fixed] for group in _shared_inputs(tree, tests))
    groups += [group for group in shared_groups if group and chance.random() < share]
    for group in groups:
        picked = [n for n in group if chance.random() < _MANY] if many else []
        for literal in picked or [chance.choice(group)]:
            literal.value = another(literal.value, chance, pool, far=far)  # type: ignore[assignment] # of the same kind
            changed.add(id(literal))
    for node in tests:
        changed |= _reorder(node, chance, far=far)
    shared = _reached_names(tree, changed, names)
    return tree, frozenset(site for node in tests for site in _unchanged(node, changed, shared))


def _field_names(tree: ast.Module) -> Iterator[int]:
    """Yield the ids of the keys of dictionaries by which the file looks values up."""
    nodes = list(ast.walk(tree))
    looked_up = [n.slice for n in nodes if isinstance(n, ast.Subscript) and isinstance(n.slice, ast.Constant)]
    keys = [k for n in nodes if isinstance(n, ast.Dict) for k in n.keys if isinstance(k, ast.Constant)]
    both = {k.value for k in keys} & {k.value for k in looked_up}
    yield from (id(k) for k in (*keys, *looked_up) if k.value in both)


def vary_module(tree: ast.Module, chance: random.Random, *, far: bool) -> ast.Module:
    """Return a copy of a module that tests import, with other inputs."""
    tree = copy.deepcopy(tree)
    parts: list[ast.AST] = [ast.Module(f.node.body, []) for f in functions_of(tree)]
    for statement in tree.body:
        value = getattr(statement, "value", None) if isinstance(statement, ast.Assign | ast.AnnAssign) else None
        parts += _rows(value) if value is not None else ()
    for part in parts:
        if group := _literals(part):
            literal = chance.choice(group)
            literal.value = another(literal.value, chance, far=far)  # type: ignore[assignment] # of the same kind
    return tree


def _rename(tree: ast.Module, renamed: Mapping[str, str]) -> tuple[set[int], set[str]]:
    """Read other files; return the ids of the literals that name them, and the names that are imported from them."""
    literals, names = set[int](), set[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            folder, slash, name = node.value.rpartition("/")
            if name in renamed:
                node.value = folder + slash + renamed[name]
                literals.add(id(node))
        elif isinstance(node, ast.ImportFrom) and node.module:
            package, dot, name = node.module.rpartition(".")
            if f"{name}.py" in renamed:
                node.module = package + dot + renamed[f"{name}.py"].removesuffix(".py")
                names |= {alias.asname or alias.name for alias in node.names}
    return literals, names


def _literals(node: ast.AST) -> list[ast.Constant]:
    """Return the literals that a test computes from; if there are no others, those that mostly are no inputs."""
    return list(_inputs(node)) or list(_inputs(node, every=True))


def _shared_inputs(tree: ast.Module, tests: Sequence[Definition]) -> Iterator[list[ast.Constant]]:
    """Yield the literals of what the tests use of their file: constants, fixtures, helpers, set-ups, attributes."""
    used, known = {n for node in tests for n in _mentioned(node)}, -1
    functions = [f.node for f in functions_of(tree) if f.node not in tests]
    while known < len(used):
        known = len(used)
        for node in functions:
            if node.name in used or node.name in _SET_UPS:
                used |= set(_mentioned(node))
    for node in functions:
        if node.name in used or node.name in _SET_UPS:
            yield _literals(ast.Module(node.body, []))
    holders: list[ast.Module | ast.ClassDef] = [tree, *(n for n in tree.body if isinstance(n, ast.ClassDef))]
    for holder in holders:
        for statement in holder.body:
            if isinstance(statement, ast.Assign) and any(getattr(t, "id", "") in used for t in statement.targets):
                yield from (_literals(row) for row in _rows(statement.value))


def _rows(value: ast.expr) -> Sequence[ast.expr]:
    """Return the parts of a literal that are varied apart."""
    if isinstance(value, ast.Dict):
        items = zip(value.keys, value.values, strict=True)
        return [ast.Tuple([key, inner], ast.Load()) if key is not None else inner for key, inner in items]
    return value.elts if isinstance(value, ast.List | ast.Tuple | ast.Set) else [value]


def _mentioned(node: ast.AST) -> Iterator[str]:
    """Yield the names that a function uses."""
    for inner in ast.walk(node):
        if isinstance(inner, ast.Name | ast.Attribute | ast.arg):
            names = {ast.Name: "id", ast.Attribute: "attr", ast.arg: "arg"}
            yield getattr(inner, names[type(inner)])


def _reached_names(tree: ast.Module, changed: Collection[int], names: set[str]) -> set[str]:
    """Return the names of a file that changed inputs lead to, with those that are known."""
    known = -1
    while known < len(names):
        known = len(names)
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
    """Yield the numbers of the assertions of a test that no changed input leads to."""
    names = set(shared)
    for _, bound, rows in marks_of(node):
        names |= set(bound) if _mentions(rows, changed, names) else set()
    parts = [n for n in ast.walk(ast.Module(node.body, [])) if isinstance(n, ast.stmt | ast.Call | ast.comprehension)]
    known = -1
    while known < len(names):
        known = len(names)
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
    """Drop the other tests, but those of classes whose tests others may inherit."""
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
    """Yield the literals that a test computes from; every: also long ones, and those in subscripts and formats."""
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
        given: Sequence[ast.expr] = node.args[1:] if is_ours else node.args
        if called(node) in RAISING:
            given = ()
        named = (k.value for k in node.keywords if every or k.arg not in _NOT_INPUT or is_param(node))
        for part in [*given, *named]:
            yield from _inputs(part, every=every)
        return
    for child in ast.iter_child_nodes(node):
        yield from _inputs(child, every=every)


def _varies(value: object, *, every: bool) -> bool:
    if isinstance(value, int):
        return every or abs(value) < _LARGEST
    return isinstance(value, float) or (isinstance(value, str | bytes) and (every or len(value) < _LONGEST))


def another(value: object, chance: random.Random, pool: Sequence[str] = (), *, far: bool = False) -> object:
    """Return another value of the same kind."""
    for _ in range(10):
        found = _far(value, chance) if far else _drawn(value, chance, pool)
        if found != value:
            return found
    return found


def _far(value: object, chance: random.Random) -> object:
    """Return a value that is larger, longer or made of other letters than those that a test names."""
    if isinstance(value, bytes):
        return _long_text(value.decode("latin-1"), chance, string.printable).encode("latin-1", "ignore")
    if isinstance(value, str):
        letters = chance.choice((string.ascii_letters, string.ascii_lowercase, string.digits, _SEPARATORS, _UNICODE))
        return _long_text(value, chance, letters)
    if isinstance(value, bool):
        return not value
    assert isinstance(value, int | float)
    size = 10 ** chance.randint(2, 5) * (1 + int(min(abs(value), _LARGEST)))
    found = chance.choice((1, 1, -1)) * chance.randint(size // 10, size)
    return found if isinstance(value, int) else found + chance.random()


def _long_text(text: str, chance: random.Random, letters: str) -> str:
    new = "".join(chance.choices(letters, k=chance.randint(1, 12)))
    place = chance.randint(0, len(text))
    draw = chance.random()
    if draw < 0.3:
        return text * chance.randint(2, 5) + new
    if draw < 0.6:
        return text[:place] + new + text[place:]
    if draw < 0.8:
        # Of the same shape, and each letter another.
        return "".join(_letter(c, chance) for c in text) * chance.randint(1, _FAR_TEXTS)
    return new + " " + text if draw < 0.9 else new


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


def _reorder(node: Definition, chance: random.Random, *, far: bool) -> set[int]:
    """Order, repeat or remove what is in lists; return the ids of these. far: repeat it several times."""
    changed = set()
    for found in ast.walk(ast.Module(node.body, [])):
        if isinstance(found, ast.List) and len(found.elts) > 1 and chance.random() < _REORDERED:
            place = chance.randrange(len(found.elts))
            how = chance.randrange(3)
            if how == 0:
                chance.shuffle(found.elts)
            elif how == 1:
                found.elts += [copy.deepcopy(found.elts[place]) for _ in range(_FAR_TEXTS if far else 1)]
            else:
                del found.elts[place]
            changed.add(id(found))
    return changed
