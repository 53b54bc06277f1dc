"""Servers on this machine are asked directly: a proxy that is meant for the world cannot reach them."""

from __future__ import annotations

import ipaddress
import os
from urllib.parse import urlsplit

_NAMES = ("localhost", "127.0.0.1", "::1")


def is_loopback(url: str) -> bool:
    """Tell whether a URL leads to this machine, by what it says alone: no name is looked up."""
    try:
        host = (urlsplit(url).hostname or "").rstrip(".")
    except ValueError:
        return False
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def bypass_proxies(url: str) -> None:
    """Have this process ask a server on this machine directly, for a library that reads the proxies' variables."""
    host = urlsplit(url).hostname or ""
    for variable in ("NO_PROXY", "no_proxy"):
        held = [name for name in os.environ.get(variable, "").split(",") if name.strip()]
        if "*" not in held:
            os.environ[variable] = ",".join(dict.fromkeys([*held, *_NAMES, host]))
