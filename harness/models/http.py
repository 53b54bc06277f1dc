"""Query servers that speak the OpenAI protocol, using httpx.

An error records whether the same request may succeed later. It shows the server's message, truncated, and never a key.
"""

from __future__ import annotations

import base64
import json
import os
import re
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import httpx

from harness.models.protocol import ToolSchema
from harness.models.timeouts import TIMEOUT_S, run_within
from harness.models.token_estimate import Estimate
from harness.models.urls import hidden, is_loopback, split_userinfo
from harness.models.wire import RETRIED, is_objected_to, is_too_long, reply_of, request_of
from harness.records.messages import REASONING, Message, Reply, Sampling
from pytest_ssr.errors import ContextError, ModelError, RefusedError, SettingsError

_MAX_BYTES = 64 * 1024**2
_VLLM_FIELDS = {"return_token_ids": True, "logprobs": True, "top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0}
_REFUSABLE = frozenset((*_VLLM_FIELDS, *REASONING))
_ECHOES = ("input", "ctx", "body")
_TOKENIZE_TRIES = 3
_CONTEXT = 32_768


class UnknownPathError(ModelError):
    """A server does not know the path of a request."""


class FieldsRefusedError(ModelError):
    """A server refuses additional fields of a request, which it names."""

    def __init__(self, message: str, fields: frozenset[str]) -> None:
        """fields: the names of the refused fields."""
        super().__init__(message)
        self.fields = fields


class HttpModel:
    """A server at a URL that ends in `/v1`."""

    def __init__(
        self,
        name: str,
        url: str,
        model: str = "",
        *,
        context_tokens: int = 0,
        timeout_s: float = TIMEOUT_S,
        key_variable: str = "",
    ) -> None:
        """model: its name on the server; empty for the first that it serves. context_tokens: 0 for the server's value.

        timeout_s: seconds until a reply must be complete.
        key_variable: the environment variable that holds the key.
        Raises SettingsError for an invalid URL.
        """
        url, auth = split_userinfo(url)
        if not url.startswith(("http://", "https://")):
            raise SettingsError(f"{url} is not the URL of a model server; it must begin with http:// or https://")
        self.name, self._url, self._model = name, url.rstrip("/"), model
        key = os.environ.get(key_variable, "").strip() if key_variable else ""
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._timeout_s = timeout_s
        password = auth[1] if auth else ""
        basic = base64.b64encode(":".join(auth).encode()).decode() if auth else ""
        self._secrets = {key: "key", password: "password", basic: "password"}
        # Proxies cannot reach a server on this machine.
        self._client = httpx.Client(timeout=timeout_s, headers=headers, auth=auth, trust_env=not is_loopback(url))
        self._refused: frozenset[str] = frozenset()
        self._estimate = Estimate()
        self._tokenize_tries = _TOKENIZE_TRIES
        self._lock = threading.Lock()
        self.context_tokens = context_tokens
        if not model or not context_tokens:
            try:
                self._query_models()
            except BaseException:
                self.close()
                raise

    @property
    def served_model(self) -> str:
        """The id of the model on the server."""
        return self._model

    @property
    def identity(self) -> str:
        """The id of the model on the server."""
        return self._model

    def _query_models(self) -> None:
        """Query the models of the server, and the context window of the one to use."""
        data = self._get("/models").get("data")
        models = [m for m in data if isinstance(m, dict) and m.get("id")] if isinstance(data, list) else []
        model = next((m for m in models if not self._model or m["id"] == self._model), None)
        if model is None:
            names = hidden(", ".join(str(m["id"]) for m in models), self._secrets) or "none"
            raise ModelError(f"{self._url} does not serve {self._model or 'any model'}; it serves {names}")
        self._model = str(model["id"])
        length = model.get("max_model_len")
        self.context_tokens = self.context_tokens or (length if isinstance(length, int) and length else _CONTEXT)

    def reply(self, messages: Sequence[Message], *, tools: Sequence[ToolSchema], sampling: Sampling) -> Reply:
        """Send the messages and return the reply."""
        while True:
            body = _without(request_of(self._model, messages, tools, sampling) | _VLLM_FIELDS, self._refused)
            begin = time.monotonic()
            try:
                data = self._post("/chat/completions", body)
                break
            except FieldsRefusedError as error:
                # The server knows the protocol but not all of vLLM's fields. Another thread may have found more.
                names = error.fields & {*body, *(name for m in body["messages"] for name in m)}
                if not names:
                    raise
                with self._lock:
                    self._refused |= names
        reply = reply_of(data, latency_s=time.monotonic() - begin, hide=lambda text: hidden(text, self._secrets))
        return self._estimate.counted(messages, tools, reply)

    def count(self, messages: Sequence[Message], *, tools: Sequence[ToolSchema]) -> int:
        """Return the number of tokens, as counted by the server's `/tokenize` if it has one, or estimated."""
        if self._tokenize_tries > 0 and messages:
            body = {"model": self._model, "messages": [m.to_wire() for m in messages], "tools": list(tools) or None}
            try:
                counted = int(self._post("/tokenize", _without(body, self._refused), root=True)["count"])
                self._tokenize_tries = _TOKENIZE_TRIES
                return counted
            except UnknownPathError:
                self._tokenize_tries = 0
            except ModelError:
                # A busy server may answer the next time, and a template may accept other messages.
                self._tokenize_tries -= 1
            except (KeyError, TypeError, ValueError):
                self._tokenize_tries = 0
        return self._estimate(messages, tools)

    def session(self, rollout: str) -> HttpModel:
        """Return this model: all rollouts share the server."""
        return self

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _get(self, path: str) -> dict[str, Any]:
        return self._request("GET", self._url + path, None)

    def _post(self, path: str, body: Mapping[str, Any], *, root: bool = False) -> dict[str, Any]:
        url = self._url.removesuffix("/v1") if root else self._url
        return self._request("POST", url + path, body)

    def _request(self, method: str, url: str, body: Mapping[str, Any] | None) -> dict[str, Any]:
        # The timeout of httpx applies to each read separately.
        response, raw = run_within(self._timeout_s, lambda: self._read(method, url, body), target=url)
        if response.status_code != 200:
            raise self._refusal(url, response, raw)
        try:
            data = response_json(raw)
        except ValueError:
            raise ModelError(
                f"{url} sent a response that is not a JSON object: {self._shown(raw)}", retry=True
            ) from None
        return data

    def _read(self, method: str, url: str, body: Mapping[str, Any] | None) -> tuple[httpx.Response, bytes]:
        timeout = ModelError(f"{url} did not answer within {self._timeout_s:g} s", retry=True)
        deadline = time.monotonic() + self._timeout_s
        try:
            with self._client.stream(method, url, json=body) as response:
                raw = bytearray()
                for part in response.iter_bytes():
                    raw += part
                    if len(raw) > _MAX_BYTES:
                        raise ModelError(f"{url} sent more than {_MAX_BYTES // 1024**2} MiB", retry=True)
                    if time.monotonic() > deadline:
                        # The caller no longer waits; this ends the connection and the thread.
                        raise timeout
            return response, bytes(raw)
        except httpx.TimeoutException:
            raise timeout from None
        except httpx.HTTPError as error:
            text = hidden(str(error), self._secrets)
            raise ModelError(f"{url} cannot be reached: {type(error).__name__}: {text}", retry=True) from None
        except httpx.InvalidURL as error:
            raise ModelError(f"{url} is not a valid URL: {error}") from None
        except RuntimeError:
            if not self._client.is_closed:
                raise
            # Another thread closed the client, because it saw the server end.
            raise ModelError(f"{url} cannot be queried: the connection was closed", retry=True) from None

    def _refusal(self, url: str, response: httpx.Response, raw: bytes) -> ModelError:
        text = self._shown(raw)
        status = response.status_code
        if status in (400, 413, 422) and is_too_long(text):
            return ContextError(f"{url}: {text}")
        if status in (404, 405, 501):
            return UnknownPathError(f"{url} answered with status {status}: {text}")
        if status in (400, 422) and (fields := _refused_fields(raw)):
            return FieldsRefusedError(f"{url} answered with status {status}: {text}", fields)
        try:
            wait_s = float(response.headers.get("retry-after", "0"))
        except ValueError:
            wait_s = 0.0
        kind = RefusedError if status in (400, 403, 422) and is_objected_to(text) else ModelError
        return kind(f"{url} answered with status {status}: {text}", retry=status in RETRIED, wait_s=wait_s)

    def _shown(self, raw: bytes) -> str:
        text = hidden(raw.decode("utf-8", "replace"), self._secrets)
        return " ".join(text[:2000].split())[:500]


def _without(body: Mapping[str, Any], fields: frozenset[str]) -> dict[str, Any]:
    """Return a request without these fields, also in its messages."""
    messages = [{k: v for k, v in m.items() if k not in fields} for m in body["messages"]]
    return {k: v for k, v in body.items() if k not in fields} | {"messages": messages}


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


def response_json(raw: bytes) -> dict[str, Any]:
    """Return a response's JSON object; raises ValueError for any other content."""
    try:
        data = json.loads(raw)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not isinstance(data, dict):
        raise ValueError("not an object")
    return data
