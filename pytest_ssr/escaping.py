"""Text that others wrote, made fit for a terminal: paths, test ids and reasons may hold escape sequences."""

from __future__ import annotations

_KEPT = frozenset("\t\n")


def escaped(text: str) -> str:
    """Return text in which every character that a terminal would obey is shown as an escape; lines and tabs stay."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in _KEPT else ascii(c)[1:-1] for c in text)


def escaped_line(text: str) -> str:
    """Return the same on one line."""
    return escaped(text).replace("\n", "\\n")
