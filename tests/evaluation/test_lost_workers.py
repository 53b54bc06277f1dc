"""A unit that loses its worker on one machine is run again, and has no grade if that goes on."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from harness.cli import unit_runs
from harness.executors.protocol import TRIES
from pytest_ssr.records.reasons import Reason, ReasonCode


class Progress:
    def __init__(self) -> None:
        self.taken: list[str] = []
        self.lost: dict[str, Reason] = {}

    def take(self, name: str, result: Any) -> None:
        self.taken.append(name)

    def fail(self, unit: Any, reason: Reason) -> None:
        assert unit.name not in self.lost
        self.lost[unit.name] = reason

    def read(self, data: Any) -> Any:
        return data


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

    monkeypatch.setattr(unit_runs, "run_units", run_units)
    progress, settings = Progress(), SimpleNamespace(evaluation=SimpleNamespace(jobs=2, dist="load"))
    units = [SimpleNamespace(name="works"), SimpleNamespace(name="crashes")]
    unit_runs._run_here(cast(Any, settings), cast(Any, units), cast(Any, progress))
    assert runs == [["works", "crashes"], *[["crashes"]] * (min(losses + 1, TRIES) - 1)]
    assert sorted(progress.taken) == sorted(["works", *["crashes"] * (losses < TRIES)])
    lost = Reason(ReasonCode.WORKER_LOST, "the worker has ended")
    assert progress.lost == ({"crashes": lost} if losses == TRIES else {})
