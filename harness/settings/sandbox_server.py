"""Declare the settings of `ssr sandbox-server`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from harness.settings.plan import CommandSettings
from pytest_ssr.options import AT_LEAST_0, AT_LEAST_1, option, shared

_LEASE_S = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxServerSettings(CommandSettings):
    """Open sandboxes for other machines, until interrupted; they use them by --sandbox remote:http://HOST:PORT.

    Only this machine reaches it, unless --host is another address; that needs a token, in SSR_SANDBOX_TOKEN or in
    --token-file.
    """

    example: ClassVar[str] = "ssr sandbox-server --host 0.0.0.0 --token-file token --slots 32"
    host: str = option(
        "127.0.0.1",
        "ADDRESS",
        "the address; others than this machine's need a token",
        is_own=True,
        is_personal=True,
    )
    port: int = option(8701, "PORT", "the port; 0 takes a free one", bound=AT_LEAST_0, is_own=True)
    sandbox: str = shared("sandbox", help="the sandbox to open; auto never takes process")
    python: Path | None = shared(
        "python", help="the interpreter that sandboxes without an image show (default: this one)"
    )
    readable: tuple[Path, ...] = option(
        (),
        "DIR",
        "one more folder that sandboxes without an image show, such as an environment; can be repeated",
        is_own=True,
        is_personal=True,
    )
    slots: int = option(64, "N", "open sandboxes; further clients wait", bound=AT_LEAST_1, is_own=True)
    lease: int = option(
        _LEASE_S,
        "SECONDS",
        "time after which a sandbox whose client is silent is removed",
        bound=AT_LEAST_1,
        is_own=True,
    )
    cache_bytes: int = option(2 << 30, "BYTES", "size of the trees that are kept", bound=AT_LEAST_1, is_own=True)
    token_file: Path | None = option(None, "FILE", "read the token from this file", is_own=True, is_personal=True)
