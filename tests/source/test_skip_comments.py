"""Test which lines `# ssr: skip` excludes."""

from __future__ import annotations

import pytest

from pytest_ssr.source.skip_comments import skipped_lines

SOURCE = b'''\
import os


@os.cache
# ssr: skip
def first():
    return 1


def second(
    a,
    b=2,  #ssr:skip
):
    def inner():  # ssr: skip
        return 2
    return inner


class Third:  # ssr: skip (generated)
    four = 4


def five(x):
    # ssr: skip
    y = dict(
        a=1,
        b=2,
    )  # ssr: skip
    if (
        x
        and y
    ):  # ssr: skip
        return "# ssr: skip"
    else:
        """
        # ssr: skip
        """
        z = 3  # ssr: skipped?
    return f"""
        # ssr: skip
    """


six = 6  # noqa # ssr: skip
'''


def lines(*spans: tuple[int, int]) -> frozenset[tuple[int, int]]:
    """Return spans of 1-based lines, with both ends, as rows."""
    return frozenset((first - 1, last) for first, last in spans)


def test_comments_exclude_definitions_and_statements() -> None:
    skipped = skipped_lines("numbers.py", SOURCE)
    assert skipped.functions == lines((4, 7), (10, 16))
    assert skipped.classes == lines((19, 20))
    assert skipped.statements == lines((25, 28), (29, 32), (44, 44))


@pytest.mark.parametrize(
    ("old", "new", "touched"),
    [
        (b"return 1", b"return 9", True),
        (b"@os.cache\n", b"", True),
        (b"four = 4", b"four = 5", True),
        (b"b=2,\n    )", b"b=3,\n    )", True),
        (b"        and y\n", b"", True),
        (b"and y\n", b"and y\n        and x\n", True),
        (b'return "# ssr', b'return "! ssr', False),
        (b"    y = dict(\n", b"    x = 1\n    y = dict(\n", False),
        (b"six = 6", b"six = 7", True),
        (b"import os", b"import sys", False),
    ],
)
def test_a_change_is_touched_if_one_of_its_lines_is_excluded(old: bytes, new: bytes, touched: bool) -> None:
    changed = SOURCE.replace(old, new, 1)
    assert changed != SOURCE
    assert skipped_lines("numbers.py", SOURCE).touched_by(SOURCE, changed) is touched


def test_a_file_with_an_excluded_part_cannot_be_deleted() -> None:
    assert skipped_lines("numbers.py", SOURCE).touched_by(SOURCE, None)
    assert not skipped_lines("x.py", b"x = 1\n").touched_by(b"x = 1\n", None)
