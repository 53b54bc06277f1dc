"""Query servers that speak the OpenAI protocol.

They differ in what they add to it: vLLM, SGLang, llama.cpp, Ollama, LM Studio, litellm's proxy and others.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from harness.models.connection import Connection
from harness.models.prompt_tokenizer import PromptTokenizer
from harness.models.protocol import ToolSchema
from harness.models.refusals import EXTRA_FIELDS, FieldsRefusedError
from harness.models.server_probe import PROBE, ServerProbe, context_length
from harness.models.timeouts import TIMEOUT_S
from harness.models.token_estimate import Estimate
from harness.models.wire import reply_of, request_of
from harness.records.messages import Message, Reply, Sampling
from pytest_ssr.errors import ContextError, ModelError

CONTEXT_TOKENS = 32_768
"""The context length of a server that does not give it."""


class HttpModel:
    """A model of a server at a URL that ends in `/v1`."""

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
        self.name, self._model = name, model
        self._connection = Connection(url, timeout_s=timeout_s, key_variable=key_variable)
        self._refused: frozenset[str] = frozenset()
        self._estimate = Estimate()
        self._tokenizer = PromptTokenizer(self._connection)
        self._lock = threading.Lock()
        self._probe = ServerProbe(self._complete_one_token, can_encode=self._can_encode)
        self._remarks: list[str] = []
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

    @property
    def passes_tools(self) -> bool:
        """Whether the model sees the tools of a request."""
        return self._probe.capabilities().passes_tools

    @property
    def failure(self) -> ModelError | None:
        """Why no request can succeed; None if no reason is known."""
        return self._probe.failure()

    @property
    def remarks(self) -> str:
        """What is missing on the server and what is done without it, in one line; empty if nothing is."""
        return "; ".join(filter(None, (*self._remarks, self._probe.capabilities().missing)))

    def _query_models(self) -> None:
        """Query the models of the server, and the context window of the one to use."""
        data = self._connection.get("/models").get("data")
        models = [m for m in data if isinstance(m, dict) and m.get("id")] if isinstance(data, list) else []
        model = next((m for m in models if not self._model or m["id"] == self._model), None)
        if model is None:
            names = self._connection.hide(", ".join(str(m["id"]) for m in models)) or "none"
            raise ModelError(f"{self._connection.url} does not serve {self._model or 'any model'}; it serves {names}")
        if not self._model and len(models) > 1:
            self._remarks.append(f"of {len(models)} models, {model['id']} is used (choose by {self.name}#MODEL)")
        self._model = str(model["id"])
        if not self.context_tokens:
            self.context_tokens = context_length(self._connection, model)
            if not self.context_tokens:
                self.context_tokens = CONTEXT_TOKENS
                self._remarks.append(f"its context length is unknown: {CONTEXT_TOKENS} tokens are assumed (--context)")

    def _complete_one_token(self, fields: Mapping[str, Any]) -> Reply:
        body = request_of(self._model, PROBE, (), Sampling(max_tokens=1))
        return reply_of(self._complete({**body, **fields}), latency_s=0.0, hide=self._connection.hide)

    def _can_encode(self) -> bool:
        request = self._prompt_request(PROBE, ())
        counted = self._tokenizer.count(request)
        return counted is not None and self._tokenizer.ids(request, counted) is not None

    def reply(self, messages: Sequence[Message], *, tools: Sequence[ToolSchema], sampling: Sampling) -> Reply:
        """Send the messages and return the reply."""
        begin = time.monotonic()
        try:
            data = self._complete(request_of(self._model, messages, tools, sampling))
        except ContextError as error:
            self._learn_from(error, messages, tools)
            raise
        reply = reply_of(data, latency_s=time.monotonic() - begin, hide=self._connection.hide)
        if reply.prompt_ids is None and reply.token_ids is not None:
            ids = self._tokenizer.ids(self._prompt_request(messages, tools), reply.usage.prompt_tokens)
            reply = replace(reply, prompt_ids=ids)
        return self._estimate.counted(messages, tools, reply)

    def _complete(self, request: Mapping[str, Any]) -> dict[str, Any]:
        while True:
            body = _without({**request, **EXTRA_FIELDS}, self._refused)
            try:
                return self._connection.post("/chat/completions", body)
            except FieldsRefusedError as error:
                # The server knows the protocol but not all of these fields. Another thread may have found more.
                names = error.fields & {*body, *(name for m in body["messages"] for name in m)}
                if not names:
                    raise
                with self._lock:
                    self._refused |= names

    def _learn_from(self, error: ContextError, messages: Sequence[Message], tools: Sequence[ToolSchema]) -> None:
        """Use the sizes that a server gave for a prompt that is too long."""
        if error.limit_tokens:
            self.context_tokens = min(self.context_tokens, error.limit_tokens)
        self._estimate.learn(messages, tools, error.prompt_tokens)

    def count(self, messages: Sequence[Message], *, tools: Sequence[ToolSchema]) -> int:
        """Return the number of tokens, as counted by the server if it has a path for that, or estimated."""
        counted = self._tokenizer.count(self._prompt_request(messages, tools)) if messages else None
        return self._estimate(messages, tools) if counted is None else counted

    def _prompt_request(self, messages: Sequence[Message], tools: Sequence[ToolSchema]) -> dict[str, Any]:
        body = {"model": self._model, "messages": [m.to_wire() for m in messages]}
        return _without({**body, "tools": list(tools)} if tools else body, self._refused)

    def session(self, rollout: str) -> HttpModel:
        """Return this model: all rollouts share the server."""
        return self

    def close(self) -> None:
        """Close the connections."""
        self._connection.close()


def _without(body: Mapping[str, Any], fields: frozenset[str]) -> dict[str, Any]:
    """Return a request without these fields, also in its messages."""
    messages = [{k: v for k, v in m.items() if k not in fields} for m in body["messages"]]
    return {k: v for k, v in body.items() if k not in fields} | {"messages": messages}
