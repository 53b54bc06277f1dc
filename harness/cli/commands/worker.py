"""Run `ssr worker`."""

from __future__ import annotations

import contextlib

from harness.cli.exit_code import ExitCode
from harness.cli.terminal import Terminal
from harness.database.sharing import has_database, require_packages, share_store
from harness.settings.service import WorkerSettings
from pytest_ssr.sandbox import load_provider
from pytest_ssr.storage.store import Store


def worker(settings: WorkerSettings) -> int:
    """Run jobs until SIGINT or SIGTERM; return 0."""
    require_packages()
    if settings.sandbox != "auto":
        load_provider(settings.sandbox)
    # A worker that is told to end before it has begun ends as well.
    with contextlib.suppress(KeyboardInterrupt):
        _run(settings)
    return ExitCode.DONE


def _run(settings: WorkerSettings) -> None:
    from harness.database.migrate import migrate
    from harness.database.records import records_of
    from harness.service.worker import Worker

    terminal = Terminal(quiet=settings.json)
    is_new = not has_database(settings.store)
    if is_new or {"database", "blobs"} & settings.typed:
        share_store(settings.store, database=settings.database, blobs=settings.blobs)
    store = Store(settings.store)
    records = records_of(store.root)
    if is_new:
        migrate(store.root, records, progress=terminal.status)
    running = Worker(
        store,
        records,
        jobs_at_once=settings.jobs_at_once,
        sandbox=settings.sandbox,
        model_keys=settings.model_keys,
    )
    terminal.echo(f"worker {running.id[:12]} runs jobs of {store.root}; stop it with Ctrl-C")
    running.run()
