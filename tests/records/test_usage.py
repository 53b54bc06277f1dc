"""The usage of rollouts is counted once, whatever they recorded and however often they were interrupted."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.agents.limits import RolloutLimits
from harness.agents.loop import Agent
from harness.agents.tools.editor import Editor
from harness.agents.workspace import Workspace
from harness.models.budget import Budget, BudgetedModel, total_tokens
from harness.models.scripted import ScriptedModel
from harness.models.token_estimate import Estimate
from harness.records.messages import ASSISTANT, SYSTEM, USER, Message, Reply, Usage
from harness.records.trajectory import ExitReason, Journal, ModelCall, Trajectory
from harness.records.usage import NAME, RunUsage, archive_interrupted
from pytest_ssr.errors import ModelError
from pytest_ssr.sandbox.fake import FakeSandbox, FakeSandboxProvider
from pytest_ssr.sandbox.protocol import Limits

COUNTS = st.integers(0, 10**9)
USAGES = st.builds(Usage, COUNTS, COUNTS, COUNTS, st.booleans())
REPLIES = st.builds(
    Reply,
    st.just(Message(ASSISTANT, "hm")),
    st.just("stop"),
    USAGES,
    st.none() | st.floats(0, 1000),
    sampled=st.booleans(),
    cached=st.booleans(),
)


def expected(replies: list[Reply]) -> RunUsage:
    """Return the usage of a rollout with these replies."""
    paid = [r for r in replies if not r.cached]
    return RunUsage(
        sum(r.usage.prompt_tokens + r.usage.completion_tokens for r in paid),
        sum(r.cost_usd or 0.0 for r in paid),
        sum(r.cost_usd is None for r in paid if r.sampled),
        sum(r.usage.estimated for r in paid),
    )


def is_same(actual: RunUsage, counted: RunUsage) -> bool:
    counts = [(s.tokens, s.unpriced, s.estimated) for s in (actual, counted)]
    return counts[0] == counts[1] and actual.cost_usd == pytest.approx(counted.cost_usd, abs=1e-4)


@given(
    tries=st.lists(st.tuples(st.lists(REPLIES, max_size=4), st.booleans(), st.booleans()), max_size=4),
    reads=st.integers(1, 3),
)
def test_each_call_of_each_try_is_counted_once(tries: list[tuple[list[Reply], bool, bool]], reads: int) -> None:
    with tempfile.TemporaryDirectory() as directory:
        folder, counted = Path(directory), list[Reply]()
        for replies, ends, is_torn in tries:
            archive_interrupted(folder)
            journal = Journal(Trajectory("r", "t", "solver", 0, "m"), folder / NAME)
            for number, reply in enumerate(replies):
                index = journal.message(reply.message)
                journal.call(ModelCall.of(number, (), index, reply))
            journal.end(ExitReason.MODEL)
            if not ends:
                # The try was killed, perhaps in the middle of a line.
                lines = b"".join((folder / NAME).read_bytes().splitlines(keepends=True)[:-1])
                (folder / NAME).write_bytes(lines[:-20] if is_torn else lines)
                replies = replies[:-1] if is_torn else replies
            counted += replies
        for _ in range(reads):
            actual = archive_interrupted(folder)
            assert is_same(actual, expected(counted))
            assert min(actual.tokens, actual.cost_usd, actual.unpriced, actual.estimated) >= 0
        assert len(list(folder.iterdir())) == len(tries)


class Reporting(ScriptedModel):
    """Returns these replies, and raises ModelError after the last."""

    def __init__(self, replies: list[Reply]) -> None:
        super().__init__("reporting", [])
        self._pending = list(replies)

    def reply(self, *_: Any, **__: Any) -> Reply:
        if not self._pending:
            raise ModelError("that was all")
        return self._pending.pop(0)


@given(replies=st.lists(REPLIES, max_size=6))
def test_the_record_the_budget_and_the_model_agree(replies: list[Reply]) -> None:
    budget, limits = Budget(), RolloutLimits(tokens=10**12, usd=1e9, format_errors=100)
    agent = Agent(BudgetedModel(Reporting(replies), budget), [Editor()], limits)
    journal = Journal(Trajectory("r", "t", "solver", 0, "m"))
    done = agent.run("be brief", "repair it", Workspace(FakeSandbox(FakeSandboxProvider(), "/", {}), Limits()), journal)
    assert done.exit_reason is ExitReason.MODEL
    actual = RunUsage.of(done)
    assert is_same(actual, expected(replies))
    assert (total_tokens(budget.spent), budget.estimated) == (actual.tokens, actual.estimated)
    assert budget.spent_usd == pytest.approx(actual.cost_usd, abs=1e-4)
    assert budget.completed_calls == sum(not r.cached for r in replies)


@given(text=st.text(max_size=300), usage=USAGES, ids=st.none() | st.lists(COUNTS, max_size=9).map(tuple))
def test_the_server_s_counts_are_kept_and_missing_ones_are_positive(
    text: str, usage: Usage, ids: tuple[int, ...] | None
) -> None:
    messages = [Message(SYSTEM, "be brief"), Message(USER, text)]
    plain = Usage(usage.prompt_tokens, usage.completion_tokens, usage.cached_tokens)
    reply = Reply(Message(ASSISTANT, text), "stop", plain, token_ids=ids)
    actual = Estimate().counted(messages, (), reply).usage
    assert actual.prompt_tokens == usage.prompt_tokens or (actual.estimated and actual.prompt_tokens > 0)
    assert actual.completion_tokens == usage.completion_tokens or (actual.estimated and actual.completion_tokens > 0)
    assert not actual.estimated or not (usage.prompt_tokens and usage.completion_tokens)
    again = Estimate().counted(messages, (), Reply(reply.message, "stop", actual)).usage
    assert total_tokens(again) == total_tokens(actual), "nothing is counted twice"
