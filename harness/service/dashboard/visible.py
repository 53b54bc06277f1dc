"""Make characters visible that would otherwise change how a page is read."""

from __future__ import annotations

import unicodedata

_KEPT = frozenset("\n\t")
_HIDDEN = frozenset({"Cc", "Cf", "Zl", "Zp", "Cs", "Co"})


def visible(text: str) -> str:
    """Return text with control and bidirectional formatting characters as escapes; newlines and tabs are kept."""
    if text.isprintable():
        return text
    return "".join(
        f"\\u{ord(c):04x}" if c not in _KEPT and unicodedata.category(c) in _HIDDEN else c
        for c in text.replace("\r\n", "\n")
    )
