"""Take doctests out of documents and docstrings of test files: each of their examples is marked to be skipped.

Removing the examples would leave sentences that announce them; `# doctest: +SKIP` keeps the text as a reader knows it.
A doctest all of whose examples are skipped counts as skipped (pytest) or as no test (unittest).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from pytest_ssr.injectors.python_source import Edit

_PROMPT = re.compile(rb"^[ \t]*>>> ?(?=[^\s#])[^\r\n]*", re.MULTILINE)
_SKIP = b"  # doctest: +SKIP"


def edits_in_document(data: bytes) -> list[Edit]:
    """Return the edits that skip every example of a text file."""
    return [_edit(match) for match in _PROMPT.finditer(data)]


def edits_in_module(data: bytes, tree: ast.Module, name: str) -> list[Edit]:
    """Return the edits that skip every example of one docstring; none if it cannot be found or holds no example.

    name: that of the doctest: the module's, followed by the names of classes and a function.
    """
    starts = [0]
    for line in data.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    matching = [(qualified, node) for qualified, node in _docstrings(tree, "") if f".{name}".endswith(f".{qualified}")]
    if not matching:
        matching = [("", tree.body[0].value)] if tree.body and _is_docstring(tree.body[0]) else []  # type: ignore[attr-defined]
    if not matching:
        return []
    _, docstring = max(matching, key=lambda pair: len(pair[0]))
    begin, end = starts[docstring.lineno - 1], starts[docstring.end_lineno or docstring.lineno]
    found = list(_PROMPT.finditer(data, begin, end))
    # An example on the line on which the docstring ends would take its quotes into the comment.
    return [] if any(b'"""' in m[0] or b"'''" in m[0] for m in found) else [_edit(match) for match in found]


def _edit(match: re.Match[bytes]) -> Edit:
    return Edit(match.end(), match.end(), _SKIP)


def _docstrings(holder: ast.AST, prefix: str) -> Iterator[tuple[str, ast.expr]]:
    for node in getattr(holder, "body", ()):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            qualified = f"{prefix}{node.name}"
            if node.body and _is_docstring(node.body[0]):
                yield qualified, node.body[0].value  # type: ignore[attr-defined] # an expression statement
            if isinstance(node, ast.ClassDef):
                yield from _docstrings(node, f"{qualified}.")


def _is_docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
