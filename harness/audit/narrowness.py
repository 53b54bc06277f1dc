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
from collections.abc import Iterator, Mapping, Sequence

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
_Token = tuple[TokenKind, str]


def narrowness_of(task: InstanceTask) -> Narrowness:
    """Return what the tests of a task demand that neither its statement nor its repository says.

    A task without a statement, or whose tests the repository already has, cannot be judged: nobody sees less than all.
    """
    instance, solved = task.instance, task.runner.original
    if not instance.test_patch.files:
        return Narrowness(is_known=False)
    before = solved.apply(task.artifact.bug).apply(task.artifact.weaken)
    tests = {
        path: [token for line, token in tokens if line in lines]
        for path, lines, tokens in _files(instance.test_patch, solved)
    }
    return _narrowness(tests, instance.patch, solved, before, instance.statement)


def narrowness_of_texts(
    tests: Mapping[str, bytes], solution: str, solved: CodebaseState, before: CodebaseState, statement: str
) -> Narrowness:
    """Return the same for tests that are files of their own, by their names. solution: a diff from `before`."""
    patch = Patch.parse(solution.encode("utf-8", "surrogateescape"))
    by_path = {path: [token for _, token in _tokens(data)] for path, data in tests.items()}
    return _narrowness(by_path, patch, solved, before, statement)


def _narrowness(
    tests: Mapping[str, Sequence[_Token]],
    solution: Patch,
    solved: CodebaseState,
    before: CodebaseState,
    statement: str,
) -> Narrowness:
    if not statement.strip() or not any(tests.values()):
        return Narrowness(is_known=False)
    own = {token for _, lines, tokens in _files(solution, solved) for line, token in tokens if line in lines}
    users: dict[_Token, dict[str, None]] = {}
    for path, tokens in tests.items():
        for token in tokens:
            if token in own:
                users.setdefault(token, {})[path] = None
    unknown = _not_said(list(users), statement, before)[:_MOST_TOKENS]
    return Narrowness(tuple(UnknownToken(kind, text, tuple(users[kind, text])) for kind, text in unknown))


def _files(patch: Patch, solved: CodebaseState) -> Iterator[tuple[str, set[int], Iterator[tuple[int, _Token]]]]:
    """Yield the path, the lines that a patch adds, and the tokens of each Python file of a patch."""
    for change in patch.files:
        entry = solved.entry(change.path)
        if entry is not None and change.path.endswith(".py"):
            lines = {line for hunk in change.hunks for line in _added(hunk)}
            yield change.path, lines, _tokens(entry.data)


def _added(hunk: Hunk) -> Iterator[int]:
    """Yield the numbers of the lines that a hunk adds, in the new file."""
    number = hunk.new_start
    for line in hunk.lines:
        if line.startswith(b"+"):
            yield number
        if not line.startswith((b"-", b"\\")):
            number += 1


def _tokens(data: bytes) -> Iterator[tuple[int, _Token]]:
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


def _not_said(tokens: list[_Token], statement: str, before: CodebaseState) -> list[_Token]:
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


def _without_said(tokens: list[_Token], text: str) -> list[_Token]:
    words = set(_WORD.findall(text)) if any(kind is TokenKind.NAME for kind, _ in tokens) else set()
    flat = _SPACE.sub(" ", text) if any(kind is TokenKind.TEXT for kind, _ in tokens) else ""
    return [
        (kind, token) for kind, token in tokens if (token not in words if kind is TokenKind.NAME else token not in flat)
    ]
