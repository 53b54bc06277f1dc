"""Run `ssr serve` and its commands for tokens."""

from __future__ import annotations

import json
import os
import time
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from harness.cli.exit_code import ExitCode
from harness.cli.terminal import Terminal
from harness.database.sharing import has_database, share_store
from harness.settings.serving import (
    CreateTokenSettings,
    ListTokensSettings,
    RevokeTokenSettings,
    ServeSettings,
)
from pytest_ssr.errors import MissingExtraError, SettingsError
from pytest_ssr.storage.store import Store

if TYPE_CHECKING:
    from harness.database.records import DatabaseRecords
    from harness.service.access import AccessRules
    from harness.service.tokens import Token, Tokens

_PACKAGES = {
    "fastapi": "FastAPI",
    "jinja2": "Jinja2",
    "prometheus_client": "prometheus-client",
    "sqlalchemy": "SQLAlchemy",
    "structlog": "structlog",
    "uvicorn": "uvicorn",
}
_ADMIN_TOKEN = "SSR_ADMIN_TOKEN"
_MIN_TOKEN = 24
_DAY_S = 86_400


def serve(settings: ServeSettings) -> int:
    """Serve a store until the process is interrupted."""
    _require_extra()
    from harness.service.app import ServiceSettings, create_app
    from harness.service.logs import set_up_logging
    from harness.service.server import listen, worker_processes
    from harness.service.server import serve as run

    records = _open(settings)
    access = _access_rules(settings, records)
    server_socket = listen(settings.host, settings.port)
    set_up_logging()
    app = create_app(ServiceSettings(records, access, roots=settings.roots))
    host, port = server_socket.getsockname()[:2]
    url = f"http://{f'[{host}]' if ':' in host else host}:{port}"
    if settings.json:
        print(json.dumps({"url": url, "store": str(settings.store)}), flush=True)
    else:
        Terminal().echo(f"serving {settings.store} at {url} (Ctrl+C ends it)")
    with worker_processes(settings.store, settings.workers):
        run(app, server_socket)
    return ExitCode.DONE


def create_token(settings: CreateTokenSettings) -> int:
    """Create a token and print its secret."""
    from harness.service.tokens import Scope

    expires_at = time.time() + settings.days * _DAY_S if settings.days is not None else None
    token, secret = _tokens(settings.store).create(settings.name, Scope(settings.scope), expires_at=expires_at)
    if settings.json:
        print(json.dumps({**_token_json(token), "token": secret}))
    else:
        print(secret)
        Terminal().note(f"token {token.id} ({token.scope}): keep it, it is not shown again")
    return ExitCode.DONE


def list_tokens(settings: ListTokensSettings) -> int:
    """List the tokens."""
    found = _tokens(settings.store).list()
    if settings.json:
        print(json.dumps({"tokens": [_token_json(token) for token in found]}))
        return ExitCode.DONE
    terminal = Terminal()
    for token in found:
        terminal.echo(f"{token.id}  {token.scope:5}  {_state(token):10}  {token.name}")
    return ExitCode.DONE


def revoke_token(settings: RevokeTokenSettings) -> int:
    """Revoke a token."""
    is_revoked = _tokens(settings.store).revoke(settings.id)
    if settings.json:
        print(json.dumps({"id": settings.id, "revoked": is_revoked}))
    elif is_revoked:
        Terminal().echo(f"token {settings.id} is revoked")
    if not is_revoked:
        Terminal(quiet=settings.json).note(f"ssr: there is no valid token {settings.id}; see ssr serve token list")
    return ExitCode.DONE if is_revoked else ExitCode.NO


def _require_extra() -> None:
    for module, package in _PACKAGES.items():
        if find_spec(module) is None:
            raise MissingExtraError(package, "service")


def _open(settings: ServeSettings) -> DatabaseRecords:
    if has_database(settings.store) and not settings.typed & {"database", "blobs"}:
        return _records(Store(settings.store))
    has_results = (settings.store / "ssr-store.json").exists() and not has_database(settings.store)
    store = share_store(settings.store, database=settings.database, blobs=settings.blobs)
    if has_results:
        Terminal(quiet=settings.json).note("earlier results are not shown yet: run ssr store migrate")
    return _records(store)


def _records(store: Store) -> DatabaseRecords:
    from harness.database.records import DatabaseRecords

    if not isinstance(store.shared, DatabaseRecords):
        raise SettingsError(f"the store {store.root} has no database; ssr serve gives it one")
    return store.shared


def _access_rules(settings: ServeSettings, records: DatabaseRecords) -> AccessRules:
    from harness.service.access import AccessRules, is_loopback
    from harness.service.tokens import Tokens

    tokens, admin_token = Tokens(records.engine), os.environ.get(_ADMIN_TOKEN, "")
    if admin_token and len(admin_token) < _MIN_TOKEN:
        raise SettingsError(
            f"the variable {_ADMIN_TOKEN} has fewer than {_MIN_TOKEN} characters; choose a longer token"
        )
    is_local = is_loopback(settings.host)
    if not is_local and not admin_token and not tokens.any_valid():
        raise SettingsError(
            f"--host {settings.host} lets other machines in, and there is no token; "
            "run: ssr serve token create NAME --scope admin",
            option="host",
        )
    return AccessRules(tokens, is_loopback=is_local, admin_token=admin_token, requests_per_s=settings.rate)


def _tokens(path: Path) -> Tokens:
    _require_extra()
    from harness.service.tokens import Tokens

    store = Store(path) if has_database(path) else share_store(path)
    return Tokens(_records(store).engine)


def _token_json(token: Token) -> dict[str, object]:
    return asdict(token)


def _state(token: Token) -> str:
    if token.revoked_at is not None:
        return "revoked"
    if not token.is_valid(time.time()):
        return "expired"
    if token.expires_at is None:
        return "valid"
    return f"{datetime.fromtimestamp(token.expires_at, UTC):%Y-%m-%d}"
