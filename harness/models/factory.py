"""Create models from their names: `scripted:FILE`, `vllm:PATH`, `vllm:URL`, `vllm:URL#MODEL`, or a name of litellm."""

from __future__ import annotations

import importlib
import importlib.util
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from harness.models.budget import Budget, BudgetedModel
from harness.models.middleware import CachingModel, RetryingModel
from harness.models.protocol import Model
from harness.models.registry import Entry, NamedModel, Registry, hidden_error, priced
from harness.models.timeouts import READY_S, TIMEOUT_S
from harness.models.urls import masked
from pytest_ssr.errors import MissingExtraError, MissingKeyError, ModelError, SettingsError
from pytest_ssr.storage.store import Store

PLUGIN = "plugin:"
"""The beginning of the name of a model that a plugin adds."""
NAMED = "model:"
"""The beginning of the name of a model in the registry."""
SCHEMES = ("model", "plugin", "scripted", "vllm")
_KEYS = {
    "anthropic": ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_API_BASE", "ANTHROPIC_BASE_URL"),
    "deepseek": ("DEEPSEEK_API_KEY", "DEEPSEEK_API_BASE"),
    "groq": ("GROQ_API_KEY", "GROQ_API_BASE"),
    "mistral": ("MISTRAL_API_KEY", "MISTRAL_API_BASE"),
    "openai": ("OPENAI_API_KEY", "OPENAI_API_BASE", "OPENAI_BASE_URL"),
    "xai": ("XAI_API_KEY", "XAI_API_BASE"),
}
"""Variables of providers: the key, and those with which a request may need none."""
_NOT_MODELS = ("lm", "replay", "search")
"""Schemes of players that are not models; what follows may be a path."""


def is_model(name: str) -> bool:
    """Return whether a name has the form of a model's name."""
    scheme, colon, rest = name.partition(":")
    # An agent with a model is named AGENT:MODEL.
    is_scheme = bool(colon) and (scheme in SCHEMES or rest.startswith(NAMED))
    return is_scheme or ("/" in name and scheme not in _NOT_MODELS)


def is_started_late(name: str) -> bool:
    """Return whether the model's server is started by this process at the first query."""
    return name.startswith("vllm:") and not name.startswith(("vllm:http://", "vllm:https://"))


def _require_key(name: str, key: str) -> None:
    """Raise MissingKeyError for a model whose key is missing, before anything is measured.

    Only for providers that take a key from these variables alone: others have credentials of several kinds.
    """
    variables = (key,) if key else _KEYS.get(name.partition("/")[0], ())
    if variables and not any(os.environ.get(variable) for variable in variables):
        raise MissingKeyError(f"{name} needs a key: set {variables[0]} in the environment", variable=variables[0])


def is_key_of_provider(name: str, variable: str) -> bool:
    """Return whether a variable is the one that holds the key of the provider of a model PROVIDER/MODEL."""
    provider = name.partition("/")[0]
    return variable == _KEYS.get(provider, (f"{provider.upper()}_API_KEY",))[0]


def suggestion(name: str) -> str:
    """Return the end of a message about an unknown player: the name as a model of a provider, if litellm knows one."""
    if importlib.util.find_spec("litellm") is None:
        return ""
    try:
        suggested: str = importlib.import_module("harness.models.litellm").with_provider(name)
    except ImportError:
        return ""
    return f"; did you mean {suggested}?" if suggested else ""


def open_model(
    name: str,
    *,
    budget: Budget | None = None,
    cache: Store | None = None,
    url: str = "",
    context_tokens: int = 0,
    timeout_s: float = TIMEOUT_S,
    ready_s: float = READY_S,
    vllm_arguments: Sequence[str] = (),
    offered: Mapping[str, Callable[[], Model]] | None = None,
    registry: Registry | None = None,
    key: str = "",
    keyless: bool = False,
    retries: bool = True,
) -> Model:
    """Return a model that retries, keeps to a budget, and caches replies if `cache` is given.

    url: a custom server for litellm's names. context_tokens: size of the context window; 0 for the value of the server,
    litellm or the script. timeout_s: seconds until a reply must be complete. ready_s, vllm_arguments: seconds until a
    server that is started here must be ready, and additional arguments for it. offered: open the models of plugins, by
    the name after `plugin:`. registry: models that are named `model:NAME`, and prices. key: the variable that holds the
    key; empty for that of the provider, or for none if `keyless`. retries: whether requests are repeated.
    Raises SettingsError for an unknown name, MissingExtraError if a package is not installed.
    """
    scheme, _, rest = name.partition(":")
    registry = registry or {}
    model: Model
    if scheme == "model" and rest:
        entry = entry_of(rest, registry)
        try:
            opened = open_model(
                entry.model,
                budget=budget,
                cache=cache,
                url=entry.url,
                context_tokens=entry.context or context_tokens,
                timeout_s=timeout_s,
                ready_s=ready_s,
                vllm_arguments=vllm_arguments,
                offered=offered,
                registry={entry.model: replace(entry, model="")},
                key=entry.key,
                keyless=entry.keyless,
                retries=retries,
            )
        except (ModelError, SettingsError) as error:
            if not entry.hidden:
                raise
            raise hidden_error(error, rest) from None
        return NamedModel(opened, rest, hides=entry.hidden)
    settings: dict[str, Any] = {"context_tokens": context_tokens, "timeout_s": timeout_s}
    if scheme == "scripted" and rest:
        from harness.models.scripted import ScriptedModel

        return BudgetedModel(ScriptedModel.from_file(Path(rest), context_tokens=context_tokens), budget or Budget())
    if scheme == "plugin" and rest:
        model = _open_offered(rest, offered or {})
    elif scheme == "vllm" and rest:
        _require("httpx", "vllm")
        if rest.startswith(("http://", "https://")):
            model_class = importlib.import_module("harness.models.http").HttpModel
            url, _, served = rest.partition("#")
            if key:
                _require_key(masked(name), key)
            variable = key or ("" if keyless else "SSR_VLLM_KEY")
            model = model_class(masked(name), url, served, key_variable=variable, **settings)
        else:
            model_class = importlib.import_module("harness.models.vllm").VllmModel
            model = model_class(rest, ready_s=ready_s, arguments=vllm_arguments, **settings)
    elif "/" in name:
        _require("litellm", "litellm")
        if key:
            settings["key"] = key
        settings["keyless"] = keyless
        if key or (not url and not keyless and cache is None):
            _require_key(name, key)
        try:
            model_class = importlib.import_module("harness.models.litellm").LitellmModel
        except ImportError as error:
            raise ModelError(
                f"litellm cannot be imported: {error}; with LITELLM_LOCAL_MODEL_COST_MAP set to False, the import "
                "fetches prices from the network and may fail: unset the variable, or try again"
            ) from error
        model = model_class(name, url=url, **settings)
    else:
        raise SettingsError(
            f"{name!r} is not a model; use PROVIDER/MODEL (openai/..., anthropic/..., hosted_vllm/...), vllm:PATH, "
            f"vllm:URL, model:NAME, plugin:NAME or scripted:FILE{suggestion(name)}"
        )
    model = RetryingModel(model) if retries else model
    model = BudgetedModel(priced(model, registry), budget or Budget())
    return CachingModel(model, cache) if cache is not None else model


def entry_of(name: str, registry: Registry) -> Entry:
    """Return the entry of a name; raises SettingsError for a name that the registry does not have."""
    entry = registry.get(name)
    if entry is None or not entry.model:
        known = ", ".join(sorted(n for n, e in registry.items() if e.model)) or "none"
        raise SettingsError(f"there is no model {NAMED}{name} (--models FILE has: {known})")
    return entry


def _open_offered(name: str, offered: Mapping[str, Callable[[], Model]]) -> Model:
    if name not in offered:
        choices = ", ".join(sorted(offered)) or "none are installed"
        raise SettingsError(f"there is no model {PLUGIN}{name} among those of plugins: {choices}")
    return offered[name]()


def _require(package: str, extra: str) -> None:
    if importlib.util.find_spec(package) is None:
        raise MissingExtraError(package, extra)
