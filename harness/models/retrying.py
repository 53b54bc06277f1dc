"""A model that is asked again where that may help: after busy servers, lost connections, garbled responses.

What a retry cannot mend is raised at once: a wrong key, an unknown model, a prompt that is too long.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence

from harness.messages import Message, Reply, Sampling
from harness.models.around import Around
from harness.models.protocol import Model, ToolSchema
from pytest_ssr.errors import ModelError

_FIRST_S, _LONGEST_S = 1.0, 60.0


class Retrying(Around):
    """Wraps a model."""

    def __init__(self, model: Model, *, tries: int = 6, sleep: Callable[[float], None] = time.sleep) -> None:
        super().__init__(model)
        self._tries, self._sleep = tries, sleep

    def reply(self, messages: Sequence[Message], *, tools: Sequence[ToolSchema], sampling: Sampling) -> Reply:
        """Ask until there is a reply, waiting twice as long each time, or as long as the server says."""
        wait_s = _FIRST_S
        for tried in range(1, self._tries + 1):
            try:
                return self._model.reply(messages, tools=tools, sampling=sampling)
            except ModelError as error:
                if not error.retry:
                    raise
                if tried == self._tries:
                    raise ModelError(f"{error} (asked {tried} times)") from None
                # Workers that were refused together do not come back together.
                self._sleep(min(_LONGEST_S, max(error.wait_s, wait_s * random.uniform(0.5, 1.0))))
                wait_s *= 2
        raise AssertionError("at least one try")

    def session(self, rollout: str) -> Model:
        """Return the model as one rollout uses it."""
        return Retrying(self._model.session(rollout), tries=self._tries, sleep=self._sleep)
