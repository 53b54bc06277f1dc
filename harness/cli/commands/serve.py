"""Run `ssr serve` and its commands for tokens."""

from __future__ import annotations

import json
import shlex
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from harness.cli.exit_code import ExitCode
from harness.cli.terminal import Terminal
from harness.database.sharing import has_database, require_packages, share_store
from harness.models.registry import read_registry
from harness.settings.service import CreateTokenSettings, ListTokensSettings, RevokeTokenSettings, ServeSettings
from pytest_ssr.campaign.report import display_path
from pytest_ssr.errors import MissingExtraError, SettingsError
from pytest_ssr.options import STORE_MARK

if TYPE_CHECKING:
    from harness.database.records import DatabaseRecords
    from harness.service.access import AccessRules
    from harness.service.tokens import Token, Tokens

_PACKAGES = {
    "jinja2": "Jinja2",
    "prometheus_client": "prometheus-client",
    "structlog": "structlog",
    "uvicorn": "uvicorn",
}
_DAY_S = 86_400
_MOST_STORES = 5


def serve(settings: ServeSettings) -> int:
    """Serve a store until the process is interrupted."""
    _require_packages()
    from harness.service.app import ServiceSettings, create_app
    from harness.service.logs import set_up_logging
    from harness.service.server import run, worker_processes
    from harness.web import listen

    terminal = Terminal(quiet=settings.json)
    registered = read_registry(settings.models) if settings.models is not None else {}
    _refuse_folder_of_store(settings.store)
    is_new = not has_database(settings.store)
    if is_new and not _is_local(settings.host):
        # Refused before there is a store.
        raise _no_token(settings)
    records = _opened(settings.store, terminal)
    access = _access_rules(settings, records)
    if is_new:
        _point_at_others(settings.store.absolute(), records, terminal)
    with listen(settings.host, settings.port) as listening:
        set_up_logging()
        roots = settings.root or ([settings.store.absolute().parent] if access.is_loopback else [])
        app = create_app(records, ServiceSettings(access, roots=roots, model_keys=settings.model_keys))
        for name, entry in registered.items():
            # The others are prices, for commands.
            if entry.model:
                app.state.models.put(name, entry)
        host, port = listening.getsockname()[:2]
        url = f"http://{f'[{host}]' if ':' in host else host}:{port}"
        if settings.json:
            print(json.dumps({"url": url, "store": str(settings.store)}), flush=True)
        terminal.echo(f"{url} shows {settings.store}; stop it with Ctrl-C")
        with worker_processes(settings.store, settings.workers, settings.model_keys):
            run(app, listening)
    return ExitCode.DONE


def create_token(settings: CreateTokenSettings) -> int:
    """Create a token and print its secret."""
    tokens = _tokens(settings.store)
    from harness.service.tokens import Scope

    expires_at = tokens.now() + settings.days * _DAY_S if settings.days is not None else None
    token, secret = tokens.create(
        settings.name, Scope(settings.scope), expires_at=expires_at, usd_per_day=settings.usd_per_day
    )
    if settings.json:
        print(json.dumps({**asdict(token), "token": secret}))
    else:
        print(secret)
        Terminal().note(f"token {token.id} ({token.scope}): keep it, it is not shown again")
    return ExitCode.DONE


def list_tokens(settings: ListTokensSettings) -> int:
    """List the tokens."""
    tokens = _tokens(settings.store)
    found, now = tokens.list(), tokens.now()
    if settings.json:
        print(json.dumps({"tokens": [asdict(token) for token in found]}))
    terminal = Terminal(quiet=settings.json)
    for token in found:
        terminal.echo(f"{token.id}  {token.scope:5}  {_state(token, now):10}  {token.name}{_quota(token)}")
    return ExitCode.DONE


def revoke_token(settings: RevokeTokenSettings) -> int:
    """Revoke a token; return 1 if there is no valid one with this id."""
    is_revoked = _tokens(settings.store).revoke(settings.id)
    terminal = Terminal(quiet=settings.json)
    if settings.json:
        print(json.dumps({"id": settings.id, "revoked": is_revoked}))
    elif is_revoked:
        terminal.echo(f"token {settings.id} is revoked")
    else:
        terminal.note(f"ssr: there is no valid token {settings.id}; see ssr serve token list")
    return ExitCode.DONE if is_revoked else ExitCode.NO


def _refuse_folder_of_store(root: Path) -> None:
    """Raise SettingsError for a project with a store, in which a new store would be made."""
    inner = root / ".ssr"
    if (inner / STORE_MARK).is_file() and not (root / STORE_MARK).is_file():
        raise SettingsError(f"{display_path(root)} is no store, and has one: ssr serve {display_path(inner)}")


def _require_packages() -> None:
    require_packages()
    for module, package in _PACKAGES.items():
        if find_spec(module) is None:
            raise MissingExtraError(package, "service")


def _opened(root: Path, terminal: Terminal) -> DatabaseRecords:
    """Return the records of a store; one without a database gets one, with its earlier results."""
    from harness.database.migrate import migrate
    from harness.database.records import records_of

    if not has_database(root):
        share_store(root)
        terminal.echo(f"{root} has a database now")
    records = records_of(root)
    # Always: an earlier migration may have been interrupted, and a run may have begun before there was a database.
    taken = migrate(root, records, progress=terminal.status)
    if taken.files:
        terminal.echo(f"{taken.files} files of earlier results are in the database now")
    return records


def _access_rules(settings: ServeSettings, records: DatabaseRecords) -> AccessRules:
    from harness.service.access import AccessRules
    from harness.service.tokens import Tokens

    is_local = _is_local(settings.host)
    if not is_local and not Tokens(records.engine).any_valid():
        raise _no_token(settings)
    return AccessRules(is_loopback=is_local, requests_per_s=settings.rate)


def _is_local(host: str) -> bool:
    from harness.service.access import is_loopback

    return is_loopback(host)


def _no_token(settings: ServeSettings) -> SettingsError:
    return SettingsError(
        f"--host {settings.host} lets other machines in, and there is no token; "
        f"run: ssr serve token create NAME --scope admin --store {settings.store}",
        option="host",
    )


def _point_at_others(root: Path, records: DatabaseRecords, terminal: Terminal) -> None:
    """Name the stores of projects beside a new store, with the commands that take their results over."""
    # The address of a server may have a password.
    if records.engine.dialect.name != "sqlite":
        return
    target = (
        f"--database {shlex.quote(f'sqlite:///{records.engine.url.database}')} --blobs {shlex.quote(records.blobs.url)}"
    )
    others = (mark.parent for mark in root.parent.glob(f"*/.ssr/{STORE_MARK}"))
    for path in sorted(path for path in others if path != root)[:_MOST_STORES]:
        shown = display_path(path)
        terminal.echo(f"{shown} is another store; to take it over: ssr store migrate {shlex.quote(shown)} {target}")


def _tokens(root: Path) -> Tokens:
    _require_packages()
    from harness.service.tokens import Tokens

    is_new = not (root / STORE_MARK).exists()
    tokens = Tokens(_opened(root, Terminal(quiet=True)).engine)
    if is_new:
        # Perhaps another folder was meant, whose service would not know the token.
        Terminal().note(f"{root.absolute()} is a new store")
    return tokens


def _quota(token: Token) -> str:
    return f"  {token.usd_per_day:g} USD a day" if token.usd_per_day is not None else ""


def _state(token: Token, now: float) -> str:
    if token.revoked_at is not None:
        return "revoked"
    if not token.is_valid(now):
        return "expired"
    if token.expires_at is None:
        return "valid"
    return f"{datetime.fromtimestamp(token.expires_at, UTC):%Y-%m-%d}"
