"""The real mini-swe-agent as a solver, in a separate interpreter, with its model behind a real server."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from model_server import Served, error, message, serving, slow
from proven import Proven

from harness.agents.limits import RolloutLimits
from harness.models.budget import Budget, BudgetSpentError
from harness.records.messages import Sampling
from harness.records.trajectory import Trajectory, read_trajectory
from harness.rollouts.player_factory import PlayerFactory
from harness.rollouts.runner import PATCH, ROLLOUTS, TRAJECTORY, RolloutRunner
from harness.solvers.mini.interpreter import VARIABLE
from harness.solvers.mini.solver import NATIVE
from pytest_ssr.errors import SettingsError
from pytest_ssr.records.reasons import Reason, ReasonCode
from pytest_ssr.storage.store import Store

pytestmark = pytest.mark.bubblewrap
KEY, OTHER = "sk-0123456789abcdefghijklmnopqrstuv", "sk-ant-0123456789abcdefghijklmn"
REPAIR = "sed -i 's/return a - b/return a + b/' calc.py"
MAKE = "git diff -- calc.py > patch.txt"
SUBMIT = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT && cat patch.txt"


@pytest.fixture(autouse=True)
def _keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("ANTHROPIC_API_KEY", OTHER)


def bash(*commands: str) -> dict[str, Any]:
    return message("I go on.", *(("bash", {"command": c}) for c in commands))


def solving(
    proven: Proven, served: Served, store: Store, *, budget: Budget | None = None, **limits: Any
) -> RolloutRunner:
    roles = PlayerFactory(RolloutLimits(**limits), Sampling(0.7, 0.9, 200), budget or Budget(), url=served.url)
    return RolloutRunner(
        proven.runner, proven.artifact, proven.verdict, roles.solver("mini-swe-agent:openai/gpt-4o"), store
    )


def load_rollout(store: Store, rollout: str) -> tuple[Trajectory, dict[str, Any]]:
    folder = store.root / ROLLOUTS / rollout
    return read_trajectory(folder / TRAJECTORY), json.loads((folder / NATIVE).read_text())


def test_a_whole_attempt(proven: Proven, tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    look = bash("pwd; cd tests; env | sort; find / -name '*.traj*' 2>/dev/null; true", "echo no >&2; pwd; false")
    with serving(message("Hm."), look, bash(REPAIR), bash(MAKE), bash(SUBMIT)) as served:
        (rollout,) = solving(proven, served, store).attempts(1)
    assert rollout.resolved, rollout.reason
    assert (rollout.exit_reason, rollout.steps) == ("submitted", 6)
    assert rollout.solver == "mini-swe-agent:openai/gpt-4o"
    assert rollout.tokens > 0
    assert rollout.cost_usd > 0
    patch = (store.root / ROLLOUTS / rollout.id / PATCH).read_text()
    assert "+    return a + b" in patch
    assert "patch.txt" not in patch
    ours, theirs = load_rollout(store, rollout.id)
    assert [(s.kind, s.exit_code) for s in ours.steps] == [
        ("format-error", None),
        ("tool", 0),
        ("tool", 1),
        ("tool", 0),
        ("tool", 0),
        ("submit", 0),
    ]
    first, second = (ours.messages[s.observation_index].content for s in ours.steps[1:3])
    assert KEY not in first
    assert OTHER not in first
    assert f"no\n{proven.project}\n" in second, (
        "stdout and stderr are in order, and every command runs in the project's folder"
    )
    assert theirs["trajectory_format"] == "mini-swe-agent-1.1"
    assert theirs["info"]["exit_status"] == "Submitted"
    assert theirs["info"]["model_stats"]["api_calls"] == len(served.asked) == len(ours.calls) == 5
    assert [m["role"] for m in theirs["messages"]][-2:] == ["assistant", "exit"]
    assert theirs["info"]["model_stats"]["instance_cost"] == pytest.approx(rollout.cost_usd, rel=1e-3)
    everything = "".join(p.read_text() for p in (store.root / ROLLOUTS / rollout.id).iterdir())
    assert KEY not in everything
    assert served.keys[0] == f"Bearer {KEY}"
    request = served.asked[0]
    assert (request["temperature"], request["top_p"], request["max_tokens"]) == (0.7, 0.9, 200)
    assert len({a["seed"] for a in served.asked}) == 5
    task = request["messages"][1]["content"]
    assert str(proven.project) in task
    assert "/testbed" not in task
    assert proven.artifact.weaken.reverse().data.decode().splitlines()[-1] in task
    # The model is not shown its unusable reply, and the record reflects that.
    assert ours.calls[1].sent == (0, 1, 3)


def test_every_limit_ends_a_rollout(proven: Proven, tmp_path: Path) -> None:
    def run_until_end(*replies: Any, **limits: Any) -> tuple[str, str]:
        store = Store(tmp_path / f"{len(replies)}{'-'.join(limits)}")
        with serving(*replies, *[bash(f"true {n}") for n in range(20)]) as served:
            (rollout,) = solving(proven, served, store, **limits).attempts(1)
        ours, theirs = load_rollout(store, rollout.id)
        assert str(ours.exit_reason) == rollout.exit_reason
        return rollout.exit_reason, theirs["info"]["exit_status"]

    assert run_until_end(steps=2) == ("step_limit", "LimitsExceeded")
    assert run_until_end(usd=0.000001) == ("cost_limit", "LimitsExceeded")
    assert run_until_end(tokens=10) == ("token_limit", "TokenLimitExceeded")
    assert run_until_end(message("a"), message("b"), format_errors=2) == ("format", "RepeatedFormatError")
    assert run_until_end(bash("sleep 60"), wall_s=4.0) == ("time_limit", "TimeExceeded")
    assert run_until_end(bash("true"), slow(20), wall_s=5.0) == ("time_limit", "TimeExceeded")


def test_partial_work_at_a_limit_can_be_graded(proven: Proven, tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    with serving(bash(REPAIR), bash("sleep 30; true")) as served:
        work = solving(proven, served, store, steps=2, command_s=1.0)
        work.grade_unsubmitted = True
        (rollout,) = work.attempts(1)
    assert rollout.resolved, rollout.reason
    ours, _ = load_rollout(store, rollout.id)
    assert (ours.steps[1].exit_code, ours.steps[1].limit) == (None, "wall time")
    assert "passed the limit on wall time (1 s)" in ours.messages[ours.steps[1].observation_index].content


def test_a_tree_that_cannot_be_submitted_is_reported_to_the_agent(proven: Proven, tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    done = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
    with serving(
        bash("mv calc.py c.py; ln -s c.py calc.py"), bash(done), bash("rm calc.py; mv c.py calc.py"), bash(done)
    ) as served:
        (rollout,) = solving(proven, served, store).attempts(1)
    assert "this cannot be submitted: calc.py is now a symlink" in served.asked[2]["messages"][-1]["content"]
    assert (rollout.exit_reason, rollout.resolved) == ("submitted", False)
    assert rollout.reason == Reason(ReasonCode.NO_PATCH, "the attempt ended by submitted")


def test_a_model_that_fails_gives_no_grade(proven: Proven, tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    with serving(error(401, f"Incorrect API key provided: {KEY}")) as served:
        (rollout,) = solving(proven, served, store).attempts(1)
    assert (rollout.exit_reason, rollout.resolved) == ("model", None)
    assert "AuthenticationError" in rollout.reason.detail
    assert KEY not in "".join(p.read_text() for p in (store.root / ROLLOUTS / rollout.id).iterdir())


def test_the_budget_of_the_run_is_enforced(proven: Proven, tmp_path: Path) -> None:
    store, budget = Store(tmp_path / "store"), Budget(calls=2)
    spent = pytest.raises(BudgetSpentError, match="the budget of 2 calls is spent")
    with serving(*[bash(f"true {n}") for n in range(9)]) as served, spent:
        solving(proven, served, store, budget=budget).attempts(1)
    assert len(served.asked) == budget.completed_calls == 2


def test_an_interpreter_without_it_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "/bin/true")
    with pytest.raises(SettingsError, match=r"SSR_MINI_PYTHON: /bin/true is not a working interpreter"):
        PlayerFactory().solver("mini-swe-agent:openai/gpt-4o")
