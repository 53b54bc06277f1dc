"""Find out what a server can do, by a few requests before the first rollout.

| what | how it is found out | without it |
|---|---|---|
| context length | the model's entry in `/v1/models`, then the server's own paths (`_PATHS`) | 32,768 tokens |
| tools reach the model | completions of one token, with and without a tool: the prompts differ in length | as text |
| token ids, log-probabilities | they are in the first of these completions | no rows of formats with tokens |
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from harness.models.connection import Connection
from harness.records.messages import USER, Message, Reply
from pytest_ssr.errors import ModelError, ModelUnavailableError, RefusedError

PROBE = (Message(USER, "Say hello."),)
"""The prompt that finds out what a server can do."""

_ENTRY_FIELDS = ("max_model_len", "meta.n_ctx", "context_length", "context_window")
"""Of a model in `/v1/models`: vLLM and SGLang; llama.cpp; OpenRouter and others; Groq."""
_OLLAMA_DEFAULT = 4096
_TOOL = {
    "type": "function",
    "function": {
        "name": "look_up",
        "description": "Look up a word in the dictionary of this project, and return the lines that contain it.",
        "parameters": {"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]},
    },
}


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a server can do beyond the protocol."""

    passes_tools: bool = True
    """Whether the model sees the tools of a request."""
    prompt_ids: bool = True
    """Whether the tokens of prompts can be had."""
    token_ids: bool = True
    """Whether replies come with their token ids."""
    logprobs: bool = True

    @property
    def missing(self) -> str:
        """What is missing and what is done without it, in one line; empty if nothing is."""
        lacks = []
        if not self.passes_tools:
            lacks.append("its chat template drops tools: they are described in the system prompt, as text")
        if not (self.token_ids and self.prompt_ids):
            what = "replies" if self.prompt_ids else "prompts" if self.token_ids else "prompts and replies"
            lacks.append(f"no token ids of {what}: nothing for the export formats that need tokens")
        elif not self.logprobs:
            lacks.append("no log-probabilities: nothing for the export formats that need them")
        return "; ".join(lacks)


class ServerProbe:
    """Finds out what a server can do, once; while it cannot be queried, all that vLLM can is assumed."""

    def __init__(
        self, complete: Callable[[Mapping[str, Any]], Reply], *, can_encode: Callable[[], bool] = lambda: False
    ) -> None:
        """complete: sends fields of a request besides PROBE and returns the reply. can_encode: whether the server
        encodes prompts on request.
        """
        self._complete, self._can_encode = complete, can_encode
        self._lock = threading.Lock()
        self._found: Capabilities | None = None
        self._failure: ModelError | None = None

    def capabilities(self) -> Capabilities:
        """Return what the server can do."""
        with self._lock:
            if self._found is None:
                try:
                    self._found, self._failure = self._probe(), None
                except ModelError as error:
                    if error.retry:
                        self._failure = error if isinstance(error, ModelUnavailableError) else None
                        return Capabilities()
                    self._found = Capabilities()
                    # A refusal is about the prompt; other requests may succeed.
                    self._failure = None if isinstance(error, RefusedError) else error
            return self._found

    def failure(self) -> ModelError | None:
        """Return why no request can succeed, such as a key that is not valid or a server out of reach.

        None if no reason is known.
        """
        self.capabilities()
        return self._failure

    def _probe(self) -> Capabilities:
        try:
            with_tool: Reply | None = self._complete({"tools": [_TOOL]})
        except ModelError as error:
            if error.retry:
                raise
            # vLLM without a parser for tool calls, Ollama for a model without tools.
            with_tool = None
        plain = self._complete({})
        counts = (with_tool.usage.prompt_tokens if with_tool else 0, plain.usage.prompt_tokens)
        return Capabilities(
            passes_tools=with_tool is not None and (0 in counts or counts[0] != counts[1]),
            prompt_ids=plain.prompt_ids is not None or self._can_encode(),
            token_ids=plain.token_ids is not None,
            logprobs=plain.logprobs is not None,
        )


def context_length(connection: Connection, entry: Mapping[str, Any]) -> int:
    """Return the context length of a model in tokens, prompt and reply together; 0 if the server does not give it.

    entry: the model's entry in `/v1/models`.
    """
    for field in _ENTRY_FIELDS:
        if length := _length(entry, field):
            return length
    return next(filter(None, (_ask(path, connection, str(entry["id"])) for path in _PATHS)), 0)


def _ask(path: Callable[[Connection, str], int], connection: Connection, model: str) -> int:
    try:
        return path(connection, model)
    except (ModelError, LookupError, TypeError, ValueError, AttributeError):
        return 0


def _of_llama_cpp(connection: Connection, model: str) -> int:
    """Return the length in `/props`; before 2026, `/v1/models` has only the length of the training."""
    return _length(connection.get("/props", root=True), "default_generation_settings.n_ctx")


def _of_ollama(connection: Connection, model: str) -> int:
    """Return the length with which Ollama runs a model: what does not fit is cut off without an error."""
    data = connection.get("/api/ps", root=True)
    if "models" not in data:
        return 0
    for _ in range(2):
        for running in data["models"]:
            if model in (running.get("name"), running.get("model")):
                # Releases before 0.11 do not give it.
                return _length(running, "context_length") or _ollama_parameter(connection, model)
        connection.post("/api/generate", {"model": model, "stream": False}, root=True)  # Loads the model.
        data = connection.get("/api/ps", root=True)
    return _ollama_parameter(connection, model)


def _ollama_parameter(connection: Connection, model: str) -> int:
    lines = str(connection.post("/api/show", {"model": model}, root=True).get("parameters") or "").splitlines()
    values = [line.split()[1] for line in lines if line.split()[:1] == ["num_ctx"]]
    return int(values[0]) if values else _OLLAMA_DEFAULT


def _of_lm_studio(connection: Connection, model: str) -> int:
    entry = connection.get(f"/api/v0/models/{model}", root=True)
    return _length(entry, "loaded_context_length") or _length(entry, "max_context_length")


def _of_litellm_proxy(connection: Connection, model: str) -> int:
    entries = [e for e in connection.get("/model/info", root=True)["data"] if e.get("model_name") == model]
    # Several deployments may share a name, and any of them may get the request.
    return min(filter(None, (_length(e, "model_info.max_input_tokens") for e in entries)), default=0)


def _of_tgi(connection: Connection, model: str) -> int:
    return _length(connection.get("/info", root=True), "max_total_tokens")


_PATHS = (_of_llama_cpp, _of_ollama, _of_lm_studio, _of_litellm_proxy, _of_tgi)


def _length(data: Any, field: str) -> int:
    """Return the number at a dotted name, or 0 if it is missing."""
    for name in field.split("."):
        data = data.get(name) if isinstance(data, Mapping) else None
    return data if type(data) is int and data > 0 else 0
