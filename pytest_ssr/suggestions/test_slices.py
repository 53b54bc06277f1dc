"""Write a test file that holds one test and only what it needs of the file that it was made from."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Iterator, Sequence, Set

from pytest_ssr.suggestions.expressions import written

_ALWAYS = frozenset(
    (
        "asyncSetUp",
        "asyncTearDown",
        "maxDiff",
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


def test_slice(tree: ast.Module, source: str, owner: str, tests: Sequence[ast.stmt], imports: Collection[str]) -> str:
    """Return the source of a file with tests and what they use.

    tree, source: of the file that the tests were made from. owner: the class they lie in, or an empty string. imports:
    more statements that they need.
    """
    needed = _used(tests) | {owner}
    kept: set[int] = set()
    while True:
        more = {n for n, statement in enumerate(tree.body) if n not in kept and _is_kept(statement, needed)}
        if not more:
            break
        kept |= more
        for number in more:
            needed |= _used(_parts(tree.body[number], needed, is_class_of_tests=_holds_tests(tree.body[number])))
    blocks: list[tuple[bool, str]] = []
    for number in sorted(kept):
        statement = tree.body[number]
        is_import = isinstance(statement, ast.Import | ast.ImportFrom)
        blocks.append((is_import, _text(statement, source, needed, tests if _is_class(statement, owner) else ())))
    if not owner:
        blocks += [(False, written(test)) for test in tests]
    present = {line for is_import, text in blocks if is_import for line in text.splitlines()}
    future = [text for is_import, text in blocks if is_import and text.startswith("from __future__")]
    others = [text for is_import, text in blocks if is_import and text not in future]
    head = [*future, *sorted(set(imports) - present), *others]
    rest = [text for is_import, text in blocks if not is_import]
    return "\n\n\n".join(["\n".join(head), *rest] if head else rest) + "\n"


test_slice.__test__ = False  # type: ignore[attr-defined] # pytest would collect it where it is imported


def _is_kept(statement: ast.stmt, needed: Set[str]) -> bool:
    """Return whether a test needs a statement of its module."""
    if isinstance(statement, ast.Expr):
        # Not a docstring, but what happens when the file is imported.
        return not isinstance(statement.value, ast.Constant)
    if isinstance(statement, ast.ImportFrom) and statement.module == "__future__":
        return True
    if isinstance(statement, ast.If) and "__main__" in ast.unparse(statement.test):
        return False
    defined = set(_defined([statement]))
    return (
        bool(defined & needed if "*" not in defined else True) or not defined.isdisjoint(_ALWAYS) or _is_auto(statement)
    )


def _is_auto(statement: ast.stmt) -> bool:
    """Return whether a fixture applies to all tests."""
    decorators = statement.decorator_list if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef) else []
    return any("autouse" in ast.unparse(decorator) for decorator in decorators)


def _defined(statements: Iterable[ast.stmt]) -> Iterator[str]:
    """Yield the names that statements give to a module or a class; a star for those that nobody knows."""
    for statement in statements:
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield statement.name
        elif isinstance(statement, ast.Import | ast.ImportFrom):
            yield from (_alias(alias) for alias in statement.names)
        else:
            for node in ast.walk(statement):
                if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
                    yield node.id
                elif isinstance(node, ast.Import | ast.ImportFrom):
                    yield from (_alias(alias) for alias in node.names)
                elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                    yield node.name


def _alias(alias: ast.alias) -> str:
    return alias.asname or alias.name.partition(".")[0]


def _used(statements: Iterable[ast.stmt]) -> set[str]:
    """Return the names that statements may need: names, attributes, parameters (fixtures), and texts that are names."""
    found: set[str] = set()
    for node in (node for statement in statements for node in ast.walk(statement)):
        if isinstance(node, ast.Name):
            found.add(node.id)
        elif isinstance(node, ast.Attribute):
            found.add(node.attr)
        elif isinstance(node, ast.arg):
            found.add(node.arg)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.isidentifier():
            found.add(node.value)
    return found


def _holds_tests(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.ClassDef) and any(map(_is_test, statement.body))


def _is_test(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef) and statement.name.startswith("test")


def _is_class(statement: ast.stmt, name: str) -> bool:
    return isinstance(statement, ast.ClassDef) and statement.name == name


def _parts(statement: ast.stmt, needed: Set[str], *, is_class_of_tests: bool) -> list[ast.stmt]:
    """Return what is kept of a statement: of a class of tests, what is no test and is used."""
    if not is_class_of_tests or not isinstance(statement, ast.ClassDef):
        return [statement]
    bases: list[ast.stmt] = [ast.Expr(node) for node in (*statement.bases, *statement.decorator_list)]
    return [*bases, *_members(statement, needed)]


def _members(node: ast.ClassDef, needed: Set[str]) -> list[ast.stmt]:
    """Return the members of a class of tests that are no tests, as far as one of those that are kept uses them."""
    names = set(needed)
    while True:
        kept = [m for m in node.body if not _is_test(m) and _is_kept(m, names)]
        more = _used(kept) - names
        if not more:
            return kept
        names |= more


def _text(statement: ast.stmt, source: str, needed: Set[str], tests: Sequence[ast.stmt]) -> str:
    """Return the source of what is kept of a statement."""
    if isinstance(statement, ast.Import | ast.ImportFrom):
        names = [a for a in statement.names if _alias(a) in needed or a.name == "*" or _is_future(statement)]
        if isinstance(statement, ast.Import):
            return "\n".join(f"import {ast.unparse(name)}" for name in names)
        return ast.unparse(ast.ImportFrom(statement.module, names, statement.level))
    if isinstance(statement, ast.ClassDef) and (tests or _holds_tests(statement)):
        body = [*_members(statement, needed), *tests] or [ast.Pass()]
        return written(
            ast.ClassDef(statement.name, statement.bases, statement.keywords, body, statement.decorator_list)
        )
    first = min([statement.lineno, *(d.lineno for d in getattr(statement, "decorator_list", ()))])
    return "\n".join(source.split("\n")[first - 1 : statement.end_lineno])


def _is_future(statement: ast.Import | ast.ImportFrom) -> bool:
    return isinstance(statement, ast.ImportFrom) and statement.module == "__future__"
