"""Cache a model's replies on disk, so that a repeated request costs nothing.

The key of a request is everything that is sent, including the seed; attempts differ by their seeds, so each has its own
replies.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, replace

from harness.models.identity import identity_of
from harness.models.protocol import Model, ToolSchema
from harness.models.wrapper import ModelWrapper
from harness.records.messages import Message, Reply, Sampling
from pytest_ssr.storage.store import Store


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
                return replace(Reply.from_json(data), cached=True)
            except (KeyError, TypeError):
                pass
        reply = self._model.reply(messages, tools=tools, sampling=sampling)
        self._store.put_record(folder, key, reply.to_json())
        return reply

    def session(self, rollout: str) -> Model:
        """Return the model for one rollout."""
        return CachingModel(self._model.session(rollout), self._store)
