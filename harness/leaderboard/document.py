"""Put a page together as one self-contained HTML document, whose policy allows its own scripts alone."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Sequence

from harness.leaderboard.escaping import for_html


def document(title: str, body: Iterable[str], *, styles: Sequence[str], scripts: Sequence[str]) -> str:
    """Return a page as HTML. body: its parts, as HTML. styles, scripts: their texts, as CSS and JavaScript."""
    allowed = " ".join(f"'sha256-{_digest(script)}'" for script in scripts)
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src {allowed}; base-uri 'none'; form-action 'none'"
    parts = [
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{for_html(title)}</title><style>{''.join(styles)}</style></head><body>",
        f'<header><h1>{for_html(title)}</h1><button id="theme" type="button" hidden>theme: auto</button></header>',
        *body,
        *(f"<script>{script}</script>" for script in scripts),
        "</body></html>\n",
    ]
    return "\n".join(parts)


def _digest(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
