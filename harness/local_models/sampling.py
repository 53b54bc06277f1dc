"""Sample replies of a chat model on this machine: several at a time, which share what was read of the prompt."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from harness.local_models.torch_model import LOADING, TorchModel
from harness.local_models.weights import Weights, find_weights
from pytest_ssr.errors import SettingsError

Message = Mapping[str, str]
"""A message of a chat: its role and its content."""


@dataclass(frozen=True, slots=True)
class Question:
    """What replies are sampled for."""

    messages: Sequence[Message]
    begin: str
    """The beginning of every reply, which is not sampled."""
    end: str
    """A reply ends when the text after its beginning contains this."""


@dataclass(frozen=True, slots=True)
class Sampled:
    """Replies, and what they cost."""

    replies: tuple[str, ...]
    """Each with its beginning; one that ran out of tokens is not complete. Empty if the prompt leaves no room."""
    tokens: int
    """Number of tokens that were read or written."""


class Sampler(Protocol):
    """A language model that writes replies."""

    @property
    def key(self) -> str:
        """A hash of everything that replies depend on, besides the question."""
        ...

    def sample(self, question: Question, *, count: int, temperature: float, tokens: int, seed: int) -> Sampled:
        """Return replies; the same ones for the same seed, which must be at least 0. tokens: the most of one reply."""
        ...


@dataclass(frozen=True, slots=True)
class LocalSampler:
    """A model on this machine. It holds no weights, so that it can be sent to other processes."""

    weights: Weights

    @property
    def key(self) -> str:
        """A hash of the model."""
        return self.weights.key

    def sample(self, question: Question, *, count: int, temperature: float, tokens: int, seed: int) -> Sampled:
        """Return replies; see `Sampler`. The first call loads the model; it raises SettingsError if that fails."""
        model = _open_model(self.weights)
        return model.sample(question, count=count, temperature=temperature, tokens=tokens, seed=seed)


def open_sampler(name: str, *, option: str) -> LocalSampler:
    """Return the model that a name stands for; see `find_weights` for names and errors. option: what named it."""
    return LocalSampler(find_weights(name, option=option))


class SamplingModel(TorchModel):
    """A causal language model with a chat template."""

    def __init__(self, weights: Weights) -> None:
        """Load the model; raises MissingExtraError or SettingsError."""
        super().__init__(weights)
        if not self.tokenizer.chat_template:
            raise SettingsError(
                f"the tokenizer of {weights.folder} has no chat template; the model is not one for chats"
            )
        try:
            self._prompt([{"role": "user", "content": "x"}])
        # Templates are programs, which can fail in any way.
        except Exception as error:
            raise SettingsError(
                f"the chat template of {weights.folder} does not work: {type(error).__name__}: {error}"
            ) from None

    def sample(self, question: Question, *, count: int, temperature: float, tokens: int, seed: int) -> Sampled:
        """Return replies; see `Sampler`."""
        text = self._prompt(question.messages)
        # Encoded apart, as in training: a reply begins with a token of its own.
        prompt = [*self._ids(text), *self._ids(question.begin)]
        if len(prompt) + tokens > self.most_tokens:
            return Sampled((), 0)
        with self.guard:
            return self._sample(prompt, question, count, temperature, tokens, seed)

    def _prompt(self, messages: Sequence[Message]) -> str:
        text: str = self.tokenizer.apply_chat_template(
            [dict(message) for message in messages], tokenize=False, add_generation_prompt=True
        )
        return text

    def _ids(self, text: str) -> list[int]:
        return list(self.tokenizer(text, add_special_tokens=False)["input_ids"])

    def _sample(
        self, prompt: Sequence[int], question: Question, count: int, temperature: float, tokens: int, seed: int
    ) -> Sampled:
        import torch
        from transformers import DynamicCache

        # Each reply has its own numbers, so it does not depend on the others.
        generators = [torch.Generator().manual_seed(seed + index) for index in range(count)]
        written: list[list[int]] = [[] for _ in range(count)]
        texts = [""] * count
        read = len(prompt)
        with torch.inference_mode():
            cache: Any = DynamicCache(config=self.model.config)
            named = {self._cache_name: cache}
            output = self.model(torch.tensor([prompt]), use_cache=True, logits_to_keep=1, **named)
            cache.batch_repeat_interleave(count)
            logits = output.logits[:, -1].repeat(count, 1)
            open_ones = list(range(count))
            for _ in range(tokens):
                shares = (logits / temperature).softmax(-1)
                drawn = [torch.multinomial(shares[i], 1, generator=generators[n]) for i, n in enumerate(open_ones)]
                chosen = torch.stack(drawn)
                read += len(open_ones)
                kept = []
                for place, index in enumerate(open_ones):
                    token = int(chosen[place, 0])
                    if token == self.tokenizer.eos_token_id:
                        continue
                    written[index].append(token)
                    texts[index] = self.tokenizer.decode(written[index], skip_special_tokens=True)
                    if question.end not in texts[index]:
                        kept.append(place)
                if not kept:
                    break
                if len(kept) < len(open_ones):
                    cache.batch_select_indices(torch.tensor(kept))
                    chosen, open_ones = chosen[kept], [open_ones[place] for place in kept]
                logits = self.model(chosen, use_cache=True, **named).logits[:, -1]
        return Sampled(tuple(f"{question.begin}{text}" for text in texts), read)


def _open_model(weights: Weights) -> SamplingModel:
    """Return a loaded model, which all of this process shares; see `SamplingModel`."""
    with LOADING:
        return _open_once(weights)


@functools.lru_cache(maxsize=2)
def _open_once(weights: Weights) -> SamplingModel:
    return SamplingModel(weights)
