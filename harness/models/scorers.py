"""Open a language model that gives log-probabilities: of this machine, or of a server."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from harness.local_models.scoring import Reader, Scorer, Scores, Variant
from harness.local_models.weights import Weights, find_weights
from harness.models.middleware import retried
from harness.models.timeouts import TIMEOUT_S
from pytest_ssr.errors import MissingExtraError, ModelError, SettingsError
from pytest_ssr.storage.store import key_of

if TYPE_CHECKING:
    from harness.models.connection import Connection

_KEY = "SSR_VLLM_KEY"
"""The environment variable that holds the key of a server."""


@dataclass(frozen=True, slots=True)
class LocalScorer:
    """A model on this machine. It holds no weights, so that it can be sent to other processes."""

    weights: Weights

    @property
    def key(self) -> str:
        """A hash of the model."""
        return self.weights.key

    def open(self, text: str) -> Reader:
        """Read a text; see `Scorer`."""
        from harness.local_models.torch_model import open_model

        return open_model(self.weights).open(text)


@dataclass(frozen=True, slots=True)
class ServerScorer:
    """A model of a server with `/v1/completions` that echoes a prompt with log-probabilities, such as vLLM's."""

    url: str
    model: str
    """Its id on the server."""
    timeout_s: float = field(default=TIMEOUT_S, compare=False)
    sleep: Callable[[float], None] = field(default=time.sleep, compare=False, repr=False)

    @classmethod
    def at(cls, url: str) -> ServerScorer:
        """Return the first model that a server serves.

        Raises ModelError if the server does not answer, SettingsError if it cannot echo a prompt.
        """
        connection = _connect(url, TIMEOUT_S)
        try:
            served = connection.get("/models").get("data")
        finally:
            connection.close()
        if not isinstance(served, list) or not served or not isinstance(served[0], dict):
            raise ModelError(f"{url}/models names no model")
        scorer = cls(url, str(served[0].get("id", "")))
        scorer.open("pass").read([Variant("pass", 0, 4)], after=0)
        return scorer

    @property
    def key(self) -> str:
        """A hash of the model's name: what a server's weights are is not known."""
        return key_of("server", self.model)

    def open(self, text: str) -> ServerReader:
        """Return what asks about variants of a text; see `Scorer`."""
        del text
        return ServerReader(self)


@dataclass(slots=True)
class ServerReader:
    """Asks a server about variants, each of which is a request: the server may keep what they share."""

    scorer: ServerScorer
    tokens: int = 0

    def glance(self, variants: Sequence[Variant]) -> list[float | None]:
        """Return None for each variant: a server tells nothing before it has read it."""
        return [None] * len(variants)

    def read(self, variants: Sequence[Variant], *, after: int) -> list[Scores | None]:
        """Return the scores of variants; see `Reader`."""
        connection = _connect(self.scorer.url, self.scorer.timeout_s)
        scores = list[Scores | None]()
        try:
            for variant in variants:
                offsets, values = self._echo(connection, variant.text)
                self.tokens += len(values)
                first = next((i for i, offset in enumerate(offsets) if offset >= variant.start), len(offsets))
                end = next((i for i, offset in enumerate(offsets) if offset >= variant.end), len(offsets))
                scores.append(Scores(tuple(values[min(first, end) : end]), tuple(values[end : end + after])))
        finally:
            connection.close()
        return scores

    def _echo(self, connection: Connection, text: str) -> tuple[list[int], list[float]]:
        """Return the first character and the log-probability of each token of a text."""
        url, model = self.scorer.url, self.scorer.model
        body = {"model": model, "prompt": text, "max_tokens": 1, "temperature": 0, "echo": True, "logprobs": 1}
        answer = retried(lambda: connection.post("/completions", body), sleep=self.scorer.sleep)
        choices = answer.get("choices")
        try:
            logs = choices[0]["logprobs"]  # type: ignore[index]
            offsets = [int(v) for v in logs["text_offset"]]
            values = [float(v) if v is not None else 0.0 for v in logs["token_logprobs"]]
        except (IndexError, KeyError, TypeError, ValueError, OverflowError):
            raise SettingsError(
                f"{url} does not give the log-probabilities of a prompt: it needs `echo` in /completions", option="lm"
            ) from None
        # The last token is written by the model, because some servers do not answer without one.
        length = next((i for i, offset in enumerate(offsets) if offset >= len(text)), len(offsets))
        if not length or offsets[0] != 0:
            raise SettingsError(f"{url} does not echo a prompt in /completions", option="lm")
        if len(values) < length or offsets != sorted(offsets) or not all(v <= 0 for v in values[:length]):
            raise SettingsError(f"{url} gives log-probabilities that do not fit its tokens", option="lm")
        return offsets[:length], values[:length]


def _connect(url: str, timeout_s: float) -> Connection:
    try:
        from harness.models.connection import Connection
    except ImportError as error:
        raise MissingExtraError("httpx", "vllm") from error
    return Connection(url, timeout_s=timeout_s, key_variable=_KEY)


def is_server(name: str) -> bool:
    """Return whether a model's name is the URL of a server."""
    return name.startswith(("http://", "https://"))


def open_scorer(name: str) -> Scorer:
    """Return the model that a name stands for: the URL of a server that ends in `/v1`, or as for `find_weights`.

    Raises SettingsError, MissingExtraError or ModelError.
    """
    if is_server(name):
        return ServerScorer.at(name)
    return LocalScorer(find_weights(name))
