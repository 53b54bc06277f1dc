"""Turn what users type after `remote:` into a provider; the plugin calls `load` by its entry point."""

from __future__ import annotations

import socket
from importlib.util import find_spec
from urllib.parse import urlsplit

from harness.models.urls import is_loopback
from harness.remote_sandboxes.provider import RemoteProvider
from pytest_ssr.errors import MissingExtraError

RAY = "ray"


def load(address: str) -> RemoteProvider:
    """Return the provider for the URLs of sandbox servers, separated by commas, or for the nodes of a Ray cluster.

    The latter is `ray`, or `ray:NAME` for a named sandbox there. Raises SettingsError, SandboxUnavailableError.
    """
    kind, _, sandbox = address.partition(":")
    if kind == RAY:
        _require(RAY, RAY)
        from harness.remote_sandboxes.ray_transport import connect

        return RemoteProvider(connect(sandbox or "auto"))
    _require("httpx", "remote")
    from harness.remote_sandboxes.http_transport import HttpTransport

    urls = [url for typed in address.split(",") for url in resolved(typed)]
    return RemoteProvider([HttpTransport(url) for url in dict.fromkeys(urls)])


def resolved(url: str) -> list[str]:
    """Return the URLs of all servers behind the name in a URL, such as that of a headless Service of Kubernetes.

    Each sandbox stays on its server, so that its calls need the address of that one. A certificate is for a name, so
    that https keeps the name, which must lead to one server.
    """
    try:
        parts = urlsplit(url)
        if parts.scheme != "http" or is_loopback(url) or parts.hostname is None:
            return [url]
        found = socket.getaddrinfo(parts.hostname, parts.port or 80, type=socket.SOCK_STREAM)
    except (OSError, ValueError):
        # The transport reports what is wrong.
        return [url]
    # A server often has addresses of both families.
    family = min(entry[0] for entry in found)
    addresses = sorted({str(entry[4][0]) for entry in found if entry[0] == family})
    if len(addresses) == 1:
        return [url]
    port = f":{parts.port}" if parts.port else ""
    return [f"http://{f'[{each}]' if ':' in each else each}{port}{parts.path}" for each in addresses]


def _require(module: str, extra: str) -> None:
    if find_spec(module) is None:
        raise MissingExtraError(module, extra)
