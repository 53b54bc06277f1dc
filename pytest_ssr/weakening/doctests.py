"""Disable doctests in documents and in docstrings of test files by marking each of their examples as skipped.

Removing the examples would leave sentences that announce them; `# doctest: +SKIP` keeps the text as a reader knows it.
A doctest whose examples are all skipped counts as skipped (pytest) or as no test (unittest).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from pytest_ssr.source.syntax_tree import Edit

_PROMPT = re.compile(rb"^[ \t]*>>> ?(?=[^\s#])[^\r\n]*", re.MULTILINE)
_SKIP = b"  # doctest: +SKIP"


def edits_in_document(data: bytes) -> list[Edit]:
    """Return the edits that skip every example of a text file."""
    return [_edit(match) for match in _PROMPT.finditer(data)]


def edits_in_module(data: bytes, tree: ast.Module, name: str) -> list[Edit]:
    """Return the edits that skip every example of one docstring; empty if it is not found or has no examples.

    name: the doctest's name, which is the module's followed by the names of classes and a function.
    """
    starts = [0]
    for line in data.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    docstrings = [
        (qualified, node) for qualified, node in _docstrings(tree, "") if f".{name}".endswith(f".{qualified}")
    ]
    if not docstrings:
        docstrings = [("", tree.body[0].value)] if tree.body and _is_docstring(tree.body[0]) else []  # type: ignore[attr-defined]
    if not docstrings:
        return []
    _, docstring = max(docstrings, key=lambda pair: len(pair[0]))
    begin, end = starts[docstring.lineno - 1], starts[docstring.end_lineno or docstring.lineno]
    prompts = list(_PROMPT.finditer(data, begin, end))
    # On the last line of a docstring, the marker would turn the closing quotes into a comment.
    if any(b'"""' in match[0] or b"'''" in match[0] for match in prompts):
        return []
    return [_edit(match) for match in prompts]


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
