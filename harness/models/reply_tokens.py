"""Find the token ids and log-probabilities in a chat completion: each server has another place for them.

vLLM and new SGLang: `token_ids` of the choice, `prompt_token_ids` of the response or the choice. SGLang before:
`meta_info.output_token_logprobs` of the choice, triples of log-probability, id and text. llama.cpp: `id` in
`logprobs.content`, without those of the prompt. vLLM with `--return-tokens-as-token-ids`: tokens named `token_id:N`
there. litellm moves fields that it does not know to `provider_specific_fields`.

A list that cannot be that of the reply counts as missing: an empty one, and one from `logprobs.content` of another
length than the reported usage, since some servers leave special tokens out there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_NAMED = "token_id:"


@dataclass(frozen=True, slots=True)
class ReplyTokens:
    """The tokens of one response; None for what the server did not return."""

    prompt_ids: tuple[int, ...] | None
    ids: tuple[int, ...] | None
    logprobs: tuple[float, ...] | None
    """One for each of `ids`; None without ids."""


def tokens_of(data: Mapping[str, Any], choice: Mapping[str, Any], *, completion_tokens: int) -> ReplyTokens:
    """Return the tokens of a response and its choice; completion_tokens: the reported length of the reply, or 0.

    Raises TypeError, ValueError or LookupError for fields of another form.
    """
    prompt_ids = _numbers(_field(data, "prompt_token_ids")) or _numbers(_field(choice, "prompt_token_ids")) or None
    logprobs = _logprobs(choice)
    ids = _numbers(_field(choice, "token_ids")) or _ids_of_meta_info(choice)
    if not ids:
        ids = _ids_of_logprobs(choice)
        ids = ids if ids and completion_tokens in (0, len(ids)) else None
    return ReplyTokens(prompt_ids, ids, logprobs if ids and len(logprobs) == len(ids) else None)


def natural(value: Any) -> int:
    """Return a number as an integer that is not negative; raises ValueError or TypeError for anything else."""
    number = int(value)
    if number < 0:
        raise ValueError(f"{number} is less than 0")
    return number


def _field(data: Mapping[str, Any], name: str) -> Any:
    """Return a field from its place in the protocol, or from the place to which litellm moves it."""
    further = data.get("provider_specific_fields") or {}
    return data[name] if data.get(name) is not None else further.get(name)


def _numbers(values: Any) -> tuple[int, ...] | None:
    return None if values is None else tuple(natural(v) for v in values)


def _triples(choice: Mapping[str, Any]) -> list[Any]:
    found = (choice.get("meta_info") or {}).get("output_token_logprobs")
    return found if isinstance(found, list) else []


def _ids_of_meta_info(choice: Mapping[str, Any]) -> tuple[int, ...] | None:
    return _numbers([item[1] for item in _triples(choice)])


def _ids_of_logprobs(choice: Mapping[str, Any]) -> tuple[int, ...] | None:
    ids = []
    for item in _content(choice):
        named = str(item.get("token", ""))
        value = named.removeprefix(_NAMED) if named.startswith(_NAMED) else item.get("id")
        if value is None:
            return None
        ids.append(natural(value))
    return tuple(ids)


def _logprobs(choice: Mapping[str, Any]) -> tuple[float, ...]:
    values = [item["logprob"] for item in _content(choice)] or [item[0] for item in _triples(choice)]
    return tuple(map(float, values))


def _content(choice: Mapping[str, Any]) -> list[Any]:
    data = choice.get("logprobs")
    return list(data.get("content") or ()) if data else []
