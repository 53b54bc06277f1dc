"""Test which changes are recognised as probably equivalent, and which similar ones are not."""

from __future__ import annotations

import pytest

from pytest_ssr.source.equivalence_signs import EquivalenceSign, sign_of

SOURCE = b'''\
"""Words."""
import logging
import warnings
from typing import TYPE_CHECKING, assert_never

if TYPE_CHECKING:
    limit = 3
__all__ = ["parse", "Shape"]
logger = logging.getLogger(__name__)


def parse(text: str, size: int | float = 3) -> int:
    """Read a text."""
    logger.debug("read %s", text)
    if logger.isEnabledFor(10):
        logger.debug("more")
    if not isinstance(text, str):
        raise TypeError(text)
    if not isinstance(size, int):
        raise TypeError(size)
    assert isinstance(size, int)
    count: int = size + 1
    if count is None and text is not None:
        logger.error("failed")
    if count > 4:
        raise ValueError(f"too many: {count}", 404)
    if count > 6:
        raise LookupError("six %s" % text)
    if count > 5:
        msg = "five" + text
        raise KeyError(msg)
    warnings.warn("old", DeprecationWarning, stacklevel=2)
    assert count != 9, "nine"
    logger.info("parsed")
    return count


def log_size(size):
    logger.debug("size")


def shape_of(shape: "Circle | Square") -> int:
    if isinstance(shape, Circle):
        return 1
    elif isinstance(shape, (Square,)):
        return 2
    else:
        raise AssertionError(shape)


class Shape:
    sides: int = 4

    def __repr__(self):
        return "<Shape>"

    def __str__(self):
        return "a shape"


class ShapeError(Exception):
    def __str__(self):
        return "a wrong shape"


def options(parser):
    parser.add_argument("--size", default="three", help="how many")
    parser.add_parser("paint", description="with colour")
    menu.entry("open", help="a dish")
    menu.add(Group(1, description="guests"))
    return parser


if __name__ == "__main__":
    parse("main")
'''


@pytest.mark.parametrize(
    ("old", "new", "sign"),
    [
        ("read %s", "red %s", "logging"),
        ('    logger.debug("read %s", text)\n', "", "logging"),
        ('logger.debug("read %s", text)', "pass", "logging"),
        ("logger.isEnabledFor(10)", "not logger.isEnabledFor(10)", "logging"),
        (
            '    logger.debug("read %s", text)\n    if logger.isEnabledFor(10):\n        logger.debug("more")\n',
            "",
            "logging",
        ),
        ("raise TypeError(text)", "pass", "type-check"),
        ("assert isinstance(size, int)", "pass", "type-check"),
        ("raise AssertionError(shape)", "pass", "type-check"),
        ("too many", "too few", "message"),
        ("how many", "how few", "help"),
        ('"how many"', '""', "help"),
        ("with colour", "without colour", "help"),
        ('f"too many: {count}"', 'f""', "message"),
        ('msg = "five" + text', 'msg = ""', "message"),
        ('"old"', '"new"', "message"),
        ("six %s", "seven %s", "message"),
        ('"six %s" % text', '""', "message"),
        ('"nine"', '""', "message"),
        ("<Shape>", "<shape>", "repr"),
        ('return "<Shape>"', "return f''", "repr"),
        ('    def __repr__(self):\n        return "<Shape>"\n\n', "", "repr"),
        ("count is None", "count == None", "identity"),
        ("text is not None", "text != None", "identity"),
        ("a wrong shape", "XX", "repr"),
        ("text: str", "text: bytes", "annotation"),
        ("count: int", "count: str", "annotation"),
        ("Read a text", "Write a text", "docstring"),
        ('"Shape"]', "]", "exports"),
        ("limit = 3", "limit = 4", "type-checking"),
        ('parse("main")', "pass", "main"),
        # Similar, but observable.
        ("{count}", "{count[0]}", None),
        ('"five" + text', '"five" // text', None),
        ('"old"', "None", None),
        ('help="how many"', "help=None", None),
        ('default="three"', 'default="four"', None),
        ('"a dish"', '"a drink"', None),
        ('"guests"', '"hosts"', None),
        ('"six %s" %', '"" %', None),
        ('return "<Shape>"', "return None", None),
        ('return "<Shape>"', "pass", None),
        ("isinstance(size, int)\n    count", "isinstance(int, size)\n    count", None),
        ("raise AssertionError(shape)", "raise ValueError(shape)", None),
        ("count is None", "count is not None", None),
        ("count is None", "text is None", None),
        ('logger.error("failed")', "pass", None),
        ('logger.debug("size")', "pass", None),
        ('logger.info("parsed")', "pass", None),
        ("raise TypeError(size)", "pass", None),
        ("raise ValueError(", "raise TypeError(", None),
        ("404", "405", None),
        ("count > 4", "count > 5", None),
        ("DeprecationWarning", "UserWarning", None),
        ("assert count != 9", "assert count == 9", None),
        ("a shape", "XX", None),
        ("sides: int", "sides: str", None),
        ('    logger.debug("read %s", text)\n', "    return 0\n", "logging"),
        ("    return count\n", '    logger.debug("x")\n', None),
        ('        raise KeyError(msg)\n    warnings.warn("old"', '    warnings.warn("new"', None),
        ("size + 1", "size - 1", None),
    ],
)
def test_signs(old: str, new: str, sign: str | None) -> None:
    changed = SOURCE.replace(old.encode(), new.encode(), 1)
    assert changed != SOURCE
    assert sign_of("shapes.py", SOURCE, changed) == (EquivalenceSign(sign) if sign else None)


def test_every_part_needs_a_sign() -> None:
    both = SOURCE.replace(b"read %s", b"red").replace(b"<Shape>", b"<shape>")
    assert sign_of("shapes.py", SOURCE, both) is EquivalenceSign.LOGGING
    assert sign_of("shapes.py", SOURCE, both.replace(b"size + 1", b"size")) is None


@pytest.mark.parametrize("changed", [None, SOURCE])
def test_a_deleted_or_unchanged_file_has_none(changed: bytes | None) -> None:
    assert sign_of("shapes.py", SOURCE, changed) is None


def test_a_file_that_cannot_be_parsed_has_none() -> None:
    assert sign_of("x.py", b"print 'x' if\n", b"print 'y' if\n") is None
