"""Quote, unquote and check the paths in git diffs (quoting: git's `quote.c`, `git help diff-format`)."""

from __future__ import annotations

import re

_NAMED = {7: "a", 8: "b", 9: "t", 10: "n", 11: "v", 12: "f", 13: "r", 34: '"', 92: "\\"}
_CODES = {name: code for code, name in _NAMED.items()}
_QUOTED = re.compile(rb'"(?:[^"\\\n]|\\[abtnvfr"\\]|\\[0-3][0-7]{2})*"')
_PIECE = re.compile(r"\\([0-3][0-7]{2})|\\(.)|([^\\])", re.DOTALL)


def quote(prefix: str, path: str) -> bytes:
    """Return a path as git writes it: C-quoted if it contains quotes, control characters, or bytes beyond ASCII."""
    raw = (prefix + path).encode("utf-8", "surrogateescape")
    if all(32 <= c < 127 and c not in b'"\\' for c in raw):
        return raw
    return b'"' + b"".join(map(_escaped, raw)) + b'"'


def _escaped(code: int) -> bytes:
    if code in _NAMED:
        return b"\\" + _NAMED[code].encode()
    return bytes([code]) if 32 <= code < 127 else b"\\%03o" % code


def name_line(mark: bytes, prefix: str, path: str | None) -> bytes:
    """Return a `---` or `+++` line; git ends it with a tab if the name contains a space."""
    name = quote(prefix, path) if path is not None else b"/dev/null"
    return mark + name + (b"\t" if b" " in name else b"") + b"\n"


def unquote(name: bytes) -> str:
    """Return the path of a name as git writes it; raises ValueError if the quoting is damaged."""
    if not name.startswith(b'"'):
        return name.decode("utf-8", "surrogateescape")
    if not _QUOTED.fullmatch(name):
        raise ValueError(f"the quoted name {name.decode(errors='replace')} is damaged; make the diff with git diff")
    out = bytearray()
    for octal, letter, character in _PIECE.findall(name[1:-1].decode("latin-1")):
        if octal:
            out.append(int(octal, 8))
        else:
            out.append(_CODES[letter] if letter else ord(character))
    return out.decode("utf-8", "surrogateescape")


def check_path(path: str) -> str:
    """Return the path unchanged; raises ValueError unless it is relative, plain and outside .git."""
    parts = path.split("/")
    if not path or "\0" in path or {"", ".", ".."} & set(parts):
        raise ValueError(f"{path!r} is not a plain relative path; make the diff at the root of the repository")
    if any(p.lower() == ".git" for p in parts):
        raise ValueError(f"{path!r} lies inside .git; a diff must not change that")
    return path


def header_pairs(text: bytes) -> list[tuple[str, str]]:
    """Return every way to read `a/OLD b/NEW` as two names; more than one if a name contains ` b/`."""
    if text.startswith(b'"'):
        first = _QUOTED.match(text)
        splits = [(first[0], text[first.end() + 1 :])] if first and text[first.end() : first.end() + 1] == b" " else []
    else:
        splits = [(text[: m.start()], text[m.end() :]) for m in re.finditer(rb' (?="?b/)', text)]
    pairs = []
    for old_raw, new_raw in splits:
        try:
            old, new = unquote(old_raw), unquote(new_raw)
        except ValueError:
            continue
        if old.startswith("a/") and new.startswith("b/"):
            pairs.append((old[2:], new[2:]))
    return pairs
