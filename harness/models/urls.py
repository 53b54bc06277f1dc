"""URLs of model servers: loopback addresses, and credentials that no record may hold."""

from __future__ import annotations

import ipaddress
import json
import os
import re
from collections.abc import Mapping
from urllib.parse import unquote, urlsplit

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


_IN_URL = re.compile(r"^(https?://)([^/?#]*)@", re.IGNORECASE)
_IN_TEXT = re.compile(r"(https?://)[^/?#\s'\"]*@", re.IGNORECASE)


def split_userinfo(url: str) -> tuple[str, tuple[str, str] | None]:
    """Return a URL without user and password, and these two; None if it has none."""
    match = _IN_URL.match(url)
    if match is None:
        return url, None
    user, _, password = match[2].partition(":")
    return match[1] + url[match.end() :], (unquote(user), unquote(password))


def masked(text: str) -> str:
    """Return a string without the user and password of its URLs."""
    return _IN_TEXT.sub(r"\1", text)


def hidden(text: str, secrets: Mapping[str, str]) -> str:
    """Return a string with each secret, plain or as in a literal, replaced by its name. secrets: secret to name."""
    for secret in sorted(filter(None, secrets), key=len, reverse=True):
        as_json = json.dumps(secret)[1:-1]
        for spelling in (secret, as_json, as_json.replace("/", r"\/"), repr(secret)[1:-1]):
            text = text.replace(spelling, f"[{secrets[secret]}]")
    return masked(text)


def secrets_in_environment() -> dict[str, str]:
    """Return the values of the environment variables that are named like secrets, with the variables' names."""
    secrets: dict[str, str] = {}
    for variable, value in os.environ.items():
        if len(value) >= 8 and variable.upper().endswith(("_KEY", "_TOKEN", "_SECRET", "_PASSWORD")):
            secrets.setdefault(value, variable)
    return secrets
