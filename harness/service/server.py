"""Run the web application, and the processes of its workers."""

from __future__ import annotations

import contextlib
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import uvicorn
from fastapi import FastAPI

from harness.service.logs import logger
from harness.service.streams import Streams
from pytest_ssr.errors import SettingsError, os_error_advice

_BACKLOG = 2_048
_END_S = 10
"""How long requests may go on after the service was told to end."""
_RESTART_S = 2.0
_WORKER_END_S = 20


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that accepts connections; raises SettingsError if the address or the port cannot be used."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except OverflowError:
        raise SettingsError(f"--port {port} is not a port; use 0 to 65535", option="port") from None
    except socket.gaierror:
        raise SettingsError(f"--host {host} is not an address of this machine", option="host") from None
    except OSError as error:
        cause = os_error_advice(error, option="--port")
        raise SettingsError(f"cannot listen at {host} port {port}: {cause}; choose another --port") from None


def serve(app: FastAPI, server_socket: socket.socket) -> None:
    """Serve an application until SIGINT or SIGTERM; requests that have begun are answered."""
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        backlog=_BACKLOG,
        timeout_graceful_shutdown=_END_S,
        # The address of a client in a header is whatever the client wrote.
        proxy_headers=False,
    )
    _Server(config).run([server_socket])


class _Server(uvicorn.Server):
    """A server that ends its event streams first; else it would wait for their clients."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """End the server on a signal. In contrast to uvicorn's, the process is not killed by it afterwards."""
        signals = (signal.SIGINT, signal.SIGTERM)
        previous = {number: signal.signal(number, self.handle_exit) for number in signals}
        try:
            yield
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End the streams, then everything else."""
        app = self.config.app
        if isinstance(app, FastAPI):
            streams: Streams = app.state.streams
            streams.close()
        await super().shutdown(sockets)


@contextlib.contextmanager
def worker_processes(store: Path, count: int) -> Iterator[None]:
    """Run workers until the end of the block; one that fails is started again."""
    stopped = threading.Event()
    threads = [threading.Thread(target=_keep_running, args=(store, stopped)) for _ in range(count)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stopped.set()
        for thread in threads:
            thread.join()


def _keep_running(store: Path, stopped: threading.Event) -> None:
    argv = [sys.executable, "-m", "harness.cli", "worker", str(store)]
    while not stopped.is_set():
        # A session of its own: an interrupt of the terminal reaches the service alone, which ends its workers.
        process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, start_new_session=True)
        while process.poll() is None and not stopped.wait(0.2):
            pass
        if process.poll() is not None:
            logger().error("worker-ended", exit_code=process.returncode)
            stopped.wait(_RESTART_S)
            continue
        process.terminate()
        try:
            process.wait(_WORKER_END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
