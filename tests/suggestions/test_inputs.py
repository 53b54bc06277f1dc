"""Test how calls are written, varied, and rendered as tests."""

from __future__ import annotations

import ast
import datetime
import math
from collections import defaultdict, namedtuple
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from http import HTTPStatus

import pytest

from pytest_ssr.campaign.suggested_tests import suggestion_lines
from pytest_ssr.execution.guest import call_literals
from pytest_ssr.records.suggested_test import NoSuggestion, SuggestedTest
from pytest_ssr.suggestions.calls import Argument, Call, arguments_source, is_dotted_name
from pytest_ssr.suggestions.functions import FunctionKind, constants_in, function_at, functions_of, raises_at
from pytest_ssr.suggestions.literals import differ, imports_of, parse_literal, source_of
from pytest_ssr.suggestions.nearby_values import values_near
from pytest_ssr.suggestions.outcomes import CallOutcome, OutcomeKind, is_noticed
from pytest_ssr.suggestions.skeleton import change_text, skeleton
from pytest_ssr.suggestions.variation import varied

SOURCE = b"""\
def scale(a, b=2, *, up=False):
    if a > 17:
        raise ValueError(
            "large"
        )
    return a * b


class Box:
    def __init__(self, size=3):
        self.size = size

    @property
    def area(self):
        return self.size ** 2

    @staticmethod
    def of(*sides, **names):
        return sides

    def __contains__(self, item):
        def inner():
            return item
        return inner() < self.size
"""
SCALE, INIT, AREA, OF, CONTAINS = functions_of("box.py", SOURCE)


def arguments(**values: object) -> tuple[Argument, ...]:
    """Return arguments without a star."""
    return tuple(Argument(name, "", value) for name, value in values.items())


def scale(a: object, b: object = 2, up: object = False) -> Call:
    """Return a call of `scale`."""
    given = (*arguments(a=a, b=b), Argument("up", "k", up))
    return Call(SCALE, "box", "", (), given, {})


@pytest.mark.parametrize(
    "value",
    [None, True, -3, 2.5, "a'b", 'a"b', "é\u202e", b"\x00'", [], (1,), {"a": [1]}, {3, 1}, set(), ({"x": None},)],
)
def test_literals_survive_the_way_from_the_sandbox_to_the_test(value: object) -> None:
    text = call_literals.literal(value)
    assert parse_literal(text) == (value,)
    written = source_of(value)
    assert ast.literal_eval(written) == value
    assert "\u202e" not in written
    assert not imports_of(value)


_TIME = datetime.datetime(2024, 2, 29, 1, 2, tzinfo=datetime.timezone(datetime.timedelta(hours=1), "CET"))


@pytest.mark.parametrize(
    "value",
    [
        datetime.date(2024, 1, 2),
        _TIME,
        _TIME.replace(tzinfo=datetime.timezone.utc),  # noqa: UP017 # as it is written
        datetime.time(1, 2, 3, 4),
        datetime.timedelta(days=-1, microseconds=3),
        Decimal("-1.50"),
        Fraction(2, 3),
        {Decimal("1E+3"): [(datetime.date(1, 1, 1),)]},
    ],
)
def test_values_of_the_standard_library_survive_it_too(value: object) -> None:
    assert parse_literal(call_literals.literal(value)) == (value,)
    names: dict[str, object] = {}
    exec("\n".join(imports_of(value)), names)
    assert eval(source_of(value), names) == value
    near = [v for v in values_near(value, [7]) if v != value]
    assert near
    assert {type(v) for v in near} == {type(value)}
    for other in near:
        assert eval(source_of(other), names) == other


def test_results_are_written_as_the_built_in_value_that_they_equal() -> None:
    point = namedtuple("point", "x y")(_Same("a"), [HTTPStatus.OK])
    assert call_literals.equal_literal(point) == "('a', [200])"
    assert call_literals.literal(point) is None
    assert call_literals.equal_literal(_Text("a")) is None
    assert call_literals.equal_literal(True) == "True"
    assert call_literals.equal_literal(defaultdict(int, a=1)) == "{'a': 1}"


class _Same(str):
    """Compares as a string does."""


class _Text(str):
    """Lies about its content."""

    def __repr__(self) -> str:
        return "'other'"

    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = str.__hash__


class _Zone(datetime.tzinfo):
    """A time zone of a project."""


@pytest.mark.parametrize(
    "value",
    [
        _Text("a"),
        math.inf,
        math.nan,
        object,
        [object()],
        "x" * 601,
        10**2000,
        [[[[[[[[1]]]]]]]],
        Decimal("NaN"),
        Decimal("1e999"),
        datetime.time(1, tzinfo=_Zone()),
    ],
)
def test_other_values_are_no_literals(value: object) -> None:
    assert call_literals.literal(value) is None


@pytest.mark.parametrize(
    "text",
    [
        "f()",
        "1" * 700,
        "(" * 300,
        "1e999",
        None,
        3,
        "frozenset()",
        "...",
        "1j",
        "a",
        "Decimal('1e999')",
        "Fraction('1e9999999')",
        "Fraction(1, 0)",
        "datetime.date(0, 1, 1)",
        "datetime.date.today()",
        "datetime.date(*[1])",
        "{**{}}",
    ],
)
def test_forged_literals_are_not_believed(text: object) -> None:
    assert parse_literal(text) is None


def test_functions_are_found_with_the_way_they_are_called() -> None:
    kinds = [
        FunctionKind.FUNCTION,
        FunctionKind.INIT,
        FunctionKind.PROPERTY,
        FunctionKind.STATIC,
        FunctionKind.METHOD,
    ]
    assert [f.kind for f in (SCALE, INIT, AREA, OF, CONTAINS)] == kinds
    assert SCALE.defaults == {"b": 2, "up": False}
    inner = SOURCE[: SOURCE.index(b"return item")].count(b"\n") + 1
    assert function_at("box.py", SOURCE, inner) == CONTAINS
    assert function_at("box.py", SOURCE, 9) is None
    assert [line for line in range(1, 30) if raises_at(SOURCE, line)] == [3, 4, 5]
    assert constants_in(SOURCE, [2], SCALE) == [17, False, 2, "large"]
    assert functions_of("bad.py", b"def (") == ()
    assert not function_at("_box.py", SOURCE, 1) or not functions_of("_box.py", SOURCE)[0].is_public


def test_a_call_is_written_without_defaults() -> None:
    assert scale(1).expression == "scale(1)"
    assert scale(1, 3, True).expression == "scale(1, b=3, up=True)"
    # A value that equals the default but has another type is another value.
    assert scale(1, 2.0).expression == "scale(1, b=2.0)"
    defaults = INIT.defaults
    assert Call(AREA, "box", "Box", arguments(size=3), (), defaults).expression == "Box().area"
    assert Call(INIT, "box", "Box", arguments(size=4), (), defaults).expression == "Box(size=4)"
    contains = Call(CONTAINS, "box", "Box", arguments(size=4), arguments(item="a"), defaults)
    assert contains.expression == '"a" in Box(size=4)'
    stars = (Argument("sides", "*", (1, 2)), Argument("names", "**", {"left": 3}))
    assert Call(OF, "shapes.box", "Box", (), stars, {}).expression == "Box.of(1, 2, left=3)"
    assert Call(OF, "shapes.box", "Box", (), stars, {}).imports == {"from shapes.box import Box"}


@pytest.mark.parametrize("text", ["", "a b", "a;b", "a.", "import", "a.class", "a\nb", None, "x" * 201])
def test_only_names_are_imported(text: object) -> None:
    assert not is_dotted_name(text)
    assert is_dotted_name("a.b_1")


def test_variations_start_with_what_tests_use_and_include_boundaries() -> None:
    calls = varied([scale(5), scale(6, 4)], [17], most=200, seed=1)
    texts = [call.expression for call in calls]
    assert texts[:2] == ["scale(5)", "scale(6, b=4)"]
    assert len(set(texts)) == len(texts) > 100
    assert {"scale(17)", "scale(18)", "scale(16)", "scale(5, up=True)", "scale(5, b=4)", "scale(4, b=6)"} <= set(texts)
    assert [call.steps for call in calls][:3] == [0, 0, 1]
    assert texts == [call.expression for call in varied([scale(5), scale(6, 4)], [17], most=200, seed=1)]
    assert texts != [call.expression for call in varied([scale(5), scale(6, 4)], [17], most=200, seed=2)]
    assert len(varied([scale(5)], [], most=7, seed=0)) == 7
    # None is used only where a test uses it.
    assert not any("None" in text for text in texts)
    assert any("b=None" in call.expression for call in varied([scale(5), scale(6, None)], [], most=60, seed=0))


def test_values_near_have_the_same_type() -> None:
    for value in (True, 3, 2.5, "Ab c", b"ab", [1, "x"], (1, 2), {3, 4}, {"a": 1, "b": "c"}):
        near = list(values_near(value, [7, "-", b"z"]))
        assert near
        assert {type(v) for v in near} == {type(value)}
    assert "" in values_near("a")
    assert {"-", "a-", "-a"} <= set(values_near("a", ["-"]))
    # Numbers in a text, its parts, and a limit of its length.
    assert {"9.0 m:s", "1.5 m", "s", "1.5 ms", "1.5 m::s"} <= set(values_near("1.5 m:s", [9]))
    assert {"ababababa", "ababababab"} <= set(values_near("ab", [9]))


def test_values_of_two_parameters_are_combined_across_calls() -> None:
    calls = [scale(n, 2 * n) for n in range(3, 12)]
    texts = [call.expression for call in varied(calls, [], most=300, seed=0)]
    assert len(texts) == 300
    assert sum(f"scale({a}, b={2 * b})" in texts for a in range(3, 11) for b in range(3, 11) if a != b) > 20


def test_a_test_demands_what_the_original_does() -> None:
    value, changed = CallOutcome(OutcomeKind.VALUE, "a"), CallOutcome(OutcomeKind.VALUE, 1)
    assert skeleton(scale("a", 1), value, changed, ["x -> y"]) == (
        'from box import scale\n\n\ndef test_scale_a_1():\n    # notices: x -> y\n    assert scale("a", b=1) == "a"\n'
    )
    true, false = CallOutcome(OutcomeKind.VALUE, True), CallOutcome(OutcomeKind.VALUE, False)
    contains = Call(CONTAINS, "box", "Box", (), arguments(item=0), {})
    endings = {
        "    assert 0 in Box()\n": (contains, true, false),
        "    assert not (0 in Box())\n": (contains, false, true),
        "    assert scale(2)\n": (scale(2), true, CallOutcome(OutcomeKind.VALUE, None)),
        # A plain assertion would also pass for 1.
        "    assert scale(1) is True\n": (scale(1), true, changed),
        "    assert scale(1) is None\n": (scale(1), CallOutcome(OutcomeKind.VALUE, None), changed),
        "    assert list(scale(1)) == [1]\n": (scale(1), CallOutcome(OutcomeKind.ITEMS, [1]), changed),
    }
    for ending, (call, expected, after) in endings.items():
        assert skeleton(call, expected, after, []).endswith(ending)
    raises = CallOutcome(OutcomeKind.RAISES, None, "box.errors", "BoxError", "box.py", 3)
    text = skeleton(scale(20), raises, value, [])
    assert text.startswith("import pytest\n\nfrom box import scale\nfrom box.errors import BoxError\n")
    assert text.endswith("    with pytest.raises(BoxError):\n        scale(20)\n")
    same = skeleton(scale(20), replace(raises, module="box"), value, [])
    assert same.startswith("import pytest\n\nfrom box import BoxError, scale\n\n\n")
    due = datetime.date(2024, 2, 29)
    day = CallOutcome(OutcomeKind.VALUE, "a day")
    assert skeleton(scale(Decimal("1.5"), due), day, changed, [], attribute="__str__") == (
        "import datetime\nfrom decimal import Decimal\n\nfrom box import scale\n\n\ndef test_scale_1_5_b():\n"
        '    assert str(scale(Decimal("1.5"), b=datetime.date(2024, 2, 29))) == "a day"\n'
    )
    long = skeleton(scale("x" * 60), CallOutcome(OutcomeKind.VALUE, "y" * 60), changed, [])
    assert max(map(len, long.splitlines())) < 90
    for source in (text, long):
        ast.parse(source)


def test_the_change_is_one_printable_line() -> None:
    diff = "--- a/x.py\n+++ b/x.py\n@@ -1 +1 @@\n-    return a\n+    return b\n"
    assert change_text(diff) == "return a -> return b"
    assert change_text("-a = 1\n-b = 2\n") == "a = 1 -> (nothing) ..."
    hostile = change_text("-x = '\x1b[2J\u202e\x85import os'\n+y\n")
    assert hostile.isprintable()


def test_results_differ_if_an_assertion_about_them_does() -> None:
    assert differ(True, 1)
    assert not differ(1, True)
    assert not differ(1, 1.0)
    one = CallOutcome(OutcomeKind.VALUE, 1)
    assert not is_noticed(one, None)
    assert not is_noticed(one, CallOutcome(OutcomeKind.OTHER))
    assert is_noticed(one, CallOutcome(OutcomeKind.RAISES, None, "builtins", "KeyError"))


def test_the_summary_shows_tests_and_counts_reasons() -> None:
    where = ("a\x1b.py", 3, "f")
    found = SuggestedTest(1, *where, test="def test():\n    f('\u202e')\n")
    others = [
        SuggestedTest(2, *where, reason=NoSuggestion.NOT_REACHED),
        SuggestedTest(3, *where, reason=NoSuggestion.LIMIT),
    ]
    lines = [line for _, line in suggestion_lines([found, *others, others[0]])]
    assert lines[0] == "suggested tests: 1 for 4 survivors; none for: not-reached 2, limit 1"
    assert "    def test():" in lines
    assert all(line.isprintable() for line in lines)
    assert list(suggestion_lines([])) == []
    assert SuggestedTest.from_json(found.to_json()) == found
    assert SuggestedTest.from_json({"index": "x"}) is None


def test_arguments_are_valid_source_in_any_order() -> None:
    given = [Argument("only_one", "k", True), Argument("args", "*", (1, 2)), Argument("more", "**", {"a": 3})]
    assert arguments_source(given, {}, frozenset()) == "1, 2, only_one=True, a=3"
