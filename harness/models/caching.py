"""A model whose replies are kept on disk: the same question, asked again, costs nothing.

A question is everything that is sent, seed included; attempts differ by their seeds, so each has its own replies.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, replace

from harness.messages import Message, Reply, Sampling
from harness.models.around import Around
from harness.models.identity import identity_of
from harness.models.protocol import Model, ToolSchema
from pytest_ssr.store import Store


class Caching(Around):
    """Wraps a model."""

    def __init__(self, model: Model, store: Store) -> None:
        super().__init__(model)
        self._store = store

    def reply(self, messages: Sequence[Message], *, tools: Sequence[ToolSchema], sampling: Sampling) -> Reply:
        """Return the kept reply, or ask and keep."""
        asked = json.dumps(
            [identity_of(self), [m.to_wire() for m in messages], list(tools), asdict(sampling)], sort_keys=True
        )
        name = hashlib.sha256(asked.encode("utf-8", "surrogatepass")).hexdigest()[:32]
        folder = f"replies/{name[:2]}"
        data = self._store.record(folder, name)
        if data is not None:
            try:
                return replace(Reply.from_json(data), cached=True)
            except (KeyError, TypeError):
                pass
        reply = self._model.reply(messages, tools=tools, sampling=sampling)
        self._store.put_record(folder, name, reply.to_json())
        return reply

    def session(self, rollout: str) -> Model:
        """Return the model as one rollout uses it."""
        return Caching(self._model.session(rollout), self._store)
