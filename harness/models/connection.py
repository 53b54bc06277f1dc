"""Send requests to one server over HTTP, and turn its refusals and faults into errors.

An error records whether the same request may succeed later. It shows the server's message, truncated, and never a key.
"""

from __future__ import annotations

import base64
import os
import time
from collections.abc import Mapping
from typing import Any

import httpx

from harness.models.refusals import refusal_of, response_json, status_in
from harness.models.timeouts import run_within
from harness.models.urls import hidden, is_loopback, split_userinfo
from pytest_ssr.errors import ModelError, ModelUnavailableError, SettingsError

_MAX_BYTES = 64 * 1024**2


class Connection:
    """A server at a URL that ends in `/v1`."""

    def __init__(self, url: str, *, timeout_s: float, key_variable: str = "") -> None:
        """timeout_s: seconds until a response must be complete. key_variable: the variable that holds the key.

        Raises SettingsError for an invalid URL.
        """
        url, auth = split_userinfo(url)
        if not url.startswith(("http://", "https://")):
            raise SettingsError(f"{url} is not the URL of a model server; it must begin with http:// or https://")
        self.url = url.rstrip("/")
        key = os.environ.get(key_variable, "").strip() if key_variable else ""
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._timeout_s = timeout_s
        password = auth[1] if auth else ""
        basic = base64.b64encode(":".join(auth).encode()).decode() if auth else ""
        self._secrets = {key: "key", password: "password", basic: "password"}
        # Proxies cannot reach a server on this machine.
        self._client = httpx.Client(timeout=timeout_s, headers=headers, auth=auth, trust_env=not is_loopback(url))

    def get(self, path: str, *, root: bool = False) -> dict[str, Any]:
        """Return the JSON object at a path. root: the path does not begin with `/v1`."""
        return self._request("GET", self._base(root) + path, None)

    def post(self, path: str, body: Mapping[str, Any], *, root: bool = False) -> dict[str, Any]:
        """Send a JSON object and return the one in the response. root: the path does not begin with `/v1`."""
        return self._request("POST", self._base(root) + path, body)

    def hide(self, text: str) -> str:
        """Return a string without the secrets of this connection."""
        return hidden(text, self._secrets)

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _base(self, root: bool) -> str:
        return self.url.removesuffix("/v1") if root else self.url

    def _request(self, method: str, url: str, body: Mapping[str, Any] | None) -> dict[str, Any]:
        # The timeout of httpx applies to each read separately.
        response, raw = run_within(self._timeout_s, lambda: self._read(method, url, body), target=url)
        if response.status_code != 200:
            raise self._refusal(url, response.status_code, raw, response.headers.get("retry-after", "0"))
        try:
            data = response_json(raw)
        except ValueError:
            raise ModelError(
                f"{url} sent a response that is not a JSON object: {self._shown(raw)}", retry=True
            ) from None
        if status := status_in(data):
            raise self._refusal(url, status, raw, "0")
        return data

    def _read(self, method: str, url: str, body: Mapping[str, Any] | None) -> tuple[httpx.Response, bytes]:
        timeout = ModelUnavailableError(f"{url} did not answer within {self._timeout_s:g} s", retry=True)
        deadline = time.monotonic() + self._timeout_s
        try:
            with self._client.stream(method, url, json=body) as response:
                raw = bytearray()
                for part in response.iter_bytes():
                    raw += part
                    if len(raw) > _MAX_BYTES:
                        raise ModelError(f"{url} sent more than {_MAX_BYTES // 1024**2} MiB", retry=True)
                    if time.monotonic() > deadline:
                        # The caller no longer waits; this ends the connection and the thread.
                        raise timeout
            return response, bytes(raw)
        except httpx.TimeoutException:
            raise timeout from None
        except httpx.HTTPError as error:
            text = self.hide(str(error))
            raise ModelUnavailableError(
                f"{url} cannot be reached: {type(error).__name__}: {text}", retry=True
            ) from None
        except httpx.InvalidURL as error:
            raise ModelError(f"{url} is not a valid URL: {error}") from None
        except RuntimeError:
            if not self._client.is_closed:
                raise
            # Another thread closed the client, because it saw the server end.
            raise ModelUnavailableError(f"{url} cannot be queried: the connection was closed", retry=True) from None

    def _refusal(self, url: str, status: int, raw: bytes, retry_after: str) -> ModelError:
        text = self._shown(raw)
        try:
            wait_s = float(retry_after)
        except ValueError:
            wait_s = 0.0
        message = f"{url} answered with status {status}: {text}"
        return refusal_of(message, raw, status=status, text=text, wait_s=wait_s)

    def _shown(self, raw: bytes) -> str:
        text = self.hide(raw.decode("utf-8", "replace"))
        return " ".join(text[:2000].split())[:500]
