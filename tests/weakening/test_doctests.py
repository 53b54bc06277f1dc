"""Doctests are disabled by marking their examples, in documents and in docstrings of test files."""

from __future__ import annotations

import ast
import doctest

import pytest

from pytest_ssr.source.syntax_tree import splice
from pytest_ssr.weakening import weaken
from pytest_ssr.weakening.doctests import edits_in_document, edits_in_module

DOCUMENT = b"""Adding
======

    >>> from calc import add  # needs calc
    >>> add(1, 2)
    3
    >>> # only a comment
    >>> add(
    ...     3, 4)
    7
"""
MODULE = b'''"""Tests.

>>> 1 + 1
2
"""


def helper():
    """Help.

    >>> helper()
    1
    """
    return 1


class Case:
    def method(self):
        """Do.

        >>> Case().method()
        """
'''


def examples(text: bytes) -> list[tuple[str, bool]]:
    """Return the first line of each example and whether it is skipped."""
    parsed = doctest.DocTestParser().get_examples(text.decode())
    return [(e.source.split("  #")[0].strip(), e.options.get(doctest.SKIP, False)) for e in parsed]


def test_every_example_of_a_document_is_skipped_and_nothing_else_changes() -> None:
    new = splice(DOCUMENT, edits_in_document(DOCUMENT))
    assert [skipped for _, skipped in examples(new)] == [True, True, True]
    assert new.replace(b"  # doctest: +SKIP", b"") == DOCUMENT
    assert new.count(b"+SKIP") == 3


@pytest.mark.parametrize(
    ("name", "skipped"),
    [("test_m", "1 + 1"), ("tests.test_m.helper", "helper()"), ("test_m.Case.method", "Case().method()")],
)
def test_only_the_docstring_of_the_doctest_is_marked(name: str, skipped: str) -> None:
    new = splice(MODULE, edits_in_module(MODULE, ast.parse(MODULE), name))
    assert [source for source, is_skipped in examples(new) if is_skipped] == [skipped]
    assert new.replace(b"  # doctest: +SKIP", b"") == MODULE


def test_an_example_on_the_last_line_of_its_docstring_is_kept() -> None:
    module = b'def helper():\n    """Help.\n\n    >>> helper()"""\n'
    assert edits_in_module(module, ast.parse(module), "m.helper") == []


def test_weakening_disables_doctests_beside_tests() -> None:
    files = {"docs/a.rst": DOCUMENT, "test_m.py": MODULE + b"\n\ndef test_a():\n    assert helper() == 1\n"}
    names = ["docs/a.rst::a.rst", "test_m.py::test_m", "test_m.py::test_a"]
    weakening = weaken(
        files.__getitem__, sorted(files), failing=names, collected=names, parameters={}, doctests=names[:2]
    )
    assert weakening.unremovable == ()
    assert set(weakening.removed) == set(names)
    assert b"def test_a" not in weakening.changes["test_m.py"]
    assert b">>> 1 + 1  # doctest: +SKIP" in weakening.changes["test_m.py"]
    assert b">>> add(1, 2)  # doctest: +SKIP" in weakening.changes["docs/a.rst"]
