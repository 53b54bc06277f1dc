"""`vllm:PATH` starts a server for a local model and watches it; `vllm:URL` talks to one that runs.

The server is another program in an environment of its own (`vllm` on the PATH, or SSR_VLLM): it never shares ours.
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

from harness.messages import Message, Reply, Sampling
from harness.models.http import HttpModel
from harness.models.identity import hash_of
from harness.models.protocol import ToolSchema
from harness.models.waiting import READY_S, TIMEOUT_S
from pytest_ssr.errors import ModelError, SettingsError

_MOST_STARTS = 3
_ARGUMENTS = ("--enable-auto-tool-choice", "--logprobs-mode", "processed_logprobs", "--max-logprobs", "-1")
_PARSER = "hermes"


class VllmModel:
    """A model behind `vllm serve`, started when it is first asked."""

    def __init__(
        self,
        path: str,
        *,
        context_tokens: int = 0,
        timeout_s: float = TIMEOUT_S,
        ready_s: float = READY_S,
        arguments: Sequence[str] = (),
    ) -> None:
        """path: a model's directory, or its name on a hub. context_tokens: 0: as the server says.

        timeout_s: seconds until an answer is there whole. ready_s: seconds until the server is ready.
        arguments: further ones for `vllm serve`.
        Raises SettingsError where there is no `vllm` to start.
        """
        self.name = f"vllm:{path}"
        found = shutil.which(os.environ.get("SSR_VLLM", "vllm"))
        if found is None:
            raise SettingsError(
                "there is no `vllm` on the PATH; install it in an environment of its own and set SSR_VLLM to its "
                "program, or name a server that runs: vllm:http://HOST:PORT/v1"
            )
        self._program, self._path, self._ready_s = found, path, ready_s
        self._context_tokens, self._timeout_s = context_tokens, timeout_s
        self._given = tuple(arguments)
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
        """As it was set, else as the server says."""
        return self._server().context_tokens

    @functools.cached_property
    def identity(self) -> str:
        """A hash of the model's files, where it is a folder; what its server was further told, which may change it."""
        return " ".join(filter(None, (hash_of(Path(self._path)), *self._given)))

    def reply(self, messages: Sequence[Message], *, tools: Sequence[ToolSchema], sampling: Sampling) -> Reply:
        """Ask the server; one that died is started again, and the question asked once more by who retries."""
        server = self._server()
        try:
            return server.reply(messages, tools=tools, sampling=sampling)
        except ModelError as error:
            why = self._why_it_ended() if error.retry else ""
            if why:
                raise ModelError(f"{why}; {error}", retry=True) from None
            raise

    def count(self, messages: Sequence[Message], *, tools: Sequence[ToolSchema]) -> int:
        """Count as the server does."""
        return self._server().count(messages, tools=tools)

    def session(self, rollout: str) -> VllmModel:
        """Return itself: a server is the same for all."""
        return self

    def close(self) -> None:
        """End the server and all that it started, also while it is only about to be ready."""
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
            if self._starts >= _MOST_STARTS:
                raise ModelError(f"{self.name}: the server has been started {self._starts} times and does not stay")
            self._starts += 1
            return self._start()

    def _start(self) -> HttpModel:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self._log = Path(tempfile.mkdtemp(prefix="ssr-vllm-")) / "log"
        # The last of two counts: where the server listens is ours to say.
        command = [self._program, "serve", self._path, *self._arguments, "--host", "127.0.0.1", "--port", str(port)]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
            )
        deadline = time.monotonic() + self._ready_s
        while time.monotonic() < deadline and not self._closing.is_set():
            if self._process.poll() is not None:
                raise ModelError(self._ended(self._process))
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

    def _why_it_ended(self) -> str:
        """Return why the server is there no more; an empty text where it runs, or was ended by another thread."""
        with self._lock:
            process = self._process
            return self._ended(process) if process is not None and process.poll() is not None else ""

    def _ended(self, process: subprocess.Popen[bytes]) -> str:
        try:
            lines = self._log.read_text(errors="replace").splitlines()[-5:]
        except OSError:
            lines = []
        return f"{self.name}: `vllm serve` ended with {process.returncode}: {' | '.join(lines)[-600:]}"
