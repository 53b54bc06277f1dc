"""A leaderboard with cards shows the rates on all tasks and on those that pass, and never mixes them."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from audit_cards import clean, sharpness, unaudited, unsound, write_cards
from board_parts import board, outcomes, results_only

from harness.audit.files import choice_of
from harness.cli.main import main
from harness.leaderboard.board import Board
from harness.leaderboard.page import page

pytest.importorskip("pandas")
pytest.importorskip("scipy")
pytest.importorskip("matplotlib")

CARDS = [
    clean("a__b-1"),
    clean("a__b-2", sharp=sharpness(8, 2)),
    unsound("a__b-3"),
    unaudited("a__b-4"),
    clean("a__b-5", sharp=None),
]
TASKS = [*(card.task for card in CARDS), "a__b-6"]
LETTERS = {"m": "rurrrr", "n": "uuurri", "o": "iurruu"}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    results = [
        one for name, letters in LETTERS.items() for one in outcomes(name, dict(zip(TASKS, letters, strict=True)))
    ]
    return results_only(tmp_path / "r", results)


def audited(run: Path, least: float | None = None) -> Board:
    return board(run, choice=choice_of({card.task: card for card in CARDS}, least))


def rates(result: Board) -> dict[str, tuple[float | None, float | None]]:
    """Return the rates of each solver, on all tasks and on those that pass."""
    values = {}
    for row in result.solvers:
        both = (row["resolve_rate"], row["audit"]["passing"])
        values[row["solver"]] = tuple(None if one is None else round(one["value"], 4) for one in both)
    return values


def test_rates_on_all_tasks_and_on_those_that_pass_stand_side_by_side(run: Path) -> None:
    sound = audited(run)
    assert rates(sound) == {"m": (0.8333, 0.6667), "n": (0.4, 0.3333), "o": (0.4, 0.0)}
    assert sound.about["audit"] == {
        "min_sharpness": None,
        "passing": 3,
        "left_out": {"not-audited": 2, "not-sound": 1},
    }
    assert rates(audited(run, 0.8)) == {"m": (0.8333, 0.5), "n": (0.4, 0.0), "o": (0.4, 0.0)}
    sharp = audited(run, 0.81)
    assert rates(sharp) == {"m": (0.8333, 1.0), "n": (0.4, 0.0), "o": (0.4, None)}
    left_out = {"not-audited": 2, "not-sound": 1, "sharpness-unknown": 1, "not-sharp": 1}
    assert (sharp.about["audit"]["passing"], sharp.about["audit"]["left_out"]) == (1, left_out)
    of_o = next(row["audit"] for row in sharp.solvers if row["solver"] == "o")
    assert (of_o["tasks"], of_o["graded"], of_o["missing"]) == (1, 0, 1)


def test_the_figures_of_all_tasks_do_not_depend_on_the_audit(run: Path) -> None:
    plain, with_cards = board(run).to_json(), audited(run, 0.8).to_json()
    for name in ("comparisons", "agreement", "injectors", "runs"):
        assert plain[name] == with_cards[name]
    for row in with_cards["solvers"]:
        del row["audit"]
    for row in with_cards["tasks"]:
        del row["audit"], row["sharpness"]
    del with_cards["about"]["audit"]
    with_cards["notes"] = [note for note in with_cards["notes"] if '"passing %"' not in note]
    assert with_cards == plain


def test_every_task_has_its_reason(run: Path) -> None:
    tasks = {row["task"]: (row["audit"], row["sharpness"]) for row in audited(run, 0.81).tasks}
    assert tasks == {
        "a__b-1": ("", 1.0),
        "a__b-2": ("not-sharp", 0.8),
        "a__b-3": ("not-sound", 1.0),
        "a__b-4": ("not-audited", None),
        "a__b-5": ("sharpness-unknown", None),
        "a__b-6": ("not-audited", None),
    }


def test_the_command_shows_both_rates_everywhere(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    audit = write_cards(tmp_path / "audit" / "cards.jsonl", CARDS).parent
    options = ["--audit", str(audit), "--min-sharpness", "0.8"]
    files = ["--html", str(tmp_path / "b.html"), "--csv", str(tmp_path / "b.csv"), "--markdown", str(tmp_path / "b.md")]
    assert main(["leaderboard", str(run), *options, *files]) == 0
    lines = capsys.readouterr().out.splitlines()
    head = next(line.split() for line in lines if "passing %" in line)
    assert head.index("resolved") < head.index("passing")
    assert any(line.startswith("a__b-3  [not-sound]") for line in lines)
    data: dict[str, Any] = {}
    assert main(["leaderboard", str(run), *options, "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert [row["audit"]["passing"]["value"] for row in data["solvers"]] == [0.5, 0.0, 0.0]
    rows = list(csv.DictReader((tmp_path / "b.csv").read_text().splitlines()))
    assert [float(row["audit_passing"]) for row in rows] == [0.5, 0.0, 0.0]
    tasks = list(csv.DictReader((tmp_path / "b.tasks.csv").read_text().splitlines()))
    assert {row["audit"] for row in tasks if row["task"] == "a__b-3"} == {"not-sound"}
    assert "passing" in (tmp_path / "b.md").read_text()
    html = (tmp_path / "b.html").read_text()
    assert ">passing %<" in html
    assert 'value="passes"' in html
    assert html.count('data-is="passes') == html.count('<td class="name">passes</td>') == 2
    assert html.count('data-is="fails') == 4


def test_a_page_without_an_audit_has_nothing_of_it(run: Path) -> None:
    html = page(board(run))
    assert "passing" not in html
    assert 'value="passes"' not in html
