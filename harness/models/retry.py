"""Retry requests that may succeed later: after busy servers, lost connections, garbled responses.

Errors that a retry cannot fix are raised at once: a wrong key, an unknown model, a prompt that is too long.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence

from harness.models.protocol import Model, ToolSchema
from harness.models.wrapper import ModelWrapper
from harness.records.messages import Message, Reply, Sampling
from pytest_ssr.errors import ModelError

_FIRST_WAIT_S, _MAX_WAIT_S = 1.0, 60.0


class RetryingModel(ModelWrapper):
    """Wraps a model and retries its requests."""

    def __init__(self, model: Model, *, tries: int = 6, sleep: Callable[[float], None] = time.sleep) -> None:
        super().__init__(model)
        self._tries, self._sleep = tries, sleep

    def reply(self, messages: Sequence[Message], *, tools: Sequence[ToolSchema], sampling: Sampling) -> Reply:
        """Query the model until it replies, waiting twice as long each time, or as long as the server requests."""
        wait_s = _FIRST_WAIT_S
        for attempt in range(1, self._tries + 1):
            try:
                return self._model.reply(messages, tools=tools, sampling=sampling)
            except ModelError as error:
                if not error.retry:
                    raise
                if attempt == self._tries:
                    raise ModelError(f"{error} (after {attempt} requests)") from None
                # The jitter keeps workers that were refused together from retrying together.
                self._sleep(min(_MAX_WAIT_S, max(error.wait_s, wait_s * random.uniform(0.5, 1.0))))
                wait_s *= 2
        raise AssertionError("at least one try")

    def session(self, rollout: str) -> Model:
        """Return the model for one rollout."""
        return RetryingModel(self._model.session(rollout), tries=self._tries, sleep=self._sleep)
