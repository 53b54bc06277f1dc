"""Keep what a team has decided about survivors in a file of the repository, `.ssr-accepted.toml`.

An entry names a change by its identity (`source.change_identity`), so it holds while the function of the change stays
as it is, and no longer. People may edit the file: entries are added at its end, and removed as blocks of lines.
"""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import date
from enum import StrEnum
from itertools import pairwise
from pathlib import Path

from pytest_ssr.errors import SettingsError, StoreWriteError, os_error_advice
from pytest_ssr.project.report_marks import ACCEPTED_FILE
from pytest_ssr.project.snapshot import Snapshot
from pytest_ssr.records.candidate_result import CandidateResult
from pytest_ssr.records.decoding import of_shape
from pytest_ssr.source.change_identity import replaced_units, unit_hashes
from pytest_ssr.storage.synced_files import write_synced

_HEADER = "# Changes that no test notices, and what was decided about them. Written by `ssr accept`.\n"
_MOST_SHOWN = 60
_BLOCK = re.compile(r"(?m)^\[\[accepted\]\][ \t]*(?:#.*)?$")


class AcceptanceKind(StrEnum):
    """Why a survivor is accepted."""

    ACCEPTED = "accepted"
    """The team does not want a test for it."""
    EQUIVALENT = "equivalent"
    """The changed code does the same."""
    NOT_USEFUL = "not-useful"
    """Nobody wants to see changes of this kind: they come last in this project."""


@dataclass(frozen=True, slots=True)
class Acceptance:
    """One entry of the file."""

    id: str
    """The identity of the change."""
    reason: str
    kind: AcceptanceKind = AcceptanceKind.ACCEPTED
    until: date | None = None
    """The last day on which it holds; None for no end."""
    path: str = ""
    """The file of the change when it was accepted; like the next three for readers."""
    function: str = ""
    operator: str = ""
    """Other changes by it come last if this one is not useful."""
    change: str = ""

    @classmethod
    def of(cls, result: CandidateResult, kind: AcceptanceKind, reason: str, until: date | None) -> Acceptance:
        """Return the entry that accepts a surviving change."""
        shown = {"path": result.path, "function": result.scope, "operator": result.operator, "change": result.detail}
        return cls(id=result.identity, reason=reason, kind=kind, until=until, **shown)

    @property
    def text(self) -> str:
        """The entry as TOML."""
        values = {name: getattr(self, name) for name in self.__slots__}
        lines = (f"{name} = {_toml(value)}" for name, value in values.items() if value not in (None, ""))
        return "\n".join(("[[accepted]]", *lines)) + "\n"


@dataclass(frozen=True, slots=True)
class Acceptances:
    """The entries of a project, and which of them hold today."""

    entries: Sequence[Acceptance] = ()
    today: date = date.min
    stale: Sequence[Acceptance] = ()
    """The entries whose functions are no longer as they were, as far as `checked` has looked."""

    def of(self, result: CandidateResult) -> Acceptance | None:
        """Return the entry that accepts a surviving change; None if none holds."""
        if not result.identity:
            return None
        return next((e for e in self.entries if e.id == result.identity and not self.has_ended(e)), None)

    def has_ended(self, entry: Acceptance) -> bool:
        """Return whether the last day of an entry has passed."""
        return entry.until is not None and entry.until < self.today

    def is_of_no_use(self, result: CandidateResult) -> bool:
        """Return whether a change is of a kind that was called not useful: made by the same operator."""
        return any(e.kind is AcceptanceKind.NOT_USEFUL and e.operator == result.operator for e in self.entries)

    @property
    def ended(self) -> list[Acceptance]:
        """The entries whose last day has passed."""
        return [entry for entry in self.entries if self.has_ended(entry)]

    def checked(self, snapshot: Snapshot) -> Acceptances:
        """Return these with the stale ones among them. snapshot: the project's files as they are now."""
        if not self.entries:
            return self
        units = unit_hashes(snapshot.read(path) for path in snapshot.code_paths())
        stale = [e for e in self.entries if not all(unit in units for unit in replaced_units(e.id))]
        return replace(self, stale=stale)


NO_ACCEPTANCES = Acceptances()


def only_id(beginning: str, ids: Iterable[str], of: str, kind: str = "survivor") -> str:
    """Return the only id that begins with a text; raises SettingsError.

    of, kind: what has the ids, and what they name, for the message.
    """
    found = sorted({name for name in ids if name.startswith(beginning)}) if beginning else []
    if beginning in found:
        return beginning
    if len(found) == 1:
        return found[0]
    shown = repr(beginning if len(beginning) <= _MOST_SHOWN else f"{beginning[:_MOST_SHOWN]}...")
    if found:
        raise SettingsError(f"several {kind}s begin with {shown}: {', '.join(found)}")
    raise SettingsError(f"{of} has no {kind} {shown}")


def read_acceptances(project: Path, *, today: date | None = None) -> Acceptances:
    """Return what a project has accepted; raises SettingsError, naming the file and the entry, if it cannot be read."""
    path = project / ACCEPTED_FILE
    if path.exists() and not path.is_file():
        # A pipe would wait for a writer, and a device may have no end.
        raise SettingsError(f"{path} is not a file")
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        text = ""
    except (OSError, ValueError) as error:
        raise SettingsError(f"{path} cannot be read: {error}") from None
    return Acceptances(_entries(path, text), today or date.today())


def add_acceptances(project: Path, added: Iterable[Acceptance]) -> None:
    """Add entries to the file of a project, in place of those with the same ids.

    Raises SettingsError if the file has another form, StoreWriteError if it cannot be written.
    """
    new = {entry.id: entry for entry in added}
    text = _without(project, new.keys())
    _write(project, "\n".join((text.rstrip("\n") + "\n" if text else _HEADER, *(e.text for e in new.values()))))


def remove_acceptances(project: Path, ids: Collection[str]) -> None:
    """Remove entries from the file of a project; raises SettingsError and StoreWriteError."""
    _write(project, _without(project, ids))


def _entries(path: Path, text: str) -> list[Acceptance]:
    try:
        content = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise SettingsError(f"{path} cannot be read: {error}") from None
    tables = content.pop("accepted", [])
    if content or not isinstance(tables, list):
        other = f"it has {next(iter(content))!r}" if content else "`accepted` is something else"
        raise SettingsError(f"{path}: it must be a list of tables [[accepted]], but {other}")
    entries: list[Acceptance] = []
    for number, table in enumerate(tables, 1):
        shown = f"{path}: entry {number}"
        try:
            entry = of_shape(Acceptance, table)
        except ValueError as error:
            raise SettingsError(f"{shown}: {error}") from None
        if unknown := sorted(table.keys() - set(Acceptance.__slots__)):
            raise SettingsError(f"{shown}: there is no key {unknown[0]!r}; there are {', '.join(Acceptance.__slots__)}")
        if not entry.reason.strip():
            raise SettingsError(f"{shown}: the reason is empty")
        entries.append(entry)
    return entries


def _without(project: Path, ids: Collection[str]) -> str:
    """Return the text of a project's file without some entries; raises SettingsError if its form is another."""
    path = project / ACCEPTED_FILE
    entries = read_acceptances(project).entries
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    starts = [match.start() for match in _BLOCK.finditer(text)]
    blocks = [text[first:end] for first, end in pairwise([*starts, len(text)])]
    rest = text[: starts[0]] if starts else text
    if len(blocks) == len(entries):
        rest += "".join(block for block, entry in zip(blocks, entries, strict=True) if entry.id not in ids)
    kept = [entry for entry in entries if entry.id not in ids]
    if len(blocks) != len(entries) or _entries(path, rest) != kept:
        raise SettingsError(f"{path}: its entries are not blocks that begin with a line [[accepted]]; edit it by hand")
    return rest


def _write(project: Path, text: str) -> None:
    path = project / ACCEPTED_FILE
    try:
        write_synced(path, text.encode(), staging=path.with_name(f"{path.name}.{os.getpid()}.part"))
    except OSError as error:
        raise StoreWriteError(f"cannot write {path}: {os_error_advice(error, option='')}") from None


def _toml(value: object) -> str:
    if isinstance(value, date):
        return value.isoformat()
    # JSON's escapes are TOML's, too, which also asks for one of DEL.
    text = str(value).encode("utf-8", "replace").decode()
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
