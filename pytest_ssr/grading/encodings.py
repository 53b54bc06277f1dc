"""Source files in the encoding that they declare."""

from __future__ import annotations

import io
import re
import tokenize


def encoding_of(data: bytes) -> str:
    """Return the encoding that a source file declares; UTF-8 where it declares none, or none that there is."""
    try:
        return tokenize.detect_encoding(io.BytesIO(data).readline)[0].removesuffix("-sig")
    except SyntaxError:
        return "utf-8"


def in_utf8(data: bytes) -> bytes:
    """Return a file in UTF-8, with the encoding that it declares changed to that; as it is where that fails."""
    encoding = encoding_of(data)
    if encoding == "utf-8":
        return data
    try:
        lines = data.decode(encoding).split("\n", 2)
        lines[:2] = [re.sub(r"(coding[:=]\s*)[-\w.]+", r"\1utf-8", line) for line in lines[:2]]
        return "\n".join(lines).encode()
    except (LookupError, UnicodeError):
        return data
