"""What a review leaves out."""

from __future__ import annotations

import pytest

from pytest_ssr.campaign.dismissed import is_dismissed
from pytest_ssr.injectors.protocol import Candidate

SOURCE = b"""def f(a):
    if a is None:  # pragma: no cover
        try:
            a = 1
        except ValueError:
            pass
    return a + 1
"""


def candidate(operator: str, detail: str = "", line: int = 7) -> Candidate:
    return Candidate("mutation", operator, {}, "m.py", line, "f", detail)


@pytest.mark.parametrize(
    ("operator", "detail"),
    [
        ("equality-to-identity", "== -> is"),
        ("shuffle-statements", "a = 1 -> b = 2"),
        ("change-constant", "None -> False"),
        ("drop-keyword", ", stacklevel=2 removed"),
        ("drop-keyword", ", help='text' removed"),
        ("wrong-exception", "BaseException -> Exception"),
        ("wrong-exception", "RuntimeError -> NotImplementedError"),
    ],
)
def test_kinds_that_reviewers_dismiss(operator: str, detail: str) -> None:
    assert is_dismissed(candidate(operator, detail), SOURCE, lambda _: True)


@pytest.mark.parametrize(
    ("operator", "detail"),
    [
        ("boundary-comparison", "> -> >="),
        ("change-constant", "1 -> 2"),
        ("drop-keyword", ", strict=True removed"),
        ("wrong-exception", "KeyError -> IndexError"),
        ("wrong-exception", "OwnError -> ValueError"),
    ],
)
def test_other_changes_stay(operator: str, detail: str) -> None:
    assert not is_dismissed(candidate(operator, detail), SOURCE, lambda _: True)


@pytest.mark.parametrize(("line", "dismissed"), [(1, False), (2, True), (4, True), (6, True), (7, False)])
def test_code_that_the_team_does_not_cover_is_left_out(line: int, *, dismissed: bool) -> None:
    assert is_dismissed(candidate("change-constant", "1 -> 2", line), SOURCE, lambda _: True) is dismissed


def test_a_line_that_the_file_does_not_have_is_not_dismissed() -> None:
    assert not is_dismissed(candidate("change-constant", "1 -> 2", 0), b"", lambda _: True)


PLATFORMS = b"""import sys

if sys.platform == "win32":
    def separator():
        return ";"
else:
    def separator():
        return ":"


class Path:
    if sys.platform == "win32":
        ROOT = "C:"

    def join(self, name):
        if name is None:
            return None
        try:
            import tomllib
        except (ValueError, ImportError):
            import tomli
        try:
            return tomllib.loads(name)
        except ValueError:
            return None
"""
UNUSED = {(4, 4), (5, 8), (13, 8), (17, 12), (21, 12), (25, 12)}
"""The spots to which neither an import nor a test comes: on Linux with a new Python, and with good input only."""


@pytest.mark.parametrize(
    ("line", "dismissed"),
    [(3, False), (4, True), (5, True), (8, False), (13, False), (16, False), (17, False), (21, True), (25, False)],
)
def test_code_for_another_environment_is_left_out(line: int, *, dismissed: bool) -> None:
    change = candidate("change-constant", "1 -> 2", line)
    assert is_dismissed(change, PLATFORMS, lambda spot: spot not in UNUSED) is dismissed


@pytest.mark.parametrize(("line", "dismissed"), [(2, True), (4, True), (6, False), (9, False), (12, False), (13, True)])
def test_a_declaration_is_left_out(line: int, *, dismissed: bool) -> None:
    source = b"""class Sized(Protocol):
    def size(self) -> int:
        '''How many.'''
        ...

    def reset(self) -> None:
        self.count = 0

def late(x):
    x = ...

@option("name")
def command(name): ...
"""
    assert is_dismissed(candidate("delete", "", line), source, lambda _: True) is dismissed
