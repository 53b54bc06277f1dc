"""Text that others wrote, made fit for where it goes: what is in it is shown, and never obeyed."""

from __future__ import annotations

import html
import re
import unicodedata

from pytest_ssr.reasons import Flag

_SURROGATES = re.compile("[\ud800-\udfff]")
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "|", "%", "\uff1d", "\uff0b", "\uff0d", "\uff20")


def clean(text: str) -> str:
    """Return text that can be written as UTF-8, whatever a file of JSON held."""
    return _SURROGATES.sub("\ufffd", text)


def clean_flag(flag: Flag) -> Flag:
    """Return a flag whose details can be written as UTF-8."""
    return Flag(flag.code, tuple(map(clean, flag.details)))


def shown(text: str) -> str:
    """Return text on one line: controls and what turns the direction of writing are seen as what they are."""
    if text.isprintable():
        return text
    return "".join(f"\\u{ord(c):04x}" if unicodedata.category(c) in ("Cc", "Cf", "Zl", "Zp", "Cs") else c for c in text)


def short(text: str, most: int) -> str:
    """Return text of so many characters at most."""
    text = shown(text)
    return text if len(text) <= most else text[: most - 1] + "…"


def for_html(text: str) -> str:
    """Return text for the content of an element and for a quoted attribute."""
    return html.escape(shown(text), quote=True)


def for_markdown(text: str) -> str:
    """Return text for a cell of a table: every sign that could be markup is written as a character reference."""
    return re.sub(r"[^\w ,;/.()%+=…\-]|_|(?<=www)\.|(?<!\w)-", lambda m: f"&#{ord(m[0])};", shown(text))


def for_csv(text: str) -> str:
    """Return text that no spreadsheet takes for a formula (OWASP, CSV injection): an apostrophe goes before it."""
    return f"'{text}" if text.lstrip(" ").startswith(_FORMULA) else text
