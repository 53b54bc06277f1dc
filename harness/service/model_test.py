"""Send one short request to a registered model, and say by a code what came of it: nothing of its server is told."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from harness.models.factory import NAMED, is_started_late, open_model
from harness.models.registry import Entry
from harness.models.server_probe import PROBE
from harness.models.timeouts import run_within
from harness.records.messages import Sampling
from harness.service.logs import logger
from harness.service.registered_models import KeyNotAllowedError, for_use
from pytest_ssr.errors import MissingExtraError, MissingKeyError, ModelError, ModelUnavailableError, SettingsError

TIMEOUT_S = 15.0
"""How long a test may take; a thread of the service waits for it."""
_MAX_TOKENS = 16


class ModelTestCode(StrEnum):
    """What came of the test of a model."""

    ANSWERED = "answered"
    KEY_MISSING = "key-missing"
    """The web process does not have the key; workers may have it."""
    KEY_NOT_ALLOWED = "key-not-allowed"
    """`--model-keys` does not name the variable of the key."""
    NO_SERVER = "no-server"
    """A worker starts the model, or reads it from a file."""
    EXTRA_MISSING = "extra-missing"
    """The web process lacks a package that the model needs."""
    UNREACHABLE = "unreachable"
    """The server cannot be reached, or does not answer now."""
    REFUSED = "refused"
    """The server refuses the request; with a wrong key, for example."""
    INVALID = "invalid"
    """The entry cannot be used."""


@dataclass(frozen=True, slots=True)
class ModelTest:
    """The result of the test of a model."""

    name: str
    code: ModelTestCode
    seconds: float


def tried(name: str, entry: Entry, keys: Sequence[str], *, timeout_s: float = TIMEOUT_S) -> ModelTest:
    """Send a request to a registered model. keys: patterns of the variables whose keys it may use."""
    begin = time.monotonic()
    try:
        code, cause = _code(name, for_use(name, entry, keys), timeout_s), ""
    except KeyNotAllowedError as error:
        code, cause = ModelTestCode.KEY_NOT_ALLOWED, str(error)
    except MissingKeyError as error:
        code, cause = ModelTestCode.KEY_MISSING, str(error)
    except MissingExtraError as error:
        code, cause = ModelTestCode.EXTRA_MISSING, str(error)
    except ModelUnavailableError as error:
        code, cause = ModelTestCode.UNREACHABLE, str(error)
    except ModelError as error:
        code, cause = ModelTestCode.UNREACHABLE if error.retry else ModelTestCode.REFUSED, str(error)
    except SettingsError as error:
        code, cause = ModelTestCode.INVALID, str(error)
    if cause:
        logger().warning("model-test-failed", model=name, code=code, cause=cause)
    return ModelTest(name, code, round(time.monotonic() - begin, 1))


def _code(name: str, entry: Entry, timeout_s: float) -> ModelTestCode:
    if entry.model.startswith("scripted:") or is_started_late(entry.model):
        return ModelTestCode.NO_SERVER

    def ask() -> None:
        # The size of the context is not asked for.
        model = open_model(
            entry.model,
            url=entry.url,
            context_tokens=entry.context or 1,
            timeout_s=timeout_s,
            key=entry.key,
            keyless=entry.keyless,
            retries=False,
        )
        with contextlib.closing(model):
            model.reply(PROBE, tools=(), sampling=Sampling(max_tokens=_MAX_TOKENS))

    run_within(timeout_s, ask, target=f"{NAMED}{name}")
    return ModelTestCode.ANSWERED
