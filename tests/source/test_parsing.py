"""Integers that Python reads but does not write are as good as syntax errors."""

from __future__ import annotations

import pytest

from pytest_ssr.injectors.equivalence import compile_source
from pytest_ssr.source.parsing import parse_module
from pytest_ssr.source.syntax_tree import parse


@pytest.mark.parametrize("number", ["0x" + "f" * 5_000, "0o" + "7" * 5_000, "0B" + "1_0" * 9_000, "9" * 5_000])
def test_files_with_long_integers_are_not_read(number: str) -> None:
    source = f"def f(a):\n    return a + {number}\n".encode()
    assert parse_module(source) is None
    assert compile_source(source) is None
    assert parse("m.py", source) is None or number.isdigit()


def test_shorter_integers_are_read() -> None:
    source = f"def f(a):\n    return a + 0x{'f' * 3_000}, 0b{'1' * 3_000}\n".encode()
    assert parse_module(source) is not None
    assert compile_source(source) is not None
    assert parse("m.py", source) is not None


def test_each_byte_has_the_line_of_an_editor():
    source = parse("a.py", b"x = 1\n\ny = 2")
    assert source is not None
    assert [source.line(at) for at in (0, 5, 6, 7, 12)] == [1, 1, 2, 3, 3]
