"""A unit that loses its worker on one machine is run again, and has no grade if that goes on."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from harness.cli.commands import evaluate
from harness.executors.protocol import TRIES


class Progress:
    def __init__(self) -> None:
        self.taken: list[str] = []
        self.lost: dict[str, str] = {}

    def take(self, name: str, result: Any) -> None:
        self.taken.append(name)

    def lose(self, name: str, reason: str) -> None:
        assert name not in self.lost
        self.lost[name] = reason


@pytest.mark.parametrize("losses", [0, 1, TRIES - 1, TRIES])
def test_a_lost_worker_costs_one_attempt(losses: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[list[str]] = []

    def run_units(plan: Any, take: Any, lose: Any, **_: Any) -> None:
        runs.append(list(plan[1]))
        for name in plan[1]:
            if name == "crashes" and len(runs) <= losses:
                lose(name, "the worker has ended")
            else:
                take(name, None)

    monkeypatch.setattr(evaluate, "run_units", run_units)
    progress, settings = Progress(), SimpleNamespace(evaluation=SimpleNamespace(jobs=2, dist="load"))
    evaluate._run_here(cast(Any, settings), ["works", "crashes"], cast(Any, progress))
    assert runs == [["works", "crashes"], *[["crashes"]] * (min(losses + 1, TRIES) - 1)]
    assert sorted(progress.taken) == sorted(["works", *["crashes"] * (losses < TRIES)])
    assert progress.lost == ({"crashes": "the worker has ended"} if losses == TRIES else {})
