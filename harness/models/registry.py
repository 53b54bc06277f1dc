"""Models in a file of the user: names for those of servers, and prices, also in place of litellm's.

The file is YAML, and so may be JSON. An entry with a `model` is a model that is named `model:NAME`; an entry without
one gives the price of the model that has this name, or this id on its server.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path

from harness.models.budget import BudgetSpentError
from harness.models.middleware import ModelWrapper
from harness.models.protocol import Model, ToolSchema, label_of
from harness.records.job_reports import JobReport
from harness.records.messages import Message, Reply, Sampling, Usage
from pytest_ssr.errors import (
    ContextError,
    MissingKeyError,
    ModelError,
    ModelUnavailableError,
    RefusedError,
    SettingsError,
)
from pytest_ssr.records.decoding import Amount, TokenCount, of_shape

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


class NamedModel(ModelWrapper):
    """Wraps a model that has a name in the registry, which takes the place of its address."""

    def __init__(self, model: Model, name: str, *, hides: bool = False) -> None:
        """hides: errors show nothing of the server."""
        super().__init__(model)
        self.name, self._hides = name, hides

    @property
    def remarks(self) -> str:
        """What is missing on the wrapped model's server."""
        return super().remarks.replace(self._model.name, self.name)

    @property
    def failure(self) -> ModelError | None:
        """Why no request to the wrapped model can succeed; None if no reason is known."""
        failure = super().failure
        return hidden_model_error(failure, self.name) if failure is not None and self._hides else failure

    @property
    def identity(self) -> str:
        """The name and the identity of what it stands for: another model under the same name is another model."""
        return f"{self._model.name} {super().identity}".strip()

    @property
    def label(self) -> str:
        """The name in tables."""
        return self.name

    def reply(self, messages: Sequence[Message], *, tools: Sequence[ToolSchema], sampling: Sampling) -> Reply:
        """Query the model."""
        try:
            return self._model.reply(messages, tools=tools, sampling=sampling)
        except ModelError as error:
            if not self._hides:
                raise
            raise hidden_model_error(error, self.name) from None

    def session(self, rollout: str) -> Model:
        """Return the model for one rollout."""
        return NamedModel(self._model.session(rollout), self.name, hides=self._hides)


def hidden_error(error: ModelError | SettingsError, name: str) -> ModelError | SettingsError:
    """Return the error of a model that cannot be opened, as `hidden_model_error` does."""
    if isinstance(error, ModelError):
        return hidden_model_error(error, name)
    if isinstance(error, MissingKeyError):
        variable = error.variable
        return MissingKeyError(f"model:{name} needs a key: {variable} is not set on the worker", variable=variable)
    JobReport(private=f"model:{name}: {error}").send()
    return SettingsError(f"model:{name} cannot be opened; the worker's log has the cause")


def hidden_model_error(error: ModelError, name: str) -> ModelError:
    """Return an error that shows nothing of the server; the cause is reported to the program that follows."""
    JobReport(private=f"model:{name}: {error}").send()
    if isinstance(error, BudgetSpentError):
        return error
    if isinstance(error, ContextError):
        message = f"the prompt does not fit into the context of model:{name}"
        return ContextError(message, prompt_tokens=error.prompt_tokens, limit_tokens=error.limit_tokens)
    found: type[ModelError] = ModelError
    what = "did not reply" if error.retry else "was refused by its server"
    if isinstance(error, ModelUnavailableError):
        found, what = ModelUnavailableError, "cannot be reached, or does not answer now"
    elif isinstance(error, RefusedError):
        found, what = RefusedError, "was refused by its server for the content of the request"
    return found(f"model:{name} {what}; the worker's log has the cause", retry=error.retry, wait_s=error.wait_s)


@dataclass(frozen=True, slots=True)
class Entry:
    """What a file says about a model."""

    model: str = ""
    """What the name stands for: PROVIDER/MODEL, vllm:URL, vllm:PATH, scripted:FILE; empty for a price alone."""
    url: str = ""
    """The server of a model named PROVIDER/MODEL."""
    key: str = ""
    """The environment variable that holds its key; empty for the one of its provider, or for `SSR_VLLM_KEY`."""
    keyless: bool = False
    """Whether an empty `key` stands for no key."""
    context: TokenCount = 0
    """Tokens of a prompt and its reply; 0 for the server's value."""
    input: Amount | None = None
    """The price of the tokens of prompts, in USD per million, like the next two; None if it is unknown."""
    output: Amount | None = None
    cached: Amount | None = None
    hidden: bool = False
    """Whether errors show nothing of its server, because others read them."""

    @property
    def price(self) -> Price | None:
        """The price; None if it is unknown."""
        if self.input is None or self.output is None:
            return None
        return Price(self.input, self.output, self.cached)


Registry = Mapping[str, Entry]
"""Entries by name."""


def priced(model: Model, registry: Registry) -> Model:
    """Return a model with the price of its name or of its id on the server, if there is one."""
    entry = registry.get(model.name) or registry.get(label_of(model))
    price = entry.price if entry is not None else None
    return model if price is None else PricedModel(model, price)


def read_registry(path: Path) -> dict[str, Entry]:
    """Return the entries in a file, by name; raises SettingsError, naming the model and the field, for a bad file."""
    import yaml

    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        raise SettingsError(
            f"--models {path} cannot be read: {' '.join(str(error).split())}", option="models"
        ) from None
    if not isinstance(data, dict) or not data:
        raise SettingsError(f"--models {path} does not map the names of models to entries", option="models")
    return {str(name): read_entry(entry, f"--models {path}: {name}") for name, entry in data.items()}


def read_entry(data: object, place: str) -> Entry:
    """Return the entry that plain data describes; raises SettingsError, beginning with the place, for other data."""
    names = [field.name for field in fields(Entry)]
    unknown = [name for name in data if name not in names] if isinstance(data, dict) else []
    if unknown:
        raise SettingsError(f"{place}: {unknown[0]!r} is not one of {', '.join(names)}", option="models")
    try:
        entry = of_shape(Entry, data)
    except ValueError as error:
        raise SettingsError(f"{place}: {error}", option="models") from None
    problem = ""
    if (entry.input is None) != (entry.output is None) or (entry.cached is not None and entry.input is None):
        problem = "a price has `input` and `output`"
    elif not entry.model and (entry.input is None or entry.url or entry.key or entry.context):
        problem = "`url`, `key` and `context` need a `model`; without one, an entry is a price: `input` and `output`"
    elif entry.key and not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", entry.key):
        problem = "`key` is the name of an environment variable, not a key"
    if problem:
        raise SettingsError(f"{place}: {problem}", option="models")
    return entry
