"""Traces arrive at a real receiver of OTLP over HTTP."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from harness.service.tracing import span, start_tracing, stop_tracing

pytest.importorskip("opentelemetry.sdk")


def _nothing() -> dict[str, str]:
    return {}


@pytest.fixture
def receiver(monkeypatch):
    """Receive OTLP on loopback, and return the bodies."""
    bodies = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            bodies.append((self.path, self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
    yield bodies
    stop_tracing()
    server.shutdown()
    server.server_close()


def test_spans_of_jobs_and_requests_arrive(receiver):
    from fastapi import FastAPI
    from fastapi.testclient import TestClient

    app = FastAPI()
    app.get("/api/v1/jobs")(_nothing)
    app.get("/health")(_nothing)
    assert start_tracing(app)
    with span("job", kind="play"):
        pass
    with TestClient(app) as client:
        client.get("/api/v1/jobs")
        client.get("/health")
    stop_tracing()
    path, body = receiver[0]
    assert path == "/v1/traces"
    assert b"pytest-ssr" in body
    assert b"play" in body
    assert b"GET /api/v1/jobs" in body
    assert b"GET /health" not in body


def test_without_an_address_nothing_is_sent(monkeypatch):
    monkeypatch.delenv("OTEL_EXPORTER_OTLP_ENDPOINT", raising=False)
    monkeypatch.delenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", raising=False)
    assert not start_tracing()
    with span("job"):
        pass


def test_an_error_ends_its_span_and_goes_on(receiver):
    start_tracing()
    with pytest.raises(ZeroDivisionError), span("job"):
        raise ZeroDivisionError
    stop_tracing()
    assert b"ZeroDivisionError" in receiver[0][1]
