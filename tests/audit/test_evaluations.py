"""`ssr eval` and `ssr run` leave out tasks by their cards: which, for what reasons, and that old results still count."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from audit_cards import clean, sharpness, unaudited, unsound, write_cards
from plain import plain_python
from rows import write_project, written

from harness.audit.card import Card
from harness.cli.exit_code import ExitCode
from harness.cli.main import main

FIRST, SECOND = "acme__shop-1", "acme__shop-2"


class Rows:
    """Two rows and their clones, with one store, so that each grade is computed once."""

    def __init__(self, folder: Path) -> None:
        clones, self.rows = write_project(folder)
        self.path = written(folder / "rows.jsonl", self.rows)
        self.common = ["--repos", str(clones), "--python", str(plain_python()), "--store", str(folder / "store")]
        self.common += ["--sandbox", "process", "--no-logs"]

    def run(self, *arguments: object) -> int:
        return main([*map(str, arguments), *self.common])


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Rows:
    return Rows(tmp_path_factory.mktemp("rows"))


def planned(rows: Rows, capsys: pytest.CaptureFixture[str], *options: object) -> list[str]:
    """Return the ids of the rows that would run."""
    return [row["instance_id"] for row in plan(rows, capsys, *options)["rows"]]


def plan(rows: Rows, capsys: pytest.CaptureFixture[str], *options: object) -> dict[str, Any]:
    capsys.readouterr()
    rows.run(
        "eval", rows.path, "--predictions", "gold", "--out", rows.path.parent / "plan", "--dry-run", "--json", *options
    )
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_a_plan_counts_what_is_left_out(rows: Rows, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cards = write_cards(tmp_path / "cards.jsonl", [clean(FIRST), unsound(SECOND)])
    assert plan(rows, capsys, "--audit", cards)["audit"] == {
        "min_sharpness": None,
        "kept": 1,
        "kept_without_audit": 0,
        "left_out": {"not-sound": 1},
    }
    assert "audit" not in plan(rows, capsys)


@pytest.mark.parametrize(
    ("card", "by_soundness", "by_sharpness"),
    [
        (clean(SECOND), True, True),
        (unsound(SECOND), False, False),
        (unaudited(SECOND), True, False),
        (clean("other-3"), True, False),
        (clean(SECOND, sharp=None), True, False),
        (clean(SECOND, sharp=sharpness(8, 2)), True, True),
        (clean(SECOND, sharp=sharpness(7, 3)), True, False),
    ],
)
def test_what_is_not_known_to_be_good_is_left_out(
    rows: Rows, tmp_path: Path, capsys: pytest.CaptureFixture[str], card: Card, by_soundness: bool, by_sharpness: bool
) -> None:
    audit = write_cards(tmp_path / "cards.jsonl", [clean(FIRST), card]).parent
    expected = {True: [FIRST, SECOND], False: [FIRST]}
    assert planned(rows, capsys, "--audit", audit) == expected[by_soundness]
    assert planned(rows, capsys, "--audit", audit / "cards.jsonl", "--min-sharpness", "0.8") == expected[by_sharpness]


def test_a_run_of_fewer_tasks_counts_what_is_left_out_and_keeps_the_results_of_the_others(
    rows: Rows, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = ("eval", rows.path, "--predictions", "gold", "--out", tmp_path / "whole")
    assert rows.run(*whole) == ExitCode.DONE
    before = json.loads((tmp_path / "whole" / "summary.json").read_text())
    assert "audit" not in before
    audit = write_cards(tmp_path / "cards.jsonl", [clean(FIRST), unsound(SECOND)])
    predictions = tmp_path / "whole" / "predictions.jsonl"
    out = tmp_path / "less"
    capsys.readouterr()
    less = ("eval", rows.path, "--predictions", predictions, "--out", out, "--audit", audit, "--min-sharpness", "0.5")
    assert rows.run(*less) == ExitCode.DONE
    text = capsys.readouterr().out
    assert "not-sound 1" in text
    assert "1 of 1 are from an earlier run" in text, "the identity of a result does not depend on the audit"
    assert "for none of the instances" not in text, "a prediction for a task that is left out is no mismatch"
    summary = json.loads((out / "summary.json").read_text())
    assert (summary["instances"], summary["total"], summary["resolved"]) == (1, 1, 1)
    assert summary["audit"] == {
        "min_sharpness": 0.5,
        "kept": 1,
        "kept_without_audit": 0,
        "left_out": {"not-sound": 1},
    }


def test_a_solver_works_on_the_tasks_that_pass(rows: Rows, tmp_path: Path) -> None:
    audit = write_cards(tmp_path / "cards.jsonl", [unsound(FIRST), clean(SECOND)])
    out = tmp_path / "out"
    rows.run("run", rows.path, "--solver", "search", "--tries", 1, "--out", out, "--audit", audit)
    summary: dict[str, Any] = json.loads((out / "summary.json").read_text())
    assert (summary["instances"], summary["audit"]["left_out"]) == (1, {"not-sound": 1})
    results = [json.loads(line) for line in (out / "results.jsonl").read_text().splitlines()]
    assert [result["task"] for result in results] == [SECOND]


@pytest.mark.parametrize("command", ["eval", "run", "leaderboard", "export"])
def test_a_least_sharpness_needs_cards(command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own = {
        "eval": ["--predictions", "gold", "--out", "out"],
        "run": ["--out", "out"],
        "leaderboard": [],
        "export": ["--format", "sft", "--out", "out"],
    }[command]
    for more in (["--min-sharpness", "0.5"], ["--min-sharpness", "1.5", "--audit", str(tmp_path)]):
        assert main([command, str(tmp_path), *own, *more]) == ExitCode.USAGE
        assert "--min-sharpness" in capsys.readouterr().err


def test_nothing_left_and_damaged_cards_are_errors(
    rows: Rows, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    audit = write_cards(tmp_path / "cards.jsonl", [unsound(FIRST), unsound(SECOND)])
    command = ("eval", rows.path, "--predictions", "gold", "--out", tmp_path / "out", "--audit", audit)
    assert rows.run(*command) == ExitCode.USAGE
    assert "not-sound 2" in capsys.readouterr().err
    audit.write_text('{"half')
    assert rows.run(*command) == ExitCode.USAGE
    assert "cards.jsonl, line 1" in capsys.readouterr().err
