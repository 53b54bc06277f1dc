"""The lines about an audit's cards: what they show, that nothing unknown looks good, and that they fit."""

from __future__ import annotations

import pytest
from audit_cards import blunt, clean, sharpness, unaudited, unsound

from harness.audit.card import Card, Cost, Narrowness, Sealing, Sharpness, Unsound
from harness.audit.table import card_lines
from harness.audit.totals import Totals
from pytest_ssr.records.reasons import ReasonCode

HOSTILE = "\x1b[31mevil\u202e__" + "x" * 200 + "\n-7"
KINDS = {"heading", "plain", "valid", "bad", "missed"}


def row_of(card: Card) -> tuple[str, list[str]]:
    """Return the kind and the cells of a task's line, without its id."""
    (kind, line) = list(card_lines([card]))[1]
    return kind, [cell.strip() for cell in line.split("  ") if cell.strip()][1:]


def test_a_line_shows_every_figure_of_a_task() -> None:
    assert row_of(clean()) == ("valid", ["yes", "100 (89-100) 30/30", "0", "0/2", "1.2 s, 85 MiB"])
    assert row_of(blunt()) == ("bad", ["yes", "31-83 (60) 6/10+", "1", "1/2", "1.2 s, 85 MiB"])
    unsteady = row_of(unsound("a-1", Unsound.REFERENCE_FAILS, Unsound.UNSTEADY))
    assert unsteady == ("bad", ["no: reference+1", "100 (89-100) 30/30", "0", "0/2", "1.2 s, 85 MiB"])


def test_of_few_changes_the_interval_comes_first() -> None:
    assert row_of(clean(sharp=sharpness(19)))[1][1] == "83-100 (100) 19/19"
    assert row_of(clean(sharp=sharpness(20)))[1][1] == "100 (84-100) 20/20"


@pytest.mark.parametrize(
    ("values", "place", "cell"),
    [
        ({"sharp": None}, 1, "untried"),
        ({"sharp": Sharpness()}, 1, "unknown"),
        ({"sharp": sharpness(0, equivalent=3)}, 1, "unknown"),
        ({"narrow": None}, 2, "untried"),
        ({"narrow": Narrowness(is_known=False)}, 2, "unknown"),
        ({"sealed": None}, 3, "untried"),
        ({"sealed": Sealing()}, 3, "unknown"),
        ({"cost": Cost()}, 4, "unknown"),
    ],
)
def test_nothing_unknown_looks_good(values: dict[str, object], place: int, cell: str) -> None:
    kind, cells = row_of(clean(**values))
    assert cells[place] == cell
    assert kind == "valid" if "cost" in values else kind == "missed"


def test_a_task_without_an_audit_is_named_with_its_reason() -> None:
    lines = list(card_lines([unaudited("a-1", ReasonCode.INVALID_ROW), Card("b-2")]))
    assert {kind for kind, line in lines} <= {"heading", "missed"}, "nothing looks good"
    assert any(line.startswith("a-1  invalid-row: ") for _, line in lines)
    assert any(line.startswith("b-2  unknown: ") for _, line in lines)


def test_unsteady_tests_are_named_and_what_is_left_out_is_counted() -> None:
    cards = [unsound(f"a-{n}") for n in range(25)]
    lines = [line for _, line in card_lines(cards)]
    assert "unsteady tests: 25" in lines
    assert sum("tests/test_shop.py::test_now" in line for line in lines) == 20
    assert any(line.startswith("and 5 more") for line in lines)


@pytest.mark.parametrize("width", [10, 80, 100, 120, 500])
def test_lines_fit_and_are_escaped(width: int) -> None:
    cards = [clean(HOSTILE), unsound(HOSTILE, *Unsound), blunt(HOSTILE), unaudited(HOSTILE), Card(HOSTILE)]
    lines = list(card_lines(cards, width=width))
    assert {kind for kind, _ in lines} <= KINDS
    assert max(len(line) for _, line in lines) <= min(max(width, 80), 120)
    assert all(line.isprintable() for _, line in lines)


def test_totals_count_what_is_known() -> None:
    totals = Totals.of([clean(), unsound(), blunt(), unaudited(), clean("e", sharp=None, sealed=None, cost=Cost())])
    assert (totals.tasks, totals.audited, totals.sound, totals.measured, totals.cut) == (5, 4, 3, 3, 1)
    assert (totals.noticed, totals.survived, totals.not_reached, totals.counted) == (66, 3, 1, 70)
    assert (totals.proven, totals.equivalent, totals.undecided) == (2, 2, 1)
    assert (totals.read, totals.narrow, totals.names) == (4, 1, 1)
    assert (totals.attacked, totals.forgeable, totals.tried, totals.accepted) == (3, 1, 6, 1)
    assert (totals.ours_tried, totals.ours_accepted, totals.leaking) == (5, 0, 1)
    assert (totals.grade_s, totals.memory_mib, totals.audit_cpu_s) == (1.25, 85.0, 40.0), "an unmeasured task is apart"
    assert list(card_lines([])), "an audit of no tasks has totals"
