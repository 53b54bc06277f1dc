"""Escape untrusted text for a terminal: paths, test ids and reasons may contain escape sequences."""

from __future__ import annotations

_ALLOWED = frozenset("\t\n")


def escaped(text: str) -> str:
    """Return the text with every unprintable character shown as an escape; newlines and tabs are kept."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in _ALLOWED else ascii(c)[1:-1] for c in text)


def escaped_line(text: str) -> str:
    """Return the escaped text on one line."""
    return escaped(text).replace("\n", "\\n")
