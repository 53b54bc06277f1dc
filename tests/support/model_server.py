"""Run an HTTP server that speaks the OpenAI protocol with vLLM's extra fields, and can misbehave on demand."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Served:
    """The replies of the server, and the requests it received."""

    replies: list[Any] = field(default_factory=list)
    """In order: messages, or functions of the request that return (status, headers, body bytes)."""
    asked: list[dict[str, Any]] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    token_ids: bool = True
    tokenizes: int = 200
    """The HTTP status of replies to `/tokenize`."""
    max_model_len: int = 8192
    models: Any = None
    """The list of served models; None for `tiny` alone."""
    url: str = ""
    passes_tools: bool = True
    """Whether the chat template renders the tools of a request."""
    probes: int = 0
    """Requests for one token, by which a client finds out what the server can do; they take no reply."""
    refuses: int = 0
    """The HTTP status of all completions, also of probes; 0 if they get replies."""
    closed: bool = False
    """If true, open connections get no more replies."""


def message(content: str = "", *calls: tuple[str, dict[str, Any]]) -> dict[str, Any]:
    data: dict[str, Any] = {"role": "assistant", "content": content}
    if calls:
        data["tool_calls"] = [
            {"id": f"c{n}", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
            for n, (name, arguments) in enumerate(calls)
        ]
    return data


def tokens(text: str) -> list[int]:
    return list(text.encode())


def rendered(request: dict[str, Any], served: Served) -> str:
    tools = request.get("tools") if served.passes_tools else None
    return json.dumps(request["messages"]) + (json.dumps(tools) if tools else "")


def response(reply: dict[str, Any], request: dict[str, Any], served: Served) -> dict[str, Any]:
    text = json.dumps(reply)
    prompt = rendered(request, served)
    choice: dict[str, Any] = {
        "index": 0,
        "message": reply,
        "finish_reason": "tool_calls" if reply.get("tool_calls") else "stop",
    }
    data: dict[str, Any] = {
        "id": f"r{len(served.asked)}",
        "object": "chat.completion",
        "created": 1,
        "model": request["model"],
        "choices": [choice],
        "usage": {
            "prompt_tokens": len(tokens(prompt)),
            "completion_tokens": len(tokens(text)),
            "total_tokens": len(tokens(prompt)) + len(tokens(text)),
        },
    }
    if served.token_ids and request.get("return_token_ids"):
        choice["token_ids"] = tokens(text)
        choice["logprobs"] = {"content": [{"token": "t", "logprob": -0.5, "top_logprobs": []} for _ in tokens(text)]}
        data["prompt_token_ids"] = tokens(prompt)
    return data


@contextmanager
def serving(*replies: Any, port: int = 0, **settings: Any) -> Iterator[Served]:
    """port: 0 for any free port."""
    served = Served(list(replies), **settings)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            if self.path == "/v1/models":
                data = [{"id": "tiny", "object": "model", "max_model_len": served.max_model_len}]
                models = data if served.models is None else served.models
                self._send(200, {}, json.dumps({"data": models}).encode())
            elif self.path == "/health":
                self._send(200, {}, b"")
            else:
                self._send(404, {}, b"{}")

        def do_POST(self) -> None:
            if served.closed:
                self.close_connection = True
                return
            request = json.loads(self.rfile.read(int(self.headers["content-length"])))
            if self.path == "/tokenize":
                if served.tokenizes != 200:
                    self._send(served.tokenizes, {}, b"{}")
                    return
                count = len(tokens(rendered(request, served)))
                self._send(200, {}, json.dumps({"count": count, "max_model_len": served.max_model_len}).encode())
                return
            if served.refuses:
                self._send(*error(served.refuses, "the key is not valid")(request))
                return
            if request.get("max_tokens") == 1:
                served.probes += 1
                self._send(200, {}, json.dumps(response(message("Hello"), request, served)).encode())
                return
            served.asked.append(request)
            served.keys.append(self.headers.get("authorization", ""))
            reply = served.replies.pop(0) if served.replies else message("there is nothing more to say")
            if callable(reply):
                try:
                    status, headers, body = reply(request)
                except ConnectionAbortedError:
                    self.close_connection = True
                    return
                if isinstance(body, Dribble):
                    self._dribble(body)
                else:
                    self._send(status, headers, body)
                return
            self._send(200, {}, json.dumps(response(reply, request, served)).encode())

        def _send(self, status: int, headers: dict[str, str], body: bytes) -> None:
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            for name, value in headers.items():
                self.send_header(name, value)
            with suppress(BrokenPipeError, ConnectionResetError):
                self.end_headers()
                self.wfile.write(body)

        def _dribble(self, body: Dribble) -> None:
            self.send_response(200)
            self.send_header("content-length", "100000")
            if not body.in_headers:
                self.end_headers()
            with suppress(BrokenPipeError, ConnectionResetError):
                self.flush_headers()
                self.wfile.write(b"x-slow: " if body.in_headers else b"{")
                while not served.closed:
                    time.sleep(body.pause_s)
                    self.wfile.write(b" ")
            self.close_connection = True

        def log_message(self, *arguments: object) -> None:
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    server.daemon_threads = True
    served.url = f"http://127.0.0.1:{server.server_port}/v1"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield served
    finally:
        served.closed = True
        server.shutdown()
        server.server_close()
        thread.join()


def error(status: int, text: str, **headers: str) -> Callable[[Any], tuple[int, dict[str, str], bytes]]:
    body = json.dumps({"error": {"message": text, "type": "error", "code": status}}).encode()
    return lambda request: (status, {k.replace("_", "-"): v for k, v in headers.items()}, body)


def garbage(body: bytes) -> Callable[[Any], tuple[int, dict[str, str], bytes]]:
    return lambda request: (200, {}, body)


def slow(seconds: float) -> Callable[[Any], tuple[int, dict[str, str], bytes]]:
    def wait(request: Any) -> tuple[int, dict[str, str], bytes]:
        time.sleep(seconds)
        return 200, {}, b"{}"

    return wait


@dataclass(frozen=True)
class Dribble:
    """An endless response, byte after byte."""

    in_headers: bool = False
    pause_s: float = 0.02


def dribbling(*, in_headers: bool = False) -> Callable[[Any], tuple[int, dict[str, str], Any]]:
    return lambda request: (200, {}, Dribble(in_headers))


def cut_off(request: Any) -> tuple[int, dict[str, str], bytes]:
    raise ConnectionAbortedError
