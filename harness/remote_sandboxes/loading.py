"""Turn what users type after `remote:` into a provider; the plugin calls `load` by its entry point."""

from __future__ import annotations

from importlib.util import find_spec

from harness.remote_sandboxes.provider import RemoteProvider
from pytest_ssr.errors import MissingExtraError


def load(address: str) -> RemoteProvider:
    """Return the provider for the URLs of sandbox servers, separated by commas; raises SettingsError."""
    if find_spec("httpx") is None:
        raise MissingExtraError("httpx", "remote")
    from harness.remote_sandboxes.http_transport import HttpTransport

    return RemoteProvider([HttpTransport(url) for url in address.split(",")])
