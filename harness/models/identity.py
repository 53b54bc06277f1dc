"""Identify models beyond their names, for the keys of stored results."""

from __future__ import annotations

import hashlib
from pathlib import Path

from harness.models.protocol import Model

_WHOLE, _SAMPLES, _PIECE = 1 << 24, 64, 1 << 14


def identity_of(model: Model) -> str:
    """Return the model's name with its `identity`: the served id, or a hash of its script or of its files."""
    return f"{model.name} {getattr(model, 'identity', '')}".strip()


def hash_path(path: Path) -> str:
    """Return a hash of a file's content, or of a folder's files and their names; empty if the path does not exist.

    Of a file larger than 16 MiB, its size and 64 pieces from beginning to end are hashed: fine-tuned weights differ
    everywhere, and reading hundreds of gigabytes for a key would take too long.
    """
    if not path.exists():
        return ""
    digest = hashlib.sha256()
    for file in [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.is_file()):
        size = file.stat().st_size
        digest.update(f"{file.relative_to(path)}\0{size}\0".encode("utf-8", "surrogateescape"))
        with file.open("rb") as data:
            if size <= _WHOLE:
                digest.update(data.read())
                continue
            for index in range(_SAMPLES):
                data.seek(index * (size - _PIECE) // (_SAMPLES - 1))
                digest.update(data.read(_PIECE))
    return digest.hexdigest()[:16]
