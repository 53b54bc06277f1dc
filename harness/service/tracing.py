"""Report traces by OpenTelemetry if its packages are installed (extra `telemetry`) and an address is set.

The address and everything else is read from the variables that OpenTelemetry defines, such as
`OTEL_EXPORTER_OTLP_ENDPOINT` and `OTEL_SERVICE_NAME`.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from pytest_ssr.errors import MissingExtraError

if TYPE_CHECKING:
    from fastapi import FastAPI

_ADDRESSES = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
_NAME = "pytest-ssr"
_provider: Any = None


def start_tracing(app: FastAPI | None = None) -> bool:
    """Send the spans of this process, and of the requests to an app, from now on; return whether traces are wanted.

    Raises MissingExtraError if an address is set and the packages are not installed.
    """
    global _provider
    if not any(os.environ.get(name) for name in _ADDRESSES):
        return False
    if find_spec("opentelemetry") is None or find_spec("opentelemetry.sdk") is None:
        raise MissingExtraError("OpenTelemetry", "telemetry")
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.instrumentation.fastapi import FastAPIInstrumentor
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    if _provider is None:
        name = os.environ.get("OTEL_SERVICE_NAME", _NAME)
        _provider = TracerProvider(resource=Resource.create({"service.name": name}))
        _provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    if app is not None:
        # Event streams are open for hours, and a probe every few seconds is nothing to look at.
        FastAPIInstrumentor.instrument_app(app, tracer_provider=_provider, excluded_urls="events,health,ready,metrics")
    return True


@contextlib.contextmanager
def span(name: str, **attributes: str | int | float | bool) -> Iterator[None]:
    """Record the time of a block and whether it raised an error; nothing happens unless tracing was started."""
    if _provider is None:
        yield
        return
    with _provider.get_tracer(_NAME).start_as_current_span(name, attributes=attributes):
        yield


def stop_tracing() -> None:
    """Send the spans that are still waiting."""
    global _provider
    if _provider is not None:
        _provider.shutdown()
    _provider = None
