"""Write exports to URLs: s3://, gs://, memory:// and others for which a package is installed.

Only this module imports fsspec.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import fsspec

from pytest_ssr.errors import MissingExtraError, SettingsError, StoreWriteError

_LOCAL = ("file://", "local://")


def upload(files: Sequence[tuple[Path, str]]) -> None:
    """Copy files to URLs, in order, each first under a temporary name and then renamed.

    Raises SettingsError for an unknown URL scheme, MissingExtraError if its package is not installed, StoreWriteError
    if the file system fails.
    """
    for path, url in files:
        system, target = _at(url)
        parent, _, name = target.rpartition("/")
        staging = f"{parent}/.{name}.{secrets.token_hex(6)}" if parent else f".{name}.{secrets.token_hex(6)}"
        with _reporting(url):
            if parent:
                system.makedirs(parent, exist_ok=True)
            system.put_file(str(path), staging)
            system.mv(staging, target)


def require_free(card: str, mark: str, files: Sequence[str]) -> None:
    """Raise SettingsError if the destination exists and is not an export: a card with this mark identifies one.

    files: URLs that would be overwritten; if empty, everything in the folder of the card.
    """
    system, target = _at(card)
    with _reporting(card):
        if system.exists(target):
            ours = mark in system.cat_file(target).decode("utf-8", "replace")
        else:
            ours = not (
                any(system.exists(_at(f)[1]) for f in files) if files else system.find(target.rpartition("/")[0])
            )
    if not ours:
        path = files[0] if files else card.rpartition("/")[0]
        raise SettingsError(f"--out {path} exists and is not an export; choose another path, or remove it")


def keep_only(folder: str, names: Collection[str]) -> None:
    """Remove the files of an earlier export from a folder. names: the files to keep."""
    system, target = _at(folder)
    with _reporting(folder):
        for path in system.find(target, maxdepth=1):
            if path.rpartition("/")[2] not in names:
                system.rm_file(path)


def local_path(url: str) -> Path | None:
    """Return the local path that a URL refers to; None if it is not local."""
    last = url.rpartition("::")[2]
    return Path(_at(last)[1]) if last.startswith(_LOCAL) else None


def _at(url: str) -> tuple[Any, str]:
    """Return the file system of a URL and the path in it."""
    try:
        system, target = fsspec.core.url_to_fs(url)
    except ImportError as error:
        raise MissingExtraError(f"the package for {url.split('://')[0]}:// ({error})", "export") from None
    except ValueError as error:
        raise SettingsError(f"--out {url}: {error}") from None
    return system, target


@contextlib.contextmanager
def _reporting(url: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # third-party file systems may raise anything
        raise StoreWriteError(f"cannot write {url}: {type(error).__name__}: {error}") from None
