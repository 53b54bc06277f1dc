"""Report traces by OpenTelemetry if its packages are installed (extra `telemetry`) and an address is set.

The address and everything else is read from the variables that OpenTelemetry defines, such as
`OTEL_EXPORTER_OTLP_ENDPOINT` and `OTEL_SERVICE_NAME`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from pytest_ssr.errors import MissingExtraError

if TYPE_CHECKING:
    from fastapi import FastAPI

_ADDRESSES = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
_NAME = "pytest-ssr"


def start_tracing(app: FastAPI) -> Callable[[], None]:
    """Send the spans of the requests to an app from now on; return a function that sends those that still wait.

    Without an address, nothing is sent. Raises MissingExtraError if one is set and the packages are not installed.
    """
    if not any(os.environ.get(name) for name in _ADDRESSES):
        return lambda: None
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.instrumentation.fastapi import FastAPIInstrumentor
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError:
        raise MissingExtraError("OpenTelemetry", "telemetry") from None
    provider = TracerProvider(resource=Resource.create({"service.name": os.environ.get("OTEL_SERVICE_NAME", _NAME)}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    # Event streams are open for hours, and a probe every few seconds is nothing to look at.
    FastAPIInstrumentor.instrument_app(app, tracer_provider=provider, excluded_urls="events,health,ready")
    shutdown: Callable[[], None] = provider.shutdown
    return shutdown
