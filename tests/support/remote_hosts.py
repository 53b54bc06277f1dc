"""Hosts of sandboxes in this process, and servers in their own."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import uvicorn

from harness.remote_sandboxes.host import HostSettings, SandboxHost
from harness.remote_sandboxes.http_server import create_app
from harness.web import listen
from pytest_ssr.sandbox.protocol import SandboxProvider

TOKEN = "a-token-for-the-tests"


@contextlib.contextmanager
def served_host(
    provider: SandboxProvider, settings: HostSettings | None = None, token: str = ""
) -> Iterator[tuple[str, SandboxHost]]:
    """Yield the address of a host in this process, and the host."""
    host = SandboxHost(provider, settings)
    with listen("127.0.0.1", 0) as listening:
        config = uvicorn.Config(create_app(host, token=token), log_config=None, ws="none", timeout_graceful_shutdown=1)
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}", host
        finally:
            host.close()
            server.should_exit = True
            thread.join()


@contextlib.contextmanager
def server_process(*argv: object, **env: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Yield the address and the process of `ssr sandbox-server`, which is told to end at the end."""
    command = [sys.executable, "-m", "harness.cli", "sandbox-server", "--port", "0", *map(str, argv), "--json"]
    variables = {name: value for name, value in os.environ.items() if not name.startswith("SSR_")}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**variables, **env})
    assert process.stdout is not None
    try:
        url = json.loads(process.stdout.readline())["url"].replace("0.0.0.0", "127.0.0.1")
        with httpx.Client(transport=httpx.HTTPTransport(retries=20)) as client:
            client.get(f"{url}/health")
        yield url, process
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 0
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def folders_in(directory: Path) -> list[str]:
    """Return the names of the folders of sandboxes in a temporary directory."""
    return sorted(path.name for path in directory.glob("ssr-*"))
