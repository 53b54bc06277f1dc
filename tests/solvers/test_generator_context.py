"""What the generator sees: the function, its file, call sites, tests, and the failing assertion."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from harness.solvers.search import project_files
from harness.solvers.search.generator import project_lines
from harness.solvers.search.generator.context import LENGTH, FileContext, Part
from harness.solvers.search.generator.holes import Hole, HoleKind, holes_of
from harness.solvers.search.generator.project_lines import ProjectLines
from harness.solvers.search.project_files import ProjectFiles
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
FILES = {"shop.py": SHOP, "orders.py": ORDERS, "tests/test_shop.py": TESTS}


def lines_of(files: Mapping[str, bytes] = FILES, failing: Mapping[str, str] | None = None) -> ProjectLines:
    return ProjectFiles(files.keys(), files.get, failing).lines


def contexts(project: ProjectLines | None, name: str = "Till.total", data: bytes = SHOP):
    source = parse("shop.py", data)
    assert source is not None
    scope = next(s for s in scopes(source) if s.qualname == name)
    of_scope = FileContext(source, project).of(scope)
    return [of_scope.context(hole) for hole in holes_of(source, scope)]


def texts_of(context, part: Part) -> list[bytes]:
    return [text for text, its in zip(context.texts, context.parts, strict=True) if its == part]


def test_lines_of_call_sites_and_of_tests_are_seen():
    context = contexts(lines_of())[0]
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
    context = contexts(lines_of(), "Till.__init__")[0]
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
    assert b"sundial" not in texts_of(contexts(lines_of())[0], Part.TESTS)
    assert b"sundial" in texts_of(contexts(lines_of(FILES, {f"{test}[a]": ""}))[0], Part.TESTS)


def test_names_in_the_message_of_a_failure_are_looked_up():
    message = "AttributeError: 'Till' object has no attribute 'unrelated'"
    failing = {"tests/test_shop.py::test_total": message}
    assert b"unrelated" in texts_of(contexts(lines_of(FILES, failing))[0], Part.CODE)


@pytest.mark.parametrize("project", [None, lines_of({**FILES, "more.py": 50 * ORDERS})])
def test_a_context_has_a_bounded_length(project):
    data = SHOP.replace(b"        result = 0\n", b"        result = 0\n" * 300)
    for context in contexts(project, data=data):
        assert len(context.texts) == len(context.parts) <= LENGTH


def test_large_files_are_left_out(monkeypatch):
    monkeypatch.setattr(project_files, "MAX_FILE_BYTES", len(TESTS))
    context = contexts(lines_of({"orders.py": 3 * ORDERS, "tests/test_shop.py": TESTS}))[0]
    assert texts_of(context, Part.CODE) == []
    assert texts_of(context, Part.TESTS) != []


def test_files_beyond_the_limit_are_left_out(monkeypatch):
    monkeypatch.setattr(project_lines, "_MOST_BYTES", len(ORDERS))
    later = ORDERS.replace(b"coupon", b"stamp")
    code = texts_of(contexts(lines_of({"orders.py": ORDERS, "z.py": later}))[0], Part.CODE)
    assert b"coupon" in code
    assert b"stamp" not in code


def test_copies_of_the_file_are_not_seen():
    copies = {"build/lib/shop.py": SHOP, "other.py": SHOP}
    context = contexts(lines_of({**FILES, **copies}))[0]
    assert texts_of(context, Part.CODE) == texts_of(contexts(lines_of())[0], Part.CODE)


def test_the_calls_of_the_file_itself_do_not_hide_others():
    data = SHOP + b"".join(b"\n\ndef f%d(till, items):\n    return till.total(items, %d)\n" % (n, n) for n in range(60))
    context = contexts(lines_of({**FILES, "shop.py": data}), data=data)[0]
    assert b"coupon" in texts_of(context, Part.CODE)


@pytest.mark.parametrize(
    ("function", "unused"),
    [
        (
            b"@cached(size)\ndef f(alpha: Dict[str, int], *beta, key='x') -> Set[A]:\n    return 0\n",
            [b"alpha", b"beta", b"key"],
        ),
        (b"def f(self, n):\n    return g(n, timeout=3)\n", []),
        (b"def f():\n    for n in range(3):\n        total = 1\n", [b"n", b"total"]),
        (b"def f():\n    size: int = 3\n    self.size = 4\n    with g() as h:\n        pass\n", [b"h"]),
    ],
)
def test_parameters_and_assigned_names_of_a_function_can_be_unused(function, unused):
    source = parse("a.py", function)
    assert source is not None
    (scope,) = (s for s in scopes(source) if s.kind == "function")
    (hole, *_) = holes_of(source, scope)
    assert texts_of(FileContext(source).of(scope).context(hole), Part.UNUSED) == unused


@pytest.mark.parametrize(
    ("line", "names"),
    [
        (b"import os.path", [b"os"]),
        (b"import os.path as p, re", [b"p", b"re"]),
        (b"from a import (b, c as d,)", [b"b", b"d"]),
        (b"from a import *", []),
        (b"import os\r", [b"os"]),
        (b"async def _f(): pass", [b"_f"]),
        (b"_LIMIT: int = 3", [b"_LIMIT"]),
        (b"self._items = []", [b"_items"]),
        (b"_, __a, limit = 1", []),
        (b"_ = 1", []),
        (b"class _Box: pass", [b"_Box"]),
    ],
)
def test_imports_and_private_names_are_definitions(line, names):
    source = parse("a.py", line + b"\n\n\ndef f():\n    return 1\n")
    assert source is not None
    assert list(FileContext(source).definitions) == names


@pytest.mark.parametrize("cut", [b"self._cache = 1", b", here", b"", b"helper(a)"])
def test_training_sees_what_is_seen_if_the_code_is_really_missing(cut):
    data = (
        b"import os\nfrom a import helper\n\n\nclass A:\n    def __init__(self):\n        self._cache = None\n\n"
        b"    def f(self, a, here):\n        b = 1\n        self._cache = 1\n        x = os.join(a, here)\n"
        b"        return helper(a)\n"
    )
    start = data.index(cut, data.index(b"def f")) if cut else data.index(b", here)\n")
    source, without = parse("a.py", data), parse("a.py", data[:start] + data[start + len(cut) :])
    assert source is not None
    assert without is not None
    hole, empty = (Hole(HoleKind.VALUE, start, end) for end in (start + len(cut), start))
    of_scope, of_rest = (
        FileContext(s).of(next(c for c in scopes(s) if c.qualname == "A.f"), missing)
        for s, missing in ((source, hole), (without, None))
    )
    assert set(texts_of(of_scope.context(hole), Part.UNUSED)) == set(texts_of(of_rest.context(empty), Part.UNUSED))


def test_files_with_zero_bytes_and_long_lines_are_left_out():
    zero = {"orders.py": ORDERS + b"x = 'a\0b'\n"}
    assert texts_of(contexts(lines_of(zero))[0], Part.CODE) == []
    long = {"orders.py": b"till.total('" + b"a" * 5000 + b"')\n"}
    assert texts_of(contexts(lines_of(long))[0], Part.CODE) == []


def test_the_last_line_counts_without_its_end():
    assert b"coupon" in texts_of(contexts(lines_of({"orders.py": b"paid = till.total(coupon)"}))[0], Part.CODE)


def test_the_key_is_of_the_content_and_of_the_failing_tests():
    keys = [
        lines_of().key,
        lines_of({**FILES, "orders.py": ORDERS + b"\n"}).key,
        lines_of(FILES, {"tests/test_shop.py::test_total": ""}).key,
        lines_of(FILES, {"tests/test_shop.py::test_total": "assert"}).key,
    ]
    assert len(set(keys)) == len(keys)
    assert lines_of().key == keys[0]
