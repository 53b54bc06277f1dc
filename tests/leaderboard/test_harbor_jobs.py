"""Jobs of Harbor on a leaderboard: results that count, missing ones, and damaged ones that are named."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from board_parts import outcomes, run_folder
from harbor_parts import failure, trial

from harness.leaderboard.loading import read_runs
from harness.leaderboard.records import Results
from pytest_ssr.errors import SettingsError


def read(*paths: Path) -> Results:
    return read_runs([str(p) for p in paths])


def test_the_trials_of_a_job_are_numbered_attempts(tmp_path: Path) -> None:
    job = tmp_path / "jobs" / "a"
    trial(job, "t__late", started_at="2026-01-02T00:00:00Z", verifier_result={"rewards": {"reward": 0.0}})
    trial(job, "t__first", started_at="2026-01-01T00:00:00Z")
    loaded = read(job)
    assert [(e.solver, e.task, e.number, e.key, e.resolved, e.repo) for e in loaded.attempts] == [
        ("terminus-2 org/m", "org/own__shop-1", 0, "id-t__first", True, "own/shop"),
        ("terminus-2 org/m", "org/own__shop-1", 1, "id-t__late", False, "own/shop"),
    ]
    first = loaded.attempts[0]
    assert (first.cost_usd, first.tokens, first.seconds) == (0.5, 34, 2.5)
    assert [(r.label, r.kind, r.attempts, r.absent) for r in loaded.runs] == [("a", "harbor", 2, 0)]
    assert len(read(tmp_path / "jobs").attempts) == 2
    (job / "result.json").write_text(json.dumps({"n_total_trials": 2}))
    assert [e.key for e in read(job / "t__late").attempts] == ["id-t__late"]
    assert read(job / "t__late").runs[0].absent == 0


def test_jobs_of_one_folder_are_separate_runs_and_a_copied_one_counts_once(tmp_path: Path) -> None:
    for job in ("a", "b"):
        trial(tmp_path / "jobs" / job, "t__1")
    trial(tmp_path / "jobs" / "c", "t__2", agent_info={"name": "nop", "version": "1"}, id="")
    loaded = read(tmp_path / "jobs")
    assert [(e.solver, e.run, e.key) for e in loaded.attempts] == [
        ("nop", "jobs/c", "t__2"),
        ("terminus-2 org/m", "jobs/a", "id-t__1"),
    ]


@pytest.mark.parametrize(
    ("kind", "valid", "status"),
    [
        # Harbor's own judgement counts, whatever the exception is called.
        ("ApiRateLimitError", False, "infra"),
        ("AgentTimeoutError", False, "infra"),
        ("SomethingNewError", True, "resolved"),
        # Earlier releases wrote none.
        ("AgentTimeoutError", None, "resolved"),
        ("SomethingNewError", None, "infra"),
    ],
)
def test_a_reward_after_a_failure_of_the_machine_is_no_grade(
    tmp_path: Path, kind: str, valid: bool | None, status: str
) -> None:
    trial(tmp_path, "t__1", **failure(kind, valid))
    (entry,) = read(tmp_path).attempts
    assert (entry.status, entry.reason) == (status, kind)


def test_a_failed_step_of_several_counts_as_the_trials(tmp_path: Path) -> None:
    usage = {"n_input_tokens": 1, "n_output_tokens": 2, "cost_usd": None}
    steps = [
        {"step_name": "one", "agent_result": usage, "exception_info": None, "agent_execution": None},
        {"step_name": "two", "agent_result": usage, **failure("NetworkConnectionError", False)},
    ]
    trial(tmp_path, "t__1", agent_result=None, agent_execution=None, step_results=steps)
    (entry,) = read(tmp_path).attempts
    assert (entry.status, entry.tokens, entry.cost_usd, entry.seconds) == ("infra", 6, -1.0, -1.0)


@pytest.mark.parametrize("verified", [None, {"rewards": None}, {"rewards": {"other": 1.0}}])
def test_without_a_reward_there_is_no_grade(tmp_path: Path, verified: Any) -> None:
    trial(tmp_path, "t__1", verifier_result=verified)
    assert [e.status for e in read(tmp_path).attempts] == ["infra"]


def test_a_partial_reward_does_not_resolve(tmp_path: Path) -> None:
    trial(tmp_path, "t__1", verifier_result={"rewards": {"reward": 0.5}})
    assert [e.status for e in read(tmp_path).attempts] == ["unresolved"]


def test_a_trial_that_has_not_finished_is_absent(tmp_path: Path) -> None:
    trial(tmp_path, "t__1")
    trial(tmp_path, "t__2", running=True)
    trial(tmp_path, "t__3", finished_at=None)
    loaded = read(tmp_path)
    assert (len(loaded.attempts), loaded.runs[0].absent) == (1, 2)
    (tmp_path / "result.json").write_text(json.dumps({"n_total_trials": 7}))
    assert read(tmp_path).runs[0].absent == 6


@pytest.mark.parametrize(
    "text",
    [
        '{"task_name": ',
        "[]",
        "[" * 100_000,
        "{}",
        '{"task_name": "t", "trial_name": "n", "agent_info": {"name": 5}}',
        '{"task_name": "t", "trial_name": "n", "agent_info": {"name": "a"}, "agent_result": {"cost_usd": NaN}}',
        '{"task_name": "t", "trial_name": "n", "agent_info": {"name": "a"}, "verifier_result": {"rewards": {"reward": NaN}}}',
    ],
)
def test_a_damaged_result_is_named(tmp_path: Path, text: str) -> None:
    trial(tmp_path, "t__1")
    folder = trial(tmp_path, "t__2")
    (folder / "result.json").write_text(text)
    with pytest.raises(SettingsError, match=r"t__2/result\.json is damaged"):
        read(tmp_path)


def test_a_trial_that_is_twice_in_a_job_is_named(tmp_path: Path) -> None:
    trial(tmp_path, "t__1")
    trial(tmp_path, "t__2", id="id-t__1")
    with pytest.raises(SettingsError, match=r"t__1 and .*t__2 are the same trial"):
        read(tmp_path)


def test_two_trials_of_one_name_are_two_attempts(tmp_path: Path) -> None:
    trial(tmp_path, "t__1")
    trial(tmp_path, "t__2", trial_name="t__1")
    assert [e.number for e in read(tmp_path).attempts] == [0, 1]


def test_a_large_log_is_not_read(tmp_path: Path) -> None:
    folder = trial(tmp_path, "t__1")
    os.truncate(folder / "trial.log", 1024**4)  # A sparse file: more than any memory.
    assert len(read(tmp_path).attempts) == 1


def test_a_folder_without_trials_is_no_run(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "config.json").write_text("{}")
    with pytest.raises(SettingsError, match="is not a run"):
        read(tmp_path)


def test_results_on_task_directories_and_jobs_of_harbor_are_about_the_same_tasks(tmp_path: Path) -> None:
    job = tmp_path / "job"
    for number, name in enumerate(("org/a__b-1", "org/alone", "org/a__b-2", "other/a__b-2")):
        trial(job, f"t__{number}", task_name=name)
    ours = run_folder(tmp_path / "mine", outcomes("m", {"a__b-1": "r", "a__b-2": "r"}))
    found = {(e.solver, e.task) for e in read(ours, job).attempts}
    assert {task for solver, task in found if solver == "m"} == {"a__b-1", "a__b-2"}
    assert {task for solver, task in found if solver != "m"} == {"a__b-1", "org/alone", "org/a__b-2", "other/a__b-2"}
