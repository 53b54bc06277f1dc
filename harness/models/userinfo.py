"""Keys, and user and password in the URL of a server: they are the server's; no name, record or message holds them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from urllib.parse import unquote

_IN_URL = re.compile(r"^(https?://)([^/?#]*)@", re.IGNORECASE)
_IN_TEXT = re.compile(r"(https?://)[^/?#\s'\"]*@", re.IGNORECASE)


def parted(url: str) -> tuple[str, tuple[str, str] | None]:
    """Return a URL without user and password, and these; None where it holds none."""
    found = _IN_URL.match(url)
    if found is None:
        return url, None
    user, _, password = found[2].partition(":")
    return found[1] + url[found.end() :], (unquote(user), unquote(password))


def masked(text: str) -> str:
    """Return a text whose URLs hold no user and no password."""
    return _IN_TEXT.sub(r"\1", text)


def hidden(text: str, secrets: Mapping[str, str]) -> str:
    """Return a text without secrets, as they are or as literals write them. secrets: a name for each, shown instead."""
    for secret in sorted(filter(None, secrets), key=len, reverse=True):
        as_json = json.dumps(secret)[1:-1]
        for written in (secret, as_json, as_json.replace("/", r"\/"), repr(secret)[1:-1]):
            text = text.replace(written, f"[{secrets[secret]}]")
    return masked(text)
