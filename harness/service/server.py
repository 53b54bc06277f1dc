"""Run the service on a socket until the process is told to end."""

from __future__ import annotations

import socket
from types import FrameType

import uvicorn

from harness.database.records import DatabaseRecords
from harness.service.app import create_app
from harness.service.events import Streams

_GRACE_S = 3
"""How long requests may take after the end was requested."""


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


def run(records: DatabaseRecords, listening: socket.socket) -> None:
    """Serve until SIGINT or SIGTERM."""
    app = create_app(records)
    server = _Server(uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=_GRACE_S, server_header=False))
    server.streams = app.state.streams
    server.run(sockets=[listening])
