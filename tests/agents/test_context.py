"""What is sent always fits, keeps what it must, and is the same for the same past."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from harness.agents.context import HEAD_SHARE, ContextWindow, elided
from harness.messages import ASSISTANT, SYSTEM, TOOL, USER, Message, ToolCall, characters
from pytest_ssr.errors import ContextError

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


def dear(messages: Sequence[Message]) -> int:
    """Counts more for many messages than for each of them."""
    return characters(messages) + 7 * len(messages) + len(messages) ** 2


@given(pasts(), st.integers(100, 3000), st.sampled_from([characters, dear]))
def test_it_fits_and_keeps_the_task_and_the_newest(past: list[Message], budget: int, count: object) -> None:
    assert callable(count)
    window = ContextWindow(budget, count)
    try:
        prompt = window.prompt(past)
    except ContextError:
        start = next((i for i, m in enumerate(past) if m.role == ASSISTANT), len(past))
        newest = max((i for i, m in enumerate(past) if m.role == ASSISTANT), default=len(past))
        said = Message(USER, "[12 earlier turns are left out here]")
        assert count([*past[:start], said, *past[newest:]]) > budget
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
    places = [s for s in prompt.sent if isinstance(s, int)]
    assert places == sorted(set(places))
    for message, place in zip(prompt.messages, prompt.sent, strict=True):
        if isinstance(place, int):
            assert message == past[place]
        else:
            assert message == Message.from_json(place)


@given(pasts(), st.integers(100, 3000))
def test_what_fits_is_sent_as_it_is(past: list[Message], budget: int) -> None:
    assume(characters(past) <= budget)
    assert ContextWindow(budget, characters).prompt(past).sent == tuple(range(len(past)))


@given(pasts(), st.integers(400, 2000))
def test_a_rollout_replayed_sends_the_same(past: list[Message], budget: int) -> None:
    ends = [*[i for i, m in enumerate(past) if m.role == ASSISTANT][1:], len(past)]

    def sent() -> list[object]:
        window, found = ContextWindow(budget, characters), []
        for end in ends:
            try:
                found.append(window.prompt(past[:end]).sent)
            except ContextError as error:
                found.append(str(error))  # type: ignore[arg-type]
        return list(found)

    assert sent() == sent()


def long_past(steps: int, size: int = 100) -> list[Message]:
    found = [Message(SYSTEM, "s"), Message(USER, "t")]
    for n in range(steps):
        found += [Message(ASSISTANT, f"step {n}", (ToolCall.parse(f"c{n}", "bash", "{}"),))]
        found += [Message(TOOL, f"{n}" * size, tool_call_id=f"c{n}")]
    return found


def test_the_oldest_turns_have_a_share_and_the_newest_the_rest() -> None:
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


def test_after_a_cut_many_prompts_begin_with_the_one_before() -> None:
    past, window, before, cuts = long_past(60), ContextWindow(2000, characters), (), 0
    for end in range(4, len(past) + 1, 2):
        sent = window.prompt(past[:end]).messages
        cuts += sent[: len(before)] != before
        before = sent
    assert 2 <= cuts <= 18, "with a cut at each step past the limit it would be fifty"


def test_a_newest_turn_that_is_too_long_loses_its_middle() -> None:
    past = [*long_past(3), Message(ASSISTANT, "", (ToolCall.parse("x", "bash", '{"command": "cat all"}'),))]
    past.append(Message(TOOL, "begin " + "x" * 50_000 + " end", tool_call_id="x"))
    prompt = ContextWindow(1000, characters).prompt(past)
    assert characters(prompt.messages) <= 1000
    assert prompt.messages[-1].content.startswith("begin x")
    assert prompt.messages[-1].content.endswith("x end")
    assert prompt.messages[-2].tool_calls[0].arguments == {"command": "cat all"}


def test_thoughts_are_counted_and_go_whole_or_not_at_all() -> None:
    signed = {"thinking_blocks": [{"type": "redacted_thinking", "data": "s" * 3000}]}
    call = (ToolCall.parse("x", "bash", '{"command": "ls"}'),)
    past = [*long_past(3), Message(ASSISTANT, "so", call, thoughts=signed), Message(TOOL, "a.py", tool_call_id="x")]
    assert characters(past) - characters([replace(m, thoughts={}) for m in past]) > 3000
    whole = ContextWindow(5000, characters).prompt(past)
    assert whole.messages[-2].thoughts == signed
    cut = ContextWindow(1000, characters).prompt(past)
    assert characters(cut.messages) <= 1000
    assert cut.messages[-2] == replace(past[-2], thoughts={})
    assert Message.from_json(cut.sent[-2]) == cut.messages[-2]  # type: ignore[arg-type]


def test_a_task_that_does_not_fit_is_said() -> None:
    with pytest.raises(ContextError, match="the task alone does not fit into 10 tokens"):
        ContextWindow(10, characters).prompt([Message(SYSTEM, "s"), Message(USER, "t" * 50)])


@given(st.text(max_size=3000), st.integers(0, 500))
def test_an_elided_text_says_how_much_is_gone(text: str, most: int) -> None:
    short, gone = elided(text, most)
    assert len(short) <= most + 60
    if gone:
        half = most // 2
        assert short == f"{text[:half]}\n[... {gone} characters left out ...]\n{text[len(text) - half :]}"
        assert gone == len(text) - 2 * half
    else:
        assert short == text
