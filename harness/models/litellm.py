"""Query any provider through litellm, under its names: `openai/...`, `anthropic/...`, `hosted_vllm/...`.

The only module that imports litellm. It is imported when a model is first opened, configured not to fetch its price
list from the network, and called once per request: `harness.models.middleware` retries instead, because litellm's own
retries also repeat requests that cannot succeed.
"""

from __future__ import annotations

import math
import os
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from harness.models.protocol import ToolSchema
from harness.models.refusals import RETRIED, is_objected_to, is_too_long
from harness.models.server_probe import PROBE, ServerProbe
from harness.models.timeouts import TIMEOUT_S, run_within
from harness.models.token_estimate import Estimate
from harness.models.urls import bypass_proxies, hidden, is_loopback, secrets_in_environment
from harness.models.wire import reply_of, request_of
from harness.records.messages import Message, Reply, Sampling
from pytest_ssr.errors import ContextError, ModelError, ModelUnavailableError, RefusedError

# Read when litellm is imported, which otherwise fetches a list of prices from the network.
os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
import litellm

_NOT_RETRYABLE = frozenset(
    (
        "AuthenticationError",
        "BadRequestError",
        "ContentPolicyViolationError",
        "NotFoundError",
        "PermissionDeniedError",
        "UnprocessableEntityError",
        "UnsupportedParamsError",
        "BudgetExceededError",
    )
)
_UNREACHABLE = frozenset(("APIConnectionError", "Timeout"))
_PROVIDERS = frozenset(str(getattr(provider, "value", provider)) for provider in litellm.provider_list)
_VLLM = ("hosted_vllm/",)
_CONTEXT = 32_768
_PROBE_TOKENS = 16
"""The least that some providers accept."""


class LitellmModel:
    """One model of one provider."""

    def __init__(
        self,
        name: str,
        *,
        url: str = "",
        context_tokens: int = 0,
        timeout_s: float = TIMEOUT_S,
        key: str = "",
        keyless: bool = False,
    ) -> None:
        """url: a custom server (`api_base`). timeout_s: seconds until a reply must be complete.

        key: the environment variable that holds the key; empty for that of the provider, or for none if `keyless`.
        """
        self.name, self._url, self._timeout_s = name, url, timeout_s
        self._key = os.environ.get(key, "").strip() if key else ""
        needs_none = url and name.startswith("openai/") and not os.environ.get("OPENAI_API_KEY")
        if not key and (keyless or needs_none):
            # OpenAI's client sends nothing without one, and most servers of one's own need none.
            self._key = "none"
        self.context_tokens = context_tokens or _context_of(name)
        self._estimate = Estimate()
        self._probe = ServerProbe(self._complete_briefly)
        litellm.suppress_debug_info = True
        if is_loopback(url):
            bypass_proxies(url)

    @property
    def identity(self) -> str:
        """The URL of the custom server, if there is one."""
        return self._url

    @property
    def passes_tools(self) -> bool:
        """Whether the model sees the tools of a request: litellm drops them if the provider does not take them."""
        return self._probe.capabilities().passes_tools

    @property
    def failure(self) -> ModelError | None:
        """Why no request can succeed; None if no reason is known."""
        return self._probe.failure()

    @property
    def remarks(self) -> str:
        """What is missing on the server and what is done without it, in one line; empty if nothing is."""
        return self._probe.capabilities().missing

    def reply(self, messages: Sequence[Message], *, tools: Sequence[ToolSchema], sampling: Sampling) -> Reply:
        """Send the messages and return the reply."""
        return self._estimate.counted(messages, tools, self._reply(request_of(self.name, messages, tools, sampling)))

    def _complete_briefly(self, fields: Mapping[str, Any]) -> Reply:
        return self._reply({**request_of(self.name, PROBE, (), Sampling(max_tokens=_PROBE_TOKENS)), **fields})

    def _reply(self, body: dict[str, Any]) -> Reply:
        if self._url:
            body["api_base"] = self._url
        if self._key:
            body["api_key"] = self._key
        if self.name.startswith(_VLLM):
            body |= {"logprobs": True, "extra_body": {"return_token_ids": True}}
        begin = time.monotonic()
        # litellm's own timeout applies to each read separately.
        data, cost = run_within(self._timeout_s, lambda: self._completion(body), target=self.name)
        return reply_of(data, latency_s=time.monotonic() - begin, cost_usd=cost, hide=_hidden)

    def _completion(self, body: dict[str, Any]) -> tuple[Any, float | None]:
        try:
            response = litellm.completion(**body, timeout=self._timeout_s, num_retries=0, drop_params=True)
            return response.model_dump(), _cost(response)
        except Exception as error:
            raise _convert_error(self.name, error) from None

    def count(self, messages: Sequence[Message], *, tools: Sequence[ToolSchema]) -> int:
        """Return an estimate: the tokenizers of most providers are not public."""
        return self._estimate(messages, tools)

    def session(self, rollout: str) -> LitellmModel:
        """Return this model: all rollouts share the server."""
        return self

    def close(self) -> None:
        """Do nothing: the model holds no resources."""


def _convert_error(name: str, error: Exception) -> ModelError:
    kinds = {kind.__name__ for kind in type(error).__mro__}
    # The message may end with a traceback of litellm's own code.
    text = " ".join(_hidden(str(error)).partition("Traceback (most recent call last)")[0].split())[:500]
    if "ContextWindowExceededError" in kinds or ("BadRequestError" in kinds and is_too_long(text)):
        return ContextError(f"{name}: {text}")
    may_object = {"BadRequestError", "PermissionDeniedError"} & kinds and is_objected_to(text)
    kind: type[ModelError] = ModelUnavailableError if kinds & _UNREACHABLE else ModelError
    if "ContentPolicyViolationError" in kinds or may_object:
        kind = RefusedError
    return kind(f"{name}: {type(error).__name__}: {text}", retry=_is_retryable(error), wait_s=_wait_s(error))


def _hidden(text: str) -> str:
    """Return a string without the values of environment variables that are named like secrets."""
    return hidden(text, secrets_in_environment())


def _is_retryable(error: Exception) -> bool:
    """Return whether the same request may succeed later, also by a status that litellm has no class for."""
    status = getattr(error, "status_code", None)
    refused = isinstance(status, int) and 400 <= status < 500 and status not in RETRIED
    return not refused and not {kind.__name__ for kind in type(error).__mro__} & _NOT_RETRYABLE


def _wait_s(error: Exception) -> float:
    """Return the server's `retry-after`, in seconds; litellm keeps its headers on the error or on its response."""
    for headers in (
        getattr(error, "litellm_response_headers", None),
        getattr(getattr(error, "response", None), "headers", None),
    ):
        try:
            return float((headers or {})["retry-after"])
        except (KeyError, TypeError, ValueError):
            continue
    return 0.0


def with_provider(name: str) -> str:
    """Return a name with its provider, that of most models in litellm's tables whose names begin with the same word.

    Names without a provider in the tables count first. Returns an empty string if no provider has most of them.
    """
    word = name.partition("-")[0]
    known = litellm.model_cost
    for providers in (
        [str(info.get("litellm_provider")) for model, info in known.items() if model.partition("-")[0] == word],
        [model.partition("/")[0] for model in known if model.partition("/")[2].partition("-")[0] == word],
    ):
        counts = Counter(provider for provider in providers if provider in _PROVIDERS)
        for provider, count in counts.most_common(1):
            return f"{provider}/{name}" if 2 * count > counts.total() else ""
    return ""


def _cost(response: Any) -> float | None:
    """Return the cost of a reply in USD; None if litellm knows no price."""
    try:
        cost = float(litellm.completion_cost(response))
    except Exception:
        return None
    return cost if 0 <= cost < math.inf else None


def _context_of(name: str) -> int:
    try:
        info = litellm.get_model_info(name)
        return int(info.get("max_input_tokens") or info.get("max_tokens") or _CONTEXT)
    except Exception:
        return _CONTEXT
