"""Invalid settings are an error before any rollout; waiting and server faults are not charged to a rollout."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from harness.agents.attempt import require_room, run_attempt
from harness.agents.limits import RolloutLimits
from harness.agents.loop import Agent
from harness.agents.tools.bash import Bash
from harness.agents.tools.protocol import Observation
from harness.agents.tools.submit import Submit
from harness.agents.workspace import Workspace
from harness.models.budget import Budget, BudgetedModel, BudgetSpentError
from harness.models.middleware import RetryingModel
from harness.models.scripted import ScriptedModel
from harness.records.messages import ASSISTANT, Message, Reply, Sampling, ToolCall
from harness.records.trajectory import ExitReason, Journal, Trajectory
from pytest_ssr.errors import ContextError, ModelError, SandboxError, SettingsError
from pytest_ssr.sandbox.fake import FakeSandbox, FakeSandboxProvider
from pytest_ssr.sandbox.protocol import Limits

HAND_IN = Message(ASSISTANT, "", (ToolCall.parse("c", "submit", "{}"),))
OPENED: list[str] = []


@contextmanager
def open_workspace() -> Iterator[Workspace]:
    OPENED.append("workspace")
    yield Workspace(FakeSandbox(FakeSandboxProvider(), "/p", {}), Limits())


@contextmanager
def open_broken_workspace() -> Iterator[Workspace]:
    raise SandboxError("there is no room for a sandbox")
    yield


def submit(result: str = "p") -> Submit:
    return Submit("hand in", lambda _: Observation("handed in", 0, done=True, result={"patch": result}))


def agent(model: Any, **settings: Any) -> Agent:
    return Agent(model, [submit()], sampling=settings.pop("sampling", Sampling(max_tokens=100)), **settings)


def play(agent_under_test: Agent, factory: Any = open_workspace) -> Trajectory:
    journal = Journal(Trajectory("r", "t", "solver", 0, agent_under_test.model.name))
    return run_attempt(agent_under_test, journal, factory, system="be brief", task=lambda _: "repair it")


class Small(ScriptedModel):
    """Takes few tokens."""

    context_tokens = 1000

    def session(self, rollout: str) -> ScriptedModel:
        return self


@pytest.mark.parametrize(
    ("max_tokens", "expected"),
    [
        (1000, "max_tokens is 1000, and the context window of s has 1000 tokens"),
        (4096, "max_tokens is 4096, and the context window of s has 1000 tokens"),
        (990, "max_tokens 990 leaves 10 of them for a prompt, and its instructions and tools alone need"),
    ],
)
def test_a_reply_length_without_room_for_a_prompt_is_an_error_before_anything_is_opened(
    max_tokens: int, expected: str
) -> None:
    OPENED.clear()
    model = Small("s", [HAND_IN])
    with pytest.raises(SettingsError, match=expected):
        play(agent(model, sampling=Sampling(max_tokens=max_tokens)))
    assert not OPENED
    assert not model.seen
    require_room(model, Sampling(max_tokens=999))
    assert play(agent(model, sampling=Sampling(max_tokens=500))).status == "completed"


@pytest.mark.parametrize(
    ("create", "expected"),
    [
        (lambda: Sampling(max_tokens=0), "max_tokens must be at least 1, not 0"),
        (lambda: Sampling(temperature=-0.5), r"temperature must be 0 or more, not -0\.5"),
        (lambda: Sampling(temperature=float("nan")), "temperature must be 0 or more, not nan"),
        (lambda: Sampling(top_p=1.5), r"top_p must be more than 0 and at most 1, not 1\.5"),
        (lambda: RolloutLimits(wall_s=float("nan")), "wall_s must be more than 0, not nan"),
        (lambda: agent(Small("s", []), observe_as="system"), "must be tool or user, not 'system'"),
        (lambda: Agent(Small("s", []), [submit(), submit()]), "two tools have the name 'submit'"),
    ],
)
def test_invalid_settings_are_refused(create: Any, expected: str) -> None:
    with pytest.raises(SettingsError, match=expected):
        create()


class Clock:
    """A clock that only `wait` advances."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def wait(self, seconds: float) -> None:
        self.now += seconds


class Busy(ScriptedModel):
    """Replies to every second request, and takes ten seconds for each."""

    clock: Clock
    refusals = 0

    def session(self, rollout: str) -> ScriptedModel:
        return self

    def reply(self, *arguments: Any, **named: Any) -> Reply:
        self.clock.wait(10)
        if self.refusals % 2 == 0:
            self.refusals += 1
            raise ModelError("slow down", retry=True, wait_s=50)
        self.refusals += 1
        return replace(super().reply(*arguments, **named), latency_s=10.0)


def busy(wall_s: float) -> Trajectory:
    clock = Clock()
    model = Busy("s", [replace(HAND_IN, tool_calls=(ToolCall.parse("c", "fly", "{}"),))] * 3 + [HAND_IN])
    model.clock = clock
    limits = RolloutLimits(wall_s=wall_s)
    return play(agent(RetryingModel(model, sleep=clock.wait), limits=limits, clock=clock))


def test_waiting_for_a_busy_server_does_not_count() -> None:
    done = busy(wall_s=35)
    assert (done.exit_reason, len(done.calls)) == (ExitReason.SUBMITTED, 4)
    done = busy(wall_s=25)
    assert (done.exit_reason, len(done.calls)) == (ExitReason.TIME_LIMIT, 3), "the latency of replies counts"


class Refusing(ScriptedModel):
    """A server that accepts `accepted` prompts, and refuses all others as too long."""

    accepted = 0

    def session(self, rollout: str) -> ScriptedModel:
        return self

    def reply(self, *arguments: Any, **named: Any) -> Reply:
        if len(self.seen) >= self.accepted:
            raise ContextError("maximum context length is 10 tokens")
        return super().reply(*arguments, **named)


def test_a_server_that_refuses_a_fitting_task_is_not_the_solver_s_failure() -> None:
    model = Refusing("s", [HAND_IN])
    done = play(agent(model))
    assert (done.exit_reason, done.status) == (ExitReason.MODEL, "aborted")
    assert done.detail == (
        "s refuses the first prompt of a rollout, which fits into 1000000 tokens with 100 for the reply; "
        "is its context window smaller than that? maximum context length is 10 tokens"
    )
    later = Refusing("s", [Message(ASSISTANT, "", (ToolCall.parse("c", "fly", "{}"),)), HAND_IN])
    later.accepted = 1
    done = play(agent(later))
    assert (done.exit_reason, done.status) == (ExitReason.CONTEXT, "truncated")


def test_a_task_that_does_not_fit_is_the_solver_s_own_limit() -> None:
    journal = Journal(Trajectory("r", "t", "solver", 0, "s"))
    done = run_attempt(
        agent(Small("s", [HAND_IN])), journal, open_workspace, system="be brief", task=lambda _: "long " * 2000
    )
    assert (done.exit_reason, done.status) == (ExitReason.CONTEXT, "truncated")
    assert done.detail == "the task alone does not fit into 900 tokens"


def test_the_record_always_has_an_end() -> None:
    done = play(agent(ScriptedModel("s", [HAND_IN])), open_broken_workspace)
    assert (done.exit_reason, done.detail) == (ExitReason.INFRA, "there is no room for a sandbox")
    done = play(agent(ScriptedModel("s", [])))
    assert (done.exit_reason, done.status) == (ExitReason.MODEL, "aborted")
    spent = BudgetedModel(ScriptedModel("s", [HAND_IN]), Budget(calls=1, completed_calls=1))
    journal = Journal(Trajectory("r", "t", "solver", 0, "s"))
    with pytest.raises(BudgetSpentError):
        run_attempt(agent(spent), journal, open_workspace, system="s", task=lambda _: "t")
    assert journal.trajectory.exit_reason is ExitReason.MODEL
    journal = Journal(Trajectory("r", "t", "solver", 0, "s"))
    run_attempt(agent(ScriptedModel("s", [])), journal, open_workspace, system="s", task=lambda _: {}["hole"])
    assert journal.trajectory.exit_reason is ExitReason.INFRA
    assert journal.trajectory.detail.startswith("KeyError: 'hole' (test_attempt.py, line ")


def test_the_partial_work_at_a_limit_is_the_result() -> None:
    invalid_call = Message(ASSISTANT, "", (ToolCall.parse("c", "fly", "{}"),))
    agent_under_test = agent(
        ScriptedModel("s", [invalid_call] * 3),
        limits=RolloutLimits(steps=2),
        partial_result=lambda _: {"patch": "left"},
    )
    done = play(agent_under_test)
    assert (done.exit_reason, done.result) == (ExitReason.STEP_LIMIT, {"patch": "left"})
    assert not any(c.trainable for c in done.calls), "a script is not sampled"
    assert Bash.name in [t["function"]["name"] for t in play(replace(agent_under_test, tools=[Bash()])).tools]
