"""Budgets hold for concurrent calls, and with a server that does not count tokens."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from model_server import garbage, serving

from harness.agents.limits import RolloutLimits
from harness.agents.loop import Agent
from harness.agents.tools.editor import Editor
from harness.agents.workspace import Workspace
from harness.models.budget import Budget, BudgetedModel, BudgetSpentError, total_tokens
from harness.models.http import HttpModel
from harness.models.scripted import ScriptedModel
from harness.records.messages import ASSISTANT, SYSTEM, USER, Message, Reply, Sampling, Usage
from harness.records.trajectory import ExitReason, Journal, Trajectory, read_trajectory
from harness.records.usage import RunUsage
from pytest_ssr.errors import ModelError
from pytest_ssr.sandbox.fake import FakeSandbox, FakeSandboxProvider
from pytest_ssr.sandbox.protocol import Limits

MESSAGES = [Message(SYSTEM, "be brief"), Message(USER, "add")]
RESPONSE = b'{"choices": [{"message": {"role": "assistant", "content": "no tool, just words"}}]%s}'


class Priced(ScriptedModel):
    """Takes a while, costs money and tokens, and fails the first `fails` calls."""

    def __init__(self, *, fails: int = 0) -> None:
        super().__init__("dear", [Message(ASSISTANT, "hm")])
        self.calls, self.concurrent, self.max_concurrent = 0, 0, 0
        self._fails = fails
        self._count = threading.Lock()

    def session(self, rollout: str) -> Priced:
        return self

    def reply(self, *_: Any, **__: Any) -> Reply:
        with self._count:
            self.calls += 1
            self.concurrent += 1
            self.max_concurrent = max(self.max_concurrent, self.concurrent)
            fails = self.calls <= self._fails
        time.sleep(0.02)
        with self._count:
            self.concurrent -= 1
        if fails:
            raise ModelError("not now")
        return Reply(Message(ASSISTANT, "hm"), "stop", Usage(90, 10), 0.3)


def query_concurrently(model: Priced, budget: Budget, times: int) -> list[BaseException | None]:
    budgeted = BudgetedModel(model, budget)

    def query() -> Reply:
        return budgeted.session("r").reply(MESSAGES, tools=(), sampling=Sampling())

    with ThreadPoolExecutor(8) as pool:
        return [f.exception() for f in [pool.submit(query) for _ in range(times)]]


@pytest.mark.parametrize(
    ("budget", "max_calls"), [(Budget(calls=1), 1), (Budget(calls=5), 5), (Budget(usd=1.0), 4), (Budget(tokens=350), 4)]
)
def test_concurrent_calls_keep_to_a_budget(budget: Budget, max_calls: int) -> None:
    model = Priced()
    refused = query_concurrently(model, budget, 16)
    assert model.calls == budget.completed_calls == max_calls
    assert sum(isinstance(e, BudgetSpentError) for e in refused) == 16 - max_calls
    if budget.usd:
        assert budget.spent_usd < budget.usd + 0.3
    if budget.tokens:
        assert total_tokens(budget.spent) < budget.tokens + 100


def test_a_failed_call_releases_its_reservation() -> None:
    model, budget = Priced(fails=2), Budget(calls=1)
    refused = query_concurrently(model, budget, 6)
    assert (model.calls, budget.completed_calls) == (3, 1)
    assert [str(e) for e in refused].count("not now") == 2


def test_a_large_budget_blocks_no_call() -> None:
    model = Priced()
    assert query_concurrently(model, Budget(usd=100, calls=100), 16) == [None] * 16
    assert model.max_concurrent > 1


def test_tokens_that_a_server_does_not_count_are_marked_as_estimated(tmp_path: Path) -> None:
    limits = RolloutLimits(tokens=3000, format_errors=100)
    journal = Journal(Trajectory("r", "t", "solver", 0, "m"), tmp_path / "trajectory.jsonl")
    with serving(*[garbage(RESPONSE % b"")] * 100, tokenizes=404) as served:
        model = HttpModel("vllm:x", served.url, context_tokens=100_000)
        workspace = Workspace(FakeSandbox(FakeSandboxProvider(), "/", {}), Limits())
        done = Agent(model, [Editor()], limits).run("be brief", "repair it", workspace, journal)
        model.close()
    assert done.exit_reason is ExitReason.TOKEN_LIMIT
    assert all(c.usage.estimated and c.usage.prompt_tokens and c.usage.completion_tokens for c in done.calls)
    assert read_trajectory(tmp_path / "trajectory.jsonl") == done
    assert RunUsage.of(done).estimated == len(done.calls)


@pytest.mark.parametrize(
    ("usage_json", "usage"),
    [
        (b', "usage": {"prompt_tokens": 7, "completion_tokens": 5}', Usage(7, 5)),
        (b', "usage": {"prompt_tokens": 7}', Usage(7, -1, estimated=True)),
        (b', "usage": {"completion_tokens": 5}, "prompt_token_ids": [1, 2, 3]', Usage(3, 5, estimated=True)),
        (b', "usage": null', Usage(-1, -1, estimated=True)),
    ],
)
def test_the_counts_of_a_server_are_used(usage_json: bytes, usage: Usage) -> None:
    with serving(garbage(RESPONSE % usage_json)) as served:
        model = HttpModel("vllm:x", served.url)
        counted = model.reply(MESSAGES, tools=(), sampling=Sampling()).usage
        model.close()
    assert counted.estimated is usage.estimated
    for ours, theirs in (
        (counted.prompt_tokens, usage.prompt_tokens),
        (counted.completion_tokens, usage.completion_tokens),
    ):
        assert ours == theirs or (theirs == -1 and ours > 0)


def test_an_empty_reply_has_no_completion_tokens() -> None:
    nothing = b'{"choices": [{"message": {"content": null}}], "usage": {"prompt_tokens": 7, "completion_tokens": 0}}'
    with serving(garbage(nothing)) as served:
        model = HttpModel("vllm:x", served.url)
        reply = model.reply(MESSAGES, tools=(), sampling=Sampling())
        model.close()
    assert reply.usage == Usage(7, 0)
