"""Write and read the list of an export's files with their hashes, which `sha256sum --check SHA256SUMS` reads, too."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping
from pathlib import Path

NAME = "SHA256SUMS"
_LINE = re.compile(rb"([0-9a-f]{64})  (.+)")


def write_manifest(folder: Path) -> None:
    """List all files of a folder, those in its folders included."""
    lines = [b"%s  %s\n" % (digest.encode(), os.fsencode(name)) for name, digest in digests_of(folder).items()]
    (folder / NAME).write_bytes(b"".join(lines))


def digests_of(folder: Path) -> dict[str, str]:
    """Return the hash of each file of a folder but the list itself, by its path in the folder."""
    paths = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    return {path: _digest(folder / path) for path in paths if path != NAME}


def read_manifest(data: bytes) -> Mapping[str, str] | None:
    """Return the hashes in a list by path; None if it is damaged."""
    matches = [_LINE.fullmatch(line) for line in data.split(b"\n")[:-1]]
    found = {os.fsdecode(match[2]): match[1].decode() for match in matches if match}
    return found if found and len(found) == len(matches) and data.endswith(b"\n") else None


def digest_of_part(folder: Path, name: str) -> tuple[int, str]:
    """Return the size and the hash of a part: of its file, or of all files in its folder."""
    paths = [p for p in sorted((folder / name).rglob("*")) if p.is_file()] or [folder / name]
    digests = [_digest(path) for path in paths]
    size = sum(path.stat().st_size for path in paths)
    if len(paths) == 1:
        return size, digests[0]
    whole = hashlib.sha256()
    for path, digest in zip(paths, digests, strict=True):
        whole.update(b"%s %s\n" % (os.fsencode(path.relative_to(folder)), bytes.fromhex(digest)))
    return size, whole.hexdigest()


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
