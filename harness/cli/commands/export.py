"""Run `ssr export`: write training data from stores, with a card that documents its contents and omissions."""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import sqlite3
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from harness.cli.exit_code import ExitCode
from harness.cli.terminal import Terminal
from harness.exporters.card import card
from harness.exporters.dataset_writer import Destination, Sink
from harness.exporters.filters import Filters
from harness.exporters.index import Index
from harness.exporters.library import ArtifactGroup, Library, RolloutGroup
from harness.exporters.licences import licence_of
from harness.exporters.protocol import Choices, Format, Group, Row
from harness.exporters.report import Report
from harness.exporters.skipped import SkipCode, SkippedError
from harness.exporters.sources import find_sources, index_sources
from harness.exporters.splits import Splits
from harness.records.job_reports import Stage
from harness.settings.results import ExportSettings
from harness.storage.code_version import code_hash
from pytest_ssr import __version__
from pytest_ssr.errors import SettingsError, StoreWriteError
from pytest_ssr.progress import counted

_STATUS_INTERVAL_ROWS = 500
_UNSET = (None, "", (), False)
_TREE = re.compile(r"[0-9a-f]{1,64}")


@dataclass(slots=True)
class Export:
    """One export in progress."""

    form: Format
    library: Library
    filters: Filters
    splits: Splits
    choices: Choices
    destination: Destination
    report: Report
    terminal: Terminal

    def groups(self) -> Iterator[Group]:
        """Yield the sources of rows: artifacts, or groups of the rollouts of one role on one task."""
        leave = self.report.leave
        if not self.form.of_tasks:
            for task_id, role in self.library.index.groups():
                yield RolloutGroup(self.library, self.filters, task_id, role, leave, self.form.rewarded)
            return
        for task in self.library.tasks():
            if code := self.filters.refusal_of_task(task):
                leave(f"artifact {task.id}", SkippedError(code))
            else:
                yield ArtifactGroup(task, leave)

    def write(self, folder: Path) -> None:
        """Write all rows to files in a folder, and record the files in the report."""
        self.splits.learn(self.library.index.trees())
        sinks: dict[str, Sink] = {}
        try:
            for group in self.groups():
                for part, repository, row in self._rows(group):
                    if part not in sinks:
                        sinks[part] = self._sink(folder, part)
                    try:
                        sinks[part].write(row)
                    except SkippedError as error:
                        group.leave(_row_name(row), error)
                        continue
                    self.report.row(part, repository, row)
                    if self.report.total % _STATUS_INTERVAL_ROWS == 0:
                        self.terminal.status(f"{self.form.name}: {self.report.total} rows")
            for sink in sinks.values():
                sink.close()
        except BaseException:
            for sink in sinks.values():
                sink.abandon()
            raise
        for part in sinks:
            self._record_file(folder, part)

    def _sink(self, folder: Path, part: str) -> Sink:
        return self.destination.sink(folder / self.destination.name_of(part), self.form.columns)

    def _rows(self, group: Group) -> Iterator[tuple[str, str, Row]]:
        task = group.task if self.form.of_tasks else None
        try:
            for row in self.form.rows(group, self.choices):
                repository = group.repository if self.form.of_tasks else _repository(row) or group.repository
                part = self.splits.of(repository)
                if part is None:
                    group.leave(_row_name(row), SkippedError(SkipCode.NO_SPLIT))
                else:
                    yield part, repository, row
        except SkippedError as error:
            group.leave(f"artifact {task.id}" if task is not None else "a task", error)

    def _record_file(self, folder: Path, part: str) -> None:
        name = self.destination.name_of(part)
        with (folder / name).open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        size = (folder / name).stat().st_size
        self.report.files[name] = {"rows": self.report.rows[part], "bytes": size, "sha256": digest}

    def licences(self, given: dict[str, str]) -> dict[str, str]:
        """Return the licence of each project: the given one, else the one that its files state."""
        trees: dict[str, list[Path]] = {}
        for name, tree in self.library.index.trees():
            for number in self.library.index.stores_of(tree) if _TREE.fullmatch(tree) else ():
                trees.setdefault(name, []).append(self.library.sources[number].path / "trees" / tree / "tree")
        return {name: given.get(name) or licence_of(trees.get(name, ())) for name in self.report.repositories}


def _row_name(row: Row) -> str:
    return str(row.get("rollout_id") or row.get("chosen_rollout_id") or row.get("instance_id") or "a row")


def _repository(row: Row) -> str:
    for record in (row, row.get("task"), row.get("metadata")):
        if isinstance(record, dict) and isinstance(record.get("repository"), str):
            return str(record["repository"])
    return ""


def export(settings: ExportSettings) -> int:
    """Export rows; return 0 if there are any, else 1 without writing files."""
    form = settings.form
    splits = Splits.parse(settings.splits, settings.seed)
    filters, choices = settings.filters.of(form), settings.choices_for(form)
    destination = Destination.parse(settings.out, settings.container, tar=not form.columns)
    if destination.is_file and len(splits.names) > 1:
        raise SettingsError(
            f"--splits writes several files, but --out {settings.out} is one file; name a folder", option="splits"
        )
    given_licences = _licences(settings.licence)
    sources = find_sources(settings.source)
    destination.require_apart(s.path for s in sources)
    terminal, report = Terminal(quiet=settings.json), Report()
    with _index_errors(), Index() as index, destination.staging() as folder:
        terminal.stage(Stage.WRITE)
        terminal.status("reading the stores")
        index_sources(index, sources, report.leave, rule=settings.rule)
        library = Library(sources, index, settings.rule)
        run = Export(form, library, filters, splits, choices, destination, report, terminal)
        with destination.reporting():
            run.write(folder)
            if report.total:
                licences = run.licences(given_licences)
                made = {**_provenance(settings, filters), "splits by project": _shares(splits)}
                text = card(form, report, destination, licences=licences, made=made)
                (folder / destination.card).write_text(text, encoding="utf-8")
                destination.publish(folder)
    _print_summary(settings, terminal, form, report, destination)
    return ExitCode.DONE if report.total else ExitCode.NO


@contextlib.contextmanager
def _index_errors() -> Iterator[None]:
    """Convert an error of the index, which is in the temporary folder, into a StoreWriteError."""
    try:
        yield
    except sqlite3.Error as error:
        folder = tempfile.gettempdir()
        raise StoreWriteError(f"cannot write the index of the export in {folder}: {error}") from None


def _licences(items: Sequence[str]) -> dict[str, str]:
    licences: dict[str, str] = {}
    for item in items:
        name, _, licence = item.rpartition("=")
        if not name or not licence:
            raise SettingsError(f"--licence {item!r} is not PROJECT=LICENCE; use PROJECT=MIT", option="licence")
        licences[name] = licence
    return licences


def _provenance(settings: ExportSettings, filters: Filters) -> dict[str, str]:
    active = [f"{f.name} {getattr(filters, f.name)}" for f in fields(filters) if getattr(filters, f.name) not in _UNSET]
    return {
        "pytest-ssr": f"{__version__}, code {code_hash()}",
        "format": settings.format,
        "filters": ", ".join(active) or "none",
        **({"rule": str(settings.rule)} if settings.rule is not None else {}),
    }


def _shares(splits: Splits) -> str:
    return ", ".join(f"{name} {share:g}" for name, share in splits.shares.items()) + f", seed {splits.seed}"


def _print_summary(
    settings: ExportSettings, terminal: Terminal, form: Format, report: Report, destination: Destination
) -> None:
    if settings.json:
        summary = {"format": form.name, "out": destination.out if report.total else None, **report.to_json()}
        print(json.dumps(summary, indent=1))
        return
    for skipped in report.to_json()["left_out"]:
        terminal.echo(f"left out {skipped['count']:>6}: {skipped['reason']} ({skipped['examples'][0]})", "missed")
    if not report.total:
        terminal.echo(f"nothing to export as {form.name}; nothing is written", "bad")
        return
    for name, facts in sorted(report.files.items()):
        terminal.echo(f"{name}: {counted(facts['rows'], 'row')}, {facts['bytes']} bytes", "valid")
    if report.on_policy:
        terminal.echo(f"on-policy: {report.on_policy[True]} of {counted(report.on_policy.total(), 'row')}")
    terminal.echo(f"{form.name}: {counted(report.total, 'row')} in {destination.out}", "heading")
