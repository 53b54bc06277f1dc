"""Find what the tests of a task demand that nobody could know: names and texts that only the solution shares with them.

A name or a text counts if the tests and the solution use it, and neither the statement nor any file of the repository
before the solution does.
"""

from __future__ import annotations

import ast
import builtins
import io
import keyword
import re
import tokenize
from collections.abc import Iterator, Mapping

from harness.audit.card import Narrowness, TokenKind, UnknownToken
from harness.datasets.instance_task import InstanceTask
from pytest_ssr.patch import Hunk, Patch
from pytest_ssr.project.state import CodebaseState

_LEAST = 4
"""Characters of a token that is worth naming."""
_MOST_TOKENS = 40
_OF_PYTHON = frozenset((*keyword.kwlist, *dir(builtins)))
_MOST_FILE_BYTES, _MOST_REPOSITORY_BYTES = 2 << 20, 256 << 20
_WORD = re.compile(r"[^\W\d]\w*")
_SPACE = re.compile(r"\s+")
_Tokens = Mapping[tuple[TokenKind, str], None]


def narrowness_of(task: InstanceTask) -> Narrowness:
    """Return what the tests of a task demand that neither its statement nor its repository says.

    A task without a statement, or whose tests the repository already has, cannot be judged: nobody sees less than all.
    """
    instance = task.instance
    if not instance.statement.strip() or not instance.test_patch.files:
        return Narrowness(is_known=False)
    solved = task.runner.original
    before = solved.apply(task.artifact.bug).apply(task.artifact.weaken)
    solution = _added_tokens(instance.patch, solved)
    tests: dict[tuple[TokenKind, str], dict[str, None]] = {}
    for change in instance.test_patch.files:
        for token in _tokens_of_file(change.path, solved, instance.test_patch):
            if token in solution:
                tests.setdefault(token, {})[change.path] = None
    unknown = _not_said(list(tests), instance.statement, before)
    return Narrowness(
        tuple(UnknownToken(kind, text, tuple(tests[kind, text])) for kind, text in unknown[:_MOST_TOKENS])
    )


def _added_tokens(patch: Patch, solved: CodebaseState) -> _Tokens:
    return {token: None for change in patch.files for token in _tokens_of_file(change.path, solved, patch)}


def _tokens_of_file(path: str, solved: CodebaseState, patch: Patch) -> _Tokens:
    """Return the names and texts on the lines that a patch adds to a file."""
    entry = solved.entry(path)
    lines = {line for change in patch.files if change.path == path for hunk in change.hunks for line in _added(hunk)}
    if entry is None or not path.endswith(".py"):
        return {}
    return {token: None for line, token in _tokens(entry.data) if line in lines}


def _added(hunk: Hunk) -> Iterator[int]:
    """Yield the numbers of the lines that a hunk adds, in the new file."""
    number = hunk.new_start
    for line in hunk.lines:
        if line.startswith(b"+"):
            yield number
        if not line.startswith((b"-", b"\\")):
            number += 1


def _tokens(data: bytes) -> Iterator[tuple[int, tuple[TokenKind, str]]]:
    """Yield the names and the texts of Python source with their lines, until the source ends or is damaged."""
    try:
        for token in tokenize.tokenize(io.BytesIO(data).readline):
            line = token.start[0]
            if token.type == tokenize.NAME and len(token.string) >= _LEAST and token.string not in _OF_PYTHON:
                yield line, (TokenKind.NAME, token.string)
            elif token.type == tokenize.STRING and (text := _text(token.string)):
                for part in range(line, token.end[0] + 1):
                    yield part, (TokenKind.TEXT, text)
    except (tokenize.TokenError, SyntaxError, UnicodeError, IndentationError):
        return


def _text(source: str) -> str:
    """Return the text of a string literal with single spaces; empty for one that is short, or no plain string."""
    try:
        value = ast.literal_eval(source)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return ""
    text = _SPACE.sub(" ", value).strip() if isinstance(value, str) else ""
    return text if len(text) >= _LEAST else ""


def _not_said(
    tokens: list[tuple[TokenKind, str]], statement: str, before: CodebaseState
) -> list[tuple[TokenKind, str]]:
    """Return the tokens that neither the statement nor a file of the repository contains."""
    left = _without_said(tokens, statement)
    read = 0
    paths = sorted({*before.snapshot.files, *before.changes})
    for path in paths:
        if not left or read > _MOST_REPOSITORY_BYTES:
            break
        entry = before.entry(path)
        if entry is not None and len(entry.data) <= _MOST_FILE_BYTES:
            read += len(entry.data)
            left = _without_said(left, entry.data.decode("utf-8", "replace"))
    return left


def _without_said(tokens: list[tuple[TokenKind, str]], text: str) -> list[tuple[TokenKind, str]]:
    words = set(_WORD.findall(text)) if any(kind is TokenKind.NAME for kind, _ in tokens) else set()
    flat = _SPACE.sub(" ", text) if any(kind is TokenKind.TEXT for kind, _ in tokens) else ""
    return [
        (kind, token) for kind, token in tokens if (token not in words if kind is TokenKind.NAME else token not in flat)
    ]
