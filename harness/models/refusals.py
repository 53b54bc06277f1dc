"""Read the responses with which servers refuse a request, and return the error for it.

Fields of a response come first: `type`, `code` and the counts of llama.cpp and OpenAI. Prose is read only if there are
none, because vLLM, SGLang, LM Studio, Ollama and most providers have no field for it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from harness.records.messages import REASONING
from pytest_ssr.errors import ContextError, ModelError, RefusedError

RETRIED = frozenset((408, 409, 425, 429, 500, 502, 503, 504, 529))
"""Statuses after which the same request may be answered later."""
EXTRA_FIELDS: Mapping[str, Any] = {
    "return_token_ids": True,
    "return_prompt_token_ids": True,
    "return_meta_info": True,
    "logprobs": True,
    "top_logprobs": 1,
    "top_k": -1,
    "min_p": 0.0,
    "repetition_penalty": 1.0,
}
"""What is requested besides the protocol: tokens of vLLM (the first) and SGLang (the next two), and plain sampling."""
_REFUSABLE = frozenset((*EXTRA_FIELDS, *REASONING))
_ECHOES = ("input", "ctx", "body")
_OVERFLOWS = frozenset(("exceed_context_size_error", "context_length_exceeded"))
"""Values of `type` or `code` in the error of a prompt that is too long: llama.cpp's, OpenAI's."""
_TOO_LONG = re.compile(
    r"context[ _](length|window|size|limit)|maximum context|max_model_len|maximum number of tokens"
    r"|\b(prompt|input)\b.{0,60}\b(is too long|longer than)|\btokens?\b.{0,40}\bexceed|`max_new_tokens` must be",
    re.IGNORECASE | re.DOTALL,
)
_OBJECTIONS = (
    *("content policy", "content_policy", "content filter", "content_filter", "content management policy"),
    *("inappropriate content", "prohibited content", "prohibited_content", "content exists risk", "data_inspection"),
    *("usage policy", "usage policies", "moderation", "guardrail", "was flagged", "been flagged", "safety system"),
)
"""Phrases with which servers and providers refuse a prompt for its content."""


class UnknownPathError(ModelError):
    """A server does not know the path of a request."""


class FieldsRefusedError(ModelError):
    """A server refuses additional fields of a request, which it names."""

    def __init__(self, message: str, fields: frozenset[str]) -> None:
        """fields: the names of the refused fields."""
        super().__init__(message)
        self.fields = fields


def refusal_of(message: str, raw: bytes, *, status: int, text: str, wait_s: float = 0.0) -> ModelError:
    """Return the error for a refusal.

    message: of the error. raw: the response. text: what of it may be shown, without secrets. wait_s: the server's
    `retry-after`.
    """
    if overflow := _overflow_of(raw, message):
        return overflow
    if status in (400, 413, 422) and is_too_long(text):
        return ContextError(message)
    if status in (404, 405, 501):
        return UnknownPathError(message)
    if status in (400, 422) and (fields := _refused_fields(raw)):
        return FieldsRefusedError(message, fields)
    kind = RefusedError if status in (400, 403, 422) and is_objected_to(text) else ModelError
    return kind(message, retry=status in RETRIED, wait_s=wait_s)


def is_too_long(message: str) -> bool:
    """Return whether a server refuses a prompt for its length."""
    return _TOO_LONG.search(message) is not None


def is_objected_to(message: str) -> bool:
    """Return whether a server refuses a prompt for its content, and not for its form."""
    return any(phrase in message.lower() for phrase in _OBJECTIONS)


def response_json(raw: bytes) -> dict[str, Any]:
    """Return a response's JSON object; raises ValueError for any other content."""
    try:
        data = json.loads(raw)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not isinstance(data, dict):
        raise ValueError("not an object")
    return data


def status_in(data: Mapping[str, Any]) -> int:
    """Return the status of an error in a response of status 200, as OpenRouter sends it; 0 without one.

    llama.cpp sends such a response for a prompt that is too long, if it has begun to stream.
    """
    error = data.get("error")
    code = error.get("code") if isinstance(error, Mapping) and "choices" not in data else None
    return code if isinstance(code, int) and 400 <= code < 600 else 0


def _overflow_of(raw: bytes, message: str) -> ContextError | None:
    try:
        data = response_json(raw)
    except ValueError:
        return None
    error = data.get("error", data)
    if not isinstance(error, Mapping) or not {str(error.get("type")), str(error.get("code"))} & _OVERFLOWS:
        return None
    sizes = (error.get("n_prompt_tokens"), error.get("n_ctx"))
    prompt, limit = (size if type(size) is int and size > 0 else 0 for size in sizes)
    return ContextError(message, prompt_tokens=prompt, limit_tokens=limit)


def _refused_fields(raw: bytes) -> frozenset[str]:
    """Return which additional fields a refusal names; an echo of the request in it is ignored."""
    try:
        text = " ".join(_strings(response_json(raw)))
    except ValueError:
        text = raw.decode("utf-8", "replace")
    return _REFUSABLE & frozenset(re.findall(r"\w+", text))


def _strings(data: object) -> Iterator[str]:
    if isinstance(data, Mapping):
        for key, value in data.items():
            if key not in _ECHOES:
                yield from _strings(value)
    elif isinstance(data, list):
        for item in data:
            yield from _strings(item)
    elif isinstance(data, str):
        yield data
