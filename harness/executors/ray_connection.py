"""Connect this process to a Ray cluster."""

from __future__ import annotations

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


def connect(address: str) -> bool:
    """Connect this process to a cluster; return whether it was not connected before. Raises SettingsError."""
    if ray.is_initialized():
        return False
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    _require_reachable(address)
    _keep_standard_output_clean()
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


def _keep_standard_output_clean() -> None:
    """Make Ray print its messages about nodes to standard error; standard output is for results, such as JSON.

    Ray has no setting for it: `log_to_driver` is only about the output of workers.
    """
    print_lines = ray_worker.print_to_stdstream
    if getattr(print_lines, "is_of_ssr", False):
        return

    def to_standard_error(data: dict[str, Any], ignore_prefix: bool) -> None:
        print_lines({**data, "is_err": True}, ignore_prefix)

    to_standard_error.is_of_ssr = True  # type: ignore[attr-defined]
    ray_worker.print_to_stdstream = to_standard_error


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
