"""Turn what users type after `remote:` into a provider; the plugin calls `load` by its entry point."""

from __future__ import annotations

from importlib.util import find_spec

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

    return RemoteProvider([HttpTransport(url) for url in address.split(",")])


def _require(module: str, extra: str) -> None:
    if find_spec(module) is None:
        raise MissingExtraError(module, extra)
