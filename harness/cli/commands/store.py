"""Run `ssr store migrate`, `check`, `gc` and `size`."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from harness.cli.exit_code import ExitCode
from harness.cli.terminal import Terminal
from harness.database.sharing import has_database, require_packages, share_store
from harness.settings.service import StoreCheckSettings, StoreGcSettings, StoreMigrateSettings, StoreSizeSettings
from pytest_ssr.campaign.report import display_path
from pytest_ssr.errors import SettingsError
from pytest_ssr.options import STORE_MARK
from pytest_ssr.progress import counted

_MOST_SHOWN = 20
_MIB = 1 << 20
_HOUR_S = 3600


def migrate(settings: StoreMigrateSettings) -> int:
    """Give a store a database and take its results over."""
    require_packages()
    from harness.database import migrate
    from harness.database.records import records_of

    terminal, root = Terminal(quiet=settings.json), settings.store
    if settings.dry_run:
        require_store(root)
        records = records_of(root) if has_database(root) else None
    else:
        records = records_of(share_store(root, database=settings.database, blobs=settings.blobs).root)
    done = migrate.migrate(root, records, dry_run=settings.dry_run, progress=terminal.status)
    if settings.json:
        print(json.dumps({"store": str(root), "dry_run": settings.dry_run, **asdict(done)}, indent=1))
        return ExitCode.DONE
    verb = "would be taken over" if settings.dry_run else "taken over"
    trees = f" and {done.trees} trees of projects" if done.trees else ""
    terminal.echo(f"{done.files} files, {done.bytes / _MIB:.1f} MiB{trees} {verb}; {done.present} were in the database")
    if done.unfinished:
        terminal.echo(f"{done.unfinished} files of rollouts are still being written; run the same command again later")
    if done.skipped:
        terminal.echo(
            f"{done.skipped} files were left out: they were removed, or their names are not text of UTF-8", "bad"
        )
    return ExitCode.DONE


def check(settings: StoreCheckSettings) -> int:
    """Read every result of a store; return 1 if one is missing, damaged or not in the database."""
    require_packages()
    from harness.database import migrate
    from harness.database.records import records_of

    terminal, root = Terminal(quiet=settings.json), settings.store
    require_store(root)
    if not has_database(root):
        raise SettingsError(f"the store {root} has no database; give it one with ssr store migrate")
    records = records_of(root)
    found = migrate.check(root, records, progress=terminal.status)
    repaired: tuple[str, ...] = ()
    if settings.repair and (found.missing or found.damaged):
        repaired = migrate.repair(root, records, found)
        found = migrate.check(root, records, progress=terminal.status)
    healthy = not (found.missing or found.damaged or found.unshared)
    if settings.json:
        print(json.dumps({"store": str(root), "healthy": healthy, **asdict(found), "repaired": repaired}, indent=1))
        return ExitCode.DONE if healthy else ExitCode.NO
    for title, paths in (
        ("missing", found.missing),
        ("damaged", found.damaged),
        ("not in the database", found.unshared),
    ):
        for path in paths[:_MOST_SHOWN]:
            terminal.echo(f"{title}: {path}", "bad")
        if len(paths) > _MOST_SHOWN:
            terminal.echo(f"{title}: {len(paths) - _MOST_SHOWN} more", "bad")
    if repaired:
        terminal.echo(f"{len(repaired)} files were missing or damaged, and are written again from {display_path(root)}")
    if found.missing or found.damaged:
        terminal.echo(f"ssr store check {display_path(root)} --repair, on a machine that has them, writes them again")
    if found.unshared:
        terminal.echo(f"ssr store migrate {display_path(root)} takes over what is not in the database")
    terminal.echo(f"{counted(found.files, 'file')}, {found.bytes / _MIB:.1f} MiB", "valid" if healthy else "")
    return ExitCode.DONE if healthy else ExitCode.NO


def gc(settings: StoreGcSettings) -> int:
    """Remove what nothing in a store refers to."""
    require_packages()
    from harness.database.collect import collect
    from harness.database.records import records_of

    terminal, root = Terminal(quiet=settings.json), settings.store
    require_store(root)
    if not has_database(root):
        raise SettingsError(f"the store {root} has no database; give it one with ssr store migrate")
    grace_s = settings.grace * _HOUR_S
    done = collect(records_of(root), grace_s=grace_s, dry_run=settings.dry_run, progress=terminal.status)
    if settings.json:
        print(json.dumps({"store": str(root), "dry_run": settings.dry_run, **asdict(done)}, indent=1))
        return ExitCode.DONE
    verb = "would be removed" if settings.dry_run else "removed"
    files = done.blobs + done.unfinished
    terminal.echo(f"{files} files, {done.bytes / _MIB:.1f} MiB, and {done.events} old events {verb}")
    if done.recent:
        terminal.echo(f"{done.recent} unused files are kept: they are younger than {settings.grace:g} hours")
    return ExitCode.DONE


def size(settings: StoreSizeSettings) -> int:
    """Report what a store holds."""
    require_packages()
    from harness.database.collect import measure
    from harness.database.records import records_of

    terminal, root = Terminal(quiet=settings.json), settings.store
    require_store(root)
    sizes = measure(root, records_of(root) if has_database(root) else None)
    if settings.json:
        print(json.dumps({"store": str(root), **asdict(sizes)}, indent=1))
        return ExitCode.DONE
    blobs = (sizes.blobs,) if sizes.blobs is not None else ()
    for title, parts in (("results", sizes.results), ("in the folder", sizes.folders), ("blobs", blobs)):
        for part in parts:
            terminal.echo(f"{title}: {part.name}: {part.files} files, {part.bytes / _MIB:.1f} MiB")
    if sizes.database_bytes:
        terminal.echo(f"database: {sizes.database_bytes / _MIB:.1f} MiB")
    return ExitCode.DONE


def require_store(root: Path) -> None:
    """Raise SettingsError unless a folder is a store."""
    if not (root / STORE_MARK).is_file():
        raise SettingsError(f"{root} is not a store; name a folder that has {STORE_MARK}, such as .ssr")
