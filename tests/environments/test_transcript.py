"""The tokens of an episode, and the settings of trainers' files, without a trainer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from harness.environments.adapters.pool import PoolSettings
from harness.environments.adapters.transcript import ChatTokens, Transcript
from pytest_ssr.errors import ContextError, SettingsError

EOS = 0


class Characters:
    """A tokenizer with a token for each character."""

    eos_token_id = EOS

    def __init__(self, *, rewrites: bool = False) -> None:
        self.rewrites = rewrites

    def apply_chat_template(
        self, messages: Sequence[Mapping[str, str]], *, add_generation_prompt: bool, **options: Any
    ) -> list[int]:
        ids: list[int] = []
        for number, message in enumerate(messages):
            is_old = self.rewrites and number < len(messages) - 1
            ids += self.encode(f"{message['role'][0]}{'' if is_old else message['content']}")
            ids += [EOS] if message["role"] == "assistant" else self.encode("\n")
        return ids + (self.encode("a") if add_generation_prompt else [])

    def encode(self, text: str) -> list[int]:
        return [ord(character) for character in text]

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool) -> str:
        return "".join(chr(token) for token in ids if token != EOS)


def play(transcript: Transcript, replies: Sequence[str], *, end: Sequence[int] = (EOS,)) -> list[list[int]]:
    """Return the sequences of tokens: prompts, replies and observations."""
    sequences: list[list[int]] = []
    for reply in replies:
        addition = transcript.next_prompt()
        if addition.begins:
            sequences.append([])
        ids = [*Characters().encode(reply), *end]
        sequences[-1] += [*addition.ids, *ids]
        assert transcript.add_reply(ids) == reply
        transcript.add_observation(f"of {reply}")
    return sequences


def text(ids: Sequence[int]) -> str:
    return "".join(chr(token) if token != EOS else "$" for token in ids)


def chat(**options: Any) -> ChatTokens:
    return ChatTokens(Characters(**options), {})


def test_prompts_continue_the_sequence() -> None:
    [ids] = play(Transcript(chat(), "sys", "task"), ["one", "two"])
    assert text(ids) == "ssys\nutask\naone$uof one\natwo$"


def test_a_reply_without_an_end_gets_one() -> None:
    [ids] = play(Transcript(chat(), "sys", "task"), ["one", "two"], end=())
    assert text(ids) == "ssys\nutask\naone$uof one\natwo"


def test_each_reply_begins_a_sequence_if_requested() -> None:
    sequences = play(Transcript(chat(), "sys", "task", single_steps=True), ["one", "two"])
    assert [text(ids) for ids in sequences] == ["ssys\nutask\naone$", "ssys\nutask\naone$uof one\natwo$"]


def test_a_cut_begins_a_sequence() -> None:
    replies = ["x" * 50, "y" * 50, "z" * 50]
    sequences = play(Transcript(chat(), "sys", "task", budget=220), replies)
    assert len(sequences) == 2
    assert text(sequences[0]).count("x") == 100
    assert "left out" in text(sequences[1])
    with pytest.raises(ContextError):
        Transcript(chat(), "sys", "task", budget=5).next_prompt()


def test_a_long_observation_is_shortened_in_the_same_sequence() -> None:
    transcript = Transcript(chat(), "sys", "task", budget=200)
    ids = [*transcript.next_prompt().ids, *Characters().encode("one"), EOS]
    transcript.add_reply([*Characters().encode("one"), EOS])
    transcript.add_observation("o" * 500)
    addition = transcript.next_prompt()
    assert not addition.begins
    assert text(ids + addition.ids).startswith("ssys\nutask\naone$uooo")
    assert len(ids + addition.ids) <= 200


def test_a_template_that_does_not_end_replies_with_eos_is_refused() -> None:
    class Open(Characters):
        eos_token_id = 1

    with pytest.raises(SettingsError):
        play(Transcript(ChatTokens(Open(), {}), "sys", "task"), ["one", "two"])


def test_a_template_that_changes_earlier_messages_needs_single_steps() -> None:
    with pytest.raises(SettingsError):
        play(Transcript(chat(rewrites=True), "sys", "task"), ["one", "two"])
    assert len(play(Transcript(chat(rewrites=True), "sys", "task", single_steps=True), ["one", "two"])) == 2


@pytest.mark.parametrize(
    "wrong", [{}, {"project": "x", "dataset": "y"}, {"dataset": "y"}, {"step": 1}, {"project": 1}, {"steps": True}]
)
def test_wrong_settings_are_errors(wrong: dict[str, Any]) -> None:
    with pytest.raises(SettingsError):
        PoolSettings.read(wrong)
