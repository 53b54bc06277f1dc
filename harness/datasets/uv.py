"""Locate uv, which builds environments: in the installed `uv` package, or on PATH."""

from __future__ import annotations

import contextlib
import importlib.util
import shutil

from pytest_ssr.errors import MissingExtraError


def uv_program() -> str:
    """Return the path of uv; raises MissingExtraError if it is not installed."""
    if importlib.util.find_spec("uv") is not None:
        import uv

        with contextlib.suppress(FileNotFoundError):
            return str(uv.find_uv_bin())
    path = shutil.which("uv")
    if path is None:
        raise MissingExtraError("uv", "uv")
    return path
