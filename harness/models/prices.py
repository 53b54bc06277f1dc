"""Prices of models, from a file of the user: those of servers of one's own, and in place of litellm's.

The file is YAML, and so may be JSON. It maps names of models to prices.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path

from harness.models.middleware import ModelWrapper
from harness.models.protocol import Model, ToolSchema, label_of
from harness.records.messages import Message, Reply, Sampling, Usage
from pytest_ssr.errors import SettingsError
from pytest_ssr.records.decoding import Amount, of_shape

_TOKENS = 1_000_000


@dataclass(frozen=True, slots=True)
class Price:
    """The price of a model, in USD per million tokens."""

    input: Amount
    """Of the tokens of prompts."""
    output: Amount
    """Of the tokens of replies."""
    cached: Amount | None = None
    """Of the tokens of prompts that the server had in its cache; None for that of the others."""

    def cost_usd(self, usage: Usage) -> float:
        """Return the cost of a call in USD."""
        cached = self.input if self.cached is None else self.cached
        new = max(0, usage.prompt_tokens - usage.cached_tokens)
        return (new * self.input + usage.cached_tokens * cached + usage.completion_tokens * self.output) / _TOKENS


class PricedModel(ModelWrapper):
    """Wraps a model and gives the cost of its replies."""

    def __init__(self, model: Model, price: Price) -> None:
        super().__init__(model)
        self._price = price

    def reply(self, messages: Sequence[Message], *, tools: Sequence[ToolSchema], sampling: Sampling) -> Reply:
        """Query the model."""
        reply = self._model.reply(messages, tools=tools, sampling=sampling)
        return replace(reply, cost_usd=self._price.cost_usd(reply.usage))

    def session(self, rollout: str) -> Model:
        """Return the model for one rollout."""
        return PricedModel(self._model.session(rollout), self._price)


def priced(model: Model, prices: Mapping[str, Price]) -> Model:
    """Return a model with the price of its name or of its id on the server, if there is one."""
    price = prices.get(model.name) or prices.get(label_of(model))
    return model if price is None else PricedModel(model, price)


def read_prices(path: Path) -> dict[str, Price]:
    """Return the prices in a file, by model; raises SettingsError, naming the model and the field, for a bad file."""
    import yaml

    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        raise SettingsError(
            f"--prices {path} cannot be read: {' '.join(str(error).split())}", option="prices"
        ) from None
    if not isinstance(data, dict) or not data:
        raise SettingsError(f"--prices {path} does not map names of models to prices", option="prices")
    return {str(name): _price(entry, f"--prices {path}: {name}") for name, entry in data.items()}


def _price(data: object, place: str) -> Price:
    names = [field.name for field in fields(Price)]
    unknown = [name for name in data if name not in names] if isinstance(data, dict) else []
    if unknown:
        raise SettingsError(f"{place}: {unknown[0]!r} is not one of {', '.join(names)}", option="prices")
    try:
        return of_shape(Price, data)
    except ValueError as error:
        raise SettingsError(f"{place}: {error}", option="prices") from None
