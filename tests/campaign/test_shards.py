"""A shard is a fixed part of the work, and a run says what it has tried of what was planned."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from contextlib import nullcontext
from typing import Any

import pytest

from pytest_ssr.campaign.ending import Cut, Ending
from pytest_ssr.campaign.parallel import run_candidates
from pytest_ssr.errors import SettingsError
from pytest_ssr.records.candidate_result import CandidateResult, CandidateStatus, Goal
from pytest_ssr.records.shard import Shard


@pytest.mark.parametrize(("text", "shard"), [("2/5", Shard(2, 5)), (" 1 / 1 ", Shard(1, 1)), ("05/10", Shard(5, 10))])
def test_a_shard_is_parsed(text: str, shard: Shard) -> None:
    assert Shard.parse(text, option="--shard") == shard


@pytest.mark.parametrize("text", ["", "2", "0/5", "6/5", "1/0", "-1/5", "2/5/5", "a/b", "1/99999", "1.5/2"])
def test_what_is_no_shard_names_the_option(text: str) -> None:
    with pytest.raises(SettingsError, match="--ssr-shard"):
        Shard.parse(text, option="--ssr-shard")


@pytest.mark.parametrize("total", [0, 1, 4, 5, 23])
@pytest.mark.parametrize("of", [1, 2, 5])
def test_the_shards_are_the_whole_work_and_do_not_overlap(total: int, of: int) -> None:
    parts = [Shard(number, of).indices(total) for number in range(1, of + 1)]
    assert sorted(index for part in parts for index in part) == list(range(total))
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


def result(index: int, status: CandidateStatus = CandidateStatus.NOTICED) -> CandidateResult:
    return CandidateResult(index, status, "mutation", "op", "a.py", 1, "f", "", "")


class Attempts:
    """Tries candidates at once; there are seven of them."""

    slots = 2

    def __init__(self, status_of: Callable[[int], CandidateStatus]) -> None:
        self.tried: list[int] = []
        self._status_of = status_of

    def submit(self, index: int) -> Future[CandidateResult | None]:
        future: Future[CandidateResult | None] = Future()
        self.tried.append(index)
        future.set_result(result(index, self._status_of(index)) if index < 7 else None)
        return future

    def take(self, result: CandidateResult) -> None:
        pass

    def settle(self, *results: Any) -> None:
        pass

    def end(self) -> None:
        pass


def test_which_candidates_a_shard_tries_does_not_depend_on_results() -> None:
    for status in CandidateStatus:
        attempts = Attempts(lambda _, status=status: status)  # type: ignore[misc]
        goal = Goal(1, 20, Shard(2, 3).indices(7))
        results = run_candidates(attempts, goal, units=nullcontext(attempts), most=0)
        assert attempts.tried == [1, 4] == [r.index for r in results]
        assert goal.is_reached(results)


def test_a_shard_without_candidates_is_at_its_end() -> None:
    attempts, goal = Attempts(lambda _: CandidateStatus.VALID), Goal(1, 20, Shard(3, 5).indices(2))
    assert run_candidates(attempts, goal, units=nullcontext(attempts), most=9) == []
    assert goal.is_reached([])


def test_an_ending_counts_what_is_proven_to_have_run() -> None:
    statuses = (CandidateStatus.NOTICED, CandidateStatus.NOT_EXERCISED, CandidateStatus.TIMED_OUT)
    results = [result(index, status) for index, status in enumerate(statuses)]
    ending = Ending.of(Goal(1, 20), results, Cut.TIME)
    assert ending.to_json() == {"tried": 1, "planned": 20, "not_proven": 1, "timed_out": 1, "cut": "time"}
    assert Ending.of(Goal(1, 20), results, is_complete=True).planned == 3
    assert Ending.of(Goal(1, 20, range(1, 20, 5)), results).planned == 4
    assert Ending.of(Goal(1), results).planned is None
    lines = {Ending.of(Goal(1, 20), results, cut).line for cut in Cut}
    assert len(lines) == 3, "each of the three says something else"
