"""Files are classified by their names."""

from __future__ import annotations

import pytest

from pytest_ssr.project.file_roles import can_hold_tests


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("test_a.py", True),
        ("tests/test_conftest.py", True),
        ("conftest.py", False),
        ("tests/conftest.py", False),
        ("README.rst", False),
    ],
)
def test_modules_that_can_hold_tests(path: str, expected: bool) -> None:
    assert can_hold_tests(path) is expected
