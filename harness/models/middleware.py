"""Models that wrap another model: retries, a cache on disk, and cancellation."""

from __future__ import annotations

import hashlib
import json
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import TypeVar

from harness.models.protocol import (
    Model,
    ToolSchema,
    failure_of,
    identity_of,
    passes_tools,
    remarks_on,
    served_model_of,
)
from harness.models.timeouts import is_ready, start_query
from harness.records.messages import Message, Reply, Sampling
from pytest_ssr.errors import ModelError, ModelUnavailableError, StoreError
from pytest_ssr.interrupts import raise_if_stopped
from pytest_ssr.records.decoding import decode
from pytest_ssr.storage.store import Store


class ModelWrapper:
    """Delegates everything except `reply` and `session` to the wrapped model."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self.name = model.name

    @property
    def identity(self) -> str:
        """The identity of the wrapped model."""
        return str(getattr(self._model, "identity", ""))

    @property
    def label(self) -> str:
        """The name of the wrapped model in tables; empty for the usual one."""
        return str(getattr(self._model, "label", ""))

    @property
    def served_model(self) -> str:
        """The id of the wrapped model on its server; empty for a model that is not known by the URL of a server."""
        return served_model_of(self._model)

    @property
    def passes_tools(self) -> bool:
        """Whether the wrapped model sees the tools of a request."""
        return passes_tools(self._model)

    @property
    def remarks(self) -> str:
        """What is missing on the wrapped model's server."""
        return remarks_on(self._model)

    @property
    def failure(self) -> ModelError | None:
        """Why no request to the wrapped model can succeed; None if no reason is known."""
        return failure_of(self._model)

    @property
    def context_tokens(self) -> int:
        """The context window of the wrapped model."""
        return self._model.context_tokens

    def count(self, messages: Sequence[Message], *, tools: Sequence[ToolSchema]) -> int:
        """Return the wrapped model's token count."""
        return self._model.count(messages, tools=tools)

    def close(self) -> None:
        """Close the wrapped model."""
        self._model.close()


_FIRST_WAIT_S, _MAX_WAIT_S = 1.0, 60.0
_Result = TypeVar("_Result")


def retried(request: Callable[[], _Result], *, tries: int = 6, sleep: Callable[[float], None] = time.sleep) -> _Result:
    """Make a request until it succeeds, waiting twice as long each time, or as long as the server requests.

    Raises ModelError if it cannot succeed later, ModelUnavailableError after the last try.
    """
    wait_s = _FIRST_WAIT_S
    for attempt in range(1, tries + 1):
        try:
            return request()
        except ModelError as error:
            if not error.retry:
                raise
            if attempt == tries:
                raise ModelUnavailableError(f"{error} (after {attempt} requests)") from None
            # The jitter keeps workers that were refused together from retrying together.
            sleep(min(_MAX_WAIT_S, max(error.wait_s, wait_s * random.uniform(0.5, 1.0))))
            wait_s *= 2
    raise AssertionError("at least one try")


class RetryingModel(ModelWrapper):
    """Wraps a model and retries its requests."""

    def __init__(self, model: Model, *, tries: int = 6, sleep: Callable[[float], None] = time.sleep) -> None:
        super().__init__(model)
        self._tries, self._sleep = tries, sleep

    def reply(self, messages: Sequence[Message], *, tools: Sequence[ToolSchema], sampling: Sampling) -> Reply:
        """Query the model until it replies; see `retried`."""
        query = partial(self._model.reply, messages, tools=tools, sampling=sampling)
        return retried(query, tries=self._tries, sleep=self._sleep)

    def session(self, rollout: str) -> Model:
        """Return the model for one rollout."""
        return RetryingModel(self._model.session(rollout), tries=self._tries, sleep=self._sleep)


class CachingModel(ModelWrapper):
    """Wraps a model and caches its replies."""

    def __init__(self, model: Model, store: Store) -> None:
        super().__init__(model)
        self._store = store

    def reply(self, messages: Sequence[Message], *, tools: Sequence[ToolSchema], sampling: Sampling) -> Reply:
        """Return the cached reply, or query the model and cache its reply."""
        request = json.dumps(
            [identity_of(self), [m.to_wire() for m in messages], list(tools), asdict(sampling)], sort_keys=True
        )
        key = hashlib.sha256(request.encode("utf-8", "surrogatepass")).hexdigest()[:32]
        folder = f"replies/{key[:2]}"
        data = self._store.record(folder, key)
        if data is not None:
            try:
                return replace(decode(Reply, data), cached=True)
            except StoreError:
                pass
        reply = self._model.reply(messages, tools=tools, sampling=sampling)
        self._store.put_record(folder, key, reply.to_json())
        return reply

    def session(self, rollout: str) -> Model:
        """Return the model for one rollout."""
        return CachingModel(self._model.session(rollout), self._store)


_POLL_S = 0.1


class CancellableModel(ModelWrapper):
    """Wraps a model so that an interrupt ends the wait for it."""

    @property
    def context_tokens(self) -> int:
        """The context window of the wrapped model; this may start its server."""
        return _wait_for(lambda: self._model.context_tokens)

    @property
    def passes_tools(self) -> bool:
        """Whether the wrapped model sees the tools of a request; this may query or start its server."""
        return _wait_for(lambda: passes_tools(self._model))

    @property
    def remarks(self) -> str:
        """What is missing on the wrapped model's server, which this may query or start."""
        return _wait_for(lambda: remarks_on(self._model))

    def reply(self, messages: Sequence[Message], *, tools: Sequence[ToolSchema], sampling: Sampling) -> Reply:
        """Query the model, and wait for the reply or for an interrupt."""
        return _wait_for(lambda: self._model.reply(messages, tools=tools, sampling=sampling))

    def count(self, messages: Sequence[Message], *, tools: Sequence[ToolSchema]) -> int:
        """Return the model's token count, which may query a server; an interrupt ends the wait."""
        return _wait_for(lambda: self._model.count(messages, tools=tools))

    def session(self, rollout: str) -> Model:
        """Return the model for one rollout."""
        return CancellableModel(self._model.session(rollout))


def _wait_for(query: Callable[[], _Result]) -> _Result:
    future = start_query(query)
    while not is_ready(future, _POLL_S):
        raise_if_stopped()
    return future.result()
