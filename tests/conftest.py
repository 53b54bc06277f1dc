"""Shared fixtures: a small project, and the rule that real sandboxes may be missing everywhere except in CI."""

from __future__ import annotations

import contextlib
import functools
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import postgres
import pytest
from plain import plain_python

from pytest_ssr.project import interpreter
from pytest_ssr.sandbox import SANDBOXES, load_provider
from pytest_ssr.sandbox.protocol import Availability

pytest_plugins = ["pytester"]

# Some environments, such as those of the adapters, have no property tests.
with contextlib.suppress(ImportError):
    from hypothesis import HealthCheck, settings

    # No test depends on the speed of the machine.
    settings.register_profile("any-machine", settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("any-machine")

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
    """Skip tests whose sandbox does not work here; in CI they fail."""
    for name in SANDBOXES:
        if item.get_closest_marker(name):
            availability = probe_once(name)
            if not availability.works:
                message = f"{name} does not work here: {availability.detail}; {availability.remedy}"
                (pytest.fail if os.environ.get("CI") else pytest.skip)(message)


@functools.cache
def probe_once(name: str) -> Availability:
    """Probe a sandbox once in each process."""
    return load_provider(name).probe()


@pytest.fixture(scope="session", autouse=True)
def plain_by_default() -> Iterator[None]:
    """Use the plain interpreter as the default for projects, instead of the current one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(interpreter, "sys", SimpleNamespace(executable=str(plain_python())))
        yield


@pytest.fixture(scope="session")
def calculator() -> dict[str, str]:
    """Return the files of a small project with seven passing tests, and a function that they do not check."""
    return {"calc.py": CALC, "tests/test_calc.py": TESTS, "pytest.ini": "[pytest]\n"}


@pytest.fixture
def project(tmp_path: Path, calculator: dict[str, str]) -> Path:
    """Return the small project in a separate folder."""
    folder = tmp_path / "project"
    (folder / "tests").mkdir(parents=True)
    for name, text in calculator.items():
        (folder / name).write_text(text)
    return folder


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """The URL of a PostgreSQL server of our own, without a database."""
    if postgres.programs() is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)("PostgreSQL is needed: apt-get install postgresql")
    with postgres.server() as url:
        yield url


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest) -> str:
    """The address of an empty database."""
    if request.param == "sqlite":
        return "sqlite"
    import psycopg

    url, name = request.getfixturevalue("postgres_url"), f"t{secrets.token_hex(6)}"
    with psycopg.connect(f"{url}/postgres", autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    return f"{url}/{name}"
