"""Budgets hold for calls side by side, and where a server does not count."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from model_server import garbage, serving

from harness.agents.desk import Desk
from harness.agents.limits import RolloutLimits
from harness.agents.loop import Agent
from harness.agents.tools.editor import Editor
from harness.messages import ASSISTANT, SYSTEM, USER, Message, Reply, Sampling, Usage
from harness.models.http import HttpModel
from harness.models.scripted import ScriptedModel
from harness.models.spending import Budget, BudgetSpentError, Spending, tokens_of
from harness.spent import Spent
from harness.trajectory import ExitReason, Journal, Trajectory, read_trajectory
from pytest_ssr.errors import ModelError
from pytest_ssr.sandbox.fake import FakeSandbox, FakeSandboxProvider
from pytest_ssr.sandbox.protocol import Limits

ASKED = [Message(SYSTEM, "be brief"), Message(USER, "add")]
SAID = b'{"choices": [{"message": {"role": "assistant", "content": "no tool, just words"}}]%s}'


class Dear(ScriptedModel):
    """Takes a while, costs money and tokens, and fails where it is told to."""

    def __init__(self, *, fails: int = 0) -> None:
        super().__init__("dear", [Message(ASSISTANT, "hm")])
        self.calls, self.at_once, self.most_at_once = 0, 0, 0
        self._fails = fails
        self._count = threading.Lock()

    def session(self, rollout: str) -> Dear:
        return self

    def reply(self, *_: Any, **__: Any) -> Reply:
        with self._count:
            self.calls += 1
            self.at_once += 1
            self.most_at_once = max(self.most_at_once, self.at_once)
            fails = self.calls <= self._fails
        time.sleep(0.02)
        with self._count:
            self.at_once -= 1
        if fails:
            raise ModelError("not now")
        return Reply(Message(ASSISTANT, "hm"), "stop", Usage(90, 10), 0.3)


def asked_by_many(model: Dear, budget: Budget, times: int) -> list[BaseException | None]:
    spending = Spending(model, budget)

    def ask() -> Reply:
        return spending.session("r").reply(ASKED, tools=(), sampling=Sampling())

    with ThreadPoolExecutor(8) as pool:
        return [f.exception() for f in [pool.submit(ask) for _ in range(times)]]


@pytest.mark.parametrize(
    ("budget", "most"), [(Budget(calls=1), 1), (Budget(calls=5), 5), (Budget(usd=1.0), 4), (Budget(tokens=350), 4)]
)
def test_calls_side_by_side_keep_to_a_budget(budget: Budget, most: int) -> None:
    model = Dear()
    refused = asked_by_many(model, budget, 16)
    assert model.calls == budget.made == most
    assert sum(isinstance(e, BudgetSpentError) for e in refused) == 16 - most
    if budget.usd:
        assert budget.spent_usd < budget.usd + 0.3
    if budget.tokens:
        assert tokens_of(budget.spent) < budget.tokens + 100


def test_a_call_that_failed_gives_its_place_back() -> None:
    model, budget = Dear(fails=2), Budget(calls=1)
    refused = asked_by_many(model, budget, 6)
    assert (model.calls, budget.made) == (3, 1)
    assert [str(e) for e in refused].count("not now") == 2


def test_a_budget_that_is_far_away_holds_nobody_up() -> None:
    model = Dear()
    assert asked_by_many(model, Budget(usd=100, calls=100), 16) == [None] * 16
    assert model.most_at_once > 1


def test_tokens_that_a_server_does_not_count_are_estimated_and_say_so(tmp_path: Path) -> None:
    limits = RolloutLimits(tokens=3000, format_errors=100)
    journal = Journal(Trajectory("r", "t", "solver", 0, "m"), tmp_path / "trajectory.jsonl")
    with serving(*[garbage(SAID % b"")] * 100, tokenizes=404) as served:
        model = HttpModel("vllm:x", served.url, context_tokens=100_000)
        desk = Desk(FakeSandbox(FakeSandboxProvider(), "/", {}), Limits())
        done = Agent(model, [Editor()], limits).run("be brief", "repair it", desk, journal)
        model.close()
    assert done.exit_reason is ExitReason.TOKEN_LIMIT
    assert all(c.usage.estimated and c.usage.prompt_tokens and c.usage.completion_tokens for c in done.calls)
    assert read_trajectory(tmp_path / "trajectory.jsonl") == done
    assert Spent.of(done).estimated == len(done.calls)


@pytest.mark.parametrize(
    ("told", "usage"),
    [
        (b', "usage": {"prompt_tokens": 7, "completion_tokens": 5}', Usage(7, 5)),
        (b', "usage": {"prompt_tokens": 7}', Usage(7, -1, estimated=True)),
        (b', "usage": {"completion_tokens": 5}, "prompt_token_ids": [1, 2, 3]', Usage(3, 5, estimated=True)),
        (b', "usage": null', Usage(-1, -1, estimated=True)),
    ],
)
def test_what_a_server_counts_counts(told: bytes, usage: Usage) -> None:
    with serving(garbage(SAID % told)) as served:
        model = HttpModel("vllm:x", served.url)
        found = model.reply(ASKED, tools=(), sampling=Sampling()).usage
        model.close()
    assert found.estimated is usage.estimated
    for ours, theirs in (
        (found.prompt_tokens, usage.prompt_tokens),
        (found.completion_tokens, usage.completion_tokens),
    ):
        assert ours == theirs or (theirs == -1 and ours > 0)


def test_a_reply_that_says_nothing_has_no_tokens_of_its_own() -> None:
    nothing = b'{"choices": [{"message": {"content": null}}], "usage": {"prompt_tokens": 7, "completion_tokens": 0}}'
    with serving(garbage(nothing)) as served:
        model = HttpModel("vllm:x", served.url)
        reply = model.reply(ASKED, tools=(), sampling=Sampling())
        model.close()
    assert reply.usage == Usage(7, 0)
