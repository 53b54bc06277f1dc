"""Run `ssr worker`."""

from __future__ import annotations

from harness.cli.exit_code import ExitCode
from harness.cli.terminal import Terminal
from harness.database.sharing import has_database, require_packages, share_store
from harness.settings.worker import WorkerSettings
from pytest_ssr.sandbox import load_provider
from pytest_ssr.storage.store import Store


def worker(settings: WorkerSettings) -> int:
    """Run jobs until SIGINT or SIGTERM; return 0."""
    require_packages()
    from harness.database.records import records_of
    from harness.service.worker import Worker

    if settings.sandbox != "auto":
        load_provider(settings.sandbox)
    if has_database(settings.store) and not {"database", "blobs"} & settings.typed:
        store = Store(settings.store)
    else:
        store = share_store(settings.store, database=settings.database, blobs=settings.blobs)
    records = records_of(store.root)
    running = Worker(store, records, jobs_at_once=settings.jobs_at_once, sandbox=settings.sandbox)
    Terminal(quiet=settings.json).echo(f"worker {running.id[:12]} runs jobs of {store.root}; interrupt it to end")
    running.run()
    return ExitCode.DONE
