"""Leave out the binary files that a diff mentions without their content."""

from __future__ import annotations

import re

_MENTION = re.compile(rb"^Binary files? (?:(.*) and )?(.*?) (?:differ|has changed)\r?\n?", re.MULTILINE)


def without_empty_binaries(data: bytes) -> tuple[bytes, tuple[str, ...]]:
    """Return a diff without the binary files that it only mentions, and their paths.

    The reference refuses such a diff with git, and GNU patch then makes empty files of them.
    """
    if not _MENTION.search(data):
        return data, ()
    paths: list[str] = []
    kept: list[bytes] = []
    for section in re.split(rb"^(?=diff )", data, flags=re.MULTILINE):
        header = re.split(rb"^@@ ", section, maxsplit=1, flags=re.MULTILINE)[0]
        mentions = list(_MENTION.finditer(header))
        paths += [_name_in(mention) for mention in mentions]
        if not mentions:
            kept.append(section)
        elif header != section or not section.startswith(b"diff "):
            # `diff -r` writes such a line alone, also before another file.
            kept.append(_MENTION.sub(b"", header) + section[len(header) :])
    return b"".join(kept), tuple(dict.fromkeys(paths))


def _name_in(mention: re.Match[bytes]) -> str:
    old, new = (mention[1] or b"").decode(errors="replace"), mention[2].decode(errors="replace")
    return (new if new != "/dev/null" else old).strip('"').removeprefix("a/").removeprefix("b/")
