"""Compare an export with the files at its destination, and decide which files to write and to remove there."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

from harness.exporters.dataset_writer import CARD
from harness.exporters.manifest import NAME, read_manifest
from harness.publishing.problems import NotPublishableError, Problem, ProblemKind


@dataclass(frozen=True, slots=True)
class Present:
    """What is at a destination."""

    revision: str = ""
    """Empty if nothing was published there."""
    paths: Collection[str] = ()
    manifest: bytes = b""
    card: bytes = b""


class Plan(NamedTuple):
    """What changes at a destination."""

    written: tuple[str, ...]
    removed: tuple[str, ...]


class Remote(Protocol):
    """A destination."""

    @property
    def name(self) -> str:
        """Its address, without credentials."""

    def present(self) -> Present:
        """Return what is there; raises StoreWriteError if that cannot be told, SettingsError without access."""

    def send(self, folder: Path, plan: Plan, present: Present) -> str:
        """Write and remove files, all at once, and return where they are; does nothing if they are there."""


def plan_for(folder: Path, digests: Mapping[str, str], present: Present, *, replace: bool) -> Plan:
    """Return what has to be written and removed. digests: of what is published.

    The list of files that an earlier publication left there tells which files are ours. Raises NotPublishableError
    for a file that would be overwritten and is not, or is a card that someone has edited.
    """
    earlier = read_manifest(present.manifest) or {}
    ours = {*earlier, NAME} if earlier else set[str]()
    foreign = sorted({*digests, NAME} & {*present.paths} - ours)
    if CARD in ours and CARD in present.paths and hashlib.sha256(present.card).hexdigest() != earlier.get(CARD):
        foreign.append(CARD)
    if foreign and not replace:
        raise NotPublishableError(folder, [Problem(ProblemKind.FOREIGN, path) for path in foreign])
    return Plan((*sorted(digests), NAME), tuple(sorted({*ours} & {*present.paths} - {*digests, NAME})))
