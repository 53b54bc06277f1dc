"""Attempts of `ssr solve` count on boards."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from board_parts import board, episode, rollout, store

from harness.leaderboard.play_stores import unranked
from harness.records.attempt import Attempt
from pytest_ssr.errors import SettingsError
from pytest_ssr.storage.store import Store


def solved(folder: Path, *attempts: Attempt) -> Path:
    """Add attempts, and the bugs that they are at, to a store as `ssr solve` does."""
    target = Store(folder)
    for attempt in attempts:
        for kind, name, file, data in (
            ("artifacts", attempt.task, "artifact.json", {"repository": "shop"}),
            ("rollouts", attempt.id, "rollout.json", attempt.to_json()),
        ):
            path = target.root / kind / name / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(data))
    return folder


def test_they_are_attempts_of_their_solver_at_the_bug(tmp_path: Path) -> None:
    folder = solved(tmp_path / "s", *(rollout("bug1", n, "m", n == 0) for n in range(3)), rollout("bug2", 0, "m", None))
    (row,) = board(folder).solvers
    assert (row["solver"], row["tasks"], row["attempts"], row["graded"], row["resolved"]) == ("m", 2, 4, 3, 1)
    assert {task["repo"] for task in board(folder).tasks} == {"shop"}


def test_several_commands_at_one_bug_add_up(tmp_path: Path) -> None:
    again = rollout("bug1", 0, "m", False, seed=1)
    folder = solved(tmp_path / "s", rollout("bug1", 0, "m", True), Attempt(**{**fields(again), "id": "f" * 24}))
    (row,) = board(folder).solvers
    assert (row["attempts"], row["resolved"]) == (2, 1)


def fields(attempt: Attempt) -> dict[str, object]:
    return {name: getattr(attempt, name) for name in attempt.__dataclass_fields__}


def test_a_play_counts_before_them(tmp_path: Path) -> None:
    own = [episode(1, solvers={"m": "ru"}), episode(2, solvers={"n": "r"}), episode(3, order=2, solvers={"m": "r"})]
    folder = store(tmp_path / "s", own)
    solved(
        folder,
        *(r for e in own for r in e.rollouts),
        rollout("bug001", 7, "m", True),
        rollout("bug002", 0, "m", True),
        rollout("bug003", 1, "m", True),
    )
    rows = {row["solver"]: (row["attempts"], row["resolved"]) for row in board(folder).solvers}
    assert rows == {"m": (3, 2), "n": (1, 1)}, "one of bug002 is new; bug001 has those of the play, bug003 is derived"
    assert unranked(folder) == 2


def test_a_store_without_attempts_has_no_board(tmp_path: Path) -> None:
    folder = solved(tmp_path / "s", rollout("bug1", 0, "m", True))
    (folder / "artifacts" / "bug1" / "artifact.json").unlink()
    (folder / "artifacts" / "bug1").rmdir()
    with pytest.raises(SettingsError):
        board(folder)
