"""Listen on an address and configure uvicorn, for the service and for servers of sandboxes."""

from __future__ import annotations

import socket
from typing import Any

import uvicorn
from fastapi import FastAPI

from pytest_ssr.errors import SettingsError, os_error_advice

_BACKLOG, _MAX_PORT = 2_048, 65_535


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that accepts connections; raises SettingsError if the address or the port cannot be used."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Checked here: the socket that refuses it would stay open.
    if not 0 <= port <= _MAX_PORT:
        raise SettingsError(f"--port {port} is not a port; use 0 to {_MAX_PORT}", option="port")
    try:
        listening = socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except socket.gaierror:
        raise SettingsError(f"--host {host} is not an address of this machine", option="host") from None
    except OSError as error:
        advice = os_error_advice(error, option="--port")
        raise SettingsError(f"--port {port} cannot be used at {host}: {advice}", option="port") from None
    # Its connections inherit the option, which asyncio sets only for sockets that name their protocol. Without it a
    # response in two packets takes 40 ms more.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening


def server_config(app: FastAPI, *, grace_s: int, **options: Any) -> uvicorn.Config:
    """Return the configuration of a server. grace_s: how long requests may take after the signal to end."""
    return uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        backlog=_BACKLOG,
        timeout_graceful_shutdown=grace_s,
        # The address of a client in a header is whatever the client wrote.
        proxy_headers=False,
        **options,
    )
