"""Rows whose tests are good, weak, unsteady or wrong in other ways, over one repository; used by tests of the audit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rows import diff, git

_BEFORE = '"""Prices."""\n\n\ndef price(count, unit):\n    return count * unit\n'
_AFTER = '''"""Prices."""


def price(count, unit):
    if count >= 10:
        return count * unit - unit
    return count * unit


def total_of_order(lines):
    total = 0
    for count, unit in lines:
        if count < 0:
            raise ValueError("a count is below zero")
        total += price(count, unit)
    return total
'''
_TESTS = """import datetime
import os
import random
import socket
import tempfile
import time
from pathlib import Path

import pytest

import shop

STATE = []


def test_price():
    assert shop.price(2, 3) == 6


def test_rebate():
    assert [shop.price(n, 3) for n in (9, 10, 11)] == [27, 27, 30]


def test_total():
    assert shop.total_of_order([]) == 0
    assert shop.total_of_order([(0, 5), (1, 2), (2, 3), (10, 1)]) == 17


def test_negative():
    with pytest.raises(ValueError, match="^a count is below zero$"):
        shop.total_of_order([(-1, 2)])


def test_one_total():
    assert shop.total_of_order([(2, 3)]) == 6


def test_chance():
    assert random.random() < 0.5


def test_hash():
    assert hash("x") % 2 == HASHED % 2


def test_clock():
    assert time.localtime().tm_year < 2029


def test_zone():
    assert time.timezone == 0


def test_leftovers():
    assert not os.path.exists("left.txt")
    Path("left.txt").touch()


def test_order_1():
    STATE.append(1)


def test_order_2():
    assert STATE


def test_first_of_set():
    assert next(iter({"x", "y"})) == FIRST


def test_today():
    assert datetime.date.today() < datetime.date(2029, 1, 1)


def test_environment_1():
    os.environ["SHOP"] = "open"


def test_environment_2():
    assert os.environ["SHOP"] == "open"


def test_temporary():
    Path(tempfile.gettempdir(), "shop-lock").touch(exist_ok=False)


def test_network():
    socket.create_connection(("service.invalid", 80), timeout=1).close()


def test_data():
    assert Path("rates.txt").read_text() == "2"
"""
UNSTEADY = {
    "chance": "flickers",
    "hash": "hash-seed",
    "clock": "clock",
    "zone": "time-zone",
    "leftovers": "leftovers",
    "order_2": "order",
    "first_of_set": "hash-seed",
    "today": "clock",
    "environment_2": "order",
    "temporary": "leftovers",
}
"""The tests whose outcome depends on something, and on what."""


def ids(*names: str) -> list[str]:
    """Return the ids of tests."""
    return [f"test_shop.py::test_{name}" for name in names]


def write_audited(folder: Path, hashed: int, first: str) -> tuple[Path, list[dict[str, Any]]]:
    """Create a folder of clones and the rows. hashed: the hash of "x" with the seed 0; first: of "x" and "y" in a set."""
    repository = folder / "clones" / "acme__shop"
    repository.mkdir(parents=True)
    (repository / "shop.py").write_text(_BEFORE)
    (repository / "test_shop.py").write_text("def test_nothing():\n    pass\n")
    (repository / "rates.txt").write_text("1")
    git(repository, "init", "-q")
    git(repository, "add", "-A")
    git(repository, "commit", "-q", "-m", "first")
    base = git(repository, "rev-parse", "HEAD").strip()
    code, data = diff(repository, {"shop.py": _AFTER}), diff(repository, {"rates.txt": "2"})
    tests = diff(
        repository,
        {
            "test_shop.py": _TESTS.replace("HASHED", str(hashed)).replace("FIRST", repr(first)),
            "cases.txt": "for no test\n",
        },
    )

    def row(name: str, fail_to_pass: list[str], pass_to_pass: list[str], patch: str = code) -> dict[str, Any]:
        return {
            "instance_id": f"acme__shop-{name}",
            "repo": "acme/shop",
            "base_commit": base,
            "patch": patch,
            "test_patch": tests,
            "problem_statement": "Ten or more of one thing cost as much as one less.",
            "FAIL_TO_PASS": fail_to_pass,
            "PASS_TO_PASS": pass_to_pass,
            "version": "1",
        }

    price = ids("price")
    rows = [
        row("good", ids("rebate", "total", "negative"), price),
        row("weak", ids("one_total"), price),
        row("coded", ids("rebate"), price),
        row("unsteady", ids("rebate", "total", "negative"), ids("price", *UNSTEADY)),
        row("fails", ids("rebate", "missing"), price),
        row("passes", ids("rebate", "price"), []),
        row("network", ids("total", "network"), price),
        row("data", ids("data"), price, data),
        row("none", ids("total"), price, ""),
    ]
    return folder / "clones", rows
