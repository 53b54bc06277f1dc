"""The identity of a change survives what does not change its function."""

from __future__ import annotations

import warnings

import pytest

from pytest_ssr.source.change_identity import identity_of, replaced_units, unit_hashes

ORIGINAL = '''\
"""Some shapes."""
import math

LIMIT = 3


class Shape:
    """A shape."""

    kind = "round"

    def area(self, size, scale=1):
        """Return the area."""
        if size > LIMIT:
            return LIMIT  # as large as it gets
        return math.pi * size ** 2 * scale


def unrelated(a):
    return a
'''
CHANGED = ORIGINAL.replace("size > LIMIT", "size >= LIMIT")
ID = identity_of("change-operator", [(ORIGINAL.encode(), CHANGED.encode())])


def identity_in(source: str, old: str = "size > LIMIT", new: str = "size >= LIMIT") -> str:
    assert source.count(old) == 1
    return identity_of("change-operator", [(source.encode(), source.replace(old, new).encode())])


@pytest.mark.parametrize(
    "source",
    [
        pytest.param("import sys\n\n\n" + ORIGINAL, id="moved lines"),
        pytest.param(ORIGINAL.replace("unrelated(a)", "unrelated(b)"), id="another function"),
        pytest.param(ORIGINAL.replace("  # as large as it gets", ""), id="comment"),
        pytest.param(ORIGINAL.replace("Return the area.", "Compute the area."), id="docstring"),
        pytest.param(ORIGINAL.replace("size, scale=1", "\n        size,\n        scale=1,\n    "), id="reformatted"),
        pytest.param(ORIGINAL.replace("math.pi * size ** 2 * scale", "(math.pi * size**2 * scale)"), id="parentheses"),
        pytest.param(ORIGINAL.replace("\n", "\r\n"), id="line ends"),
        pytest.param(ORIGINAL.replace("class Shape", "if LIMIT:\n  pass\nclass Shape"), id="statement"),
    ],
)
def test_the_identity_stays(source: str) -> None:
    assert identity_in(source) == ID
    assert set(replaced_units(ID)) <= unit_hashes([source.encode()])


@pytest.mark.parametrize(
    "source",
    [
        pytest.param(ORIGINAL.replace("size ** 2", "size ** 3"), id="other code"),
        pytest.param(ORIGINAL.replace("scale=1", "scale=2"), id="other default"),
        pytest.param(ORIGINAL.replace("def area", "def area_of"), id="renamed"),
        pytest.param(ORIGINAL.replace("class Shape", "class Form"), id="other class"),
    ],
)
def test_a_changed_function_has_another_identity(source: str) -> None:
    assert identity_in(source).partition("-")[0] != ID.partition("-")[0]
    assert not set(replaced_units(ID)) <= unit_hashes([source.encode()])


def test_another_change_of_the_same_function_has_the_same_first_part() -> None:
    other = identity_in(ORIGINAL, "return LIMIT", "return None")
    assert other != ID
    assert replaced_units(other) == replaced_units(ID)
    assert identity_of("other", [(ORIGINAL.encode(), CHANGED.encode())]) != ID


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("LIMIT = 3", "LIMIT = 4"),
        ('kind = "round"', 'kind = ""'),
        ("class Shape:", "class Shape(object):"),
        ("def unrelated(a):\n    return a\n", ""),
    ],
)
def test_code_outside_functions_has_identities_too(old: str, new: str) -> None:
    found = identity_in(ORIGINAL, old, new)
    assert len(replaced_units(found)) == 1
    assert found == identity_in("import sys\n" + ORIGINAL, old, new)


def test_definitions_below_a_condition_are_units() -> None:
    source = "import sys\nif sys.platform:\n    def area(a):\n        return a + 1\nelse:\n    B = 1\n"
    first, other = (
        identity_in(source, "a + 1", "a - 1"),
        identity_in(source.replace("B = 1", "B = 2"), "a + 1", "a - 1"),
    )
    assert first == other
    assert identity_in(source, "sys.platform", "not sys.platform") != first


def test_files_that_cannot_be_parsed_deleted_files_and_several_files() -> None:
    assert replaced_units(identity_of("x", [(b"def f(:\n", b"def g(:\n")]))
    assert replaced_units(identity_of("x", [(b"a = 1\n", None)]))
    assert not replaced_units(identity_of("x", [(b"", b"a = 1\n")]))
    both = [(b"a = 1\n", b"a = 2\n"), (b"b = 1\n", b"b = 2\n")]
    assert identity_of("x", both) == identity_of("x", both[::-1])
    assert len(replaced_units(identity_of("x", both))) == 2


@pytest.mark.parametrize(
    "expression", [pytest.param("+".join(["a"] * 2000), id="deep"), pytest.param(f"0x{'f' * 5000}", id="long integer")]
)
def test_what_python_cannot_write_has_an_identity(expression: str) -> None:
    source = f"def f(a):\n    return {expression}\n\n\n{ORIGINAL}"
    assert identity_in(source) == ID
    assert identity_in(source, f"return {expression}", f"return 1 - {expression}") != ID
    assert set(replaced_units(ID)) < unit_hashes([source.encode()])


def test_an_identity_does_not_depend_on_how_warnings_are_shown() -> None:
    before, after = rb'def f(a): return a + "\d"', rb'def f(a): return a - "\d"'
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        identity = identity_of("swap", [(before + b"\n", after + b"\n")])
        warnings.simplefilter("error")
        # With another end, since the units of a file are kept.
        assert identity_of("swap", [(before, after)]) == identity
