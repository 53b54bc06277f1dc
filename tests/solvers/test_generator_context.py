"""What the generator sees: the function, its file, call sites, tests, and the failing assertion."""

from __future__ import annotations

import pytest

from harness.solvers.search.generator import project_lines
from harness.solvers.search.generator.context import LENGTH, FileContext, Part
from harness.solvers.search.generator.holes import Hole, HoleKind, holes_of
from harness.solvers.search.generator.project_lines import ProjectLines
from pytest_ssr.source.syntax_tree import parse, scopes

SHOP = b"""\
import os
from money import Currency, rounded as _rounded


class Till:
    def __init__(self, currency):
        self._drawer = []
        self.currency = currency

    def total(self, items, discount):
        rebate = self.rate(items)
        result = 0
        for item in items:
            result += item.price
        return result

    def _as_text(self, amount):
        return os.fspath(amount)

    def rate(self, items):
        return len(items)
"""
ORDERS = b"""\
def checkout(till, basket):
    coupon = basket.coupon()
    paid = till.total(basket.lines, coupon)
    return receipt(paid)


def unrelated():
    return 1
"""
TESTS = b"""\
def test_total():
    till = Till(EUR)
    assert till.total([Item(3)], voucher) == 3


def test_opening_hours():
    clock = sundial()
    assert clock.noon
"""
FILES = [("shop.py", SHOP), ("orders.py", ORDERS), ("tests/test_shop.py", TESTS)]


def contexts(project: ProjectLines | None, name: str = "Till.total", data: bytes = SHOP):
    source = parse("shop.py", data)
    assert source is not None
    scope = next(s for s in scopes(source) if s.qualname == name)
    of_scope = FileContext(source, project).of(scope)
    return [of_scope.context(hole) for hole in holes_of(source, scope)]


def texts_of(context, part: Part) -> list[bytes]:
    return [text for text, its in zip(context.texts, context.parts, strict=True) if its == part]


def test_lines_of_call_sites_and_of_tests_are_seen():
    context = contexts(ProjectLines(FILES))[0]
    code, tests = texts_of(context, Part.CODE), texts_of(context, Part.TESTS)
    assert {b"coupon", b"basket", b"lines"} <= set(code)
    assert b"unrelated" not in code
    assert {b"voucher", b"Item"} <= set(tests)
    assert b"result" not in code, "the function's own file is seen by itself"


def test_a_file_alone_is_seen_without_a_project():
    context = contexts(None)[0]
    assert not {Part.CODE, Part.TESTS} & set(context.parts)
    assert Part.SIMILAR in context.parts


def test_a_constructor_is_called_by_the_name_of_its_class():
    context = contexts(ProjectLines(FILES), "Till.__init__")[0]
    assert b"EUR" in texts_of(context, Part.TESTS)


def test_names_that_are_defined_and_not_used_are_seen():
    unused = texts_of(contexts(None)[0], Part.UNUSED)
    assert unused[:2] == [b"discount", b"rebate"], "those of the function first"
    assert {b"Currency", b"_rounded", b"_drawer", b"_as_text"} <= set(unused)
    assert b"os" not in unused
    assert b"items" not in unused
    assert b"money" not in unused


def test_a_name_whose_use_is_missing_counts_as_unused():
    source = parse("shop.py", SHOP)
    assert source is not None
    scope = next(s for s in scopes(source) if s.qualname == "Till._as_text")
    start = SHOP.index(b"os.fspath(amount)")
    hole = Hole(HoleKind.VALUE, start, start + len(b"os.fspath(amount)"))
    file = FileContext(source)
    assert b"os" in texts_of(file.of(scope, hole).context(hole), Part.UNUSED)
    assert b"fspath" not in file.of(scope, hole).context(hole).texts
    assert b"os" not in texts_of(file.of(scope).context(hole), Part.UNUSED)


def test_the_lines_of_failing_tests_count_more():
    test = "tests/test_shop.py::test_opening_hours"
    assert b"sundial" not in texts_of(contexts(ProjectLines(FILES))[0], Part.TESTS)
    assert b"sundial" in texts_of(contexts(ProjectLines(FILES, {f"{test}[a]": ""}))[0], Part.TESTS)


def test_names_in_the_message_of_a_failure_are_looked_up():
    message = "AttributeError: 'Till' object has no attribute 'unrelated'"
    failing = {"tests/test_shop.py::test_total": message}
    assert b"unrelated" in texts_of(contexts(ProjectLines(FILES, failing))[0], Part.CODE)


@pytest.mark.parametrize("project", [None, ProjectLines([*FILES, ("more.py", 50 * ORDERS)])])
def test_a_context_has_a_bounded_length(project):
    data = SHOP.replace(b"        result = 0\n", b"        result = 0\n" * 300)
    for context in contexts(project, data=data):
        assert len(context.texts) == len(context.parts) <= LENGTH


def test_large_files_are_left_out(monkeypatch):
    monkeypatch.setattr(project_lines, "MAX_FILE_BYTES", len(TESTS))
    context = contexts(ProjectLines([("orders.py", 3 * ORDERS), ("tests/test_shop.py", TESTS)]))[0]
    assert texts_of(context, Part.CODE) == []
    assert texts_of(context, Part.TESTS) != []


def test_files_beyond_the_limit_are_left_out(monkeypatch):
    monkeypatch.setattr(project_lines, "_MOST_BYTES", len(ORDERS))
    later = ("z.py", ORDERS.replace(b"coupon", b"stamp"))
    code = texts_of(contexts(ProjectLines([("orders.py", ORDERS), later]))[0], Part.CODE)
    assert b"coupon" in code
    assert b"stamp" not in code
