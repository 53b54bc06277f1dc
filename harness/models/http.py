"""Requests to servers that speak the OpenAI protocol; the home of httpx.

An error says whether the same request may succeed later. What a server says of itself is shown, cut; keys never are.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from typing import Any

import httpx

from harness.messages import Message, Reply, Sampling
from harness.models.counting import Estimate
from harness.models.protocol import ToolSchema
from harness.models.wire import reply_of, request_of
from pytest_ssr.errors import ContextError, ModelError, SettingsError

_MOST_BYTES = 64 * 1024**2
_RETRIED = frozenset((408, 409, 425, 429, 500, 502, 503, 504, 529))
_TOO_LONG = ("context length", "context window", "maximum context", "too long", "max_model_len", "context_length")
_VLLM_FIELDS = {"return_token_ids": True, "logprobs": True, "top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0}


class HttpModel:
    """A server at a URL that ends in `/v1`."""

    samples = True

    def __init__(
        self,
        name: str,
        url: str,
        model: str = "",
        *,
        context_tokens: int = 0,
        timeout_s: float = 600.0,
        key_variable: str = "",
        token_ids: bool = True,
    ) -> None:
        """model: as the server knows it; empty: the first that it serves. context_tokens: 0: as the server says.

        key_variable: the environment's variable that holds the key. token_ids: ask for tokens and log-probabilities.
        Raises SettingsError for what is no URL.
        """
        if not url.startswith(("http://", "https://")):
            raise SettingsError(f"{url} is no URL of a model server; it begins with http:// or https://")
        self.name, self._url, self._model = name, url.rstrip("/"), model
        key = os.environ.get(key_variable, "") if key_variable else ""
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._secret = key
        self._client = httpx.Client(timeout=timeout_s, headers=headers, trust_env=True)
        self._token_ids = token_ids
        self._estimate = Estimate()
        self._tokenizes = token_ids
        self.context_tokens = context_tokens
        if not model or not context_tokens:
            try:
                self._look()
            except BaseException:
                self.close()
                raise

    @property
    def identity(self) -> str:
        """The model's name as the server knows it."""
        return self._model

    def _look(self) -> None:
        """Ask the server what it serves, and how much that takes."""
        served = self._get("/models").get("data") or []
        found = next((m for m in served if not self._model or m.get("id") == self._model), None)
        if found is None:
            there = ", ".join(str(m.get("id")) for m in served) or "none"
            raise ModelError(f"{self._url} does not serve {self._model or 'any model'}; it serves {there}")
        self._model = str(found["id"])
        self.context_tokens = self.context_tokens or int(found.get("max_model_len") or 32_768)

    def reply(self, messages: Sequence[Message], *, tools: Sequence[ToolSchema], sampling: Sampling) -> Reply:
        """Send the messages and read the answer."""
        body = request_of(self._model, messages, tools, sampling)
        if self._token_ids:
            body |= _VLLM_FIELDS
        begin = time.monotonic()
        try:
            data = self._post("/chat/completions", body)
        except ModelError as error:
            if self._token_ids and not error.retry and not isinstance(error, ContextError) and _refuses_fields(error):
                # A server that knows the protocol and not vLLM's further fields.
                self._token_ids = self._tokenizes = False
                return self.reply(messages, tools=tools, sampling=sampling)
            raise
        reply = reply_of(data, latency_s=time.monotonic() - begin)
        self._estimate.learn(messages, tools, reply.usage)
        return reply

    def count(self, messages: Sequence[Message], *, tools: Sequence[ToolSchema]) -> int:
        """Return the number of tokens: the server's own where it tells (`/tokenize`), else an estimate."""
        if self._tokenizes and messages:
            body = {"model": self._model, "messages": [m.to_wire() for m in messages], "tools": list(tools) or None}
            try:
                data = self._post("/tokenize", body, root=True)
                return int(data["count"])
            except (ModelError, KeyError, TypeError, ValueError):
                self._tokenizes = False
        return self._estimate(messages, tools)

    def session(self, rollout: str) -> HttpModel:
        """Return itself: a server is the same for all."""
        return self

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _get(self, path: str) -> dict[str, Any]:
        return self._asked("GET", self._url + path, None)

    def _post(self, path: str, body: Mapping[str, Any], *, root: bool = False) -> dict[str, Any]:
        url = self._url.removesuffix("/v1") if root else self._url
        return self._asked("POST", url + path, body)

    def _asked(self, method: str, url: str, body: Mapping[str, Any] | None) -> dict[str, Any]:
        try:
            with self._client.stream(method, url, json=body) as response:
                raw = bytearray()
                for part in response.iter_bytes():
                    raw += part
                    if len(raw) > _MOST_BYTES:
                        raise ModelError(f"{url} sends more than {_MOST_BYTES // 1024**2} MiB", retry=True)
        except httpx.TimeoutException:
            raise ModelError(f"{url} does not answer in time", retry=True) from None
        except httpx.HTTPError as error:
            raise ModelError(f"{url} cannot be reached: {type(error).__name__}: {error}", retry=True) from None
        except httpx.InvalidURL as error:
            raise ModelError(f"{url} is no URL: {error}") from None
        if response.status_code != 200:
            raise self._refusal(url, response, bytes(raw))
        try:
            data = response_json(bytes(raw))
        except ValueError:
            raise ModelError(f"{url} sends what is no JSON object: {self._shown(bytes(raw))}", retry=True) from None
        return data

    def _refusal(self, url: str, response: httpx.Response, raw: bytes) -> ModelError:
        said = self._shown(raw)
        status = response.status_code
        if status in (400, 413, 422) and any(words in said.lower() for words in _TOO_LONG):
            return ContextError(f"{url}: {said}")
        try:
            wait_s = float(response.headers.get("retry-after", "0"))
        except ValueError:
            wait_s = 0.0
        return ModelError(f"{url} answers with status {status}: {said}", retry=status in _RETRIED, wait_s=wait_s)

    def _shown(self, raw: bytes) -> str:
        text = raw[:2000].decode("utf-8", "replace")
        if self._secret:
            text = text.replace(self._secret, "[key]")
        return " ".join(text.split())[:500]


def _refuses_fields(error: ModelError) -> bool:
    text = str(error)
    return "status 400" in text or "status 422" in text


def response_json(raw: bytes) -> dict[str, Any]:
    """Return a response's JSON object; raises ValueError for what is none."""
    try:
        data = json.loads(raw)
    except RecursionError:
        raise ValueError("nested too deep") from None
    if not isinstance(data, dict):
        raise ValueError("no object")
    return data
