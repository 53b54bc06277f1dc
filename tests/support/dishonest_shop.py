"""A module with tests of many styles, bugs in it, and grades of patches for them."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from plain import plain_python

from pytest_ssr.campaign.factory import open_runner
from pytest_ssr.execution.runner import Runner
from pytest_ssr.execution.script_template import default_parser, default_script
from pytest_ssr.grading import Grade, grade_patch
from pytest_ssr.patch import FileEntry, Patch
from pytest_ssr.records.artifact import BugArtifact
from pytest_ssr.records.reasons import UNCERTAIN
from pytest_ssr.settings import RuleSettings
from pytest_ssr.storage.store import Store

CODE = """\
import functools


@functools.total_ordering
class Money:
    def __init__(self, amount, unit="EUR"):
        self.amount, self.unit = amount, unit

    def __eq__(self, other):
        return (self.amount, self.unit) == (other.amount, other.unit)

    def __lt__(self, other):
        return self.amount < other.amount

    def __hash__(self):
        return hash((self.amount, self.unit))

    def __bool__(self):
        return self.amount != 0

    def __contains__(self, part):
        return 0 <= part <= self.amount


def gross(net, rate=20):
    return net + net * rate // 100


def share(part, whole):
    return part / whole


def is_even(number):
    return number % 2 == 0


def hello(name):
    print("hello " + name)


def write(path, lines):
    with open(path, "w") as file:
        for line in lines:
            file.write(line + ";")


def notify(sender, names):
    for name in names:
        sender.send(name.title())


def checked(age):
    if age < 0:
        raise ValueError("negative: " + str(age))
    return age


def pair(text):
    left, _, right = text.partition("=")
    return {left: right}


class Counter:
    def __init__(self):
        self.total = 0

    def add(self, number):
        self.total += number
        return self

    @property
    def double(self):
        return self.total * 2


async def later(number):
    return number * 3
"""
TESTS = """\
import asyncio
from unittest import mock

import pytest

from shop import *


@pytest.mark.parametrize("net, expected", [(100, 120), (50, 60), (10, 12)])
def test_gross(net, expected):
    assert gross(net) == expected


def test_share():
    assert share(1, 3) == pytest.approx(0.333333, abs=1e-4)


def test_is_even():
    assert is_even(4)
    assert is_even(10)
    assert not is_even(7)


def test_hello(capsys):
    hello("ann")
    assert capsys.readouterr().out == "hello ann\\n"


def test_write(tmp_path):
    write(tmp_path / "a", ["one", "two"])
    assert (tmp_path / "a").read_text() == "one;two;"


def test_notify():
    sender = mock.Mock()
    notify(sender, ["ann", "bob"])
    assert [call.args[0] for call in sender.send.call_args_list] == ["Ann", "Bob"]


def test_checked():
    assert checked(3) == 3
    with pytest.raises(ValueError, match="negative: -4"):
        checked(-4)


def test_pair():
    assert pair("a=1") == {"a": "1"}


def test_round_trip():
    assert pair("a=b") == pair("a" + "=" + "b")
    assert Money(3) == Money(1 + 2)


def test_unequal():
    assert Money(3) != Money(4)
    assert not Money(3) == Money(3, "USD")


def test_order():
    assert Money(3) < Money(5)
    assert sorted([Money(5), Money(3)])[0] == Money(3)


def test_sets():
    assert len({Money(3), Money(3), Money(4)}) == 2


def test_truth():
    assert Money(2)
    assert not Money(0)


def test_contains():
    assert 2 in Money(3)
    assert 4 not in Money(3)


def test_counter():
    counter = Counter().add(3).add(4)
    assert counter.total == 7
    assert counter.double == 14


def test_later():
    assert asyncio.run(later(5)) == 15


def test_other():
    assert 1 + 1 == 2
"""
BUGS = {
    "gross": ("net + net * rate // 100", "net - net * rate // 100"),
    "share": ("part / whole", "whole / part"),
    "is_even": ("number % 2 == 0", "number % 3 == 0"),
    "hello": ('print("hello " + name)', 'print("bye " + name)'),
    "write": ('line + ";"', 'line + ","'),
    "notify": ("name.title()", "name.upper()"),
    "checked": ('"negative: " + str(age)', '"wrong"'),
    "pair": ("{left: right}", "{right: left}"),
    "eq": ("(self.amount, self.unit) == (other.amount, other.unit)", "self.amount == other.amount"),
    "eq always": ("(self.amount, self.unit) == (other.amount, other.unit)", "self is other"),
    "lt": ("self.amount < other.amount", "self.amount > other.amount"),
    "hash": ("hash((self.amount, self.unit))", "id(self)"),
    "bool": ("self.amount != 0", "True"),
    "contains": ("0 <= part <= self.amount", "False"),
    "counter": ("self.total += number", "self.total -= number"),
    "double": ("self.total * 2", "self.total + 2"),
    "later": ("number * 3", "number + 3"),
}


@dataclass(frozen=True)
class Shop:
    """One project, and the grades of patches for its bugs."""

    folder: Path

    def grade(self, bug: str, repaired: str, *, full: bool = True) -> Grade:
        """Grade a patch; full: in all runs, since one that fails in the first run ends there otherwise."""
        runner = _opened(self.folder)
        original = runner.original
        buggy_code = CODE.replace(*BUGS[bug])
        assert buggy_code != CODE
        buggy = original.replace({"shop.py": FileEntry(buggy_code.encode(), 0o100644)})
        passing = runner.suite(original, ["test_shop.py"])[0].passing
        failing = passing - runner.suite(buggy, ["test_shop.py"])[0].passing
        assert failing
        artifact = BugArtifact(
            script=default_script(["test_shop.py"], options=()),
            test_files=("test_shop.py",),
            parser=default_parser(),
            bug=buggy.patch_from(original),
            weaken=Patch.parse(b""),
        )
        state = original.replace({"shop.py": FileEntry(repaired.encode(), 0o100644)})
        patch = state.patch_from(buggy)
        return grade_patch(runner, artifact, patch, fail_to_pass=failing, pass_to_pass=passing - failing, full=full)


@functools.cache
def _opened(folder: Path) -> Runner:
    """Return the runner of a project, which runs the same code once."""
    store = Store(folder.parent / "store")
    return open_runner(folder, store, settings=RuleSettings(), sandbox="process", python=plain_python())


def created_shop(folder: Path) -> Shop:
    """Create the project in a folder that workers share: what grades are compared with is measured by one of them."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in (("shop.py", CODE), ("test_shop.py", TESTS)):
        own = folder.parent / f"{name}.{os.getpid()}"
        own.write_text(text)
        own.replace(folder / name)
    return Shop(folder)


def mostly_long(names: Iterable[str]) -> list[Any]:
    """Return parameters: those of each third name run always, the others with the long tests."""
    return [pytest.param(name, marks=() if n % 3 == 0 else pytest.mark.long) for n, name in enumerate(names)]


def is_sure(grade: Grade) -> bool:
    return grade.resolved is True and not any(flag.code in UNCERTAIN for flag in grade.flags)
