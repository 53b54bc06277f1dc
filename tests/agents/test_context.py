"""Prompts always fit, keep the required messages, and are deterministic."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from harness.agents.context import HEAD_SHARE, ContextWindow, elided
from harness.records.messages import ASSISTANT, SYSTEM, TOOL, USER, Message, ToolCall, characters
from pytest_ssr.errors import ContextError
from pytest_ssr.records.decoding import decode

TEXTS = st.text("ab \n", max_size=400)


@st.composite
def turns(draw: st.DrawFn) -> list[Message]:
    if draw(st.booleans()):
        thoughts = draw(st.one_of(st.just({}), TEXTS.map(lambda t: {"reasoning": t})))
        return [Message(ASSISTANT, draw(TEXTS), thoughts=thoughts), Message(USER, draw(TEXTS))]
    raw = draw(st.one_of(st.just("{}"), TEXTS.map(lambda t: f'{{"command": "{t.strip()}"}}'.replace("\n", " ")), TEXTS))
    calls = tuple(ToolCall.parse(f"c{n}", "bash", raw) for n in range(draw(st.integers(1, 3))))
    return [Message(ASSISTANT, draw(TEXTS), calls), *(Message(TOOL, draw(TEXTS), tool_call_id=c.id) for c in calls)]


@st.composite
def pasts(draw: st.DrawFn) -> list[Message]:
    start = [Message(SYSTEM, "be brief"), Message(USER, "the task " + draw(TEXTS))]
    return start + [m for turn in draw(st.lists(turns(), max_size=12)) for m in turn]


def superadditive(messages: Sequence[Message]) -> int:
    """Count more for several messages together than for each alone."""
    return characters(messages) + 7 * len(messages) + len(messages) ** 2


@given(pasts(), st.integers(100, 3000), st.sampled_from([characters, superadditive]))
def test_a_prompt_fits_and_keeps_the_task_and_the_newest_turn(past: list[Message], budget: int, count: object) -> None:
    assert callable(count)
    window = ContextWindow(budget, count)
    try:
        prompt = window.prompt(past)
    except ContextError:
        start = next((i for i, m in enumerate(past) if m.role == ASSISTANT), len(past))
        newest = max((i for i, m in enumerate(past) if m.role == ASSISTANT), default=len(past))
        marker = Message(USER, "[12 earlier turns are left out here]")
        assert count([*past[:start], marker, *past[newest:]]) > budget
        return
    assert count(prompt.messages) <= budget
    assert prompt.messages[:2] == tuple(past[:2])
    assert len(prompt.messages) == len(prompt.sent)
    last, sent = past[-1], prompt.messages[-1]
    assert sent.role == last.role
    assert sent.tool_call_id == last.tool_call_id
    assert sent.content == last.content or "left out" in sent.content
    called = {c.id for m in prompt.messages for c in m.tool_calls}
    answered = {m.tool_call_id for m in prompt.messages if m.role == TOOL}
    assert called == answered, "turns are whole"
    indices = [s for s in prompt.sent if isinstance(s, int)]
    assert indices == sorted(set(indices))
    for message, index in zip(prompt.messages, prompt.sent, strict=True):
        if isinstance(index, int):
            assert message == past[index]
        else:
            assert message == decode(Message, index)


@given(pasts(), st.integers(100, 3000))
def test_messages_that_fit_are_sent_unchanged(past: list[Message], budget: int) -> None:
    assume(characters(past) <= budget)
    assert ContextWindow(budget, characters).prompt(past).sent == tuple(range(len(past)))


@given(pasts(), st.integers(400, 2000))
def test_a_replayed_rollout_sends_the_same_prompts(past: list[Message], budget: int) -> None:
    stops = [*[i for i, m in enumerate(past) if m.role == ASSISTANT][1:], len(past)]

    def sent() -> list[object]:
        window, prompts = ContextWindow(budget, characters), []
        for end in stops:
            try:
                prompts.append(window.prompt(past[:end]).sent)
            except ContextError as error:
                prompts.append(str(error))  # type: ignore[arg-type]
        return list(prompts)

    assert sent() == sent()


def long_past(steps: int, size: int = 100) -> list[Message]:
    messages = [Message(SYSTEM, "s"), Message(USER, "t")]
    for n in range(steps):
        messages += [Message(ASSISTANT, f"step {n}", (ToolCall.parse(f"c{n}", "bash", "{}"),))]
        messages += [Message(TOOL, f"{n}" * size, tool_call_id=f"c{n}")]
    return messages


def test_the_oldest_turns_get_a_share_and_the_newest_the_rest() -> None:
    past = long_past(40)
    prompt = ContextWindow(2000, characters).prompt(past)
    marker = next(i for i, s in enumerate(prompt.sent) if not isinstance(s, int))
    head, tail = prompt.messages[2:marker], prompt.messages[marker + 1 :]
    assert "earlier turns are left out here" in prompt.messages[marker].content
    assert prompt.messages[marker].role == USER
    assert 0 < characters(head) <= HEAD_SHARE * 2000
    assert characters(tail) > 1.5 * characters(head)
    assert head[0].content == "step 0"
    assert tail[-2].content == "step 39"


def test_after_a_cut_many_prompts_begin_with_the_previous_one() -> None:
    past, window, before, cuts = long_past(60), ContextWindow(2000, characters), (), 0
    for end in range(4, len(past) + 1, 2):
        sent = window.prompt(past[:end]).messages
        cuts += sent[: len(before)] != before
        before = sent
    assert 2 <= cuts <= 18, "a cut at each step past the limit would make fifty"


def test_a_newest_turn_that_is_too_long_is_shortened_in_the_middle() -> None:
    past = [*long_past(3), Message(ASSISTANT, "", (ToolCall.parse("x", "bash", '{"command": "cat all"}'),))]
    past.append(Message(TOOL, "begin " + "x" * 50_000 + " end", tool_call_id="x"))
    prompt = ContextWindow(1000, characters).prompt(past)
    assert characters(prompt.messages) <= 1000
    assert prompt.messages[-1].content.startswith("begin x")
    assert prompt.messages[-1].content.endswith("x end")
    assert prompt.messages[-2].tool_calls[0].arguments == {"command": "cat all"}


def test_reasoning_is_counted_and_sent_whole_or_not_at_all() -> None:
    signed = {"thinking_blocks": [{"type": "redacted_thinking", "data": "s" * 3000}]}
    call = (ToolCall.parse("x", "bash", '{"command": "ls"}'),)
    past = [*long_past(3), Message(ASSISTANT, "so", call, thoughts=signed), Message(TOOL, "a.py", tool_call_id="x")]
    assert characters(past) - characters([replace(m, thoughts={}) for m in past]) > 3000
    whole = ContextWindow(5000, characters).prompt(past)
    assert whole.messages[-2].thoughts == signed
    cut = ContextWindow(1000, characters).prompt(past)
    assert characters(cut.messages) <= 1000
    assert cut.messages[-2] == replace(past[-2], thoughts={})
    assert decode(Message, cut.sent[-2]) == cut.messages[-2]


def test_a_task_that_does_not_fit_is_an_error() -> None:
    with pytest.raises(ContextError, match="the task alone does not fit into 10 tokens"):
        ContextWindow(10, characters).prompt([Message(SYSTEM, "s"), Message(USER, "t" * 50)])


@given(st.text(max_size=3000), st.integers(0, 500))
def test_an_elided_string_gives_the_number_of_omitted_characters(text: str, max_chars: int) -> None:
    short, omitted = elided(text, max_chars)
    assert len(short) <= max_chars + 60
    if omitted:
        half = max_chars // 2
        assert short == f"{text[:half]}\n[... {omitted} characters left out ...]\n{text[len(text) - half :]}"
        assert omitted == len(text) - 2 * half
    else:
        assert short == text
