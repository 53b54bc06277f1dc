"""Build requests and parse responses of OpenAI's chat protocol with vLLM's additional fields.

Responses are not trusted: a field that is missing, of the wrong type or absurd raises a ModelError that names it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from harness.models.protocol import ToolSchema
from harness.models.reply_tokens import natural, tokens_of
from harness.models.urls import masked
from harness.records.messages import ASSISTANT, REASONING, Message, Reply, Sampling, ToolCall, Usage, is_deep
from pytest_ssr.errors import ModelError


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
        content = _without_surrogates(_text_of(message.get("content")))
        calls = tuple(_call(call, index) for index, call in enumerate(message.get("tool_calls") or ()))
        usage = _usage(data.get("usage"))
        tokens = tokens_of(data, choice, completion_tokens=usage.completion_tokens)
        return Reply(
            message=Message(ASSISTANT, content, calls, thoughts=_thoughts(message)),
            finish_reason=str(choice.get("finish_reason") or "stop"),
            usage=usage,
            cost_usd=cost_usd,
            latency_s=round(latency_s, 3),
            request_id=str(data.get("id") or ""),
            prompt_ids=tokens.prompt_ids,
            token_ids=tokens.ids,
            logprobs=tokens.logprobs,
        )
    except (AssertionError, LookupError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
        reason = hide(f"{type(error).__name__}: {error}")[:200]
        shown = "nested too deeply" if is_deep(data) else hide(repr(data))[:300]
        raise ModelError(f"the server's response is not a chat completion ({reason}): {shown}", retry=True) from None


def _text_of(content: object) -> str:
    """Return a message's text; some servers send a list of parts."""
    if isinstance(content, list):
        return "".join(str(part["text"]) for part in content if part.get("type") == "text")
    if not isinstance(content, str | None):
        raise TypeError("the content of the message is not a string")
    return content or ""


def _call(call: Mapping[str, Any], index: int) -> ToolCall:
    function = call["function"]
    raw = function.get("arguments")
    if isinstance(raw, dict) and not is_deep(raw):
        # Ollama's own protocol and servers that follow it.
        raw = json.dumps(raw)
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


def _without_surrogates(text: str) -> str:
    """Return a string without lone surrogates, which JSON can contain but no file or request can."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _usage(data: Any) -> Usage:
    if not data:
        return Usage()
    details = data.get("prompt_tokens_details") or {}
    return Usage(
        natural(data.get("prompt_tokens") or 0),
        natural(data.get("completion_tokens") or 0),
        natural(details.get("cached_tokens") or 0),
    )
