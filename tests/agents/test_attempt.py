"""Settings that cannot work are an error before any rollout; what is nobody's fault costs no rollout its time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from harness.agents.attempt import attempted, require_room
from harness.agents.desk import Desk
from harness.agents.limits import RolloutLimits
from harness.agents.loop import Agent
from harness.agents.tools.bash import Bash
from harness.agents.tools.protocol import Observation
from harness.agents.tools.submit import Submit
from harness.messages import ASSISTANT, Message, Reply, Sampling, ToolCall
from harness.models.retrying import Retrying
from harness.models.scripted import ScriptedModel
from harness.models.spending import Budget, BudgetSpentError, Spending
from harness.trajectory import ExitReason, Journal, Trajectory
from pytest_ssr.errors import ContextError, ModelError, SandboxError, SettingsError
from pytest_ssr.sandbox.fake import FakeSandbox, FakeSandboxProvider
from pytest_ssr.sandbox.protocol import Limits

HAND_IN = Message(ASSISTANT, "", (ToolCall.parse("c", "submit", "{}"),))
OPENED: list[str] = []


@contextmanager
def desk() -> Iterator[Desk]:
    OPENED.append("desk")
    yield Desk(FakeSandbox(FakeSandboxProvider(), "/p", {}), Limits())


@contextmanager
def no_desk() -> Iterator[Desk]:
    raise SandboxError("there is no room for a sandbox")
    yield


def submit(result: str = "p") -> Submit:
    return Submit("hand in", lambda _: Observation("handed in", 0, done=True, result={"patch": result}))


def agent(model: Any, **settings: Any) -> Agent:
    return Agent(model, [submit()], sampling=settings.pop("sampling", Sampling(max_tokens=100)), **settings)


def play(made: Agent, opened: Any = desk) -> Trajectory:
    journal = Journal(Trajectory("r", "t", "solver", 0, made.model.name))
    return attempted(made, journal, opened, system="be brief", task=lambda _: "repair it")


class Small(ScriptedModel):
    """Takes few tokens."""

    context_tokens = 1000

    def session(self, rollout: str) -> ScriptedModel:
        return self


@pytest.mark.parametrize(
    ("most", "says"),
    [
        (1000, "max_tokens is 1000, and s takes 1000 tokens for prompt and reply together: nothing is left"),
        (4096, "max_tokens is 4096, and s takes 1000 tokens"),
        (990, "with max_tokens 990 that leaves 10 for a prompt, and its instructions and tools alone are"),
    ],
)
def test_a_reply_that_leaves_no_room_for_a_prompt_is_an_error_before_anything_is_opened(most: int, says: str) -> None:
    OPENED.clear()
    model = Small("s", [HAND_IN])
    with pytest.raises(SettingsError, match=says):
        play(agent(model, sampling=Sampling(max_tokens=most)))
    assert not OPENED
    assert not model.seen
    require_room(model, Sampling(max_tokens=999))
    assert play(agent(model, sampling=Sampling(max_tokens=500))).status == "completed"


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Sampling(max_tokens=0), "max_tokens must be at least 1, not 0"),
        (lambda: Sampling(temperature=-0.5), r"temperature must be 0 or more, not -0\.5"),
        (lambda: Sampling(temperature=float("nan")), "temperature must be 0 or more, not nan"),
        (lambda: Sampling(top_p=1.5), r"top_p must be more than 0 and at most 1, not 1\.5"),
        (lambda: RolloutLimits(wall_s=float("nan")), "wall_s must be more than 0, not nan"),
        (lambda: agent(Small("s", []), observe_as="system"), "sent as tool or as user, not as 'system'"),
        (lambda: Agent(Small("s", []), [submit(), submit()]), "two tools of the name 'submit'"),
    ],
)
def test_settings_that_cannot_work_are_refused(make: Any, says: str) -> None:
    with pytest.raises(SettingsError, match=says):
        make()


class Clock:
    """Goes on when it is told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def wait(self, seconds: float) -> None:
        self.now += seconds


class Busy(ScriptedModel):
    """Is asked twice for each reply, and takes ten seconds for each answer."""

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
    return play(agent(Retrying(model, sleep=clock.wait), limits=limits, clock=clock))


def test_waiting_for_a_busy_server_is_not_the_rollout_s_time() -> None:
    done = busy(wall_s=35)
    assert (done.exit_reason, len(done.calls)) == (ExitReason.SUBMITTED, 4)
    done = busy(wall_s=25)
    assert (done.exit_reason, len(done.calls)) == (ExitReason.TIME_LIMIT, 3), "the replies' own time is"


class Refusing(ScriptedModel):
    """A server that takes so many prompts, and says of all others that they are too long."""

    takes = 0

    def session(self, rollout: str) -> ScriptedModel:
        return self

    def reply(self, *arguments: Any, **named: Any) -> Reply:
        if len(self.seen) >= self.takes:
            raise ContextError("maximum context length is 10 tokens")
        return super().reply(*arguments, **named)


def test_a_server_that_refuses_a_task_which_fits_is_no_failure_of_the_solver() -> None:
    model = Refusing("s", [HAND_IN])
    done = play(agent(model))
    assert (done.exit_reason, done.status) == (ExitReason.MODEL, "aborted")
    assert done.detail == (
        "s refuses the first prompt of a rollout, which fits into 1000000 tokens with 100 for the reply; "
        "is its context window smaller than that? maximum context length is 10 tokens"
    )
    later = Refusing("s", [Message(ASSISTANT, "", (ToolCall.parse("c", "fly", "{}"),)), HAND_IN])
    later.takes = 1
    done = play(agent(later))
    assert (done.exit_reason, done.status) == (ExitReason.CONTEXT, "truncated")


def test_a_task_that_does_not_fit_is_the_solver_s_own_limit() -> None:
    journal = Journal(Trajectory("r", "t", "solver", 0, "s"))
    done = attempted(agent(Small("s", [HAND_IN])), journal, desk, system="be brief", task=lambda _: "long " * 2000)
    assert (done.exit_reason, done.status) == (ExitReason.CONTEXT, "truncated")
    assert done.detail == "the task alone does not fit into 900 tokens"


def test_every_way_out_ends_the_record() -> None:
    done = play(agent(ScriptedModel("s", [HAND_IN])), no_desk)
    assert (done.exit_reason, done.detail) == (ExitReason.INFRA, "there is no room for a sandbox")
    done = play(agent(ScriptedModel("s", [])))
    assert (done.exit_reason, done.status) == (ExitReason.MODEL, "aborted")
    spent = Spending(ScriptedModel("s", [HAND_IN]), Budget(calls=1, made=1))
    journal = Journal(Trajectory("r", "t", "solver", 0, "s"))
    with pytest.raises(BudgetSpentError):
        attempted(agent(spent), journal, desk, system="s", task=lambda _: "t")
    assert journal.trajectory.exit_reason is ExitReason.MODEL
    journal = Journal(Trajectory("r", "t", "solver", 0, "s"))
    attempted(agent(ScriptedModel("s", [])), journal, desk, system="s", task=lambda _: {}["hole"])
    assert journal.trajectory.exit_reason is ExitReason.INFRA
    assert journal.trajectory.detail.startswith("KeyError: 'hole' (test_attempt.py, line ")


def test_what_a_limit_leaves_is_the_result() -> None:
    looking = Message(ASSISTANT, "", (ToolCall.parse("c", "fly", "{}"),))
    made = agent(ScriptedModel("s", [looking] * 3), limits=RolloutLimits(steps=2), leave=lambda _: {"patch": "left"})
    done = play(made)
    assert (done.exit_reason, done.result) == (ExitReason.STEP_LIMIT, {"patch": "left"})
    assert not any(c.trainable for c in done.calls), "a script is not sampled"
    assert Bash.name in [t["function"]["name"] for t in play(replace(made, tools=[Bash()])).tools]
