"""Define the settings of `ssr serve` and of the commands for its tokens."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from harness.settings.plan import CommandSettings
from pytest_ssr.options import AT_LEAST_0, AT_LEAST_1, NOT_NEGATIVE, option, required

_STORE = Path(".ssr")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeSettings(CommandSettings):
    """Serve a store: a dashboard for browsers, an API for programs, and workers for its jobs.

    Only this machine reaches it, unless --host is another address; that needs tokens (ssr serve token --help).
    """

    example: ClassVar[str] = "ssr serve .ssr --workers 2 --root ~/projects"
    store: Path = option(_STORE, "STORE", "a store; a folder that does not exist becomes one", is_argument=True)
    host: str = option("127.0.0.1", "ADDRESS", "the address; others than this machine's need a token", is_personal=True)
    port: int = option(8700, "PORT", "the port; 0 takes a free one", bound=AT_LEAST_0)
    workers: int = option(1, "N", "processes that run jobs; ssr worker starts more, on any machine", bound=AT_LEAST_0)
    root: tuple[Path, ...] = option(
        (),
        "DIR",
        "a folder whose projects may be added; can be repeated (default: beside the store, on this machine only)",
        is_own=True,
        is_personal=True,
    )
    rate: float = option(100.0, "N", "requests per second of one client; 0 for no limit", bound=NOT_NEGATIVE)


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenSettings(CommandSettings):
    """The settings of the commands for tokens."""

    store: Path = option(_STORE, "STORE", "the store that is served")


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTokenSettings(TokenSettings):
    """Create a token for the service and print it; it cannot be shown again."""

    example: ClassVar[str] = "ssr serve token create laptop --scope run"
    name: str = required("NAME", "what it is for", is_argument=True)
    scope: Literal["read", "run", "admin"] = option(
        "read", "SCOPE", "read; run: also start and cancel jobs; admin: also add and remove projects", is_own=True
    )
    days: int | None = option(None, "N", "days until it expires (default: never)", bound=AT_LEAST_1, is_own=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListTokensSettings(TokenSettings):
    """List the tokens of the service, without their secrets."""

    example: ClassVar[str] = "ssr serve token list --store .ssr"


@dataclass(frozen=True, slots=True, kw_only=True)
class RevokeTokenSettings(TokenSettings):
    """Make a token of the service invalid from now on, and end the sessions of its browsers."""

    example: ClassVar[str] = "ssr serve token revoke 3f2a9c1b5d7e8f60"
    id: str = required("ID", "the id that ssr serve token list prints", is_argument=True)
