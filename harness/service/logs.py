"""Write log lines as JSON objects, each with the id of its request."""

from __future__ import annotations

import logging
import sys
from collections.abc import MutableMapping
from typing import Any

import structlog

_SECRETS = frozenset({"authorization", "cookie", "password", "secret", "token"})


def set_up_logging() -> None:
    """Send the log of this process and of its libraries to standard error, one JSON object per line.

    On a terminal, a person reads it: only warnings and errors, as text.
    """
    is_terminal = sys.stderr.isatty()
    level = logging.WARNING if is_terminal else logging.INFO
    ends: list[structlog.types.Processor] = (
        [structlog.dev.ConsoleRenderer()]
        if is_terminal
        else [structlog.processors.dict_tracebacks, structlog.processors.JSONRenderer()]
    )
    shared: list[structlog.types.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        _without_secrets,
    ]
    structlog.configure(
        processors=[*shared, *ends],
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        wrapper_class=structlog.make_filtering_bound_logger(level),
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *ends],
        )
    )
    root = logging.getLogger()
    root.handlers, root.level = [handler], level
    # Uvicorn's own lines of requests have no id.
    logging.getLogger("uvicorn.access").disabled = True


def logger() -> Any:
    """Return the logger of the service."""
    return structlog.get_logger("pytest-ssr")


def _without_secrets(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    return {name: "(hidden)" if name.lower() in _SECRETS else value for name, value in event.items()}
