"""The tokens of an episode for trainers whose engine takes token ids: prompts, replies, and observations between them.

A prompt continues the sequence of tokens before it, so that what is trained on is what the engine has seen and sampled.
A new sequence begins where the context was cut, or with every reply if that is requested.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.agents.context import ContextWindow
from harness.records.messages import ASSISTANT, SYSTEM, USER, Message
from pytest_ssr.errors import SettingsError


class ChatTokens:
    """Encodes conversations by the chat template of a tokenizer."""

    def __init__(self, tokenizer: Any, options: Mapping[str, Any]) -> None:
        """options: for each use of the template."""
        self.tokenizer, self._options = tokenizer, dict(options)

    def encode(self, messages: Sequence[Mapping[str, str]], *, ask: bool) -> list[int]:
        """Return the tokens of messages. ask: whether they end with the beginning of a reply."""
        tokens = self.tokenizer.apply_chat_template(
            messages, tokenize=True, add_generation_prompt=ask, return_dict=False, **self._options
        )
        return list(tokens)

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of a reply."""
        return str(self.tokenizer.decode(ids, skip_special_tokens=True))

    def end_of(self, ids: Sequence[int]) -> list[int]:
        """Return the tokens that a reply lacks at its end: EOS, if it was cut before its own."""
        eos = self.tokenizer.eos_token_id
        return [] if ids and ids[-1] == eos else [eos]

    def between(self, output: str) -> list[int]:
        """Return the tokens between a reply that ends with EOS and the next one.

        They are the difference of two conversations, because a template has no part for a single message. Raises
        SettingsError for a template that does not end replies with EOS, or that changes earlier messages.
        """
        conversation = [{"role": USER, "content": "-"}, {"role": ASSISTANT, "content": "-"}]
        before = self.encode(conversation, ask=False)
        eos = self.tokenizer.eos_token_id
        if eos not in before:
            raise SettingsError(
                "the chat template does not end a reply with the tokenizer's EOS, as a rollout needs it"
            )
        while before[-1] != eos:
            before.pop()
        after = self.encode([*conversation, {"role": USER, "content": output}], ask=True)
        if after[: len(before)] != before:
            raise SettingsError(
                "the chat template changes earlier messages, so the tokens of a rollout cannot continue"
            )
        return after[len(before) :]


@dataclass(frozen=True, slots=True)
class Addition:
    """The tokens that precede a reply."""

    ids: list[int]
    begins: bool
    """Whether they are a whole prompt, with which a new sequence begins; otherwise they continue the last one."""


class Transcript:
    """The conversation of one episode."""

    def __init__(
        self, chat: ChatTokens, system: str, prompt: str, *, budget: int = 0, single_steps: bool = False
    ) -> None:
        """budget: tokens of a prompt, beyond which the context is cut; 0 for no limit.

        single_steps: begin a new sequence with every reply.
        """
        self._chat, self._budget, self._single_steps = chat, budget, single_steps
        self._messages = [Message(SYSTEM, system), Message(USER, prompt)]
        self._sent: list[Message] = []
        self._length = 0
        self._missing: list[int] = []
        """The tokens that the last reply lacks at its end."""
        self._window = ContextWindow(budget, self._count) if budget else None

    def next_prompt(self) -> Addition:
        """Return the tokens before the next reply; raises ContextError if not even the required messages fit."""
        while True:
            prompt = self._window.prompt(self._messages) if self._window else None
            sent = list(prompt.messages if prompt else self._messages)
            continues = self._continues(sent)
            ids = self._continuation(sent[-1].content) if continues else self._chat.encode(_plain(sent), ask=True)
            length = (self._length if continues else 0) + len(ids)
            if self._window is None or prompt is None or length <= self._budget:
                break
            # The tokens as they were sampled are more than those of the same text.
            self._window.tighten(prompt)
        self._sent, self._length = sent, length
        return Addition(ids, begins=not continues)

    def add_reply(self, ids: Sequence[int]) -> str:
        """Take the tokens of a reply as they were sampled, and return its text."""
        text = self._chat.decode(ids)
        self._messages.append(Message(ASSISTANT, text))
        self._length += len(ids)
        self._missing = self._chat.end_of(ids)
        return text

    def add_observation(self, output: str) -> None:
        """Take the answer to the last reply."""
        self._messages.append(Message(USER, output))

    def _continues(self, sent: Sequence[Message]) -> bool:
        """Return whether a prompt is the previous one, its reply as it was sampled, and an observation."""
        if self._single_steps or not self._sent:
            return False
        return list(sent[:-1]) == [*self._sent, self._messages[-2]]

    def _continuation(self, output: str) -> list[int]:
        """Return the tokens after the last reply; they begin with EOS if the reply was cut before its own."""
        return self._missing + self._chat.between(output)

    def _count(self, messages: Sequence[Message]) -> int:
        return len(self._chat.encode(_plain(messages), ask=True))


def _plain(messages: Sequence[Message]) -> list[dict[str, str]]:
    return [{"role": message.role, "content": message.content} for message in messages]
