"""Declare the settings of the service: its stores, workers, tokens and reports, and the server of sandboxes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

from harness.settings.plan import CommandSettings
from pytest_ssr.options import AT_LEAST_0, AT_LEAST_1, MORE_THAN_0, NOT_NEGATIVE, option, required, shared, switch

MODEL_KEYS = ("SSR_MODEL_KEY_*", "SSR_VLLM_KEY")
"""Patterns of the variables whose keys registered models may use, unless the operator chooses others."""
_LEASE_S = 60
_HERE = Path(".ssr")
_STORE = "a store; a folder that does not exist becomes one"


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
    slots: int = option(64, "N", "sandboxes at a time; further clients wait", bound=AT_LEAST_1, is_own=True)
    max_seconds: float = option(
        21_600.0,
        "SECONDS",
        "highest time limit that a client may choose for a command; a call with more is refused",
        bound=MORE_THAN_0,
        is_own=True,
    )
    max_memory: int = option(8 << 30, "BYTES", "the same for the memory of a command", bound=AT_LEAST_1, is_own=True)
    max_processes: int = option(1_024, "N", "the same for its processes and threads", bound=AT_LEAST_1, is_own=True)
    max_output: int = option(64 << 20, "BYTES", "the same for its output", bound=AT_LEAST_1, is_own=True)
    max_file: int = option(2 << 30, "BYTES", "the same for each file that it writes", bound=AT_LEAST_1, is_own=True)
    max_disk: int = option(4 << 30, "BYTES", "the same for all that it writes", bound=AT_LEAST_1, is_own=True)
    lease: int = option(
        _LEASE_S,
        "SECONDS",
        "time after which a sandbox whose client is silent is removed",
        bound=AT_LEAST_1,
        is_own=True,
    )
    cache_bytes: int = option(2 << 30, "BYTES", "size of the trees that are kept", bound=AT_LEAST_1, is_own=True)
    images: tuple[str, ...] = option(
        (),
        "PATTERN",
        "images that clients may have pulled, such as 'ghcr.io/team/*'; can be repeated (default: those of Docker Hub)",
        is_own=True,
        is_personal=True,
    )
    token_file: Path | None = option(None, "FILE", "read the token from this file", is_own=True, is_personal=True)


def _model_keys() -> Any:
    text = "a variable, or a pattern of some, whose keys registered models may use; can be repeated"
    return option(MODEL_KEYS, "NAME", text, is_personal=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeSettings(CommandSettings):
    """Serve a store: a dashboard for browsers, an API for programs, and workers for its jobs.

    Only this machine reaches it, unless --host is another address; that needs tokens (ssr serve token --help).
    """

    example: ClassVar[str] = "ssr serve .ssr --workers 2 --root ~/projects"
    store: Path = option(_HERE, "STORE", _STORE, is_argument=True)
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
    models: Path | None = option(
        None,
        "FILE",
        "register the models in this file (as for ssr play --models), which jobs can use",
        is_personal=True,
    )
    model_keys: tuple[str, ...] = _model_keys()
    rate: float = option(100.0, "N", "requests per second of one client; 0 for no limit", bound=NOT_NEGATIVE)


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenSettings(CommandSettings):
    """The settings of the commands for tokens."""

    store: Path = option(_HERE, "STORE", "the store that is served")


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTokenSettings(TokenSettings):
    """Create a token for the service and print it; it cannot be shown again."""

    example: ClassVar[str] = "ssr serve token create laptop --scope run"
    name: str = required("NAME", "what it is for", is_argument=True)
    scope: Literal["read", "run", "admin"] = option(
        "read", "SCOPE", "read; run: also start and cancel jobs; admin: also add and remove projects", is_own=True
    )
    days: int | None = option(None, "N", "days until it expires (default: never)", bound=AT_LEAST_1, is_own=True)
    usd_per_day: float | None = option(
        None,
        "USD",
        "what its jobs may spend on models in 24 hours: the sum of their budgets (default: no limit)",
        bound=NOT_NEGATIVE,
        is_own=True,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ListTokensSettings(TokenSettings):
    """List the tokens of the service, without their secrets."""

    example: ClassVar[str] = "ssr serve token list --store .ssr"


@dataclass(frozen=True, slots=True, kw_only=True)
class RevokeTokenSettings(TokenSettings):
    """Make a token of the service invalid from now on, and end the sessions of its browsers."""

    example: ClassVar[str] = "ssr serve token revoke 3f2a9c1b5d7e8f60"
    id: str = required("ID", "the id that ssr serve token list prints", is_argument=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSettings(CommandSettings):
    """Run jobs of the service until interrupted; any number of workers, on any machines, share a database."""

    example: ClassVar[str] = "ssr worker .ssr --jobs-at-once 4"
    store: Path = required("STORE", "the store of the service; created if it does not exist", is_argument=True)
    jobs_at_once: int = option(1, "N", "parallel jobs", bound=AT_LEAST_1)
    sandbox: str = shared("sandbox", help="where projects without an image run; see ssr doctor")
    model_keys: tuple[str, ...] = _model_keys()
    database: str = option(
        "sqlite",
        "URL",
        "database of a store that has none: sqlite, or postgresql://USER@HOST/NAME",
        is_own=True,
        is_personal=True,
    )
    blobs: str = option(
        "",
        "URL",
        "files of a store without a database: s3://bucket/prefix (default: in the store)",
        is_own=True,
        is_personal=True,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreMigrateSettings(CommandSettings):
    """Give a store a database that processes and machines share, and take its results over."""

    example: ClassVar[str] = "ssr store migrate .ssr --dry-run"
    store: Path = required("STORE", _STORE, is_argument=True)
    database: str = option("", "URL", "sqlite, for a file in the store (default), or postgresql://USER@HOST/NAME")
    blobs: str = option("", "URL", "where large files are kept, such as s3://BUCKET/FOLDER (default: in the store)")
    dry_run: bool = switch("only report what would be taken over")


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreCheckSettings(CommandSettings):
    """Read every result of a store with a database, and report what is missing or damaged."""

    example: ClassVar[str] = "ssr store check .ssr --repair"
    store: Path = required("STORE", "a store", is_argument=True)
    repair: bool = switch("write what is missing or damaged again, if this machine's folder has it")


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreGcSettings(CommandSettings):
    """Remove files that nothing in a store with a database refers to, such as those of interrupted writes."""

    example: ClassVar[str] = "ssr store gc .ssr --dry-run"
    store: Path = required("STORE", "a store", is_argument=True)
    grace: float = option(24.0, "HOURS", "keep files that are younger", bound=NOT_NEGATIVE, is_own=True)
    dry_run: bool = switch("only report what would be removed")


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSizeSettings(CommandSettings):
    """Report what a store holds, by kind."""

    example: ClassVar[str] = "ssr store size .ssr"
    store: Path = required("STORE", "a store", is_argument=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportSettings(CommandSettings):
    """Write what a run found as a page that needs no server and no network.

    For a project, or a run of ssr inject: the score of its tests, the changes that they missed, and the proven bugs.
    For a store: everything in it, also the attempts and episodes of self-play.
    """

    example: ClassVar[str] = "ssr report . --html report"
    path: Path = option(Path(".ssr"), "PATH", "a project, or a store", is_argument=True)
    html: Path = option(
        Path("ssr-report.html"),
        "PATH",
        "the page, or the folder of its index.html; a report there is replaced",
        is_own=True,
    )
    store: Path | None = shared("store", help="the store of the project's results (default: PATH/.ssr)")
    run: str = option(
        "", "ID", "of a store: only this run of ssr play or ssr inject, by the beginning of its id", is_own=True
    )
