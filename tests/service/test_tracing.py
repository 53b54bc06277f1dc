"""Traces arrive at a real receiver of OTLP over HTTP."""

from __future__ import annotations

import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from fastapi import FastAPI

from harness.service.tracing import start_tracing
from pytest_ssr.errors import MissingExtraError

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
    server.shutdown()
    server.server_close()


def test_spans_of_requests_arrive(receiver):
    from fastapi.testclient import TestClient

    app = FastAPI()
    app.get("/runs")(_nothing)
    app.get("/health")(_nothing)
    stop = start_tracing(app)
    with TestClient(app) as client:
        client.get("/runs")
        client.get("/health")
    stop()
    path, body = receiver[0]
    assert path == "/v1/traces"
    assert b"pytest-ssr" in body
    assert b"GET /runs" in body
    assert b"GET /health" not in body


def test_without_an_address_nothing_is_sent(receiver, monkeypatch):
    monkeypatch.delenv("OTEL_EXPORTER_OTLP_ENDPOINT")
    start_tracing(FastAPI())()
    assert receiver == []


def test_missing_packages_are_one_error(receiver, monkeypatch):
    monkeypatch.setitem(sys.modules, "opentelemetry.instrumentation.fastapi", None)
    with pytest.raises(MissingExtraError):
        start_tracing(FastAPI())
