"""Texts that count as the same program, and texts that do not."""

import warnings

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_ssr.injectors.equivalence import fingerprint, parses

SAME = [
    (b"x = 1  # a\n", b"x = (1)\n"),
    (b"x = 'a'\n", b'x = "a"\n'),
    (b"x = 1\r\n", b"x = 1\n"),
    (b"x = 2 * 3\n", b"x = 6\n"),
    (b"def f(a):\n    return a\n", b"\n\n\ndef f(a):\n  return (a)\n"),
]
DIFFERENT = [
    (b"x = 1\n", b"x = 2\n"),
    (b"x = 1\n", b"x = 1.0\n"),
    (b"x = 1\n", b"x = True\n"),
    (b"x = 0.0\n", b"x = -0.0\n"),
    (b"x = 'a'\n", b"x = b'a'\n"),
    (b"def f(a, b): pass\n", b"def f(b, a): pass\n"),
    (b"def f(a, b): pass\n", b"def f(a, /, b): pass\n"),
    (b"def f():\n    try:\n        a()\n    finally:\n        b()\n", b"def f():\n    a()\n    b()\n"),
    (
        b"def f():\n    def g():\n        return 1\n    return g\n",
        b"def f():\n    def g():\n        return 2\n    return g\n",
    ),
]


@pytest.mark.parametrize(("old", "new"), SAME)
def test_texts_that_compile_to_the_same_code_are_equivalent(old: bytes, new: bytes) -> None:
    assert fingerprint(old) == fingerprint(new)


@pytest.mark.parametrize(("old", "new"), DIFFERENT)
def test_texts_that_compile_to_different_code_are_not_equivalent(old: bytes, new: bytes) -> None:
    assert fingerprint(old) != fingerprint(new)


def test_invalid_python_has_no_fingerprint() -> None:
    assert fingerprint(b"x = (\n") is None


@pytest.mark.parametrize("text", [b"x = (\n", b"x = 1\0\n", b"x = '\xe9'\n", b"(" * 500, b"return 1\n"])
def test_invalid_python_does_not_raise(text: bytes) -> None:
    assert not parses(text)


def test_compiler_warnings_are_suppressed() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert parses(b"x = 1 is 1\ny = '\\d'\nassert (1, 'a')\n")
    assert caught == []


@given(st.binary(max_size=60))
def test_arbitrary_bytes_do_not_raise(text: bytes) -> None:
    assert parses(text) == (fingerprint(text) is not None)
