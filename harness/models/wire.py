"""Build requests and parse responses of OpenAI's chat protocol with vLLM's additional fields.

Responses are not trusted: a field that is missing, of the wrong type or absurd raises a ModelError that names it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from harness.models.protocol import ToolSchema
from harness.models.urls import masked
from harness.records.messages import ASSISTANT, REASONING, Message, Reply, Sampling, ToolCall, Usage, is_deep
from pytest_ssr.errors import ModelError

RETRIED = frozenset((408, 409, 425, 429, 500, 502, 503, 504, 529))
"""Statuses after which the same request may be answered later."""
_TOO_LONG = ("context length", "context window", "maximum context", "too long", "max_model_len", "context_length")

_OBJECTIONS = (
    *("content policy", "content_policy", "content filter", "content_filter", "content management policy"),
    *("inappropriate content", "prohibited content", "prohibited_content", "content exists risk", "data_inspection"),
    *("usage policy", "usage policies", "moderation", "guardrail", "was flagged", "been flagged", "safety system"),
)
"""Phrases with which servers and providers refuse a prompt for its content."""


def request_of(
    model: str, messages: Sequence[Message], tools: Sequence[ToolSchema], sampling: Sampling
) -> dict[str, Any]:
    """Return the body of a request that every server of the protocol accepts."""
    body: dict[str, Any] = {
        "model": model,
        "messages": [m.to_wire() for m in messages],
        **_sampling_fields(model, sampling),
        "max_tokens": sampling.max_tokens,
    }
    if tools:
        body["tools"] = list(tools)
    if sampling.seed is not None:
        body["seed"] = sampling.seed
    return body


def _sampling_fields(model: str, sampling: Sampling) -> dict[str, float]:
    """Return the request's temperature and top_p.

    Newer models of Anthropic refuse a temperature together with a top_p, so one that has its default value, or no
    effect, is not sent.
    """
    both = {"temperature": sampling.temperature, "top_p": sampling.top_p}
    if not model.startswith("anthropic/") and "claude" not in model.lower():
        return both
    if sampling.top_p in (1.0, Sampling().top_p):
        del both["top_p"]
    elif sampling.temperature == Sampling().temperature:
        del both["temperature"]
    return both


def reply_of(
    data: object, *, latency_s: float, cost_usd: float | None = None, hide: Callable[[str], str] = masked
) -> Reply:
    """Return the reply in a response; raises ModelError for any other response.

    hide: removes secrets from a string.
    """
    try:
        assert isinstance(data, Mapping)
        choice = data["choices"][0]
        message = choice["message"]
        content = message.get("content") or ""
        assert isinstance(content, str)
        content = _without_surrogates(content)
        calls = tuple(_call(call, index) for index, call in enumerate(message.get("tool_calls") or ()))
        token_ids = _numbers(_field(choice, "token_ids"))
        logprobs = _logprobs(choice.get("logprobs"))
        return Reply(
            message=Message(ASSISTANT, content, calls, thoughts=_thoughts(message)),
            finish_reason=str(choice.get("finish_reason") or "stop"),
            usage=_usage(data.get("usage")),
            cost_usd=cost_usd,
            latency_s=round(latency_s, 3),
            request_id=str(data.get("id") or ""),
            prompt_ids=_numbers(_field(data, "prompt_token_ids")),
            token_ids=token_ids,
            logprobs=logprobs if token_ids is None or logprobs is None or len(logprobs) == len(token_ids) else None,
        )
    except (AssertionError, LookupError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
        reason = hide(f"{type(error).__name__}: {error}")[:200]
        shown = "nested too deeply" if is_deep(data) else hide(repr(data))[:300]
        raise ModelError(f"the server's response is not a chat completion ({reason}): {shown}", retry=True) from None


def _call(call: Mapping[str, Any], index: int) -> ToolCall:
    function = call["function"]
    raw = function.get("arguments")
    if not isinstance(raw, str):
        raise TypeError("the arguments of a tool call are not a string")
    return ToolCall.parse(
        _without_surrogates(str(call.get("id") or f"call-{index}")),
        _without_surrogates(str(function["name"])),
        _without_surrogates(raw),
    )


def _thoughts(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields with the model's reasoning unchanged; those of an unknown form are ignored.

    That includes blocks that are nested too deeply, or contain numbers that JSON does not have.
    """
    *texts, blocks = REASONING
    fields = {name: message[name] for name in texts if isinstance(message.get(name), str) and message[name]}
    if isinstance(value := message.get(blocks), list) and value and all(isinstance(b, dict) for b in value):
        if not is_deep(value) and _is_json(value):
            fields[blocks] = value
    thoughts: dict[str, Any] = json.loads(_without_surrogates(json.dumps(fields, ensure_ascii=False)))
    return thoughts


def _is_json(data: object) -> bool:
    try:
        json.dumps(data, allow_nan=False)
    except ValueError:
        return False
    return True


def is_too_long(message: str) -> bool:
    """Return whether a server refuses a prompt for its length."""
    return any(phrase in message.lower() for phrase in _TOO_LONG)


def is_objected_to(message: str) -> bool:
    """Return whether a server refuses a prompt for its content, and not for its form."""
    return any(phrase in message.lower() for phrase in _OBJECTIONS)


def _without_surrogates(text: str) -> str:
    """Return a string without lone surrogates, which JSON can contain but no file or request can."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _field(data: Mapping[str, Any], name: str) -> Any:
    """Return a field from its place in the protocol, or from the place to which litellm moves it."""
    further = data.get("provider_specific_fields") or {}
    return data[name] if data.get(name) is not None else further.get(name)


def _numbers(values: Any) -> tuple[int, ...] | None:
    return None if values is None else tuple(_natural(v) for v in values)


def _natural(value: Any) -> int:
    number = int(value)
    if number < 0:
        raise ValueError(f"{number} is less than 0")
    return number


def _logprobs(data: Any) -> tuple[float, ...] | None:
    if not data or data.get("content") is None:
        return None
    return tuple(float(item["logprob"]) for item in data["content"])


def _usage(data: Any) -> Usage:
    if not data:
        return Usage()
    details = data.get("prompt_tokens_details") or {}
    return Usage(
        _natural(data.get("prompt_tokens") or 0),
        _natural(data.get("completion_tokens") or 0),
        _natural(details.get("cached_tokens") or 0),
    )
