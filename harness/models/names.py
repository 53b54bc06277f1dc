"""From what a user typed to a model: `scripted:FILE`, `vllm:PATH`, `vllm:URL`, or a name of litellm's."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from harness.models.caching import Caching
from harness.models.protocol import Model
from harness.models.retrying import Retrying
from harness.models.spending import Budget, Spending
from harness.models.userinfo import masked
from harness.models.waiting import READY_S, TIMEOUT_S
from pytest_ssr.errors import MissingExtraError, ModelError, SettingsError
from pytest_ssr.store import Store

HOMES = ("scripted", "vllm")


def is_model(name: str) -> bool:
    """Tell whether a name looks like a model's."""
    home, colon, _ = name.partition(":")
    return (bool(colon) and home in HOMES) or ("/" in name and home != "replay")


def is_started_late(name: str) -> bool:
    """Tell whether a model's server is started here when it is first asked something."""
    return name.startswith("vllm:") and not name.startswith(("vllm:http://", "vllm:https://"))


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
) -> Model:
    """Return a model that retries, keeps to a budget, and keeps replies where a store for them is given.

    url: of a server of one's own, for litellm's names. context_tokens: 0: as the server, litellm or a script says.
    timeout_s: seconds until an answer is there whole. ready_s, vllm_arguments: of a server that is started here, the
    seconds until it is ready and what it is told further.
    Raises SettingsError for a name that nobody knows, MissingExtraError where a package is not installed.
    """
    home, _, rest = name.partition(":")
    model: Model
    settings: dict[str, Any] = {"context_tokens": context_tokens, "timeout_s": timeout_s}
    if home == "scripted" and rest:
        from harness.models.scripted import ScriptedModel

        return Spending(ScriptedModel.from_file(Path(rest), context_tokens=context_tokens), budget or Budget())
    if home == "vllm" and rest:
        _require("httpx", "vllm")
        if rest.startswith(("http://", "https://")):
            kind = importlib.import_module("harness.models.http").HttpModel
            model = kind(masked(name), rest, key_variable="SSR_VLLM_KEY", **settings)
        else:
            kind = importlib.import_module("harness.models.vllm").VllmModel
            model = kind(rest, ready_s=ready_s, arguments=vllm_arguments, **settings)
    elif "/" in name:
        _require("litellm", "litellm")
        try:
            kind = importlib.import_module("harness.models.litellm").LitellmModel
        except ImportError as problem:
            raise ModelError(
                f"litellm cannot be imported: {problem}; where LITELLM_LOCAL_MODEL_COST_MAP is set to False, it asks "
                "the network for prices meanwhile and may fail for that: unset it, or try again"
            ) from problem
        model = kind(name, url=url, **settings)
    else:
        raise SettingsError(
            f"there is no model {name!r}; name one as PROVIDER/MODEL (openai/..., anthropic/..., hosted_vllm/...), "
            "vllm:PATH, vllm:URL or scripted:FILE"
        )
    model = Spending(Retrying(model), budget or Budget())
    return Caching(model, cache) if cache is not None else model


def _require(package: str, extra: str) -> None:
    if importlib.util.find_spec(package) is None:
        raise MissingExtraError(package, extra)
