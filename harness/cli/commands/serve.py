"""Run `ssr serve`."""

from __future__ import annotations

import socket

from harness.cli.exit_code import ExitCode
from harness.cli.terminal import Terminal
from harness.database.sharing import has_database, require_packages, share_store
from harness.settings.service import ServeSettings
from pytest_ssr.errors import SettingsError, os_error_advice


def serve(settings: ServeSettings) -> int:
    """Serve the dashboard until the process is interrupted."""
    require_packages()
    from harness.database.migrate import migrate
    from harness.database.records import records_of
    from harness.service.app import LOOPBACK
    from harness.service.server import run

    terminal = Terminal(quiet=settings.json)
    if not has_database(settings.store):
        share_store(settings.store)
        terminal.echo(f"{settings.store} has a database now")
    records = records_of(settings.store)
    # Always: an earlier migration may have been interrupted, and a run may have begun before there was a database.
    taken = migrate(settings.store, records, progress=terminal.status)
    if taken.files:
        terminal.echo(f"{taken.files} files of earlier results are in the database now")
    with socket.socket() as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((LOOPBACK, settings.port))
        except OSError as error:
            advice = os_error_advice(error, option="--port")
            raise SettingsError(f"--port {settings.port} cannot be used: {advice}", option="port") from None
        terminal.echo(f"http://{LOOPBACK}:{listening.getsockname()[1]} shows {settings.store}; stop it with Ctrl-C")
        run(records, listening)
    return ExitCode.DONE
