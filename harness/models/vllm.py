"""Start and monitor a `vllm serve` process for a local model (`vllm:PATH`).

The server is a program in a separate environment (`vllm` on the PATH, or SSR_VLLM), never in this one.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import httpx

from harness.models.http import HttpModel
from harness.models.protocol import ToolSchema, hash_path
from harness.models.timeouts import READY_S, TIMEOUT_S
from harness.records.messages import Message, Reply, Sampling
from pytest_ssr.errors import ModelError, SettingsError

_MAX_STARTS = 3
_ARGUMENTS = ("--enable-auto-tool-choice", "--logprobs-mode", "processed_logprobs", "--max-logprobs", "-1")
_PARSER = "hermes"


class VllmModel:
    """A model behind `vllm serve`, which starts at the first query."""

    def __init__(
        self,
        path: str,
        *,
        context_tokens: int = 0,
        timeout_s: float = TIMEOUT_S,
        ready_s: float = READY_S,
        arguments: Sequence[str] = (),
    ) -> None:
        """path: a model's directory, or its name on a hub. context_tokens: 0 for the server's value.

        timeout_s: seconds until a reply must be complete. ready_s: seconds until the server must be ready.
        arguments: additional arguments for `vllm serve`.
        Raises SettingsError if there is no `vllm` program.
        """
        self.name = f"vllm:{path}"
        program = shutil.which(os.environ.get("SSR_VLLM", "vllm"))
        if program is None:
            raise SettingsError(
                "`vllm` is not on the PATH; install it in a separate environment and set SSR_VLLM to its program, "
                "or name a running server: vllm:http://HOST:PORT/v1"
            )
        self._program, self._path, self._ready_s = program, path, ready_s
        self._context_tokens, self._timeout_s = context_tokens, timeout_s
        self._user_arguments = tuple(arguments)
        self._arguments = [*_ARGUMENTS, *arguments]
        if not any(a.partition("=")[0] == "--tool-call-parser" for a in arguments):
            self._arguments += ["--tool-call-parser", _PARSER]
        self._lock = threading.RLock()
        self._process: subprocess.Popen[bytes] | None = None
        self._http: HttpModel | None = None
        self._log = Path()
        self._starts = 0
        self._closing = threading.Event()
        atexit.register(self.close)

    @property
    def context_tokens(self) -> int:
        """The configured value, or else the server's."""
        return self._server().context_tokens

    @property
    def passes_tools(self) -> bool:
        """Whether the model sees the tools of a request."""
        return self._server().passes_tools

    @property
    def remarks(self) -> str:
        """What is missing on the server and what is done without it; empty while it is not running."""
        with self._lock:
            server = self._http
        return server.remarks if server is not None else ""

    @functools.cached_property
    def identity(self) -> str:
        """A hash of the model's files if it is a folder, and the user's arguments, which may change the model."""
        return " ".join(filter(None, (hash_path(Path(self._path)), *self._user_arguments)))

    def reply(self, messages: Sequence[Message], *, tools: Sequence[ToolSchema], sampling: Sampling) -> Reply:
        """Query the server; a server that died is restarted, and a retry of the caller repeats the request."""
        server = self._server()
        try:
            return server.reply(messages, tools=tools, sampling=sampling)
        except ModelError as error:
            reason = self._end_reason() if error.retry else ""
            if reason:
                raise ModelError(f"{reason}; {error}", retry=True) from None
            raise

    def count(self, messages: Sequence[Message], *, tools: Sequence[ToolSchema]) -> int:
        """Return the server's token count."""
        return self._server().count(messages, tools=tools)

    def session(self, rollout: str) -> VllmModel:
        """Return this model: all rollouts share the server."""
        return self

    def close(self) -> None:
        """End the server and its child processes, also while it is starting."""
        self._closing.set()
        self._end()

    def _end(self) -> None:
        with self._lock:
            if self._http is not None:
                self._http.close()
                self._http = None
            if self._process is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self._process.pid, signal.SIGTERM)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._process.wait(20)
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self._process.pid, signal.SIGKILL)
                self._process.wait()
                self._process = None
                shutil.rmtree(self._log.parent, ignore_errors=True)

    def _server(self) -> HttpModel:
        with self._lock:
            if self._http is not None and self._process is not None and self._process.poll() is None:
                return self._http
            self._end()
            if self._closing.is_set():
                raise ModelError(f"{self.name} is closed")
            if self._starts >= _MAX_STARTS:
                raise ModelError(f"{self.name}: the server was started {self._starts} times and ended each time")
            self._starts += 1
            return self._start()

    def _start(self) -> HttpModel:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self._log = Path(tempfile.mkdtemp(prefix="ssr-vllm-")) / "log"
        # The last of two equal options counts, so these override the user's.
        command = [self._program, "serve", self._path, *self._arguments, "--host", "127.0.0.1", "--port", str(port)]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
            )
        deadline = time.monotonic() + self._ready_s
        while time.monotonic() < deadline and not self._closing.is_set():
            if self._process.poll() is not None:
                raise ModelError(self._end_message(self._process))
            with contextlib.suppress(httpx.HTTPError):
                if httpx.get(f"http://127.0.0.1:{port}/health", timeout=5, trust_env=False).status_code == 200:
                    self._http = HttpModel(
                        self.name,
                        f"http://127.0.0.1:{port}/v1",
                        context_tokens=self._context_tokens,
                        timeout_s=self._timeout_s,
                    )
                    return self._http
            time.sleep(0.2)
        self._end()
        raise ModelError(f"{self.name}: the server is not ready after {self._ready_s:g} s")

    def _end_reason(self) -> str:
        """Return why the server ended; an empty string if it runs, or another thread ended it."""
        with self._lock:
            process = self._process
            return self._end_message(process) if process is not None and process.poll() is not None else ""

    def _end_message(self, process: subprocess.Popen[bytes]) -> str:
        try:
            lines = self._log.read_text(errors="replace").splitlines()[-5:]
        except OSError:
            lines = []
        return f"{self.name}: `vllm serve` ended with {process.returncode}: {' | '.join(lines)[-600:]}"
