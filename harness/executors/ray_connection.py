"""Connect this process to a Ray cluster."""

from __future__ import annotations

import ipaddress
import logging
import os
import signal
import socket
import threading
from typing import Any

import ray
from ray._private import worker as ray_worker

from pytest_ssr.errors import SettingsError

_CONNECT_S = 5.0
_logger = logging.getLogger(__name__)


def connect(address: str) -> bool:
    """Connect this process to a cluster; return whether it was not connected before. Raises SettingsError."""
    if ray.is_initialized():
        connected = ray.get_runtime_context().gcs_address
        if not _is_same(address, connected):
            raise SettingsError(
                f"--ray {address}: this process is connected to the cluster {connected}, and can use only one",
                option="ray",
            )
        return False
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    _require_reachable(address)
    _silence_ray()
    handler = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR, include_dashboard=None)
    except (ConnectionError, ValueError, RuntimeError, ray.exceptions.RayError) as error:
        first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise SettingsError(
            f"--ray {address}: there is no cluster, or it cannot be reached: {first}; "
            "start one with `ray start --head`",
            option="ray",
        ) from None
    finally:
        if threading.current_thread() is threading.main_thread():
            # Ray has put its own in the place of ours.
            signal.signal(signal.SIGTERM, handler)
    return True


def _silence_ray() -> None:
    """Send Ray's messages about nodes to the log, at the level DEBUG.

    Ray prints them to standard output, which is for results, with twenty lines of its own log for every lost node; it
    has no setting for that. The executor reports lost nodes itself.
    """

    def log(data: dict[str, Any], ignore_prefix: bool) -> None:
        for line in data["lines"]:
            _logger.debug("%s", line)

    ray_worker.print_to_stdstream = log


def _is_same(address: str, connected: str) -> bool:
    """Return whether an address, which may be `auto`, can be that of the cluster."""
    host, _, port = address.rpartition(":")
    if not port.isdigit():
        return True
    connected_host, _, connected_port = connected.rpartition(":")
    if port != connected_port:
        return False
    try:
        found = ipaddress.ip_address(socket.gethostbyname(host.strip("[]")))
    except OSError:
        return host == connected_host
    return found.is_loopback or str(found) == connected_host


def _require_reachable(address: str) -> None:
    """Raise SettingsError if nothing listens at an address: Ray would try for minutes."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), _CONNECT_S).close()
    except (OSError, OverflowError) as error:
        raise SettingsError(
            f"--ray {address}: no cluster can be reached there: {error}; start one with `ray start --head`",
            option="ray",
        ) from None
