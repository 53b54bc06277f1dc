"""What tells one model from another that has the same name: what results are kept under."""

from __future__ import annotations

import hashlib
from pathlib import Path

from harness.models.protocol import Model

_WHOLE, _SAMPLES, _PIECE = 1 << 24, 64, 1 << 14


def identity_of(model: Model) -> str:
    """Return the model's name with what it says of itself: the served id, a hash of its script or of its files."""
    return f"{model.name} {getattr(model, 'identity', '')}".strip()


def hash_of(path: Path) -> str:
    """Return a hash of a file's content, or of a folder's files with their names; empty where there is neither.

    Of a file that is larger than 16 MiB its size and 64 pieces from end to end are taken: weights that were trained
    on differ everywhere, and hundreds of gigabytes are not read for a name.
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
            for place in range(_SAMPLES):
                data.seek(place * (size - _PIECE) // (_SAMPLES - 1))
                digest.update(data.read(_PIECE))
    return digest.hexdigest()[:16]
