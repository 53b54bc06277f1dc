"""What all tests share: a small project, and the rule that a real part may be missing anywhere but in CI."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from plain import plain_python

from pytest_ssr.execution import interpreter
from pytest_ssr.sandbox import SANDBOXES, load_provider
from pytest_ssr.sandbox.protocol import Availability

pytest_plugins = ["pytester"]

CALC = '''\
"""A calculator."""


def add(a, b):
    """Add."""
    return a + b


def clamp(x, low, high):
    if x < low:
        return low
    if x > high:
        return high
    return x


def unchecked(a):
    if a > 3:
        return a * 2
    return a
'''
TESTS = """\
import pytest
from calc import add, clamp, unchecked


def test_add():
    assert add(1, 2) == 3


@pytest.mark.parametrize("x, e", [(1, 2), (2, 2), (3, 3), (9, 4)])
def test_clamp(x, e):
    assert clamp(x, 2, 4) == e


def test_unchecked():
    unchecked(4)


def test_clamp_keeps():
    assert clamp(3, 1, 5) == 3
"""


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip what needs a sandbox where it does not work; in CI that is a failure."""
    for name in SANDBOXES:
        if item.get_closest_marker(name):
            found = probed(name)
            if not found.works:
                text = f"{name} does not work here: {found.detail}; {found.remedy}"
                (pytest.fail if os.environ.get("CI") else pytest.skip)(text)


@functools.cache
def probed(name: str) -> Availability:
    """Try a sandbox once in each process."""
    return load_provider(name).probe()


@pytest.fixture(scope="session", autouse=True)
def plain_by_default() -> Iterator[None]:
    """Where no interpreter is named, projects are run by the plain one in place of this one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(interpreter, "sys", SimpleNamespace(executable=str(plain_python())))
        yield


@pytest.fixture(scope="session")
def calculator() -> dict[str, str]:
    """The files of a small project with seven passing tests, and a function that they do not check."""
    return {"calc.py": CALC, "tests/test_calc.py": TESTS, "pytest.ini": "[pytest]\n"}


@pytest.fixture
def project(tmp_path: Path, calculator: dict[str, str]) -> Path:
    """The small project in a folder of its own."""
    folder = tmp_path / "project"
    (folder / "tests").mkdir(parents=True)
    for name, text in calculator.items():
        (folder / name).write_text(text)
    return folder
