"""Write a file that holds one test and only those parts of its original file that the test needs."""

from __future__ import annotations

import ast
import copy
import functools
import io
import itertools
import tokenize
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from pytest_ssr.source.parsing import parse_module
from pytest_ssr.suggestions.expressions import written

_ALWAYS = frozenset(
    (
        "asyncSetUp",
        "asyncTearDown",
        "maxDiff",
        "pytest_generate_tests",
        "pytest_plugins",
        "pytestmark",
        "setUp",
        "setUpClass",
        "setUpModule",
        "setup",
        "setup_class",
        "setup_function",
        "setup_method",
        "setup_module",
        "tearDown",
        "tearDownClass",
        "tearDownModule",
        "teardown",
        "teardown_class",
        "teardown_function",
        "teardown_method",
        "teardown_module",
    )
)
"""Names that pytest and unittest look for."""
_PLAIN_BASES = frozenset(("TestCase", "IsolatedAsyncioTestCase", "object"))
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_IMPORTS = (ast.Import, ast.ImportFrom)
_INDENT = " " * 4


@dataclass(frozen=True)
class _Part:
    """A statement of a module, or of a class of tests in it."""

    statement: ast.stmt
    names: frozenset[str]
    """What it defines; of a member also as an attribute, with a dot."""
    used: frozenset[str]
    """What it needs; of a class of tests, without its body."""
    is_always: bool
    owner: int | None = None
    """The number of the class of tests that it lies in."""
    is_split: bool = False
    """Whether it is a class of tests, whose statements are parts, too."""


@dataclass(frozen=True)
class TestFile:
    """A test file of the project."""

    __test__ = False
    tree: ast.Module
    source: str

    @classmethod
    def read(cls, content: bytes) -> TestFile | None:
        """Return a file; None if it cannot be parsed."""
        tree = parse_module(content)
        if tree is None:
            return None
        content = content.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        encoding, _ = tokenize.detect_encoding(io.BytesIO(content).readline)
        return cls(tree, content.decode(encoding))

    @functools.cached_property
    def lines(self) -> list[str]:
        """The lines."""
        return self.source.split("\n")

    @functools.cached_property
    def parts(self) -> list[_Part]:
        """The statements, and those in classes of tests, without the tests."""
        found: list[_Part] = []
        for statement in self.tree.body:
            found.append(_part(statement))
            if isinstance(statement, ast.ClassDef) and found[-1].is_split:
                owner = len(found) - 1
                found += [_member(m, statement, owner) for m in statement.body if not _is_test(m)]
        return found

    def needed(self, names: Iterable[str]) -> list[int]:
        """Return the numbers of the parts that names need."""
        needed, kept, count = set(names), set[int](), -1
        while len(kept) > count:
            count = len(kept)
            # What a statement uses is mostly defined before it.
            for number, part in reversed(list(enumerate(self.parts))):
                is_there = part.owner is None or part.owner in kept
                if number not in kept and is_there and (part.is_always or not part.names.isdisjoint(needed)):
                    kept.add(number)
                    needed |= part.used
        return sorted(kept)

    def text(self, node: ast.stmt) -> str:
        """Return the lines of a statement."""
        first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", ()))])
        return "\n".join(self.lines[first - 1 : node.end_lineno])


def test_slice(file: TestFile, owner: str, tests: Sequence[ast.stmt], imports: Collection[str]) -> str:
    """Return the source of a file with tests and what they use.

    owner: the class they lie in, or an empty string. imports: more statements that they need.
    """
    kept = file.needed(_used(tests) | {owner})
    needed = (_ALWAYS | _used(tests) | {owner}).union(*(file.parts[number].used for number in kept))
    blocks: list[tuple[ast.stmt, str]] = []
    for number in kept:
        part = file.parts[number]
        node = part.statement
        if part.owner is not None:
            continue
        if isinstance(node, ast.ClassDef) and (part.is_split or node.name == owner):
            inner = [file.parts[n].statement for n in kept if file.parts[n].owner == number]
            members = inner if part.is_split else node.body
            blocks.append((node, _class(file, node, members, tests if node.name == owner else ())))
        else:
            is_import = isinstance(node, ast.Import | ast.ImportFrom)
            blocks.append((node, _import(node, needed) if is_import else file.text(node)))
    present = {line for node, text in blocks if isinstance(node, _IMPORTS) for line in text.splitlines()}
    future = [block for block in blocks if _is_future(block[0])]
    added = [(ast.Import([]), statement) for statement in sorted(set(imports) - present)]
    rest = [block for block in blocks if block not in future]
    more = () if owner else ((test, written(test)) for test in tests)
    return _joined([*future, *added, *rest, *more]) + "\n"


test_slice.__test__ = False  # type: ignore[attr-defined] # pytest would collect it where it is imported


def _joined(blocks: Sequence[tuple[ast.stmt, str]], *, most: int = 2) -> str:
    """Return the text of statements, apart from each other as people write them: by at most some empty lines."""
    text = "".join(text for _, text in blocks[:1])
    for (before, _), (node, more) in itertools.pairwise(blocks):
        is_close = isinstance(before, _IMPORTS) == isinstance(node, _IMPORTS)
        between = most if isinstance(before, _DEFINITIONS) or isinstance(node, _DEFINITIONS) else int(not is_close)
        text += "\n" * (1 + between) + more
    return text


def _class(file: TestFile, node: ast.ClassDef, members: Sequence[ast.stmt], tests: Sequence[ast.stmt]) -> str:
    """Return a class with some of its members, and tests."""
    whole = copy.copy(node)
    if any(file.lines[m.lineno - 1][: m.col_offset] != _INDENT for m in members):
        whole.body = [*members, *tests] or [ast.Pass()]
        return written(whole)
    whole.body = list(tests) or [ast.Pass()]
    # Decorators and bases are written on one line each.
    lines = written(whole).split("\n")
    head = "\n".join(lines[: len(node.decorator_list) + 1])
    body = [(member, file.text(member)) for member in members]
    if tests or not body:
        body.append((whole.body[0], "\n".join(lines[len(node.decorator_list) + 1 :]).lstrip("\n")))
    return f"{head}\n{_joined(body, most=1)}"


def _part(statement: ast.stmt) -> _Part:
    names = frozenset() if _is_program(statement) else frozenset(_defined([statement]))
    is_split = isinstance(statement, ast.ClassDef) and any(map(_is_test, statement.body))
    needing: list[ast.AST] = [statement]
    if isinstance(statement, ast.ClassDef) and is_split:
        needing = [*statement.bases, *statement.keywords, *statement.decorator_list]
    return _Part(statement, names, frozenset(_used(needing)), _is_always(statement, names), is_split=is_split)


def _member(statement: ast.stmt, owner: ast.ClassDef, number: int) -> _Part:
    """Return a part of a class; what its base may use is always kept, but a docstring."""
    names = frozenset(_defined([statement]))
    is_known = all(ast.unparse(base).rpartition(".")[2] in _PLAIN_BASES for base in owner.bases)
    is_special = any(name.startswith("__") for name in names)
    is_always = _is_always(statement, names) or is_special or (not is_known and bool(names))
    either = names | {f".{name}" for name in names}
    return _Part(statement, either, frozenset(_used([statement])), is_always, number)


def _is_always(statement: ast.stmt, names: Collection[str]) -> bool:
    """Return whether every test needs a statement."""
    if isinstance(statement, ast.Expr):
        # Not a docstring, but what happens when the file is imported.
        return not isinstance(statement.value, ast.Constant)
    targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
    changes = any(isinstance(target, ast.Attribute | ast.Subscript) for target in targets)
    # Without an optional library the file is skipped.
    changes |= isinstance(statement, ast.Assign) and ".importorskip" in _used([statement])
    return changes or _is_future(statement) or "*" in names or not _ALWAYS.isdisjoint(names) or _is_auto(statement)


def _is_auto(statement: ast.stmt) -> bool:
    """Return whether a fixture applies to all tests."""
    decorators = statement.decorator_list if isinstance(statement, _DEFINITIONS) else []
    return any(k.arg == "autouse" for d in decorators if isinstance(d, ast.Call) for k in d.keywords)


def _is_program(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.If) and "__main__" in map(_constant, ast.walk(statement.test))


def _constant(node: ast.AST) -> object:
    return node.value if isinstance(node, ast.Constant) else None


def _is_future(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.ImportFrom) and statement.module == "__future__"


def _defined(statements: Iterable[ast.stmt]) -> Iterator[str]:
    """Yield the names that statements give to a module or a class; a star for those that nobody knows."""
    for statement in statements:
        inner = [statement] if isinstance(statement, _DEFINITIONS) else ast.walk(statement)
        for node in inner:
            if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
                yield node.id
            elif isinstance(node, _IMPORTS):
                yield from (_alias(alias) for alias in node.names)
            elif isinstance(node, _DEFINITIONS):
                yield node.name
                # A fixture may have another name than its function.
                keywords = [k for d in node.decorator_list if isinstance(d, ast.Call) for k in d.keywords]
                yield from (str(_constant(k.value)) for k in keywords if k.arg == "name")


def _alias(alias: ast.alias) -> str:
    return alias.asname or alias.name.partition(".")[0]


def _used(nodes: Iterable[ast.AST]) -> set[str]:
    """Return the names that code may need: names, parameters (fixtures), texts that are names, and attributes.

    Attributes have a dot before their name: they can be members of a class.
    """
    found: set[str] = set()
    for node in itertools.chain.from_iterable(map(ast.walk, nodes)):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            found.add(node.id)
        elif isinstance(node, ast.Attribute):
            found.add(f".{node.attr}")
        elif isinstance(node, ast.arg):
            found.add(node.arg)
        elif isinstance(node, ast.Global):
            found.update(node.names)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.isidentifier():
            found.add(node.value)
    return found


def _is_test(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef) and statement.name.startswith("test")


def _import(node: ast.stmt, needed: Collection[str]) -> str:
    """Return an import statement with the names that are needed."""
    if isinstance(node, ast.Import):
        return "\n".join(f"import {ast.unparse(name)}" for name in node.names if _alias(name) in needed)
    if not isinstance(node, ast.ImportFrom):
        return ""
    names = [a for a in node.names if _alias(a) in needed or a.name == "*" or _is_future(node)]
    return ast.unparse(ast.ImportFrom(node.module, names, node.level))
