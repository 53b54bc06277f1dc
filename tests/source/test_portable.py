"""Source that is written so that older versions of Python can read it."""

from __future__ import annotations

import ast

import pytest

from pytest_ssr.source.portable import unparse

VALUES = {"d": {"k": 5, "w": 7}, "a": "é'\"", "n": 3.14159, "w": 9, "p": (1, 2), "table": {(1, 2, 3): "found"}}


@pytest.mark.parametrize(
    ("source", "written"),
    [
        ("f\"{d['k']}\"", "'{}'.format(d['k'])"),
        ('f\'{d["k"]!r:>{d["w"]}} {{braces}} {n:.2f}\'', "'{!r:>{}} {{braces}} {:.2f}'.format(d['k'], d['w'], n)"),
        ("f'{f\"{n}\"}'", "'{}'.format(f'{n}')"),
        ('f\'{", ".join(f"{x}{d}" for x in p)!s}\'', "'{!s}'.format(', '.join((f'{x}{d}' for x in p)))"),
        ("table[(*p, 3)]", "table[(*p, 3)[:]]"),
        ("f'{n:{w}.{p[0]}}'", "f'{n:{w}.{p[0]}}'"),
        ("f'a\\n{a}'", "f'a\\n{a}'"),
    ],
)
def test_what_is_written_means_the_same(source: str, written: str) -> None:
    tree = ast.parse(source)
    assert unparse(tree) == written
    assert eval(written, dict(VALUES)) == eval(ast.unparse(tree), dict(VALUES))
    assert ast.dump(tree) == ast.dump(ast.parse(source))
