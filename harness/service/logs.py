"""Write log lines as JSON objects, each with the id of its request."""

from __future__ import annotations

import io
import logging
import sys
from collections.abc import MutableMapping
from typing import Any, TextIO

import structlog

from pytest_ssr.escaping import escaped, escaped_line

_SECRETS = frozenset({"authorization", "cookie", "password", "secret", "token"})

_traceback = structlog.processors.ExceptionRenderer(structlog.tracebacks.ExceptionDictTransformer(show_locals=False))
"""Without the values of variables, among which are tokens and passwords."""


def set_up_logging() -> None:
    """Send the log of this process and of its libraries to standard error, one JSON object per line.

    On a terminal, a person reads it: only warnings and errors, as text.
    """
    is_terminal = sys.stderr.isatty()
    level = logging.WARNING if is_terminal else logging.INFO
    ends: list[structlog.types.Processor] = (
        [_escaped_values, structlog.dev.ConsoleRenderer(exception_formatter=_write_traceback)]
        if is_terminal
        else [_traceback, structlog.processors.JSONRenderer()]
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


def _escaped_values(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Escape what a terminal would obey, such as the path of a request."""
    return {name: escaped_line(value) if isinstance(value, str) else value for name, value in event.items()}


def _write_traceback(target: TextIO, found: structlog.types.ExcInfo) -> None:
    text = io.StringIO()
    structlog.dev.plain_traceback(text, found)
    target.write(escaped(text.getvalue()))


def _without_secrets(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    return {name: "(hidden)" if name.lower() in _SECRETS else value for name, value in event.items()}
