"""Start mini-swe-agent's process with a restricted environment, exchange JSON lines with it, and always end it.

Every wait has a timeout. A process that dies, hangs or violates the protocol raises a ModelError with the end of its
output, from which keys are removed.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from harness.models.urls import hidden, is_loopback
from pytest_ssr.errors import ModelError, SettingsError, SsrError
from pytest_ssr.interrupts import raise_if_stopped

DRIVER = Path(__file__).with_name("driver.py")
_MAX_LINE_BYTES = 256 * 1024 * 1024
_POLL_S = 0.1
_END_S = 5.0
_PASSED_VARIABLES = (
    *("PATH", "LANG", "LC_ALL", "TMPDIR", "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE"),
    *("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "all_proxy", "no_proxy"),
)
_EXTRA_PREFIXES = {
    "gemini": ("GOOGLE_",),
    "vertex_ai": ("VERTEX", "GOOGLE_"),
    "bedrock": ("AWS_",),
    "sagemaker": ("AWS_",),
    "together_ai": ("TOGETHERAI_", "TOGETHER_"),
    "fireworks_ai": ("FIREWORKS_",),
    "huggingface": ("HF_",),
    "dashscope": ("DASHSCOPE_",),
    "moonshot": ("MOONSHOT_",),
}
_SECRET = ("_KEY", "_TOKEN", "_SECRET", "_PASSWORD", "_CREDENTIALS")
_FIXED_VARIABLES = {
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "LITELLM_MODE": "PRODUCTION",  # Otherwise it reads files with keys.
    "MSWEA_SILENT_STARTUP": "1",
    "MSWEA_MODEL_RETRY_STOP_AFTER_ATTEMPT": "6",
    "PYTHONDONTWRITEBYTECODE": "1",
}


class LateError(SsrError):
    """The process did not respond in time."""


def environment_for(model: str, url: str, folder: Path) -> tuple[dict[str, str], dict[str, str]]:
    """Return the environment for a model named PROVIDER/MODEL, and the names of its secrets by their values.

    It has the keys of this provider only. folder: the home directory, which contains no settings of the user.
    """
    provider = model.partition("/")[0].lower()
    prefixes = (f"{provider.upper().replace('-', '_')}_", *_EXTRA_PREFIXES.get(provider, ()))
    of_provider = {k: v for k, v in os.environ.items() if k.startswith(prefixes)}
    variables = {k: os.environ[k] for k in _PASSED_VARIABLES if k in os.environ} | of_provider | _FIXED_VARIABLES
    variables |= {"HOME": str(folder), "MSWEA_GLOBAL_CONFIG_DIR": str(folder)}
    if is_loopback(url):
        names = [*os.environ.get("NO_PROXY", "").split(","), "localhost", "127.0.0.1", "::1"]
        variables["NO_PROXY"] = variables["no_proxy"] = ",".join(dict.fromkeys(filter(None, names)))
    return variables, {v: k for k, v in of_provider.items() if len(v) >= 8 and k.endswith(_SECRET)}


class Process:
    """One run of the driver."""

    def __init__(self, python: Path, model: str, url: str, *, driver: Path = DRIVER) -> None:
        """Start the process; raises SettingsError if the interpreter cannot be started."""
        self._folder = Path(tempfile.mkdtemp(prefix="ssr-mini-"))
        environment, self._secrets = environment_for(model, url, self._folder)
        self._lines, out = os.pipe()
        self._buffer = bytearray()
        self._ended = False
        try:
            with (self._folder / "log").open("wb") as log:
                self._process = subprocess.Popen(
                    [str(python), str(driver), str(out)],
                    stdin=subprocess.PIPE,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    pass_fds=[out],
                    env=environment,
                    cwd=self._folder,
                    start_new_session=True,
                )
        except OSError as error:
            os.close(self._lines)
            shutil.rmtree(self._folder, ignore_errors=True)
            raise SettingsError(f"mini-swe-agent's interpreter {python} cannot be started: {error.strerror}") from None
        finally:
            os.close(out)
        assert self._process.stdin is not None
        self._answers = self._process.stdin.fileno()
        os.set_blocking(self._answers, False)

    def send(self, data: Mapping[str, Any], *, timeout_s: float) -> None:
        """Send an answer; raises ModelError if the process is gone, LateError if it does not read in time."""
        remaining, deadline = memoryview(json.dumps(data).encode() + b"\n"), time.monotonic() + timeout_s
        while remaining:
            try:
                remaining = remaining[os.write(self._answers, remaining) :]
            except BlockingIOError:
                self._wait(deadline, [], [self._answers])
            except OSError:
                raise ModelError(self._end_message()) from None

    def receive(self, *, timeout_s: float) -> dict[str, Any]:
        """Return the next event; raises ModelError if the process died or sent anything else, LateError if it hangs."""
        deadline, seen = time.monotonic() + timeout_s, 0
        while (end := self._buffer.find(b"\n", seen)) < 0:
            seen = len(self._buffer)
            if seen > _MAX_LINE_BYTES:
                raise ModelError(f"mini-swe-agent's process sent a line of more than {_MAX_LINE_BYTES} bytes")
            self._wait(deadline, [self._lines], [])
            part = os.read(self._lines, 1 << 20)
            if not part:
                raise ModelError(self._end_message())
            self._buffer += part
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        return self._parse(line)

    def _parse(self, line: bytes) -> dict[str, Any]:
        text = line.decode("utf-8", "replace")
        try:
            data = json.loads(text)
            if isinstance(data, dict) and isinstance(data.get("event"), str):
                return data
        except (ValueError, RecursionError):
            pass
        raise ModelError(f"mini-swe-agent's process sent an invalid line: {self._hidden(text)[:200]!r}")

    def hide(self, data: Mapping[str, Any]) -> dict[str, Any]:
        """Return plain data with keys replaced by their names."""
        masked: dict[str, Any] = json.loads(self._hidden(json.dumps(data)))
        return masked

    def _hidden(self, text: str) -> str:
        return hidden(text, self._secrets)

    def _wait(self, deadline: float, reading: list[int], writing: list[int]) -> None:
        while True:
            raise_if_stopped()
            ready = select.select(reading, writing, [], max(0.0, min(_POLL_S, deadline - time.monotonic())))
            if any(ready):
                return
            if time.monotonic() >= deadline:
                raise LateError

    def _end_message(self) -> str:
        """Return how the process ended, with the end of its output."""
        try:
            status: object = self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            return "mini-swe-agent's process closed its pipe but does not end"
        return f"mini-swe-agent's process ended with status {status}: {self._printed() or 'it printed nothing'}"

    def _printed(self) -> str:
        with contextlib.suppress(OSError), (self._folder / "log").open("rb") as log:
            log.seek(max(0, log.seek(0, os.SEEK_END) - 4000))
            lines = log.read().decode("utf-8", "replace").splitlines()[-5:]
            return self._hidden(" | ".join(lines))[-600:]
        return ""

    def close(self) -> None:
        """End the process and its child processes."""
        if self._ended:
            return
        self._ended = True
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        os.close(self._lines)
        if self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
