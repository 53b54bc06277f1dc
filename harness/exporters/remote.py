"""Places that are no local folder: s3://, gs://, memory:// and whatever else is installed; the home of fsspec."""

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
    """Copy files to URLs, in order, each under a temporary name first, then under its own.

    Raises SettingsError for a URL that nobody knows, MissingExtraError where its package is not installed, and
    StoreWriteError where the other side fails.
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
    """Raise SettingsError where something is that is no export of ours, which has a card with this mark.

    files: that would be written over; none: everything beside the card is.
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
        place = files[0] if files else card.rpartition("/")[0]
        raise SettingsError(f"--out {place} is there and no export; choose another, or remove it")


def keep_only(folder: str, names: Collection[str]) -> None:
    """Remove from the folder of an export what an earlier one has left there."""
    system, target = _at(folder)
    with _reporting(folder):
        for path in system.find(target, maxdepth=1):
            if path.rpartition("/")[2] not in names:
                system.rm_file(path)


def local_path(url: str) -> Path | None:
    """Return the path on this machine that a URL means; None where it means a place elsewhere."""
    last = url.rpartition("::")[2]
    return Path(_at(last)[1]) if last.startswith(_LOCAL) else None


def _at(url: str) -> tuple[Any, str]:
    """Return the file system of a URL and the path there."""
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
    except Exception as error:  # what a system of somebody else's raises is not known
        raise StoreWriteError(f"cannot write {url}: {type(error).__name__}: {error}") from None
