"""Query servers on this machine directly: a proxy cannot reach them."""

from __future__ import annotations

import ipaddress
import os
from urllib.parse import urlsplit

_NAMES = ("localhost", "127.0.0.1", "::1")


def is_loopback(url: str) -> bool:
    """Return whether a URL points to this machine, judged by its text alone: no name is resolved."""
    try:
        host = (urlsplit(url).hostname or "").rstrip(".")
    except ValueError:
        return False
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def bypass_proxies(url: str) -> None:
    """Exclude a server on this machine from the proxies of this process, for libraries that read these variables."""
    host = urlsplit(url).hostname or ""
    for variable in ("NO_PROXY", "no_proxy"):
        hosts = [name for name in os.environ.get(variable, "").split(",") if name.strip()]
        if "*" not in hosts:
            os.environ[variable] = ",".join(dict.fromkeys([*hosts, *_NAMES, host]))
