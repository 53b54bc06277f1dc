"""Test how examples are found, chosen and varied, and which of several inputs a test gets."""

from __future__ import annotations

import ast
from dataclasses import replace
from typing import Any

from pytest_ssr.suggestions.calls import Phrase, split_instance
from pytest_ssr.suggestions.examples import examples_in, is_text
from pytest_ssr.suggestions.expressions import literals_in, near_expressions
from pytest_ssr.suggestions.functions import functions_of
from pytest_ssr.suggestions.literals import Expression, parse_literal, source_of
from pytest_ssr.suggestions.outcomes import CallOutcome, OutcomeKind, is_place
from pytest_ssr.suggestions.phrases import callers_in, phrases_for, varied_phrases
from pytest_ssr.suggestions.recording import CallReader
from pytest_ssr.suggestions.skeleton import skeleton
from pytest_ssr.suggestions.suggest import invented_calls

CODE = b'''\
import os
from decimal import Decimal


class Box:
    """A box.

    >>> sides = [1, 2]
    >>> Box(*sides).area(Decimal('1.50'))
    Decimal('3.00')
    """

    def __init__(self, a, b=2):
        self.a, self.b = a, b

    def area(self, unit):
        return _scaled(self.a * self.b, unit)


def _scaled(area, unit):
    return area * unit


def widest(boxes, key=len):
    """
    >>> widest([Box(os.getpid())])
    >>> broadest(['ab', 'c'], key=lambda text: len(text))
    """
    return max(boxes, key=key)


BOX = Box(a=7)
broadest = widest
'''
TESTS = b"""\
import tools.box
from tools.box import Box, widest
from .other import helper


def test(fixture):
    box = Box(3, b=4)
    assert box.area(2) == 24 and not widest([helper()])
    assert widest("ab") == "b"
    assert tools.box.widest(eval("[1]"))
    assert widest(fixture)
    for n in range(3):
        widest([n])
    box = helper()
    box.area(5)
"""
CLASS, AREA, SCALED, WIDEST = functions_of("src/tools/box.py", CODE)
SOURCES = {"src/tools/box.py": CODE}


def test_examples_of_docstrings_texts_and_tests_are_found() -> None:
    text = b"Use it:\n\n>>> from tools.box import *\n>>> import tools\n>>> tools.box.widest('readme')\n'r'\n"
    found = {e.source: e.imports for e in examples_in(SOURCES, {"tests/test_box.py": TESTS}, {"README.rst": text})}
    box, widest = "from tools.box import Box", "from tools.box import widest"
    assert found == {
        'Box(*[1, 2]).area(Decimal("1.50"))': {box, "from decimal import Decimal"},
        'widest(["ab", "c"], key=lambda text: len(text))': {widest},
        'tools.box.widest("readme")': {"import tools"},
        "Box(3, b=4)": {box},
        "Box(3, b=4).area(2)": {box},
        'widest("ab")': {widest},
        "Box(a=7)": {box},
    }
    assert is_text("docs/Guide.RST")
    assert not is_text("logo.png")


def test_examples_in_files_that_cannot_be_read_are_left_out() -> None:
    texts = {"a.txt": b">>> f(1)\n  x\n>>>g", "b.txt": b"\xff >>> (", "c.txt": b">>> import tools.box; tools.box.f(\n"}
    assert examples_in({"src/tools/box.py": b"def f(:"}, {"t.py": b"\0"}, texts) == []


def phrase(source: str, **fields: Any) -> Phrase:
    """Return a phrase about `widest`."""
    return Phrase(WIDEST, Expression(source, frozenset(("from tools.box import widest",))), **fields)


def test_parts_that_cannot_stand_alone_are_no_examples() -> None:
    tests = b"""\
from box import Box


def test_box(f, x):
    f(*Box(1).sides(), f"{Box(2).area!r}", x[Box(3).a : Box(4).b])
"""
    found = examples_in({"box.py": b"class Box:\n    pass\n"}, {"test_box.py": tests}, {})
    assert [e.source for e in found] == ["Box(1).sides()", "Box(2).area", "Box(3).a", "Box(4).b"]


def test_examples_of_callers_stand_for_a_private_function() -> None:
    examples = [Expression("Box(1).area(2)"), Expression("widest('a')"), Expression("Box(1)")]
    callers = callers_in(SOURCES)
    assert [(n, p.expression) for n, p in phrases_for(SCALED, examples, callers)] == [(1, "Box(1).area(2)")]
    assert [(n, p.expression) for n, p in phrases_for(AREA, examples, callers)] == [(0, "Box(1).area(2)")]
    # Whatever mentions the class may call `__init__`; what only makes an instance is nearer.
    assert [(n, p.expression) for n, p in phrases_for(CLASS, examples, callers)] == [
        (0, "Box(1)"),
        (1, "Box(1).area(2)"),
    ]


def test_literals_of_examples_are_varied() -> None:
    example = Expression("widest([\"é'a\", 'c'], key=lambda text: text[0])")
    assert literals_in(example) == [["é'a", "c"], 0]
    near = {e.source: oddness for e, oddness in near_expressions(example, [7])}
    assert "widest([], key=lambda text: text[0])" in near
    assert "widest([\"é'a\", 'c'], key=lambda text: text[7])" in near
    for source in near:
        ast.parse(source)
    varied = varied_phrases([phrase(example.source)], [7], most=50, seed=0)
    assert len({p.expression for p in varied}) == len(varied) == 50
    assert [varied[0].steps, varied[1].steps] == [0, 1]
    assert max(p.steps for p in varied) == 2


def test_objects_and_functions_of_the_project_are_written() -> None:
    reader = CallReader({"src/tools/box.py": CODE, "tools/__init__.py": b"from tools._box import Lid\n"})
    made = "[made('tools.box', 'Box', [('a', '', 1), ('b', '', named('tools.box', 'widest'))])]"
    value = parse_literal(made, reader.expression)
    assert value is not None
    assert source_of(value[0]) == "[Box(1, b=widest)]"
    lengths = parse_literal("(named('builtins', 'str.upper'), named('operator', 'add'))", reader.expression)
    assert lengths is not None
    assert source_of(lengths[0]) == "(str.upper, operator.add)"
    # The code under test can write any such line.
    for hostile in (
        "named('builtins', 'eval')",
        "named('os', 'system')",
        "named('tools.box', 'a; import os')",
        "made('tools.box', 'Box', [('a b', '', 1)])",
        "made('tools.box', 'Box', [1])",
        "made('tools.box', 'Box')",
        "made('tools.box', 'Box', [('a', '*', 1)])",
        "named(1, [])",
        "named()",
    ):
        assert parse_literal(hostile, reader.expression) is None
    assert parse_literal(made) is None
    assert reader.public_module("tools._box", "Lid") == "tools"
    assert reader.public_module("tools._box", "Other") == "tools._box"


def test_an_example_becomes_a_test() -> None:
    one, two = CallOutcome(OutcomeKind.VALUE, 1), CallOutcome(OutcomeKind.VALUE, 2)
    imports = frozenset(("from tools.box import widest", "from tools.box import Box", "import tools", "import math"))
    example = Phrase(WIDEST, Expression("widest([Box(math.pi, 3)]) or -1", imports))
    assert skeleton(example, one, two, ["a -> b", "c -> d", "a -> b"]) == (
        "import math\n\nimport tools\nfrom tools.box import Box, widest\n\n\ndef test_widest_3_minus_1():\n"
        "    # notices: a -> b\n    # notices: c -> d\n    assert (widest([Box(math.pi, 3)]) or -1) == 1\n"
    )
    total = Phrase(AREA, Expression("Box(1) + Box(2)", frozenset(("from tools.box import Box",))))
    assert "    assert (Box(1) + Box(2)).a == 1\n" in skeleton(total, one, two, [], attribute="a")


def test_an_instance_is_looked_at_after_a_method_that_returns_nothing() -> None:
    assert split_instance("Box(1).lids[0]") == ("", "")
    assert split_instance("box.widest(1)") == ("", "")
    assert split_instance("Box('é').add(1)") == ("Box('é')", ".add(1)")
    value, changed = CallOutcome(OutcomeKind.VALUE, [1]), CallOutcome(OutcomeKind.VALUE, [])
    add = Phrase(AREA, Expression("tools.OpenBox(1).add(1)", frozenset(("import tools",))))
    lines = skeleton(add, value, changed, [], attribute=".__iter__").splitlines()
    assert lines[-3:] == [
        "    open_box = tools.OpenBox(1)",
        "    open_box.add(1)",
        "    assert list(open_box) == [1]",
    ]
    assert skeleton(add, value, changed, [], attribute=".sides").endswith("assert open_box.sides == [1]\n")
    listed = replace(add, content=Expression("List().add(1)", frozenset(("from tools import List",))))
    assert "    instance = List()\n" in skeleton(listed, value, changed, [], attribute=".")
    pairs = skeleton(add, CallOutcome(OutcomeKind.VALUE, [("a", 1)]), changed, [], attribute="__items__")
    assert pairs.endswith('    assert list(tools.OpenBox(1).add(1).items()) == [("a", 1)]\n')
    truth = skeleton(listed, CallOutcome(OutcomeKind.VALUE, False), changed, [], attribute="__bool__")
    assert truth.endswith("    assert not List().add(1)\n")
    for text in ("..", ".a.b", "a b", 3):
        assert not is_place(str(text).removeprefix("."))


def test_calls_of_one_object_become_statements() -> None:
    tests = b"""\
from tools.box import Box

def test():
    n = 3
    table = Box(1)
    table.add(n, key='a')
    assert table.sides == [1, 3]
    table.sort()
    assert table.area(2) + table.area(3)
    other = fixture()
    other.add(table)
"""
    found = [e.source for e in examples_in(SOURCES, {"t.py": tests}, {})]
    chain = '((table := Box(1)), table.add(3, key="a"), table)[-1]'
    longer = '((table := Box(1)), table.add(3, key="a"), table.sort(), table)[-1].area(2)'
    assert found[-7:-1] == [
        "Box(1)",
        'Box(1).add(3, key="a")',
        f"{chain}.sides",
        f"{chain}.sort()",
        longer,
        longer[:-2] + "3)",
    ]
    one, two = CallOutcome(OutcomeKind.VALUE, 1), CallOutcome(OutcomeKind.VALUE, 2)
    example = Phrase(AREA, Expression(longer, frozenset(("from tools.box import Box",))))
    written = skeleton(example, one, two, [])
    assert written.endswith(
        '    table = Box(1)\n    table.add(3, key="a")\n    table.sort()\n    assert table.area(2) == 1\n'
    )
    assert "Box(9)" in "".join(e.source for e, _ in near_expressions(example.content, [9]))
    error = CallOutcome(OutcomeKind.RAISES, None, "builtins", "KeyError")
    assert skeleton(example, error, two, []).endswith("    with pytest.raises(KeyError):\n        table.area(2)\n")


def test_a_function_that_nothing_calls_is_called_on_instances_of_examples() -> None:
    code = b"""\
class Box:
    def __init__(self, a):
        self.a = a

    def count(self, item, *, by=1):
        return item

    def __contains__(self, item):
        return item

    @property
    def size(self):
        return 1

    def __reduce__(self):
        return ()


class Empty:
    def sized(self, a, b):
        return 1


def plain(a, b=2, *, c):
    return a


def many(a, b, c):
    return a


def _hidden(a):
    return a
"""
    sources = {"src/box.py": code}
    imports = frozenset(("from box import Box",))
    examples = [Expression("Box(5)", imports), Expression('Box("é").count', imports), Expression("other(7)")]
    init, count, contains, size, reduced, sized, plain, many, hidden = functions_of("src/box.py", code)
    found = {
        f.name: [p.expression for p in invented_calls(f, examples, sources)] for f in functions_of("src/box.py", code)
    }
    assert plain.required == ("a", "c=")
    assert found["count"][:3] == ["Box(5).count(1)", "Box(5).count(2)", "Box(5).count(5)"]
    assert 'Box(5).count("é")' in found["count"]
    assert "1 in Box(5)" in found["__contains__"]
    assert found["size"] == ["Box(5).size"]
    assert "Box(1)" in found["__init__"]
    assert "Empty().sized(1, 5)" in found["sized"]
    assert "plain(1, c=5)" in found["plain"]
    assert [found[f.name] for f in (reduced, many, hidden)] == [[], [], []]
    assert init.required == ("a",)
    assert count.required == contains.required == ("item",)
    assert size.required == ()
    assert sized.required == ("a", "b")


def test_expressions_that_grow_or_are_nested_deeply_are_left_out() -> None:
    growing = b"from tools.box import widest\nx = (1, 2)\n" + b"x = (x, x)\n" * 64 + b"widest(x)\nwidest('a')\n"
    deep = b"from tools.box import widest\nwidest('b')\ny = widest(" + b"+".join([b"'a'"] * 900) + b")\n"
    chained = b"from tools.box import Box\nbox = Box(1)\n" + b"box.add(1)\n" * 200 + b"box.area(1)\n"
    found = [e.source for e in examples_in(SOURCES, {"a.py": growing, "b.py": deep, "c.py": chained}, {})]
    assert {'widest("a")', 'widest("b")', "Box(1)"} <= set(found)
    assert max(map(len, found)) <= 300
    assert max(e.count("box.add") for e in found) < 10
