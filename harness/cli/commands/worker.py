"""Run `ssr worker`."""

from __future__ import annotations

from harness.cli.exit_code import ExitCode
from harness.cli.terminal import Terminal
from harness.database.sharing import has_database, share_store
from harness.settings.worker import WorkerSettings
from pytest_ssr.errors import SettingsError
from pytest_ssr.sandbox import load_provider
from pytest_ssr.storage.store import Store


def worker(settings: WorkerSettings) -> int:
    """Run jobs until SIGINT or SIGTERM; return 0."""
    if settings.sandbox != "auto":
        load_provider(settings.sandbox)
    given = {"database", "blobs"} & settings.typed
    if has_database(settings.store) and not given:
        store = Store(settings.store)
    else:
        store = share_store(settings.store, database=settings.database, blobs=settings.blobs)
    # SQLAlchemy is only needed from here on; a store with a database has reported that it is missing.
    from harness.database.records import DatabaseRecords
    from harness.service.worker import Worker

    records = store._shared
    if not isinstance(records, DatabaseRecords):
        raise SettingsError(f"the database of the store {settings.store} has no queue of jobs")
    running = Worker(store, records, jobs_at_once=settings.jobs_at_once, sandbox=settings.sandbox)
    Terminal(quiet=settings.json).echo(f"worker {running.id[:12]} runs jobs of {store.root}; interrupt it to end")
    running.run()
    return ExitCode.DONE
