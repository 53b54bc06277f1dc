"""Leave out of reviews the kinds of changes that reviewers dismiss, so that the time goes to others.

Two reviewers judged 127 remarks on 42 pull requests, each without the other's verdicts
(benchmarks/results/2026-11-30-pull-requests.md): of the 46 of these kinds, neither called one useful.
"""

from __future__ import annotations

import builtins
import re
from collections.abc import Iterator

from pytest_ssr.injectors.protocol import Candidate

_OPERATORS = frozenset(
    ("equality-to-identity", "identity-to-equality", "shuffle-methods", "shuffle-statements", "swap-operands")
)
"""A class or a value for which they matter is rare in practice, and a test that shows it is odd."""
_EMPTY = frozenset(("None -> False", "False -> None"))
"""Most code asks for the truth of such a value only."""
_FOR_PEOPLE = re.compile(r",?\s*(stacklevel|help|description|epilog|metavar)=.* removed", re.DOTALL)
_EXCEPTIONS = re.compile(r"(\w+) -> (\w+)")
_NOT_COVERED = re.compile(rb"#\s*pragma:\s*no\s*cover", re.IGNORECASE)


def is_dismissed(candidate: Candidate, source: bytes) -> bool:
    """Return whether reviewers would dismiss a change. source: the original content of its file."""
    detail = candidate.detail
    return (
        candidate.operator in _OPERATORS
        or detail in _EMPTY
        or _FOR_PEOPLE.fullmatch(detail) is not None
        or (candidate.operator == "wrong-exception" and _is_near(detail))
        or any(_NOT_COVERED.search(line) for line in _lines_around(source, candidate.line))
    )


def _is_near(detail: str) -> bool:
    """Return whether one of two exceptions is a kind of the other, so that most handlers treat them alike."""
    match = _EXCEPTIONS.fullmatch(detail)
    if match is None:
        return False
    old, new = (getattr(builtins, name, None) for name in match.groups())
    if not isinstance(old, type) or not isinstance(new, type):
        return False
    return issubclass(old, new) or issubclass(new, old)


def _lines_around(source: bytes, number: int) -> Iterator[bytes]:
    """Yield a line, counted from 1, and the lines that begin the blocks around it."""
    lines = source.splitlines()[:number]
    if not lines:
        return
    yield lines[-1]
    indent = _indent(lines[-1])
    for line in reversed(lines[:-1]):
        if line.strip() and _indent(line) < indent:
            indent = _indent(line)
            yield line


def _indent(line: bytes) -> int:
    return len(line) - len(line.lstrip())
