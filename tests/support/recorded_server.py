"""Replay the responses of a server by method and path."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = tuple[int, Any]
"""A status and a JSON value."""
Answers = Mapping[str, Answer | Callable[[Any], Answer]]
"""By method and path, as in `POST /v1/chat/completions`; a function is called with the request's JSON."""


@dataclass
class Recorded:
    url: str = ""
    requests: list[tuple[str, Any]] = field(default_factory=list)
    """Method and path, and the JSON of each request."""


@contextmanager
def replaying(answers: Answers, *, unknown: Answer = (404, {"error": "not found"})) -> Iterator[Recorded]:
    """unknown: the answer to every other path."""
    recorded = Recorded()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._answer("GET")

        def do_POST(self) -> None:
            self._answer("POST")

        def _answer(self, method: str) -> None:
            size = int(self.headers.get("content-length") or 0)
            request = json.loads(self.rfile.read(size)) if size else None
            recorded.requests.append((f"{method} {self.path}", request))
            answer = answers.get(f"{method} {self.path}", unknown)
            status, data = answer(request) if callable(answer) else answer
            body = json.dumps(data).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments: object) -> None:
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    recorded.url = f"http://127.0.0.1:{server.server_port}/v1"
    try:
        yield recorded
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
