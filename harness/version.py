"""What results of this version are kept under: a hash of the plugin's code and of the harness's own."""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path

from pytest_ssr import store


@functools.cache
def code_hash() -> str:
    """Return the hash; prompts are code, too."""
    package = Path(__file__).parent
    digest = hashlib.sha256(store.code_hash().encode())
    for path in sorted(p for p in package.rglob("*") if p.suffix in (".py", ".md")):
        digest.update(str(path.relative_to(package)).encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]
