"""Escape untrusted text for each output format, so that it is shown and never interpreted."""

from __future__ import annotations

import html
import re
import unicodedata

from pytest_ssr.records.reasons import Flag

_SURROGATES = re.compile("[\ud800-\udfff]")
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "|", "%", "\uff1d", "\uff0b", "\uff0d", "\uff20")


def clean(text: str) -> str:
    """Return text that UTF-8 can encode, with lone surrogates replaced."""
    return _SURROGATES.sub("\ufffd", text)


def clean_flag(flag: Flag) -> Flag:
    """Return a flag whose details UTF-8 can encode."""
    return Flag(flag.code, tuple(map(clean, flag.details)))


def shown(text: str) -> str:
    """Return text on one line, with control and bidirectional formatting characters as visible escapes."""
    if text.isprintable():
        return text
    return "".join(f"\\u{ord(c):04x}" if unicodedata.category(c) in ("Cc", "Cf", "Zl", "Zp", "Cs") else c for c in text)


def short(text: str, length: int) -> str:
    """Return text with at most `length` characters, on one line."""
    text = shown(text)
    return text if len(text) <= length else text[: length - 1] + "…"


def for_html(text: str) -> str:
    """Return text for the content of an element and for a quoted attribute."""
    return html.escape(shown(text), quote=True)


def for_markdown(text: str) -> str:
    """Return text for a table cell: every character that could be markup becomes a character reference."""
    return re.sub(r"[^\w ,;/.()%+=…\-]|_|(?<=www)\.|(?<!\w)-", lambda m: f"&#{ord(m[0])};", shown(text))


def for_csv(text: str) -> str:
    """Return text that no spreadsheet treats as a formula (OWASP, CSV injection): with an apostrophe if needed."""
    return f"'{text}" if text.lstrip(" ").startswith(_FORMULA) else text
