"""The figures of a leaderboard for known results."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from board_parts import board, episode, outcomes, results_only, store
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.leaderboard.board import MOST_IN_PAIRS, make_board
from harness.leaderboard.columns import outcome_text
from harness.leaderboard.page import inline_svg, page
from harness.leaderboard.plots import NARROW, plots
from harness.leaderboard.records import Entry, Results
from harness.leaderboard.settings import RankSettings
from harness.leaderboard.text_render import csv_tables, lines, markdown
from pytest_ssr.errors import SettingsError
from pytest_ssr.records.reasons import Flag, FlagCode, Reason, ReasonCode


def by_name(rows: list[dict[str, Any]], key: str = "solver") -> dict[str, dict[str, Any]]:
    return {row[key]: row for row in rows}


def test_missing_attempts_are_missing_and_never_failures(tmp_path: Path) -> None:
    letters = {f"a__b-{n}": letter for n, letter in enumerate("rrruii")}
    (row,) = board(results_only(tmp_path / "r", outcomes("m", letters))).solvers
    assert (row["attempts"], row["graded"], row["resolved"], row["missing"]) == (6, 4, 3, 2)
    assert row["resolve_rate"]["value"] == 0.75
    assert (row["bound_low"], row["bound_high"]) == (pytest.approx(3 / 6), pytest.approx(5 / 6))
    assert row["resolve_rate"]["tasks"] == 4


def test_a_solver_without_grades_has_no_rate_and_comes_last(tmp_path: Path) -> None:
    none, bad = outcomes("a-none", {"a__b-1": "i"}), outcomes("z-bad", {"a__b-1": "u"})
    result = board(results_only(tmp_path / "r", [*none, *bad]))
    assert [r["solver"] for r in result.solvers] == ["z-bad", "a-none"]
    last = result.solvers[1]
    assert last["resolve_rate"] is None
    assert last["cost_usd"] is None
    assert (last["bound_low"], last["bound_high"]) == (0, 1)
    assert result.comparisons == []
    assert any(note.startswith("attempts without a grade: 1;") for note in result.notes)


def test_means_cover_graded_attempts_and_total_cost_all(tmp_path: Path) -> None:
    results = outcomes("m", {"a__b-1": "r", "a__b-2": "u"}, cost_usd=2.0)
    results += outcomes("m", {"a__b-3": "i"}, cost_usd=5.0, steps=99)
    (row,) = board(results_only(tmp_path / "r", results)).solvers
    assert (row["cost_usd"]["value"], row["steps"]["value"]) == (2.0, 10.0)
    assert (row["total_cost_usd"], row["cost_per_resolved_usd"]) == (9.0, 9.0)
    results += outcomes("m", {"a__b-4": "r"}, unpriced=1)
    (row,) = board(results_only(tmp_path / "u", results)).solvers
    assert (row["total_cost_usd"], row["cost_per_resolved_usd"], row["unpriced_calls"]) == (9.0, None, 1)


def test_flags_and_forgeries_are_counted_and_noted(tmp_path: Path) -> None:
    restored = Flag(FlagCode.TESTS_RESTORED, ("conftest.py",))
    results = outcomes("m", {"a__b-1": "r"}, flags=(restored,))
    results += [replace(o, reason=Reason(ReasonCode.FORGED)) for o in outcomes("m", {"a__b-2": "u"})]
    unsure = tuple(Flag(code, ("t",)) for code in (FlagCode.UNCHECKED, FlagCode.LOG_DIFFERS, FlagCode.TESTS_SET_ASIDE))
    results += outcomes("m", {"a__b-3": "r"}, flags=unsure) + outcomes("n", {"a__b-3": "r"}, flags=unsure)
    result = board(results_only(tmp_path / "r", results))
    row = by_name(result.solvers)["m"]
    assert (row["flagged"], row["forged"], row["unsure"]) == (1, 1, 1)
    assert "attempts with flags of tampering: m" in result.notes, "and not n, whose grade is unsure"
    texts = [outcome_text(t["outcomes"]["m"]) for t in result.tasks]
    assert texts == ["1/1 !", "0/1 !", "1/1 ?"]
    assert "attempts with forged results: m" in result.notes
    (unsure_note,) = [note for note in result.notes if "m 1 (" in note]
    for name in "mn":
        assert f"{name} 1 (log-differs 1, tests-set-aside 1, unchecked 1)" in unsure_note
    assert result.tasks[0]["outcomes"]["m"]["attempts"][0]["flags"] == [FlagCode.TESTS_RESTORED]


def test_a_long_reason_leaves_room_for_flags_in_the_tip_of_a_cell(tmp_path: Path) -> None:
    aside = Flag(FlagCode.TESTS_SET_ASIDE, ("test_of_the_network",))
    (result,) = outcomes("m", {"a__b-1": "u"}, flags=(aside,))
    long = replace(result, reason=Reason(ReasonCode.TESTS_FAIL, "x" * 10_000))
    text = page(board(results_only(tmp_path / "r", [long])))
    assert any("test_of_the_network" in tip and len(tip) < 1000 for tip in re.findall('title="([^"]*)"', text))


@pytest.mark.parametrize(("model", "is_noted"), [("gold", True), ("golden", False), ("m", False)])
def test_reference_solutions_are_noted_as_such(model: str, is_noted: bool, tmp_path: Path) -> None:
    result = board(results_only(tmp_path / "r", outcomes(model, {"a__b-1": "r", "c__d-1": "r"})))
    assert any("reference solutions" in note for note in result.notes) is is_noted


def test_tasks_older_than_a_model_are_flagged(tmp_path: Path) -> None:
    letters = {f"a__b-{n}": letter for n, letter in enumerate("rrruu")}
    days = {"a__b-0": "2024-01-01T00:00:00Z", "a__b-1": "2024-12-31", "a__b-2": "2025-06-01", "a__b-3": "2026-01-01"}
    folder = results_only(tmp_path / "r", outcomes("m", letters) + outcomes("n", letters, seed="n"))
    result = board(folder, released={"m": "2025-06-01"}, created=days)
    row = by_name(result.solvers)["m"]["contamination"]
    assert (row["tasks_before"], row["tasks_since"], row["tasks_undated"]) == (2, 2, 1)
    assert (row["before"]["value"], row["since"]["value"]) == (1.0, 0.5)
    assert by_name(result.solvers)["n"]["contamination"] is None
    flags = [t["outcomes"]["m"]["contaminated"] for t in result.tasks]
    assert flags == [True, True, False, False, False]
    assert not any(t["outcomes"]["n"]["contaminated"] for t in result.tasks)
    assert board(folder, released={"m": "2025-06-01"}).solvers[0]["contamination"] is None, "no task has a day"
    with pytest.raises(SettingsError, match="--released names x, which is not a solver of these runs; they have: m, n"):
        board(folder, released={"x": "2025-06-01"})
    with pytest.raises(SettingsError, match="--released m=soon is not a day"):
        board(folder, released={"m": "soon"})


def test_every_format_contains_every_attempt(tmp_path: Path) -> None:
    letters = {f"a__b-{n}": "ru" for n in range(3)} | {"a__b-9": "i"}
    result = board(results_only(tmp_path / "r", outcomes("m", letters)))
    assert sum(len(t["outcomes"]["m"]["attempts"]) for t in result.to_json()["tasks"]) == 7
    assert csv_tables(result.to_json())["tasks"].count("\r\n") == 8
    terminal = "\n".join(line for _, line in lines(result))
    for text in (terminal, markdown(result), page(result), csv_tables(result.to_json())["tasks"]):
        for task in letters:
            assert task.replace("_", "&#95;") in text or task in text


def injected() -> list[Any]:
    first = [episode(n, solvers={"s": "rrru", "t": "uuuu"}) for n in range(3)]
    second = [episode(n, strategy="removal", solvers={"s": "uuuu", "t": "uuru"}) for n in range(3, 6)]
    wrong = [episode(n, valid=False, strategy="removal") for n in range(6, 12)]
    return [*first, *second, *wrong]


def test_injectors_by_a_reference_pool(tmp_path: Path) -> None:
    result = board(store(tmp_path / "s", injected()))
    easy, hard = by_name(result.injectors, "injector")["mutation"], by_name(result.injectors, "injector")["removal"]
    assert (easy["validity"]["value"], hard["validity"]["value"]) == (1.0, pytest.approx(3 / 9))
    assert (easy["solve_rate"]["value"], hard["solve_rate"]["value"]) == (9 / 24, pytest.approx(3 / 24))
    assert hard["reward"]["value"] == pytest.approx((6 * -1 + 3 * (1 - 1.8 / 8)) / 9)
    assert -1 <= hard["reward"]["low"] < hard["reward"]["value"] < hard["reward"]["high"] <= 1
    assert easy["difficulty"]["value"] < hard["difficulty"]["value"]
    assert result.about["reference_pool"] == ["s", "t"]
    assert sum(r["ability"]["value"] for r in result.solvers) == pytest.approx(0, abs=1e-6)
    assert "reference pool (not frozen): s, t" in result.notes
    assert (easy["diversity_operators"]["value"], easy["diversity_places"]["value"]) == (0.0, 1.0)


def test_a_pool_that_is_named_or_frozen(tmp_path: Path) -> None:
    root = store(tmp_path / "s", injected())
    named = board(root, reference=("s",))
    assert by_name(named.injectors, "injector")["mutation"]["solve_rate"]["value"] == 0.75
    assert by_name(named.solvers)["s"]["ability"]["value"] == pytest.approx(0, abs=1e-9)
    frozen = board(root, frozen={"s": 1.5, "gone": 0.0})
    assert by_name(frozen.solvers)["s"]["ability"]["value"] == 1.5
    assert by_name(frozen.solvers)["s"]["ability"]["low"] is None
    assert frozen.about["frozen"] == {"s": 1.5}
    with pytest.raises(SettingsError, match="no solver of the frozen pool has attempted a bug"):
        board(root, frozen={"gone": 0.0})
    with pytest.raises(SettingsError, match="--reference names x, which is not a solver of these runs"):
        board(root, reference=("x",))


def test_injectors_without_attempts_at_their_bugs(tmp_path: Path) -> None:
    result = board(store(tmp_path / "s", [episode(1), episode(2, valid=False)]))
    (row,) = result.injectors
    assert row["solve_rate"] is None
    assert row["difficulty"] is None
    assert "reference pool (not frozen): empty: no solver attempted a bug" in result.notes
    for text in (page(result), markdown(result)):
        assert "mutation" in text
    assert list(lines(result))


def test_many_solvers_are_compared_only_with_neighbours_and_the_first(tmp_path: Path) -> None:
    count = MOST_IN_PAIRS + 3
    results = [o for n in range(count) for o in outcomes(f"m{n:02d}", {"a__b-1": "r", "a__b-2": "ru"[n % 2]})]
    result = board(results_only(tmp_path / "r", results))
    assert len(result.comparisons) == (count - 1) + (count - 2)


def test_invalid_settings_are_rejected() -> None:
    with pytest.raises(SettingsError, match="--k 0 must be at least 1"):
        RankSettings(ks=(1, 0))
    with pytest.raises(SettingsError, match="--seed must be at least 0, not -1"):
        RankSettings(seed=-1)
    with pytest.raises(SettingsError, match=r"alpha must lie in \(0, 1\)"):
        RankSettings(alpha=2.0)
    with pytest.raises(SettingsError, match="the runs contain no results"):
        make_board(Results.of([], []), RankSettings())


cells = st.tuples(
    st.sampled_from(["m", "n", "o"]),
    st.sampled_from(["a__b-1", "a__b-2", "c__d-1"]),
    st.integers(0, 3),
    st.sampled_from(["resolved", "unresolved", "infra"]),
    st.sampled_from([-1.0, 0.0, 0.25, 1e6]),
)


@settings(max_examples=25, deadline=None)
@given(st.lists(cells, min_size=1, max_size=14, unique_by=lambda c: c[:3]), st.randoms())
def test_figures_are_finite_and_independent_of_the_order_of_results(drawn: Any, shuffler: Any) -> None:
    attempts = [Entry(s, t, n, "r", f"{s}{t}{n}", t[:4], status, "", cost_usd=c) for s, t, n, status, c in drawn]
    first = make_board(Results.of([], attempts), RankSettings())
    shuffled = attempts.copy()
    shuffler.shuffle(shuffled)
    assert json.dumps(first.to_json(), allow_nan=False) == json.dumps(
        make_board(Results.of([], shuffled), RankSettings()).to_json(), allow_nan=False
    )
    for row in first.solvers:
        rate = row["resolve_rate"]
        if rate is not None:
            assert 0 <= rate["low"] <= rate["value"] + 1e-12
            assert rate["value"] <= rate["high"] + 1e-12 <= 1 + 1e-12
            assert row["bound_low"] <= rate["value"] + 1e-12
            assert rate["value"] <= row["bound_high"] + 1e-12
        for k, estimate in row["pass_at"].items():
            assert estimate is None or 0 <= estimate["low"] <= estimate["value"] + 1e-12 <= estimate["high"] + 2e-12, k
    for pair in first.comparisons:
        assert 0 < pair["probability"] < 1
        assert -1 <= pair["low"] < pair["high"] <= 1
        assert pair["repo_low"] <= pair["low"]
        assert pair["repo_high"] >= pair["high"]
    assert list(lines(first))
    assert markdown(first)
    assert csv_tables(first.to_json())


@pytest.mark.parametrize(
    ("fast", "slow", "ticks"), [(1.8, 43.0, ["2", "5", "10", "20"]), (1.0, 9e4, ["10", "100", "1k"])]
)
def test_ticks_of_a_wide_range_are_few_and_follow_the_theme(
    fast: float, slow: float, ticks: list[str], tmp_path: Path
) -> None:
    results = outcomes("fast", {"a__b-1": "r"}, cost_usd=0.0, tokens=0, seconds=fast)
    results += outcomes("slow", {"a__b-1": "r"}, cost_usd=0.0, tokens=0, seconds=slow)
    (cost,) = [plot for plot in plots(board(results_only(tmp_path / "r", results))) if plot.name == "cost"]
    texts = list(ElementTree.fromstring(inline_svg(cost, NARROW)).iter("{http://www.w3.org/2000/svg}text"))
    assert all("var(--ink)" in text.get("style", "") for text in texts)
    labels = [str(text.text).strip() for text in texts]
    horizontal = labels[: labels.index("seconds of an attempt")]
    assert set(ticks) <= set(horizontal)
    assert len(horizontal) <= 9
