"""Prove that a change does nothing: the original and the changed function have the same normal form.

Only the text is looked at, for a few milliseconds, and nothing is run. What is not certain is no proof. A proof assumes

- that names have their usual meaning: a built-in name that the file does not bind is the built-in object, and nobody
  replaces it, or a name of the module, from outside;
- that values have the types of their annotations, and that a parameter annotated `float` is a number;
- that operators of unknown objects do what they say: a comparison has no effect, `x >= y` holds if `x > y` or `x == y`
  does, and the truth value of a comparison does not fail;
- that equal values of two names or attributes that are compared, of which one is returned, are the same to the caller
  (also `0.0` and `-0.0`). With a literal at one side, the other one has to be of the same type instead;
- that an object equals at most one of several different literals;
- that attributes can be set;
- that nothing looks at line numbers, at the source, at local names of another frame, at the moment at which an object
  without references is deleted, or at the order of the attributes of an object or a class. Files that mention frames
  and the like have no proofs, nor have functions that call `locals`, `eval` and the like. In functions that call
  `query`, `sql` and the like, which look for local names of their caller, every store counts as read.

The steps are in `pytest_ssr.source.normal_form`.
How many survivors have a proof is in `benchmarks/results/2026-11-30-equivalence.md`.
"""

from __future__ import annotations

import ast
import builtins
import copy
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from pytest_ssr.source.normal_form import (
    STEPS,
    EquivalenceProof,
    Function,
    Surroundings,
    bound_by,
    bound_names,
    has_effects,
    normal_form,
)
from pytest_ssr.source.parsing import is_utf8_source, parse_module
from pytest_ssr.source.value_kinds import BUILTIN_ANNOTATIONS, IMPORTED_ANNOTATIONS

_LOOKS_AT_CODE = re.compile(r"\b_getframe|\bcurrentframe|\bf_locals|\bf_lineno|__code__|\bgetsource")
_LOOKS_AT_NAMES = re.compile(r"\b(?:locals|vars|eval|exec|dir)\s*\(")
_LOOKS_AT_ATTRIBUTES = re.compile(
    r"__dict__|\bvars\s*\(|__setattr__|__init_subclass__|__set_name__|\bgetmembers|\bdir\s*\("
)
_MOST_LINES = 400
"""Longer functions are not looked at: their normal form takes too long."""
_DECORATORS = frozenset(("property", "staticmethod", "classmethod"))
_PLAIN_BASES = frozenset(("object", "Exception", "ValueError", "TypeError", "KeyError", "RuntimeError", "LookupError"))
_SIMPLE_CLASSES = {
    "collections": ("OrderedDict", "deque", "Counter", "defaultdict"),
    "weakref": ("WeakKeyDictionary", "WeakValueDictionary", "WeakSet"),
    "threading": ("Lock", "RLock", "Event"),
    "io": ("StringIO", "BytesIO"),
}
_Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


@dataclass(frozen=True)
class _Module:
    """What a file says about the names in it."""

    lines: Sequence[str]
    tree: ast.Module
    builtins: frozenset[str]
    """The built-in names that it does not bind."""
    reserved: frozenset[str]
    """The names of functions and attributes of classes."""
    constructors: frozenset[str]
    """The names of classes of the standard library whose empty objects are made without effect."""
    annotations: Mapping[str, str]
    """Annotations of known types, as the file writes them, and the kinds of their values."""
    plain_classes: frozenset[str]
    """The classes of which all bases are known, and that do not look at the order of their attributes."""
    other_classes: frozenset[str]
    """The other classes, unless the file looks at the order of attributes, or has a metaclass."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Why a change does nothing."""

    proof: EquivalenceProof
    is_certain: bool
    """Whether this is proven; otherwise it also depends on classes that are not known.

    A base class may control its attributes, and what is added to a number, or compared with one, may be none.
    """


def equivalence_found(path: str, original: bytes, changed: bytes | None) -> Finding | None:
    """Return why a change of a file cannot be noticed, or probably not; None if nothing shows that."""
    if changed is None or not path.endswith(".py") or not is_utf8_source(changed):
        return None
    try:
        module = _module(original)
        pair = _changed_statements(module, _lines(changed.decode())) if module is not None else None
        likely = _proof(module, *pair, is_lenient=True) if module is not None and pair is not None else None
        if module is None or pair is None or likely is None:
            return None
        certain = _proof(module, *pair, is_lenient=False)
    except RecursionError:
        # A sum of hundreds of terms is too deep for `copy` and `ast`.
        return None
    return Finding(certain or likely, is_certain=certain is not None)


def proof_of(path: str, original: bytes, changed: bytes | None) -> EquivalenceProof | None:
    """Return why a change of a file cannot be noticed; None if that is not proven."""
    found = equivalence_found(path, original, changed)
    return found.proof if found is not None and found.is_certain else None


def _lines(text: str) -> list[str]:
    return text.replace("\r\n", "\n").replace("\r", "\n").split("\n")


@lru_cache(maxsize=64)
def _module(data: bytes) -> _Module | None:
    """Return the facts about a file; None if it cannot be parsed, or looks at code in a way that forbids proofs."""
    tree = parse_module(data) if is_utf8_source(data) else None
    if tree is None:
        return None
    text = data.decode()
    imports_all = any(isinstance(n, ast.ImportFrom) and n.names[0].name == "*" for n in ast.walk(tree))
    if _LOOKS_AT_CODE.search(text) or imports_all:
        return None
    bound = bound_names(tree)
    known = frozenset(dir(builtins)) - bound
    classes = [n for n in ast.walk(tree) if isinstance(n, ast.ClassDef)]
    imports = _imports(tree)
    names = {n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)}
    names.update(*(_possible_descriptors(c) for c in classes), _attributes_of({c.name for c in classes}, tree))
    plain: set[str] = set()
    looked_at = _LOOKS_AT_ATTRIBUTES.search(text) is not None
    otherwise_bound = bound_by(n for n in ast.walk(tree) if not isinstance(n, ast.ClassDef))
    decorators = _written(imports, {"dataclasses": ("dataclass",)})
    generics = _written(imports, {"typing": ("Generic", "Protocol")})
    for owner in classes if not looked_at else ():
        bases = {_base_name(base, generics) for base in owner.bases}
        marks = {ast.unparse(mark) for mark in owner.decorator_list}
        is_single = sum(c.name == owner.name for c in classes) == 1 and owner.name not in otherwise_bound
        if is_single and not owner.keywords and bases <= plain | _PLAIN_BASES - bound and marks <= decorators.keys():
            plain.add(owner.name)
    others = {c.name for c in classes if not looked_at and not c.keywords} - plain
    written = _written(imports, IMPORTED_ANNOTATIONS)
    annotations = {text: IMPORTED_ANNOTATIONS[module][name] for text, (module, name) in written.items()}
    annotations |= {name: kind for name, kind in BUILTIN_ANNOTATIONS.items() if name in known}
    return _Module(
        lines=_lines(text),
        tree=tree,
        builtins=known,
        reserved=frozenset(names),
        constructors=frozenset(_written(imports, _SIMPLE_CLASSES)),
        annotations=annotations,
        plain_classes=frozenset(plain),
        other_classes=frozenset(others),
    )


def _possible_descriptors(owner: ast.ClassDef) -> set[str]:
    """Return the attributes of a class that may control how they are set in objects, besides its functions."""
    found: set[str] = set()
    for statement in owner.body:
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        value = statement.value if isinstance(statement, ast.Assign | ast.AnnAssign) else statement
        if value is not None and not isinstance(value, ast.Constant):
            found |= bound_names(statement)
    return found


def _attributes_of(classes: Collection[str], tree: ast.Module) -> set[str]:
    """Return the attributes that the file gives to classes from outside."""
    stores = [n for n in ast.walk(tree) if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Store)]
    return {n.attr for n in stores if isinstance(n.value, ast.Name) and n.value.id in classes}


def _base_name(base: ast.expr, generics: Collection[str]) -> str:
    """Return the name of a base class; `Generic[T]` is `object`."""
    if isinstance(base, ast.Subscript) and ast.unparse(base.value) in generics:
        return "object"
    return base.id if isinstance(base, ast.Name) else ""


def _imports(tree: ast.Module) -> dict[str, str]:
    """Return what names stand for, such as `collections.deque`, of which every binding in the file imports the same."""
    meanings: dict[str, set[str]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for name in node.names:
                root = name.name.partition(".")[0]
                meanings.setdefault(name.asname or root, set()).add(name.name if name.asname else root)
        elif isinstance(node, ast.ImportFrom):
            for name in node.names:
                meaning = f"{'.' * node.level}{node.module or ''}.{name.name}"
                meanings.setdefault(name.asname or name.name, set()).add(meaning)
    others = bound_by(n for n in ast.walk(tree) if not isinstance(n, ast.alias))
    return {name: found.pop() for name, found in meanings.items() if len(found) == 1 and name not in others}


def _written(imports: Mapping[str, str], members: Mapping[str, Iterable[str]]) -> dict[str, tuple[str, str]]:
    """Return how a file may write members of modules, each with the module and the member."""
    found: dict[str, tuple[str, str]] = {}
    for module, names in members.items():
        for member in names:
            parts = f"{module}.{member}"
            for name, meaning in imports.items():
                if parts == meaning or parts.startswith(f"{meaning}."):
                    found[name + parts.removeprefix(meaning)] = module, member
    return found


def _changed_statements(module: _Module, after: Sequence[str]) -> tuple[ast.stmt, ast.stmt] | None:
    """Return the statement of the module that holds all changes, and what becomes of it."""
    before = module.lines
    limit = min(len(before), len(after))
    head = next((n for n in range(limit) if before[n] != after[n]), limit)
    limit -= head
    tail = next((n for n in range(limit) if before[-1 - n] != after[-1 - n]), limit)
    first, last = head, len(before) - tail
    for statement in module.tree.body:
        start, end = _first_line(statement) - 1, statement.end_lineno or 0
        if start <= first and last <= end and (first < last or start < first):
            text = "\n".join(after[start : end + len(after) - len(before)]) + "\n"
            if any(map(_LOOKS_AT_NAMES.search, (text, "\n".join(before[start:end])))):
                return None
            changed = parse_module(text.encode())
            is_one = changed is not None and len(changed.body) == 1
            return (statement, changed.body[0]) if changed is not None and is_one else None
    return None


def _first_line(statement: ast.stmt) -> int:
    marks = statement.decorator_list if isinstance(statement, _Definition) else []
    return min([statement.lineno, *(mark.lineno for mark in marks)])


def _proof(
    module: _Module, before: ast.stmt, after: ast.stmt, owner: ast.ClassDef | None = None, *, is_lenient: bool
) -> EquivalenceProof | None:
    """Return the proof for the innermost function or class that holds all changes."""
    if not isinstance(before, _Definition) or not isinstance(after, _Definition) or _head(before) != _head(after):
        return None
    inside = _only_difference(before.body, after.body)
    if isinstance(inside[0], _Definition) and isinstance(inside[1], _Definition):
        within = before if isinstance(before, ast.ClassDef) else None
        return _proof(module, inside[0], inside[1], within, is_lenient=is_lenient)
    classes = module.plain_classes | (module.other_classes if is_lenient else frozenset())
    if isinstance(before, ast.ClassDef) and isinstance(after, ast.ClassDef):
        is_free = before.name in classes and _has_methods_exchanged(module, before, after, any_marks=is_lenient)
        return EquivalenceProof.METHODS if is_free else None
    if isinstance(before, ast.ClassDef) or isinstance(after, ast.ClassDef):
        return None
    if (before.end_lineno or 0) - before.lineno > _MOST_LINES:
        return None
    is_plain = owner is not None and owner.name in classes
    around = Surroundings(
        builtins=module.builtins,
        plain_attributes=is_plain,
        constructors=module.constructors,
        reserved=module.reserved,
        is_lenient=is_lenient,
        annotations=module.annotations,
    )
    return _proof_of_function(before, after, around)


def _head(definition: _Definition) -> str:
    """Return a definition without its body, as text."""
    head = copy.copy(definition)
    head.body = []
    return ast.dump(head)


def _only_difference(
    before: Sequence[ast.stmt], after: Sequence[ast.stmt]
) -> tuple[ast.stmt, ast.stmt] | tuple[None, None]:
    if len(before) != len(after):
        return None, None
    pairs = [(a, b) for a, b in zip(before, after, strict=True) if ast.dump(a) != ast.dump(b)]
    return pairs[0] if len(pairs) == 1 else (None, None)


def _proof_of_function(before: Function, after: Function, around: Surroundings) -> EquivalenceProof | None:
    """Return the last of the steps that the normal forms need to be the same."""
    if normal_form(before, around, STEPS) != normal_form(after, around, STEPS):
        return None
    for number in range(1, len(STEPS)):
        steps = STEPS[:number]
        if normal_form(before, around, steps) == normal_form(after, around, steps):
            return steps[-1]
    return STEPS[-1]


def _has_methods_exchanged(
    module: _Module, before: ast.ClassDef, after: ast.ClassDef, *, any_marks: bool = False
) -> bool:
    """Return whether a change exchanges two neighbouring methods that do not need each other to be defined.

    any_marks: whether they may have any decorators.
    """
    if len(before.body) != len(after.body):
        return False
    places = [n for n, pair in enumerate(zip(before.body, after.body, strict=True)) if not _are_same(*pair)]
    if len(places) != 2 or places[1] != places[0] + 1:
        return False
    one, other = (before.body[n] for n in places)
    if not _are_same(one, after.body[places[1]]) or not _are_same(other, after.body[places[0]]):
        return False
    return all(_is_plain_method(module, a, b, any_marks=any_marks) for a, b in ((one, other), (other, one)))


def _are_same(one: ast.stmt, other: ast.stmt) -> bool:
    return ast.dump(one) == ast.dump(other)


def _is_plain_method(module: _Module, method: ast.stmt, other: ast.stmt, *, any_marks: bool) -> bool:
    """Return whether a method does not need another one to be defined."""
    if not isinstance(method, ast.FunctionDef | ast.AsyncFunctionDef) or not isinstance(other, _Definition):
        return False
    marks = {mark.id if isinstance(mark, ast.Name) else "" for mark in method.decorator_list}
    head = copy.copy(method)
    head.body = []
    used = {n.id for n in ast.walk(head) if isinstance(n, ast.Name)}
    # Default values are calculated in the order of the methods.
    is_plain = (any_marks or marks <= _DECORATORS & module.builtins) and not has_effects(method.args)
    return is_plain and method.name != other.name and other.name not in used
