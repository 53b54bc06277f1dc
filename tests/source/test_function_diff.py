"""Which lines a run must reach to be affected by a change; each case is an old text, a new text and the lines."""

from __future__ import annotations

import pytest

from pytest_ssr.source.function_diff import changed_functions

OLD = '''\
import os

LIMIT = 3


def plain(a, b=LIMIT):
    """Doc."""
    if a > b:
        c = a - b
        d = c
    else:
        c = 0
    for x in range(3):
        c += x
    return c


class Outer:
    size = 1

    class Inner:
        @property
        def value(self):
            return self.size

    def method(self):
        def nested(y):
            return y + 1

        try:
            return nested(self.size)
        except ValueError:
            return 0

    def gen(self):
        x = 1
        if x:
            pass
        print(x)


def last():
    return 1
'''


def lines(new: str, old: str = OLD) -> list[tuple[str, list[int]]] | None:
    functions = changed_functions(old.encode(), new.encode())
    if functions is None:
        return None
    return [(".".join((*f.classes, f.name)), sorted(line for line, _ in f.spots)) for f in functions]


def edited(*pairs: tuple[str, str]) -> str:
    text = OLD
    for old, new in pairs:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text


@pytest.mark.parametrize(
    ("pair", "expected"),
    [
        (("c = a - b", "c = a + b"), [("plain", [9])]),
        (("        d = c\n", "        d = a\n"), [("plain", [10])]),
        (("if a > b", "if a >= b"), [("plain", [8])]),
        (("        c += x\n", ""), None),
        (("        c += x\n", "        c += 2\n"), [("plain", [14])]),
        (("    return c\n", "    return c + 1\n"), [("plain", [15])]),
        (("    return c\n", ""), [("plain", [15])]),
        (("range(3)", "range(2)"), [("plain", [13])]),
        (("    for x in range(3):\n        c += x\n    return c\n", ""), [("plain", [8, 13])]),
        (("return self.size", "return 2"), [("Outer.Inner.value", [24])]),
        (("return y + 1", "return y - 1"), [("Outer.method", [28])]),
        (("except ValueError", "except KeyError"), [("Outer.method", [30])]),
        (("            return 0\n", "            return 1\n"), [("Outer.method", [33])]),
        (("            pass\n", "            pass\n        else:\n            del self\n"), [("Outer.gen", [36, 37])]),
        (("def last():\n    return 1", "def last():\n    return 2"), [("last", [43])]),
        (("def last():\n    return 1\n", "def last():\n    return 1\n    # a comment\n"), []),
        (("def last():\n    return 1\n", "def last():\n    x = 1\n    return x\n"), [("last", [43])]),
    ],
)
def test_a_change_in_a_function_is_seen_where_the_blocks_diverge(pair, expected) -> None:
    reached = lines(edited(pair))
    if expected == []:
        assert reached == [("last", [])]
    else:
        assert reached == expected


@pytest.mark.parametrize(
    "pair",
    [
        ("LIMIT = 3", "LIMIT = 4"),
        ("b=LIMIT", "b=2"),
        ('"""Doc."""', '"""Other."""'),
        ("        @property\n", ""),
        ("    size = 1", "    size = 2"),
        ("def last():\n    return 1\n", ""),
        ("class Outer:", "class Outer(dict):"),
        ("def last():\n    return 1\n", "def last():\n    return 1\n\n\nLATE = 1\n"),
        ("def last():\n    return 1\n", "def last():\n    return (\n"),
        ("    def gen(self):\n", "    def gen(self, more=1):\n"),
    ],
)
def test_a_change_that_acts_at_import_is_not_a_function_change(pair) -> None:
    assert lines(edited(pair)) is None


def test_a_newly_bound_name_is_seen_from_the_start_of_the_function() -> None:
    # `size` was global in a branch never taken; assigned there, it is local everywhere.
    old = "size = 1\n\n\ndef f(a):\n    b = size\n    if a:\n        print(b)\n    return b\n"
    new = old.replace("        print(b)\n", "        size = 2\n")
    assert lines(new, old) == [("f", [5, 7])]


def test_a_function_that_becomes_a_generator_acts_at_import() -> None:
    old = "def f(a):\n    if a:\n        print(a)\n    return a\n"
    assert lines(old.replace("print(a)", "yield a"), old) is None


@pytest.mark.parametrize("new", ["break", "a is 0", "'\\d'", "await a"])
def test_what_the_compiler_refuses_or_warns_about_acts_at_import(new: str) -> None:
    old = "def f(a):\n    if a:\n        print(a)\n    return a\n"
    assert lines(old.replace("print(a)", new), old) is None


def test_names_of_a_comprehension_are_local_to_it() -> None:
    old = "x = 1\n\n\ndef f(a):\n    b = [x for x in a]\n    if b:\n        print(b)\n    return b, x\n"
    assert lines(old.replace("print(b)", "x = 2"), old) == [("f", [5, 7])]
    assert lines(old.replace("print(b)", "print([b for b in a])"), old) == [("f", [7])]


def test_other_encodings_are_not_compared() -> None:
    old = "# coding: latin-1\ndef f():\n    return 1\n"
    assert lines(old.replace("1\n", "'\u00e9'\n").replace("latin-'\u00e9'", "latin-1"), old) is None


def test_changes_in_two_functions_of_a_file_are_two() -> None:
    changes = lines(edited(("c = a - b", "c = b"), ("return y + 1", "return y")))
    assert changes == [("plain", [9]), ("Outer.method", [28])]


def test_moved_lines_are_reported() -> None:
    (first, second) = changed_functions(
        OLD.encode(), edited(("        d = c\n", ""), ("return y + 1", "return y")).encode()
    )
    assert (first.old_line, first.new_line) == (6, 6)
    assert (second.old_line, second.new_line) == (26, 25)
    assert second.new_source.startswith("    def method(self):")
    assert second.new_source.endswith("return 0\n")


@pytest.mark.parametrize(
    "old", ["def f():\r\n    return 1\r\n", "def f():\n    return '\x0c'\n", "\ufeffdef f():\n    return 1\n"]
)
def test_unusual_line_separators_are_not_compared(old: str) -> None:
    assert changed_functions(old.encode(), old.replace("return", "return not").encode()) is None


def test_unreadable_files_are_not_compared() -> None:
    assert changed_functions(b"\xff", b"x = 1\n") is None
    assert changed_functions(b"def f():\n    return 1\n", b"def f():\n    return \xff\n") is None
