"""Run the service on a socket, and the processes of its workers, until the process is told to end."""

from __future__ import annotations

import contextlib
import resource
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType

import uvicorn
from fastapi import FastAPI

from harness.service.logs import logger
from harness.service.streams import Streams
from harness.settings.service import MODEL_KEYS
from harness.web import server_config
from pytest_ssr.sandbox.supervision.supervisor import die_with_parent

_GRACE_S = 3
"""How long requests may take after the end was requested."""
_MAX_FILES = 8_192
"""Each stream is an open file; many systems allow 1,024 of them, and more on demand."""
_POLL_S = 0.2
_RESTART_S = 2.0
_WORKER_GRACE_S = 20
"""How long a worker may take to return its jobs to the queue."""


class _Server(uvicorn.Server):
    """Ends event streams first, which would last for ever."""

    streams: Streams | None = None

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """End the streams, then the server; a second signal does not wait for requests."""
        if self.streams is not None:
            self.streams.close()
        # The signal is not raised again at the end, as uvicorn would: to be told to end is no failure.
        self.force_exit = self.should_exit
        self.should_exit = True


def allow_open_files() -> None:
    """Raise the number of files that this process may open, as far as the system allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MAX_FILES if hard == resource.RLIM_INFINITY else min(_MAX_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        # macOS has a limit below the one that it reports.
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def run(app: FastAPI, listening: socket.socket) -> None:
    """Serve until SIGINT or SIGTERM."""
    config = server_config(app, grace_s=_GRACE_S)
    allow_open_files()
    server = _Server(config)
    server.streams = app.state.streams
    server.run(sockets=[listening])


@contextlib.contextmanager
def worker_processes(store: Path, count: int, model_keys: Sequence[str] = MODEL_KEYS) -> Iterator[None]:
    """Run workers until the end of the block; one that ends is started again.

    model_keys: patterns of the variables whose keys registered models may use.
    """
    stopped = threading.Event()
    prefix = die_with_parent() if count else ()
    argv = [*prefix, sys.executable, "-m", "harness.cli", "worker", str(store)]
    argv += [f"--model-keys={pattern}" for pattern in model_keys]
    threads = [threading.Thread(target=_keep_running, args=(argv, stopped)) for _ in range(count)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stopped.set()
        for thread in threads:
            thread.join()


def _keep_running(argv: list[str], stopped: threading.Event) -> None:
    while not stopped.is_set():
        # A separate session: an interrupt of the terminal reaches the service alone, which then ends its workers.
        process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, start_new_session=True)
        while process.poll() is None and not stopped.wait(_POLL_S):
            pass
        if process.poll() is not None:
            logger().error("worker-ended", exit_code=process.returncode)
            stopped.wait(_RESTART_S)
            continue
        process.terminate()
        try:
            process.wait(_WORKER_GRACE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
