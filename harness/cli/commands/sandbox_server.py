"""Run `ssr sandbox-server`."""

from __future__ import annotations

import json
import os
from importlib.util import find_spec
from pathlib import Path

from harness.cli.exit_code import ExitCode
from harness.cli.terminal import Terminal
from harness.settings.service import SandboxServerSettings
from pytest_ssr.errors import MissingExtraError, SettingsError, os_error_advice
from pytest_ssr.sandbox import choose
from pytest_ssr.sandbox.protocol import Limits

_PACKAGES = ("fastapi", "uvicorn")
_TOKEN_VARIABLE = "SSR_SANDBOX_TOKEN"
MIN_TOKEN_CHARACTERS = 16


def sandbox_server(settings: SandboxServerSettings) -> int:
    """Open sandboxes for other machines until the process is interrupted."""
    for package in _PACKAGES:
        if find_spec(package) is None:
            raise MissingExtraError(package, "remote")
    from harness.models.urls import is_loopback
    from harness.remote_sandboxes.host import HostSettings, SandboxHost
    from harness.remote_sandboxes.http_server import create_app, run
    from harness.web import listen

    token, shown_host = _token(settings), f"[{settings.host}]" if ":" in settings.host else settings.host
    is_local = is_loopback(f"http://{shown_host}")
    if not is_local and not token:
        raise SettingsError(
            f"--host {settings.host} lets other machines in, and there is no token; "
            f"set {_TOKEN_VARIABLE}, or name a file with --token-file",
            option="host",
        )
    terminal = Terminal(quiet=settings.json)
    provider = choose(settings.sandbox, model_written=True)
    with listen(settings.host, settings.port) as listening:
        host = SandboxHost(
            provider,
            HostSettings(
                slots=settings.slots,
                lease_s=settings.lease,
                cache_bytes=settings.cache_bytes,
                ceilings=Limits(
                    wall_s=settings.max_seconds,
                    memory_bytes=settings.max_memory,
                    processes=settings.max_processes,
                    output_bytes=settings.max_output,
                    file_bytes=settings.max_file,
                    disk_bytes=settings.max_disk,
                ),
                python=settings.python,
                readable=[path.absolute() for path in settings.readable],
                images=settings.images,
            ),
        )
        url = f"http://{shown_host}:{listening.getsockname()[1]}"
        if settings.json:
            print(json.dumps({"url": url, "sandbox": provider.name}), flush=True)
        terminal.echo(f"{url} opens {provider.name} sandboxes; stop it with Ctrl-C")
        run(create_app(host, token=token, loopback_only=is_local), host, listening)
    return ExitCode.DONE


def _token(settings: SandboxServerSettings) -> str:
    """Return the token that clients have to send; empty for none. Raises SettingsError for a weak one."""
    token = os.environ.get(_TOKEN_VARIABLE, "").strip()
    if settings.token_file is not None:
        token = _read(settings.token_file)
    if token and (len(token) < MIN_TOKEN_CHARACTERS or not token.isascii() or not token.isprintable()):
        raise SettingsError(
            f"the token needs at least {MIN_TOKEN_CHARACTERS} printable ASCII characters; "
            "python -c 'import secrets; print(secrets.token_urlsafe(32))' makes one",
            option="token-file" if settings.token_file is not None else "",
        )
    return token


def _read(path: Path) -> str:
    try:
        token = path.read_text(encoding="ascii", errors="replace").strip()
    except OSError as error:
        advice = os_error_advice(error, option="--token-file")
        raise SettingsError(f"--token-file {path} cannot be read: {advice}", option="token-file") from None
    if not token:
        raise SettingsError(f"--token-file {path} is empty", option="token-file")
    return token
