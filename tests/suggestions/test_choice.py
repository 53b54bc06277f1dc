"""Test which of several inputs a test gets, and that one test is shown for all survivors it notices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest

from pytest_ssr.campaign.suggested_tests import suggestion_lines
from pytest_ssr.errors import SandboxError
from pytest_ssr.execution.test_runners import PytestRunner
from pytest_ssr.interrupts import TimeBudgetError
from pytest_ssr.records.candidate_result import CandidateResult, CandidateStatus
from pytest_ssr.records.suggested_test import NoSuggestion, SuggestedTest
from pytest_ssr.suggestions import differences as differences_module
from pytest_ssr.suggestions import suggest as suggest_module
from pytest_ssr.suggestions.calls import Argument, Call, Phrase
from pytest_ssr.suggestions.differences import Difference, differences
from pytest_ssr.suggestions.found_tests import Found, FoundCall
from pytest_ssr.suggestions.functions import functions_of
from pytest_ssr.suggestions.literals import Expression
from pytest_ssr.suggestions.oddness import oddness_of
from pytest_ssr.suggestions.outcomes import CallOutcome, OutcomeKind
from pytest_ssr.suggestions.suggest import Suggester

CODE = b"def widest(boxes):\n    return boxes\n\n\ndef _scaled(area):\n    return area\n"
WIDEST, SCALED = functions_of("src/tools/box.py", CODE)


def about(source: str) -> Phrase:
    """Return a phrase about `widest`."""
    return Phrase(WIDEST, Expression(source, frozenset(("from tools.box import widest",))))


@pytest.mark.parametrize(
    ("plain", "odd", "original"),
    [
        ("d", "", "navy"),
        ("navy1", "navyblue", "navy"),
        ("navy", " navy", "navy"),
        ("2:3", "2::3x", "1:2"),
        (".", "%s{2,}", "-"),
        ("2012-10", "10-26", "2012-10-26"),
        ("1-2", "1--2", "1.2"),
        ("b", "'", "a"),
        ("2012-10-27", "100-10-26", "2012-10-26"),
        ("é", "naïve", "à"),
        (101, 100_000, 7),
        (1987, 1, 2007),
        (-1.5, 0.30000000000000004, 1.5),
        ("navy", "yvan", "navy"),
        ([1, 2], [1, ""], [1]),
        ([1, 2, 4], [1, 2, 0], [1, 2, 3]),
    ],
)
def test_a_plain_value_comes_before_an_odd_one(plain: object, odd: object, original: object) -> None:
    assert oddness_of(plain, original) <= 0
    if not (isinstance(original, str) and not original.isascii()):
        assert oddness_of(odd, original) > 0


def call(a: object, *, steps: int = 0, oddness: int = 0, private: bool = False) -> Call:
    """Return a call of a function."""
    function = SCALED if private else WIDEST
    return Call(function, "tools.box", "", (), (Argument("a", "", a),), {}, steps, oddness)


def test_the_plainest_public_call_with_a_value_is_the_best() -> None:
    value, raises = CallOutcome(OutcomeKind.VALUE, 1), CallOutcome(OutcomeKind.RAISES, None, "builtins", "ValueError")
    empty = CallOutcome(OutcomeKind.VALUE, "")
    ordered = [
        Difference(call(30000, steps=2), value, value, "", 1),
        Difference(call("odd", steps=1, oddness=1), value, value, "", 0),
        Difference(call(1), empty, value, "", 0),
        Difference(call(1), raises, value, "", 0),
        Difference(call(1, private=True), value, value, "", 0),
    ]
    assert sorted([*ordered[2:], *ordered[:2]], key=lambda d: d.order) == ordered
    assert about("widest(tools._box.x)").is_private
    assert not about("widest(x.__len__)").is_private


def test_only_recorded_calls_of_private_functions_are_suggested(monkeypatch: pytest.MonkeyPatch) -> None:
    original, changed = object(), object()

    def evaluated(runner: object, state: object, calls: Sequence[Call], **options: object) -> object:
        value = CallOutcome(OutcomeKind.VALUE, int(state is original))
        return {(index, ""): value for index in range(len(calls))}

    monkeypatch.setattr(differences_module, "evaluate", evaluated)
    search: Callable[..., Any] = differences
    runner: Any = SimpleNamespace(original=original)
    calls = [call(n, steps=n % 2, private=n < 2) for n in range(3)]
    found = search(runner, [(0, c) for c in calls], changed, {})
    assert [d.call for d in found] == [calls[2], calls[0]]
    assert search(runner, [(0, calls[1])], changed, {}) is NoSuggestion.ODD_INPUTS
    special = Phrase(WIDEST, Expression("Box(1).__hash__()"))
    assert search(runner, [(0, special)], changed, {}) is NoSuggestion.ODD_INPUTS


def test_a_test_that_notices_several_survivors_is_shown_once() -> None:
    def suggested(index: int, change: str, same_as: int | None = None) -> SuggestedTest:
        source = f"def test():\n    # notices: {change}\n    assert f()\n"
        return SuggestedTest(index, "a.py", index, "f", source, change=change, same_as=same_as)

    found = [suggested(3, "a -> b"), suggested(5, "c -> d"), suggested(8, "e -> f", 3)]
    lines = [
        line for _, line in suggestion_lines([*found, SuggestedTest(9, "a.py", 9, "g", reason=NoSuggestion.LIMIT)])
    ]
    assert lines[0] == "suggested tests: 2 notice 3 of 4 survivors; none for: limit 1"
    assert lines[2:8] == [
        "  a.py:3 f",
        "  a.py:8 f",
        "    def test():",
        "        # notices: a -> b",
        "        # notices: e -> f",
        "        assert f()",
    ]
    assert SuggestedTest.from_json(found[2].to_json()) == found[2]


ONE = CallOutcome(OutcomeKind.VALUE, 1)
SURVIVOR = CandidateResult(1, CandidateStatus.SURVIVED, "mutation", "change", "box.py", 2, "f", "", "-a\n+b\n")
CHANGED: Any = SimpleNamespace(
    changes={"box.py": b""}, entry=lambda path: SimpleNamespace(data=b"def f():\n    return 2\n")
)


def found_call(index: int = 1, *, oddness: int = 0, attribute: str = "") -> FoundCall:
    """Return a test that was found."""
    return FoundCall(index, Difference(call(index, oddness=oddness), ONE, ONE, attribute, 0), "tests/test_box.py")


@pytest.fixture
def suggester() -> Any:
    """Return a suggester of a project whose tests read the attribute `size`."""
    code = b"assert widest(box).size == 2\n"
    runner: Any = SimpleNamespace(
        snapshot=SimpleNamespace(read=lambda path: code), test_runner=object.__new__(PytestRunner)
    )
    made: Any = Suggester(runner, SimpleNamespace(files=["test_box.py"]), (), seed=0)  # type: ignore[arg-type]
    made._sources = {"box.py": b"def f():\n    return 1\n"}
    return made


@pytest.mark.parametrize(
    ("oddness", "attribute", "other", "chosen"),
    [
        (0, "", 0, "call"),
        (1, "", 0, "variant"),
        (1, "", 1, "call"),
        (0, "hidden", 0, "variant"),
        (0, "size", 0, "call"),
    ],
)
def test_a_test_with_usual_inputs_that_looks_where_tests_look_is_preferred(
    oddness: int, attribute: str, other: int, chosen: str, suggester: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = found_call(oddness=oddness, attribute=attribute)
    variant = SimpleNamespace(oddness=other, attribute="")
    monkeypatch.setattr(suggester, "_call", lambda *args: found)
    monkeypatch.setattr(suggester, "_variant", lambda *args: variant)
    assert (suggester._search(SURVIVOR, CHANGED) is found) == (chosen == "call")


@pytest.mark.parametrize("error", [SandboxError("ended"), RecursionError(), TimeBudgetError()])
def test_what_was_found_is_kept_if_the_search_for_something_better_ends(
    error: BaseException, suggester: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def variant(*args: object) -> NoReturn:
        raise error

    monkeypatch.setattr(suggester, "_variant", variant)
    found = found_call(oddness=1)
    monkeypatch.setattr(suggester, "_call", lambda *args: found)
    assert suggester._search(SURVIVOR, CHANGED) is found
    monkeypatch.setattr(suggester, "_call", lambda *args: NoSuggestion.NO_DIFFERENCE)
    with pytest.raises(type(error)):
        suggester._search(SURVIVOR, CHANGED)


@pytest.mark.parametrize("error", [SandboxError("ended"), RecursionError(), TimeBudgetError()])
def test_an_odd_test_of_an_earlier_survivor_is_kept_if_the_search_ends(
    error: BaseException, suggester: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def search(*args: object) -> NoReturn:
        raise error

    monkeypatch.setattr(suggester, "_search", search)
    monkeypatch.setattr(suggester, "_known", lambda changed: found_call(0, oddness=1))
    assert suggester.suggest(SURVIVOR, CHANGED).same_as == 0
    monkeypatch.setattr(suggester, "_known", lambda changed: None)
    if isinstance(error, TimeBudgetError):
        with pytest.raises(TimeBudgetError):
            suggester.suggest(SURVIVOR, CHANGED)
    else:
        assert suggester.suggest(SURVIVOR, CHANGED).reason is NoSuggestion.LIMIT


def test_usual_calls_are_verified_first(suggester: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    ordered = [found_call(n, attribute=a).difference for n, a in enumerate(["hidden", "hidden", "hidden", "size", ""])]
    monkeypatch.setattr(suggester, "_tests_of", lambda *args: ["tests/test_box.py::test"])
    monkeypatch.setattr(suggester, "_recorded_calls", lambda *args: SimpleNamespace(calls={}))
    monkeypatch.setattr(suggester, "_calls", lambda *args: [(0, call(1))])
    monkeypatch.setattr(suggester, "_phrases", lambda *args: [])
    monkeypatch.setattr(suggest_module, "differences", lambda *args: ordered)
    monkeypatch.setattr(suggester, "_verified", lambda candidates, changed: list(candidates))
    tried = suggester._call(SURVIVOR, WIDEST, [], CHANGED)
    assert [found.difference for found in tried] == [ordered[3], ordered[4], ordered[0]]


@pytest.mark.parametrize(
    ("searched", "chosen"),
    [(found_call(1), 1), (found_call(1, oddness=1), 0), (NoSuggestion.NO_DIFFERENCE, 0)],
    ids=["usual", "as-odd", "none"],
)
def test_an_odd_test_of_an_earlier_survivor_is_taken_only_if_there_is_no_better_one(
    searched: FoundCall | NoSuggestion, chosen: int, suggester: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(suggester, "_known", lambda changed: found_call(0, oddness=1))
    monkeypatch.setattr(suggester, "_search", lambda result, changed: searched)
    suggested = suggester.suggest(SURVIVOR, CHANGED)
    assert f"widest({chosen})" in suggested.test
    assert suggested.oddness == 1 - chosen
    assert suggested.same_as == (0 if chosen == 0 else None)


@pytest.mark.parametrize(
    ("original", "changed", "same_items"),
    [
        ((1, 2), [1, 2], True),
        ((1, 2), [2, 1], False),
        (set(), (), True),
        ({1, 2}, [2, 1], True),
        ([1], [1], False),
        ([[1]], {(1,)}, False),
        ([1, 1], {1, 2}, False),
        ({1, 2}, [1, 1], False),
    ],
)
def test_other_containers_of_the_same_items_are_odd(original: object, changed: object, same_items: bool) -> None:
    first, second = (CallOutcome(OutcomeKind.VALUE, value) for value in (original, changed))
    assert Difference(call(1), first, second, "", 0).oddness == same_items


def test_an_earlier_test_that_notices_a_survivor_is_its_test(monkeypatch: pytest.MonkeyPatch) -> None:
    one = CallOutcome(OutcomeKind.VALUE, 1)
    noticing = {2: {(1, ""): CallOutcome(OutcomeKind.VALUE, 2)}, 3: {(0, ""): one, (1, ""): one}}
    runner: Any = SimpleNamespace(snapshot=SimpleNamespace(read=lambda path: CODE))
    suggester: Any = Suggester(runner, SimpleNamespace(), (), seed=0)  # type: ignore[arg-type] # no run is made

    def search(result: CandidateResult, changed: object) -> Found:
        return FoundCall(result.index, Difference(call(result.index), one, one, "", 0), "tests")

    monkeypatch.setattr(suggester, "_search", search)
    monkeypatch.setattr(suggester, "_verification", SimpleNamespace(fails=lambda found, changed: True))
    monkeypatch.setattr(
        suggest_module, "evaluate", lambda runner, changed, calls, hash_seed: noticing.get(changed.n, {})
    )
    found = []
    for n in range(4):
        diff = f"-a{n}\n+b{n}\n"
        survivor = CandidateResult(n, CandidateStatus.SURVIVED, "mutation", "change", "box.py", 1, "f", "", diff)
        found.append(suggester.suggest(survivor, SimpleNamespace(changes={"box.py": b""}, n=n)))
    assert [s.same_as for s in found] == [None, None, 1, None]
    assert "widest(1)" in found[2].test
    assert "# notices: a2 -> b2" in found[2].test


def test_an_instance_after_a_call_that_raises_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    value, raises = CallOutcome(OutcomeKind.VALUE, 1), CallOutcome(OutcomeKind.RAISES, None, "builtins", "KeyError")
    outcomes = {"original": {(0, ".a"): value}, "changed": {(0, ""): raises}}
    monkeypatch.setattr(differences_module, "evaluate", lambda runner, state, *rest, **options: outcomes[state])
    search: Callable[..., Any] = differences
    found = search(SimpleNamespace(original="original"), [(0, about("Box().add(1)"))], "changed", {})
    assert found is NoSuggestion.NO_DIFFERENCE
