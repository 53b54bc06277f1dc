"""Hash the code of the plugin and of the harness; stored results are keyed by it."""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path

from pytest_ssr.storage import store


@functools.cache
def code_hash() -> str:
    """Return the hash of the code; prompts and tables are part of it."""
    package = Path(__file__).parents[1]
    digest = hashlib.sha256(store.code_hash().encode())
    for path in sorted(p for p in package.rglob("*") if p.suffix in (".py", ".md", ".toml")):
        digest.update(str(path.relative_to(package)).encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]
