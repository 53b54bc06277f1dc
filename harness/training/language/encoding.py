"""Turn rows into token ids and labels. Recorded token ids are used as they are; messages go through the chat template.

A conversation is rendered once. Where each reply begins and ends in it is found by rendering the conversation up to
it; the pieces between are encoded one by one, as a server encodes a prompt and samples a reply after it. Only replies
are trained on, up to the token that ends them.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from harness.exporters.protocol import Row
from harness.exporters.sft import SERVED
from harness.exporters.tokens import IGNORED
from harness.records.messages import ASSISTANT
from harness.training.language.left_out import LeftOutCode, LeftOutError
from harness.training.language.plan import Data
from harness.training.language.row_files import TEXTS
from pytest_ssr.errors import SettingsError


@dataclass(frozen=True, slots=True)
class Encoded:
    """A sequence of tokens."""

    ids: list[int]
    labels: list[int]
    """The ids of tokens that are trained on, `IGNORED` for the others."""


@dataclass(frozen=True, slots=True)
class Encoder:
    """Encodes rows for one model."""

    tokenizer: Any
    data: Data
    names: frozenset[str]
    """The names of the model, and of recorded models with the same tokenizer."""
    limit: int
    """Tokens of the longest sequence."""
    vocabulary: int
    """The number of token ids that the tokenizer and the model have."""

    def sequence(self, row: Row) -> Encoded:
        """Return the tokens of a row of `sft`, `sft-tokens` or `bc`; raises LeftOutError if it is not trained on."""
        if "input_ids" in row and not self.data.ignore_token_ids:
            encoded = self._recorded(row)
        elif "messages" in row:
            encoded = self._conversation(row["messages"], row.get("tools"))
        else:
            encoded = self._conversation([*row["prompt"], *row["completion"]], row.get("tools"), len(row["prompt"]))
        self.require_length(len(encoded.ids))
        if all(label == IGNORED for label in encoded.labels[1:]):
            raise LeftOutError(LeftOutCode.NOTHING_TO_LEARN)
        return encoded

    def require_length(self, length: int) -> None:
        """Raise LeftOutError if a sequence is longer than the limit."""
        if length > self.limit:
            raise LeftOutError(LeftOutCode.TOO_LONG, f"{length} of {self.limit} tokens")

    def length(self, messages: Sequence[Any], tools: Any) -> int:
        """Return the number of tokens of a conversation."""
        return len(self._encode(self._render(messages, tools, ask=False)))

    def _recorded(self, row: Row) -> Encoded:
        """Return recorded tokens; raises SettingsError for another model, LeftOutError for another tokenizer."""
        model = base_name(str(row.get(SERVED) or row.get("model", "")))
        if model not in self.names:
            raise SettingsError(
                f"recorded token ids are of the model {model!r}, not of {' or '.join(sorted(self.names))}; "
                f"if both have the same tokenizer, use --tokens-of {shlex.quote(model)}; "
                "--ignore-token-ids encodes the text again",
                option="tokens-of",
            )
        ids, labels = list(row["input_ids"]), list(row["labels"])
        if len(ids) != len(labels):
            raise SettingsError(f"a row has {len(ids)} token ids and {len(labels)} labels", option="source")
        if any(label not in (IGNORED, token) for token, label in zip(ids, labels, strict=True)):
            raise SettingsError(f"a label of a row is neither {IGNORED} nor the token's id", option="source")
        highest = max(ids, default=0)
        if highest >= self.vocabulary or min(ids, default=0) < 0:
            raise LeftOutError(LeftOutCode.OTHER_TOKENIZER, f"the id {highest}; there are {self.vocabulary} tokens")
        trained = self.tokenizer.decode([label for label in labels if label != IGNORED])
        # A server may remove reasoning, calls and white space from the text of a reply.
        if missing := next((text for text in row.get(TEXTS) or () if text.strip() not in trained), None):
            raise LeftOutError(LeftOutCode.OTHER_TOKENIZER, f"no {missing.strip()[:40]!r} in its tokens")
        return Encoded(ids, labels)

    def _conversation(self, messages: Sequence[Any], tools: Any, first: int = 0) -> Encoded:
        """Return a conversation whose replies are trained on. first: the index of the first such message."""
        text = self._render(messages, tools, ask=False)
        ids: list[int] = []
        labels: list[int] = []
        end = 0
        for index, message in enumerate(messages):
            if message["role"] != ASSISTANT or index < first:
                continue
            prompt = self._render(messages[:index], tools, ask=True)
            reply = self._render(messages[: index + 1], tools, ask=False)
            if not (text.startswith(reply) and reply.startswith(prompt) and len(prompt) >= end):
                raise LeftOutError(LeftOutCode.TEMPLATE_CHANGES_TURNS)
            before = self._encode(text[end : len(prompt)])
            said = self._encode(self._until_eos(reply[len(prompt) :]))
            end = len(prompt) + len(self._until_eos(reply[len(prompt) :]))
            ids += before + said
            labels += [IGNORED] * len(before) + said
        return Encoded(ids, labels)

    def _until_eos(self, reply: str) -> str:
        """Return a rendered reply without what the template adds after the token that ends it."""
        eos = self.tokenizer.eos_token
        end = reply.rfind(eos) if eos else -1
        return reply if end < 0 else reply[: end + len(eos)]

    def _render(self, messages: Sequence[Any], tools: Any, *, ask: bool) -> str:
        try:
            text: str = self.tokenizer.apply_chat_template(
                list(messages), tools=tools or None, tokenize=False, add_generation_prompt=ask
            )
        except Exception as error:
            # A template is code of the model: it raises errors of its own and any of Python's.
            detail = " ".join(str(error).split())
            raise LeftOutError(LeftOutCode.TEMPLATE_FAILS, f"{type(error).__name__}: {detail}") from None
        return text

    def _encode(self, text: str) -> list[int]:
        return list(self.tokenizer(text, add_special_tokens=False)["input_ids"]) if text else []


def base_name(model: str) -> str:
    """Return the last part of a model's name or path: `hosted_vllm/Qwen/Qwen2.5-0.5B` has the part `Qwen2.5-0.5B`.

    The name of a server's URL is returned as it is: it does not contain the model's name.
    """
    if "://" in model:
        return model
    return model.rstrip("/").rpartition("/")[2].rpartition(":")[2]
