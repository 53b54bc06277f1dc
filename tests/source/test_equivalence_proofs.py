"""Test which changes are proven equivalent, and that similar ones are not; run both codes for generated functions."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pytest_ssr.injectors.mutation import changes_of
from pytest_ssr.source.equivalence import Equivalence, common_equivalence, equivalence_of_change, is_proven
from pytest_ssr.source.equivalence_proofs import proof_of
from pytest_ssr.source.equivalence_signs import EquivalenceSign
from pytest_ssr.source.normal_form import EquivalenceProof
from pytest_ssr.source.syntax_tree import parse, scopes, splice

BEFORE = """\
import collections
from elsewhere import Base


class Point:
    kind = "point"
    size = make()

    def __init__(self, x, y, size):
        self.x = x
        self.y = y
        self.items = {}
        self.seen = collections.OrderedDict()
        self.size = size
        self.kinds = []

    def first(self):
        return self.x

    @property
    def second(self):
        return self.y

    @second.setter
    def second(self, value):
        self.y = value


class Derived(Base):
    def __init__(self, x, y):
        self.x = x
        self.y = y


def clip(value: int, low, high):
    value = value if value > 10 else 10
    if low > high:
        low = high
    for one in high:
        low = one if one > low else low
    if high >= low:
        return low
    return high


def total(xs: list[int]):
    if not xs:
        return []
    found = []
    for x in xs:
        found.append(x)
    return found


def joined(ys, zs: list[str] = None):
    if not ys:
        return []
    if not zs:
        return ""
    return "".join(z for z in zs)


def kind(value, other):
    count = 0
    names = []
    if isinstance(value, str):
        return "text"
    if isinstance(value, (int, float)):
        return "number"
    if isinstance(value, bool):
        return "truth"
    if other == "a":
        count += 1
    elif other == "b":
        count += 2
    try:
        step = 1
        names = list(value)
    except (ValueError, UnicodeDecodeError, KeyError):
        names = [step]
    length = len(names) + 1
    unused = [count]
    result = sorted(list(names))
    return result, length, other + 1, count


def later(values, limit):
    if limit:
        limit = 3
        return limit
    else:
        values = list(values)
    limit = 4
    lazy = (v for v in values if v < limit)
    bound = 5
    return lazy, lambda: bound


def lazily(values):
    most = 3
    lazy = (v for v in values if v < most)
    most = 4
    taken = list(lazy)
    return taken, most


def tried(value):
    number = 0
    try:
        number = 1
        number = int(value)
    except ValueError:
        value = number
    return value, number


def spy():
    one = 1
    two = 2
    return locals()
"""

P, S = EquivalenceProof, EquivalenceSign


def changed(*pairs: tuple[str, str]) -> bytes:
    """Return the source with parts replaced."""
    text = BEFORE
    for old, new in pairs:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text.encode()


@pytest.mark.parametrize(
    ("old", "new", "equivalence"),
    [
        # The same code.
        ("        return limit\n    else:\n        values = list(values)\n", "        return limit\n    values = list(values)\n", P.SAME_CODE),
        ("        return limit\n", "        return limit\n        values.clear()\n", P.SAME_CODE),
        ("        return limit\n", "        return limit\n        yield values\n", None),
        ("        return limit\n", "        return limit\n        len = values\n", P.SAME_CODE),
        ("        values = list(values)\n", "        values = list(values)\n        list = None\n", None),
        ("        found.append(x)\n", "        found.append(x)\n        continue\n", P.SAME_CODE),
        ("        found.append(x)\n", "        found.append(x)\n        break\n", None),
        ("    unused = [count]\n", "    unused: list[int] = [count]\n", P.SAME_CODE),
        # Values that nothing reads.
        ("    unused = [count]\n", "", P.DEAD_STORE),
        ("    unused = [count]\n", "    unused = [other]\n", P.DEAD_STORE),
        ("    unused = [count]\n", "    unused = [count.real]\n", None),
        ("    bound = 5\n", "", None),
        ("        step = 1\n", "", None),
        ("    one = 1\n", "", None),
        ("        number = 1\n", "", None),
        # Statements in another order.
        ("        self.x = x\n        self.y = y\n        self.items", "        self.y = y\n        self.x = x\n        self.items", P.ORDER),
        ("        self.items = {}\n        self.seen = collections.OrderedDict()\n", "        self.seen = collections.OrderedDict()\n        self.items = {}\n", P.ORDER),
        ("        self.size = size\n        self.kinds = []\n", "        self.kinds = []\n        self.size = size\n", None),
        ("        self.x = x\n        self.y = y\n\n\ndef", "        self.y = y\n        self.x = x\n\n\ndef", S.UNORDERED),
        ("    count = 0\n    names = []\n", "    names = []\n    count = 0\n", P.ORDER),
        ("    length = len(names) + 1\n    unused = [count]\n", "    unused = [count]\n    length = len(names) + 1\n", P.DEAD_STORE),
        ("        step = 1\n        names = list(value)\n", "        names = list(value)\n        step = 1\n", None),
        ("    limit = 4\n    lazy = (v for v in values if v < limit)\n", "    lazy = (v for v in values if v < limit)\n    limit = 4\n", None),
        ("    most = 4\n    taken = list(lazy)\n", "    taken = list(lazy)\n    most = 4\n", None),
        ("    one = 1\n    two = 2\n", "    two = 2\n    one = 1\n", None),
        # Branches that exclude each other.
        (
            '    if isinstance(value, str):\n        return "text"\n    if isinstance(value, (int, float)):\n        return "number"\n',
            '    if isinstance(value, (int, float)):\n        return "number"\n    if isinstance(value, str):\n        return "text"\n',
            P.EXCLUSIVE,
        ),
        (
            '    if isinstance(value, (int, float)):\n        return "number"\n    if isinstance(value, bool):\n        return "truth"\n',
            '    if isinstance(value, bool):\n        return "truth"\n    if isinstance(value, (int, float)):\n        return "number"\n',
            None,
        ),
        (
            '    if other == "a":\n        count += 1\n    elif other == "b":\n        count += 2\n',
            '    if other == "b":\n        count += 2\n    elif other == "a":\n        count += 1\n',
            P.EXCLUSIVE,
        ),
        # Early returns.
        ("    if not xs:\n        return []\n", "", P.EARLY_RETURN),
        ("    if not ys:\n        return []\n", "", None),
        ("    if not zs:\n        return \"\"\n", "", None),
        # Numbers, exceptions, copies.
        ("len(names) + 1", "1 + len(names)", P.OPERANDS),
        ("other + 1", "1 + other", S.UNORDERED),
        ("(ValueError, UnicodeDecodeError, KeyError)", "(KeyError, ValueError)", P.EXCEPTIONS),
        ("(ValueError, UnicodeDecodeError, KeyError)", "(KeyError, UnicodeDecodeError)", None),
        ("sorted(list(names))", "sorted(names)", P.COPY),
        ("values = list(values)", "values = values", None),
        # Bounds.
        ("value > 10", "value >= 10", P.BOUND),
        ("value > 10", "value < 10", None),
        ("low > high", "low >= high", P.BOUND),
        ("one > low", "one >= low", None),
        ("high >= low", "high > low", P.BOUND),
        # Methods.
        (
            "    def first(self):\n        return self.x\n\n    @property\n    def second(self):\n        return self.y\n",
            "    @property\n    def second(self):\n        return self.y\n\n    def first(self):\n        return self.x\n",
            P.METHODS,
        ),
        (
            "    @property\n    def second(self):\n        return self.y\n\n    @second.setter\n    def second(self, value):\n        self.y = value\n",
            "    @second.setter\n    def second(self, value):\n        self.y = value\n\n    @property\n    def second(self):\n        return self.y\n",
            None,
        ),
    ],
)  # fmt: skip
def test_what_is_equivalent(old: str, new: str, equivalence: Equivalence | None) -> None:
    after = changed((old, new))
    assert equivalence_of_change("shapes.py", BEFORE.encode(), after) is equivalence
    assert proof_of("shapes.py", BEFORE.encode(), after) is (equivalence if is_proven(equivalence) else None)
    assert proof_of("shapes.py", after, BEFORE.encode()) is (equivalence if is_proven(equivalence) else None)


@pytest.mark.parametrize(
    ("names", "equivalence"),
    [
        ("", P.EXCLUSIVE),
        ("isinstance = print\n", None),
        ("from elsewhere import isinstance\n", None),
        ("from elsewhere import *\n", None),
        ("import sys\nframe = sys._getframe()\n", None),
    ],
)
def test_names_of_the_file_can_forbid_a_proof(names: str, equivalence: Equivalence | None) -> None:
    one, other = "    if isinstance(a, int):\n        return 1\n", "    if isinstance(a, str):\n        return 2\n"
    before, after = (f"{names}def f(a):\n{first}{second}" for first, second in ((one, other), (other, one)))
    assert equivalence_of_change("a.py", before.encode(), after.encode()) is equivalence


ORDERED, EXCHANGED = "self.a = x\n        self.b = y", "self.b = y\n        self.a = x"


@pytest.mark.parametrize(
    ("text", "old", "new"),
    [
        # Values of objects that change.
        ("def f(xs: list):\n    e = not xs\n    xs.append(1)\n    return e\n", "e = not xs\n    xs.append(1)", "xs.append(1)\n    e = not xs"),
        ("def f(a: list, b: list):\n    return a if a > b else b\n", ">", ">="),
        # Truth values that may fail, or do something.
        ("def f(x):\n    if x:\n        pass\n    return 1\n", "    if x:\n        pass\n", ""),
        ("def f(x):\n    return 1 if x else 1\n", " if x else 1", ""),
        # What is evaluated, and when.
        ("def f(x):\n    return sorted(list(x), key=make())\n", "list(x)", "x"),
        ("def f(g):\n    g().x: int\n", "g().x: int", "pass"),
        (
            "class A:\n    def a(self, x=next(n)): pass\n    def b(self, x=next(n)): pass\n",
            "    def a(self, x=next(n)): pass\n    def b(self, x=next(n)): pass\n",
            "    def b(self, x=next(n)): pass\n    def a(self, x=next(n)): pass\n",
        ),
        # What unreached code decides: scopes of names, and whether a function is a generator.
        ("def f():\n    x = 5\n", "    x = 5", "    if False:\n        global x\n    x = 5"),
        ("def f(y):\n    return x, [x for x in y]\n", "    return", "    if False:\n        x = 1\n    return"),
        ("def f():\n    return x\n", "return", "if False:\n        lambda y=(x := 1): y\n    return"),
        ("def f():\n    return 1\n", "return 1", "return 1\n    def g(x=(yield)): pass"),
        # Names that may have no value when they are read.
        ("def f(x):\n    v = 1\n    t = (x, v)\n", "v = 1\n    t = (x, v)", "t = (x, v)\n    v = 1"),
        ("def f(g):\n    if g():\n        v = 1\n    t = v\n", "    t = v\n", ""),
        ("def f(g):\n    for v in g:\n        pass\n    t = v\n", "    t = v\n", ""),
        ("def f(g):\n    while g():\n        v = 1\n    t = v\n", "    t = v\n", ""),
        ("def f(g):\n    with g:\n        v = 1\n    t = v\n", "    t = v\n", ""),
        ("def f(g):\n    try:\n        v = g()\n    except ValueError:\n        pass\n    t = v\n", "    t = v\n", ""),
        ("def f(g):\n    try:\n        v = g()\n    finally:\n        t = v\n", "        t = v\n", "        pass\n"),
        ("def f(g):\n    match g:\n        case [v]:\n            pass\n    v = t = v\n", "    v = t = v\n", ""),
        ("def f(g):\n    if g():\n        v = 1\n    v += 1\n", "    v += 1\n", ""),
        ("def f(y):\n    if 1 > y:\n        x = 2\n    if 1 > y > x:\n        x = 3\n    return x\n", "if 1 > y > x:\n        x = 3", "x = 3 if 1 > y > x else x"),
        ("def f(g):\n    if g():\n        x = []\n    if not x:\n        return []\n    return []\n", "    if not x:\n        return []\n", ""),
        # Names that something else reads.
        ("def f():\n    'a'\n", "'a'", "__doc__ = 'a'"),
        ("def f():\n    __tracebackhide__ = True\n", "__tracebackhide__ = True", "pass"),
        ("def f(table):\n    a = 5\n    return table.query('x > @a')\n", "    a = 5\n", ""),
        ("def f():\n    a = []\n    return sql('SELECT * FROM a')\n", "    a = []\n", ""),
        ("class A(B):\n    def f(this, x):\n        this = x\n        super().f()\n", "this = x", "pass"),
        ("class A:\n    def f(self):\n        _A__x = 1\n        return __x\n", "_A__x = 1", "pass"),
        # From Python 3.12 on; before, the file has no proof because it cannot be parsed.
        ("def f():\n    x = 1\n    type A = list[x]\n    x = 2\n    return A\n", "    x = 2\n", ""),
        # Names that do not mean what they seem to.
        ("from db import Collection\ndef f(x: Collection):\n    if not x:\n        return []\n    return [y for y in x]\n", "    if not x:\n        return []\n", ""),
        ("import io\ndef f(io):\n    x = io.StringIO()\n", "x = io.StringIO()", "pass"),
        ("from collections import deque\nfrom own import deque\ndef f():\n    x = deque()\n", "x = deque()", "pass"),
        ("from collections import deque\ndef f():\n    x = deque()\n", "x =", "deque = 1\n    x ="),
        ("# coding: latin-1\ndef f():\n    return 'Ã©'\n", "Ã©", "Ã\x83Â©"),
        # Objects that are not plain ones of the class, and attributes that control how they are set.
        (f"class A:\n    def f(self, x, y):\n        self = g(self)\n        {ORDERED}\n", ORDERED, EXCHANGED),
        (f"class A:\n    @staticmethod\n    def f(self, x, y):\n        {ORDERED}\n", ORDERED, EXCHANGED),
        (f"class A:\n    if c:\n        a = D()\n    def f(self, x, y):\n        {ORDERED}\n", ORDERED, EXCHANGED),
        (f"class A:\n    (a := D())\n    def f(self, x, y):\n        {ORDERED}\n", ORDERED, EXCHANGED),
        (f"class A:\n    def f(self, x, y):\n        {ORDERED}\nA.a = D()\n", ORDERED, EXCHANGED),
        ("from b import Base\nclass X:\n class Base: pass\nclass Y:\n class A(Base):\n  def f(self, x, y):\n   self.a = x\n   self.b = y\n", "self.a = x\n   self.b = y", "self.b = y\n   self.a = x"),
        (f"from b import dataclass\n@dataclass\nclass A:\n    def f(self, x, y):\n        {ORDERED}\n", ORDERED, EXCHANGED),
        ("class A:\n    def f(self, x, y):\n        self.__class__ = x\n        self.b = y\n", "self.__class__ = x\n        self.b = y", "self.b = y\n        self.__class__ = x"),
        # Exceptions and their messages.
        ("def f(x):\n    try:\n        x()\n    except* (Exception, ExceptionGroup):\n        pass\n", "(Exception, ExceptionGroup)", "Exception"),
        ("def f(x: float, y: int):\n    return x & y\n", "x & y", "y & x"),
        # Code that is too deep to compare.
        (f"def f(x):\n    return {'+'.join(['x'] * 2000)}\n", "return", "return 1 +"),
    ],
)  # fmt: skip
def test_what_only_seems_to_be_equivalent(text: str, old: str, new: str) -> None:
    after = text.replace(old, new)
    assert after != text
    assert proof_of("a.py", text.encode(), after.encode()) is None


@pytest.mark.parametrize(
    ("text", "old", "new", "proof"),
    [
        ("def f(x):\n    return sorted(list(x), key=len)\n", "list(x)", "x", P.COPY),
        ("def f(x: int):\n    if x:\n        pass\n    return 1\n", "    if x:\n        pass\n", "", P.SAME_CODE),
        ("def f(xs: list):\n    if not xs:\n        pass\n", "    if not xs:\n        pass\n", "    pass\n", P.SAME_CODE),
        ("def f():\n    x: int\n    return 1\n", "    x: int\n", "", P.SAME_CODE),
        ("def f(g):\n    'a'\n    p = []\n    o = g()\n    return o, p\n", "p = []\n    o = g()", "o = g()\n    p = []", P.ORDER),
        ("def f(g):\n    if g:\n        v = 1\n    else:\n        v = g()\n    t = v\n    return v\n", "    t = v\n", "", P.DEAD_STORE),
        ("def f(g):\n    if g:\n        v = 1\n    else:\n        return g()\n    t = v\n", "    t = v\n", "", P.DEAD_STORE),
        ("def f(g):\n    try:\n        v = g()\n    except ValueError:\n        v = 1\n    t = v\n", "    t = v\n", "", P.DEAD_STORE),
        ("def f(g):\n    try:\n        g()\n    finally:\n        v = 1\n    t = v\n", "    t = v\n", "", P.DEAD_STORE),
        ("def f(g):\n    for v in g:\n        t = v\n", "        t = v\n", "        pass\n", P.DEAD_STORE),
        ("def f(g):\n    import v\n    t = v\n    v = 1\n", "    t = v\n", "", P.DEAD_STORE),
        ("import typing as t\ndef f(x: t.List[int]):\n    if not x:\n        return []\n    return [y for y in x]\n", "    if not x:\n        return []\n", "", P.EARLY_RETURN),
        ("from collections.abc import Sequence as S\ndef f(x: S):\n    if not x:\n        return []\n    return [y for y in x]\n", "    if not x:\n        return []\n", "", P.EARLY_RETURN),
        ("import collections.abc\nimport collections\ndef f():\n    x = collections.deque()\n", "x = collections.deque()", "pass", P.DEAD_STORE),
        (f"from dataclasses import dataclass\n@dataclass\nclass A:\n    a: int\n    def f(self, x, y):\n        {ORDERED}\n", ORDERED, EXCHANGED, P.ORDER),
    ],
)  # fmt: skip
def test_what_is_equivalent_all_the_same(text: str, old: str, new: str, proof: EquivalenceProof) -> None:
    assert proof_of("a.py", text.encode(), text.replace(old, new).encode()) is proof


def test_a_literal_of_another_type_at_the_bound_is_visible() -> None:
    def found(annotation: str, bound: str) -> Equivalence | None:
        text = f"def f(a{annotation}):\n    return {bound} if a > {bound} else a\n"
        return equivalence_of_change("a.py", text.encode(), text.replace(">", ">=").encode())

    assert found(": int", "3") is P.BOUND
    assert found(": float", "3") is None
    assert found(": str", "3") is None
    assert found("", "3") is EquivalenceSign.LIMIT
    assert found("", "0.0") is None


def test_files_that_are_no_python_have_no_proof() -> None:
    assert proof_of("a.py", b"def f(:\n", b"def f():\n") is None
    assert proof_of("a.py", b"def f(): pass\n", b"def f(:\n") is None
    assert proof_of("a.py", b"def f(): pass\n", None) is None
    assert proof_of("a.py", b"# \xff\n", b"# \xfe\n") is None
    assert proof_of("a.txt", b"def f(): pass\n", b"def f(): return\n") is None
    assert proof_of("a.py", b"def f(): pass\n", b"def f(): return\n") is P.SAME_CODE


def test_a_change_of_several_files_has_a_proof_only_if_all_have_one() -> None:
    plain = ("a.py", b"def f(): pass\n", b"def f(): return\n")
    logged = ("b.py", b"def f():\n    log.debug('a')\n", b"def f():\n    log.debug('b')\n")
    other = ("c.py", b"def f(): return 1\n", b"def f(): return 2\n")
    assert common_equivalence([plain, plain]) is P.SAME_CODE
    assert common_equivalence([plain, logged]) is EquivalenceSign.LOGGING
    assert common_equivalence([plain, other]) is None
    assert common_equivalence([]) is None


# Generated functions: both codes are run, and have to give the same.

_NUMBERS = st.sampled_from(["a", "b", "n", "0", "1", "3", "len(xs)", "a + 1", "n + b", "len(xs) * 2"])
_ANY = st.one_of(
    _NUMBERS,
    st.sampled_from(["u", "s", "xs", "t", "[]", "u + 1", "s + 'x'", "xs[0]", "sorted(list(xs))", "call(u)", "(a, t)"]),
    st.sampled_from(["not xs", "1 if u else 1", "sorted(list(xs), key=call(u))"]),
)
_TESTS = st.sampled_from(
    [
        *("a > b", "n >= 3", "a < 3", "u is None", "isinstance(u, str)", "isinstance(u, (int, float))", "not xs"),
        *("isinstance(u, list)", "u == 'a'", "u == 1", "u in ('b', 'c')", "s", "not s", "a == 1", "len(xs) == 0", "u"),
    ]
)


@st.composite
def _block(draw: st.DrawFn, depth: int = 2, *, in_loop: bool = False) -> list[str]:
    kinds = ["n", "t", "n+", "call", "return", "copy", "append", *(["break"] if in_loop else [])]
    kinds += ["if", "if", "ifelse", "for", "try", "bound", "early"] if depth else []
    lines: list[str] = []
    for kind in draw(st.lists(st.sampled_from(kinds), min_size=1, max_size=5)):
        inside = _block(depth - 1, in_loop=in_loop)
        if kind == "n":
            lines.append(f"n = {draw(_NUMBERS)}")
        elif kind == "n+":
            lines.append(f"n {draw(st.sampled_from(['+', '-', '*']))}= {draw(_NUMBERS)}")
        elif kind == "t":
            lines.append(f"t = {draw(_ANY)}")
        elif kind == "copy":
            lines.append(f"v = {draw(_ANY)}")
        elif kind == "append":
            lines.append(draw(st.sampled_from(["xs.append(n)", "xs.clear()"])))
        elif kind == "call":
            lines.append(f"call({draw(_ANY)})")
        elif kind == "return":
            lines.append(f"return {draw(_ANY)}")
        elif kind == "break":
            lines.append(draw(st.sampled_from(["break", "continue"])))
        elif kind == "bound":
            one, other = draw(st.permutations(["a", "b", "n", "3"]))[:2]
            sign = draw(st.sampled_from(["<", "<=", ">", ">="]))
            chosen, rest = draw(st.permutations([one, other]))
            lines += draw(
                st.sampled_from(
                    [
                        [f"t = {chosen} if {one} {sign} {other} else {rest}"],
                        [f"if {one} {sign} {other}:", f"    return {chosen}", f"return {rest}"],
                        [f"if n {sign} {one}:", f"    n = {one}"],
                    ]
                )
            )
        elif kind == "early":
            lines += ["if not xs:", f"    return {draw(st.sampled_from(['[]', '0', 'xs', 'n']))}"]
            loop = ["r = []", "for x in xs:", "    r.append(call(x))", "return r"]
            lines += draw(st.sampled_from([loop, ["return [x for x in xs]"], ["return sum(xs)"]]))
        elif kind in ("if", "ifelse"):
            lines += [f"if {draw(_TESTS)}:", *_indented(draw(inside))]
            if kind == "ifelse":
                lines += [draw(st.sampled_from(["else:", f"elif {draw(_TESTS)}:"])), *_indented(draw(inside))]
        elif kind == "for":
            lines += ["for i in range(3):", *_indented(draw(_block(depth - 1, in_loop=True)))]
        elif kind == "try":
            caught = draw(
                st.sampled_from(["TypeError", "(ValueError, TypeError, UnicodeError)", "(IndexError, KeyError)"])
            )
            lines += ["try:", *_indented(draw(inside)), f"except {caught}:", *_indented(draw(inside))]
    return lines


def _indented(lines: list[str]) -> list[str]:
    return [f"    {line}" for line in lines]


_HEAD = "def f(a: int, b: int, xs: list[int], s: str, u, call):"
_START = ["n = 0", "t = None", "v = 1"]
_MOST_CHANGES = 30


class NoTruth:
    """An object without a truth value, as an array."""

    def __bool__(self) -> bool:
        raise ValueError

    def __repr__(self) -> str:
        return "no truth"


_INPUTS: list[tuple[Any, ...]] = [
    (a, b, xs, s, u)
    for a, b in ((0, 0), (1, 3), (3, 1), (3, 3), (-2, 4))
    for xs in ([], [1], [3, 2])
    for s, u in (("", None), ("a", "a"), ("b", 1), ("", [2]), ("c", 1.0), ("x", "c"), ("", NoTruth()))
]


def _behaviours(code: bytes) -> list[tuple[object, ...]]:
    """Return what a function does with all inputs."""
    space: dict[str, Any] = {}
    exec(compile(code, "<generated>", "exec"), space)
    return [_behaviour(space["f"], inputs) for inputs in _INPUTS]


def _behaviour(function: Callable[..., object], inputs: tuple[Any, ...]) -> tuple[object, ...]:
    """Return the result of a function, the calls that it makes, and what becomes of its arguments."""
    calls: list[str] = []
    a, b, xs, s, u = inputs
    arguments = (a, b, list(xs), s, list(u) if isinstance(u, list) else u)

    def call(value: object) -> object:
        calls.append(repr(value))
        if len(calls) > 3:
            raise TypeError(value)
        return value

    try:
        result = repr(function(*arguments, call))
    except Exception as error:
        result = type(error).__name__
    return result, calls, repr(arguments)


@pytest.mark.long
@given(_block(), st.randoms(use_true_random=False))
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
def test_proven_changes_of_generated_functions_do_the_same(lines: list[str], random: Random) -> None:
    before = "\n".join([_HEAD, *_indented([*_START, *lines]), ""]).encode()
    source = parse("a.py", before)
    assert source is not None
    (scope,) = scopes(source)
    changes = list(changes_of(source, scope, random))
    expected = None
    for _, edits in random.sample(changes, min(len(changes), _MOST_CHANGES)):
        after = splice(before, edits)
        if proof_of("a.py", before, after) is not None:
            expected = expected or _behaviours(before)
            assert _behaviours(after) == expected, after.decode()
