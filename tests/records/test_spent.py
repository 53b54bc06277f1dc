"""What rollouts have used is counted once, whatever they recorded and however often they were cut off."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.agents.desk import Desk
from harness.agents.limits import RolloutLimits
from harness.agents.loop import Agent
from harness.agents.tools.editor import Editor
from harness.messages import ASSISTANT, SYSTEM, USER, Message, Reply, Usage
from harness.models.counting import Estimate
from harness.models.scripted import ScriptedModel
from harness.models.spending import Budget, Spending, tokens_of
from harness.spent import NAME, Spent, begin_anew
from harness.trajectory import ExitReason, Journal, ModelCall, Trajectory
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


def expected(replies: list[Reply]) -> Spent:
    """What a rollout with these replies has used."""
    paid = [r for r in replies if not r.cached]
    return Spent(
        sum(r.usage.prompt_tokens + r.usage.completion_tokens for r in paid),
        sum(r.cost_usd or 0.0 for r in paid),
        sum(r.cost_usd is None for r in paid if r.sampled),
        sum(r.usage.estimated for r in paid),
    )


def is_same(found: Spent, wanted: Spent) -> bool:
    counts = [(s.tokens, s.unpriced, s.estimated) for s in (found, wanted)]
    return counts[0] == counts[1] and found.cost_usd == pytest.approx(wanted.cost_usd, abs=1e-4)


@given(
    tries=st.lists(st.tuples(st.lists(REPLIES, max_size=4), st.booleans(), st.booleans()), max_size=4),
    looks=st.integers(1, 3),
)
def test_each_call_of_each_try_is_counted_once(tries: list[tuple[list[Reply], bool, bool]], looks: int) -> None:
    with tempfile.TemporaryDirectory() as place:
        folder, wanted = Path(place), list[Reply]()
        for replies, ends, is_torn in tries:
            begin_anew(folder)
            journal = Journal(Trajectory("r", "t", "solver", 0, "m"), folder / NAME)
            for number, reply in enumerate(replies):
                place_of = journal.message(reply.message)
                journal.call(ModelCall.of(number, (), place_of, reply))
            journal.end(ExitReason.MODEL)
            if not ends:
                # It was killed, perhaps in the middle of a line.
                told = b"".join((folder / NAME).read_bytes().splitlines(keepends=True)[:-1])
                (folder / NAME).write_bytes(told[:-20] if is_torn else told)
                replies = replies[:-1] if is_torn else replies
            wanted += replies
        for _ in range(looks):
            found = begin_anew(folder)
            assert is_same(found, expected(wanted))
            assert min(found.tokens, found.cost_usd, found.unpriced, found.estimated) >= 0
        assert len(list(folder.iterdir())) == len(tries)


class Reporting(ScriptedModel):
    """Replies as it is told, and then no more."""

    def __init__(self, told: list[Reply]) -> None:
        super().__init__("reporting", [])
        self._told = list(told)

    def reply(self, *_: Any, **__: Any) -> Reply:
        if not self._told:
            raise ModelError("that was all")
        return self._told.pop(0)


@given(told=st.lists(REPLIES, max_size=6))
def test_the_record_the_budget_and_the_model_agree(told: list[Reply]) -> None:
    budget, limits = Budget(), RolloutLimits(tokens=10**12, usd=1e9, format_errors=100)
    agent = Agent(Spending(Reporting(told), budget), [Editor()], limits)
    journal = Journal(Trajectory("r", "t", "solver", 0, "m"))
    done = agent.run("be brief", "repair it", Desk(FakeSandbox(FakeSandboxProvider(), "/", {}), Limits()), journal)
    assert done.exit_reason is ExitReason.MODEL
    found = Spent.of(done)
    assert is_same(found, expected(told))
    assert (tokens_of(budget.spent), budget.estimated) == (found.tokens, found.estimated)
    assert budget.spent_usd == pytest.approx(found.cost_usd, abs=1e-4)
    assert budget.made == sum(not r.cached for r in told)


@given(text=st.text(max_size=300), usage=USAGES, ids=st.none() | st.lists(COUNTS, max_size=9).map(tuple))
def test_what_a_server_counts_is_kept_and_what_it_does_not_is_more_than_nothing(
    text: str, usage: Usage, ids: tuple[int, ...] | None
) -> None:
    asked = [Message(SYSTEM, "be brief"), Message(USER, text)]
    plain = Usage(usage.prompt_tokens, usage.completion_tokens, usage.cached_tokens)
    reply = Reply(Message(ASSISTANT, text), "stop", plain, token_ids=ids)
    found = Estimate().counted(asked, (), reply).usage
    assert found.prompt_tokens == usage.prompt_tokens or (found.estimated and found.prompt_tokens > 0)
    assert found.completion_tokens == usage.completion_tokens or (found.estimated and found.completion_tokens > 0)
    assert not found.estimated or not (usage.prompt_tokens and usage.completion_tokens)
    again = Estimate().counted(asked, (), Reply(reply.message, "stop", found)).usage
    assert tokens_of(again) == tokens_of(found), "nothing is counted twice"
