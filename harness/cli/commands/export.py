"""Run `ssr export`: write training data from stores and datasets, with a card that documents its contents."""

from __future__ import annotations

import contextlib
import json
import re
import sqlite3
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

from harness.cli.commands.export_rows import FEWEST_ROLLOUTS, RowSource, row_blocks, row_name
from harness.cli.exit_code import ExitCode
from harness.cli.instances import chosen_rows
from harness.cli.terminal import Terminal
from harness.datasets.loading import has_form_of_dataset, is_on_hub
from harness.exporters.admission import Admission, Likeness
from harness.exporters.card import card
from harness.exporters.dataset_writer import JSON_LINES, Destination, JsonlSink, Sink
from harness.exporters.filters import Filters
from harness.exporters.formats import FORMATS
from harness.exporters.harbor_images import pin_images
from harness.exporters.index import Index
from harness.exporters.library import InstanceGroup, Library
from harness.exporters.licences import licence_of
from harness.exporters.manifest import digest_of_part, write_manifest
from harness.exporters.protocol import Choices, Format, Row
from harness.exporters.record_files import holds_records
from harness.exporters.report import Report
from harness.exporters.skipped import SkipCode, SkippedError
from harness.exporters.sources import find_sources, holds_store, index_sources
from harness.exporters.splits import Splits
from harness.records.job_reports import Stage
from harness.rollouts.task import find_copies
from harness.settings.results import ExportSettings
from harness.storage.code_version import code_hash
from pytest_ssr import __version__
from pytest_ssr.campaign.factory import open_runner
from pytest_ssr.errors import SettingsError, StoreWriteError
from pytest_ssr.progress import counted
from pytest_ssr.records.artifact import read_artifact
from pytest_ssr.settings import RuleSettings
from pytest_ssr.storage.store import Store
from pytest_ssr.verifier import ARTIFACT, PROJECT

_STATUS_INTERVAL_ROWS = 500
_UNSET = (None, "", (), False)
_TREE = re.compile(r"[0-9a-f]{1,64}")


@dataclass(slots=True)
class Export:
    """One export in progress."""

    settings: ExportSettings
    source: RowSource
    instances: Sequence[InstanceGroup]
    destination: Destination
    report: Report
    terminal: Terminal
    sinks: dict[str, Sink] = field(default_factory=dict)
    """The open file of each part."""

    def write(self, folder: Path) -> None:
        """Write all rows to files in a folder, and record the files in the report."""
        try:
            if self._is_split_up():
                self._write_blocks(folder)
            else:
                for group in self.source.groups():
                    self._write_rows(folder, self.source.rows(group))
            for item in self.instances:
                self._write_rows(folder, self.source.instance_rows(item))
            for sink in self.sinks.values():
                sink.close()
        except BaseException:
            for sink in self.sinks.values():
                sink.abandon()
            raise
        self.record_files(folder)

    def _is_split_up(self) -> bool:
        """Whether several processes make the rows: they are many, and whether one is taken depends on no other."""
        return (
            self.settings.jobs > 1
            and self.destination.container in JSON_LINES
            and not self.source.form.of_tasks
            and not self.report.admission.is_selective
            and self.source.library.index.count_rollouts() >= FEWEST_ROLLOUTS
        )

    def _write_blocks(self, folder: Path) -> None:
        admission, library = self.report.admission, self.source.library
        for block in row_blocks(self.settings, library):
            for part, data in block.lines.items():
                sink = self._sink(folder, part)
                assert isinstance(sink, JsonlSink)
                sink.write_lines(data)
            self.report.add(block.report)
            for bug in block.bugs:
                admission.require(bug, partial(library.known_bug, bug))
            self.terminal.status(f"{self.source.form.name}: {self.report.total} rows")

    def _write_rows(self, folder: Path, rows: Iterator[tuple[str, str, Row]]) -> None:
        for part, repository, row in rows:
            try:
                self._sink(folder, part).write(row)
            except SkippedError as error:
                self.report.leave(row_name(row), error)
                continue
            self.report.row(part, repository, row)
            if self.report.total % _STATUS_INTERVAL_ROWS == 0:
                self.terminal.status(f"{self.source.form.name}: {self.report.total} rows")

    def _sink(self, folder: Path, part: str) -> Sink:
        if part not in self.sinks:
            path = folder / self.destination.name_of(part)
            self.sinks[part] = self.destination.sink(path, self.source.form.columns)
        return self.sinks[part]

    def record_files(self, folder: Path) -> None:
        """Record the hashes of all files in the report."""
        for part, rows in self.report.rows.items():
            name = self.destination.name_of(part)
            size, digest = digest_of_part(folder, name)
            self.report.files[name] = {"rows": rows, "bytes": size, "sha256": digest}

    def licences(self, given: dict[str, str]) -> dict[str, str]:
        """Return the licence of each project: the given one, else the one that its files state."""
        trees: dict[str, list[Path]] = {}
        library = self.source.library
        for name, tree in library.index.trees():
            for number in library.index.stores_of(tree) if _TREE.fullmatch(tree) else ():
                trees.setdefault(name, []).append(library.sources[number].path / "trees" / tree / "tree")
        known = {item.instance.repo: item.instance.licence for item in self.instances}
        return {
            name: given.get(name) or known.get(name) or licence_of(trees.get(name, ()))
            for name in self.report.repositories
        }


def export(settings: ExportSettings) -> int:
    """Export rows; return 0 if there are any, else 1 without writing files."""
    form = settings.form
    splits = Splits.parse(settings.splits, settings.seed)
    filters, choices = settings.filters_for(form), settings.choices_for(form)
    destination = Destination.parse(settings.out, settings.container, allowed=form.containers)
    if destination.is_file and len(splits.names) > 1:
        raise SettingsError(
            f"--splits writes several files, but --out {settings.out} is one file; name a folder", option="splits"
        )
    given_licences = _licences(settings.licence)
    datasets = [source for source in settings.source if _is_dataset(source, form)]
    _require_of_datasets(settings, datasets, filters)
    sources = find_sources([source for source in settings.source if source not in datasets])
    destination.require_apart((*(s.path for s in sources), *datasets, *settings.admission.against))
    terminal, report = Terminal(quiet=settings.json), Report(admission=settings.admission.empty())
    report.admission.read_benchmarks(settings.admission.against)
    with _index_errors(), Index() as index, destination.staging() as folder:
        terminal.stage(Stage.WRITE)
        terminal.status("reading the stores")
        index_sources(index, sources, report.leave, rule=settings.rule)
        library = Library(sources, index, settings.rule)
        instances = list(_instances(datasets, settings, filters, report))
        splits.learn(index.trees())
        source = RowSource(form, library, filters, splits, choices, report)
        run = Export(settings, source, instances, destination, report, terminal)
        with destination.reporting():
            run.write(folder)
            if settings.images:
                tasks = sorted(path.parent for path in folder.rglob("task.toml"))
                pin_images(tasks, settings.images, terminal.status, require_no_answer)
                run.record_files(folder)
            if report.total:
                licences = run.licences(given_licences)
                made = {**_provenance(settings, filters), "splits by project": _shares(splits)}
                names = [s.name if s.exists() else str(s) for s in datasets]
                text = card(form, report, destination, licences=licences, made=made, datasets=names)
                (folder / destination.card).write_text(text, encoding="utf-8")
                if not destination.is_file:
                    write_manifest(folder)
                destination.publish(folder)
    _print_summary(settings, terminal, form, report, destination)
    return ExitCode.DONE if report.total else ExitCode.NO


def require_no_answer(task: Path, image: str) -> None:
    """Raise SettingsError if the image of a Harbor task's agent shows a copy of the code without the bug."""
    with tempfile.TemporaryDirectory(prefix="ssr-harbor-") as temporary:
        for name in ("project", "artifact"):
            archive = task / "tests" / f"{name}.tar.gz"
            if not archive.is_file():
                return
            with tarfile.open(archive) as tar:
                # Our own; Python 3.11.0 to 3.11.3 have no filters, and later ones warn without one.
                filtered: Any = {"filter": "tar"} if hasattr(tarfile, "tar_filter") else {}
                tar.extractall(temporary, **filtered)
        project = Path(temporary, PROJECT)
        runner = open_runner(
            project, Store(Path(temporary, "store")), settings=RuleSettings(), sandbox=f"docker:{image}", compiled=False
        )
        # Harbor hides nothing in the image, as our sandboxes do with installed copies.
        runner = replace(runner, interpreter=replace(runner.interpreter, hidden=()))
        copies = find_copies(read_artifact(Path(temporary, ARTIFACT)), runner)
    if copies:
        raise SettingsError(f"the image of {task.name} shows the answer: {copies[0].path} is a copy", option="image")


def _is_dataset(source: Path, form: Format) -> bool:
    """Return whether a source is a dataset, as `ssr eval` reads it, and neither a store nor records of rollouts."""
    if source.is_file():
        return has_form_of_dataset(source) and not (source.suffix in (".jsonl", ".json") and holds_records(source))
    if source.is_dir():
        return has_form_of_dataset(source) and not holds_store(source)
    # A mistyped path to a store looks like a name on the hub, too.
    return form.instance_row is not None and is_on_hub(str(source)) and not source.name.startswith(".")


def _require_of_datasets(settings: ExportSettings, datasets: Sequence[Path], filters: Filters) -> None:
    """Raise SettingsError for a format that no dataset gives, and for options without an effect on these sources."""
    given = next((name for name in ("split", "only", "shuffle", "slice") if name in settings.typed), None)
    if given is not None and not datasets:
        raise SettingsError(f"--{given} is for datasets; {settings.source[0]} is not a dataset", option=given)
    if not datasets:
        return
    form = settings.form
    if form.instance_row is None:
        made_of = "artifacts" if form.of_tasks else "rollouts"
        possible = ", ".join(name for name, other in FORMATS.items() if other.instance_row is not None)
        raise SettingsError(
            f"{form.name} is made of {made_of}, and {datasets[0]} is a dataset of tasks, which gives {possible}",
            option="format",
        )
    if flags := filters.of_rollouts():
        raise SettingsError(
            f"{flags[0]} is for rollouts; {datasets[0]} is a dataset of tasks", option=flags[0].removeprefix("--")
        )
    for name in ("owner", "repos"):
        if len(datasets) == len(settings.source) and getattr(settings, name) != getattr(Choices(), name):
            raise SettingsError(f"--{name} has no effect on datasets, whose rows name their repositories", option=name)


def _instances(
    datasets: Sequence[Path], settings: ExportSettings, filters: Filters, report: Report
) -> Iterator[InstanceGroup]:
    """Yield the selected instances of datasets, those of invalid rows included, in the order of the datasets' names.

    Raises RowError if no row of a dataset is valid.
    """
    known: set[str] = set()
    for source in sorted(set(datasets)):
        for instance in chosen_rows(source, settings.selection):
            if instance.id in known:
                report.leave(instance.id, SkippedError(SkipCode.DUPLICATE))
                continue
            known.add(instance.id)
            yield InstanceGroup(instance, filters, report.admission)


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
        **({"caps": settings.admission.most_per} if settings.admission.most_per else {}),
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
    _print_admission(terminal, report.admission)
    if not report.total:
        terminal.echo(f"nothing to export as {form.name}; nothing is written", "bad")
        return
    for name, facts in sorted(report.files.items()):
        terminal.echo(f"{name}: {counted(facts['rows'], 'row')}, {facts['bytes']} bytes", "valid")
    if report.on_policy:
        terminal.echo(f"on-policy: {report.on_policy[True]} of {counted(report.on_policy.total(), 'row')}")
    terminal.echo(f"{form.name}: {counted(report.total, 'row')} in {destination.out}", "heading")


def _print_admission(terminal: Terminal, admission: Admission) -> None:
    found = admission.duplicates
    if found and admission.likeness is not Likeness.DROP:
        example = f"{found[0].id} and {found[0].original}: {found[0].similarity:.2f}"
        terminal.echo(f"near duplicates: {len(found)} of {admission.compared} bugs or tasks ({example})", "missed")
    if admission.not_compared:
        terminal.echo(f"not searched for near duplicates: {admission.not_compared}, whose diff is unknown")
    for name, count in sorted(admission.unreadable.items()):
        terminal.echo(f"{name} has {counted(count, 'task')} without a diff and a statement", "missed")
    for kind, count in sorted(admission.not_capped.items()):
        terminal.echo(f"not capped by {kind}: {counted(count, 'bug')}, whose {kind} is unknown")
