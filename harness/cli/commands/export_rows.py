"""Make the rows of an export: in this process, or in several that each take a part of the rollouts.

Each process takes every so many-th chunk of tasks. The chunks are put together in order, so the files are the same.
"""

from __future__ import annotations

import itertools
import multiprocessing
import signal
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from enum import Enum
from multiprocessing.connection import Connection
from pathlib import Path

from harness.exporters.admission import Admission, Bug
from harness.exporters.audited import with_sharpness
from harness.exporters.dataset_writer import json_line
from harness.exporters.filters import Filters
from harness.exporters.index import Index
from harness.exporters.library import ArtifactGroup, InstanceGroup, Library, RolloutGroup
from harness.exporters.protocol import Choices, Format, Group, Row
from harness.exporters.report import Report
from harness.exporters.skipped import SkipCode, SkippedError
from harness.exporters.sources import Source
from harness.exporters.splits import Splits
from harness.settings.results import ExportSettings
from pytest_ssr.errors import SsrError, StoreError
from pytest_ssr.interrupts import uninterrupted

FEWEST_ROLLOUTS = 10_000
"""For fewer, starting processes takes longer than it saves."""
_CHUNK_TASKS = 32
_BLOCK_BYTES = 1024**2


@dataclass(slots=True)
class RowSource:
    """The rows of an export, with the part that each belongs to."""

    form: Format
    library: Library
    filters: Filters
    splits: Splits
    choices: Choices
    report: Report

    def groups(self) -> Iterator[Group]:
        """Yield the sources of rows: artifacts, or groups of the rollouts of one role on one task."""
        if not self.form.of_tasks:
            for task_id, role in self.library.index.groups():
                yield self.rollouts(task_id, role)
            return
        for task in self.library.tasks():
            group = ArtifactGroup(self.library, task, self.report.leave)
            try:
                self.filters.require_task(task)
                self.report.admission.require(task.id, group.bug)
            except SkippedError as error:
                self.report.leave(f"artifact {task.id}", error)
                continue
            yield group

    def rollouts(self, task_id: str, role: str) -> RolloutGroup:
        """Return the rollouts of a role on a task."""
        report, rewarded = self.report, self.form.rewarded
        return RolloutGroup(self.library, self.filters, task_id, role, report.leave, rewarded, report.admission)

    def rows(self, group: Group) -> Iterator[tuple[str, str, Row]]:
        """Yield the rows of a group with their parts and projects."""
        task = group.task if self.form.of_tasks else None
        try:
            for row in self.form.rows(group, self.choices):
                repository = group.repository if self.form.of_tasks else _repository(row) or group.repository
                yield from self._in_part(repository, self._audited(row, self._task_of(group, row)))
        except SkippedError as error:
            group.leave(f"artifact {task.id}" if task is not None else "a task", error)

    def instance_rows(self, item: InstanceGroup) -> Iterator[tuple[str, str, Row]]:
        """Yield the row of an instance of a dataset with its part and project."""
        try:
            row = item.row(self.form, self.choices)
        except SkippedError as error:
            self.report.leave(item.instance.id, error)
            return
        yield from self._in_part(item.instance.repo, self._audited(row, item.instance.id, item.instance.artifact_id))

    def _audited(self, row: Row, *names: str) -> Row:
        """Return a row with the sharpness of its task, if an audit is given. names: those that the task may have."""
        audit = self.filters.audit
        return row if audit is None else with_sharpness(row, self.form, audit.sharpness(*names))

    def _task_of(self, group: Group, row: Row) -> str:
        """Return the name of the task that a row of a group is about; empty if it is unknown."""
        if not isinstance(group, RolloutGroup):
            return group.task.id if group.task is not None else ""
        if group.role == "solver":
            return group.name
        # The task of an injector is a tree, and cards are about the bugs that it made there.
        task = row.get("task")
        if isinstance(task, dict):
            return str(task.get("artifact") or "")
        injection = self.library.index.injection(_rollout(row))
        return str(injection["artifact"]) if injection is not None else ""

    def _in_part(self, repository: str, row: Row) -> Iterator[tuple[str, str, Row]]:
        part = self.splits.of(repository)
        if part is None:
            self.report.leave(row_name(row), SkippedError(SkipCode.NO_SPLIT))
        else:
            yield part, repository, row


def row_name(row: Row) -> str:
    """Return the name of a row for messages."""
    return str(row.get("rollout_id") or row.get("chosen_rollout_id") or row.get("instance_id") or "a row")


def _rollout(row: Row) -> str:
    """Return the id of the rollout that a row was made from; empty if the row does not name it."""
    for record in (row, row.get("metadata"), row.get("extra")):
        for name in ("rollout_id", "chosen_rollout_id"):
            if isinstance(record, dict) and isinstance(record.get(name), str):
                return str(record[name])
    return ""


def _repository(row: Row) -> str:
    for record in (row, row.get("task"), row.get("metadata")):
        if isinstance(record, dict) and isinstance(record.get("repository"), str):
            return str(record["repository"])
    return ""


@dataclass(slots=True)
class Block:
    """Some consecutive rows."""

    lines: dict[str, bytes]
    """Lines of JSON by part."""
    report: Report
    bugs: Sequence[str]
    """The ids of the bugs of rollouts that were read and kept, in this order."""


@dataclass(slots=True)
class _Recorded(Admission):
    """Takes all bugs, and records their ids."""

    ids: dict[str, None] = field(default_factory=dict)

    def require(self, name: str, bug: Callable[[], Bug]) -> None:
        """Record the id of a bug."""
        self.ids[name] = None


def row_blocks(settings: ExportSettings, library: Library) -> Iterator[Block]:
    """Yield the rows of rollouts in order, made by several processes.

    Raises the error of a process, and SsrError if one has ended early.
    """
    context = multiprocessing.get_context("spawn")
    count = settings.jobs
    with ExitStack() as stack:
        receivers: list[Connection] = []
        # A process that an interrupt leaves half started would print a traceback.
        with uninterrupted():
            for number in range(count):
                receiver, sender = context.Pipe(duplex=False)
                arguments = (sender, settings, list(library.sources), library.index.path, number, count)
                process = context.Process(target=_work, args=arguments, daemon=True)
                process.start()
                sender.close()
                stack.callback(process.join)
                stack.callback(process.terminate)
                receivers.append(receiver)
        for receiver in itertools.cycle(receivers):
            while True:
                try:
                    message = receiver.recv()
                except EOFError:
                    raise SsrError("a process of the export has ended early, maybe for lack of memory") from None
                if isinstance(message, Exception):
                    raise message
                if not isinstance(message, Block):
                    break
                yield message
            if message is _Mark.LAST:
                return


class _Mark(Enum):
    """What a process sends after blocks."""

    CHUNK = "chunk"
    """The chunk is complete."""
    LAST = "last"
    """There is no further chunk."""


def _work(
    sender: Connection, settings: ExportSettings, sources: Sequence[Source], index_path: Path, number: int, count: int
) -> None:
    """Send the blocks of the chunks of one process. number: which of the `count` processes it is."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # The parent ends it.
    form = settings.form
    # Without the parent nobody receives the rows.
    with suppress(BrokenPipeError), Index(index_path) as index:
        splits = Splits.parse(settings.splits, settings.seed)
        splits.learn(index.trees())
        library = Library(sources, index, settings.rule)
        filters, choices = settings.filters_for(form), settings.choices_for(form)
        source = RowSource(form, library, filters, splits, choices, Report())
        groups = index.groups()
        try:
            for chunk_number in itertools.count():
                chunk = list(itertools.islice(groups, _CHUNK_TASKS))
                if not chunk:
                    break
                if chunk_number % count == number:
                    for block in _blocks(source, chunk):
                        sender.send(block)
                    sender.send(_Mark.CHUNK)
            sender.send(_Mark.LAST)
        except StoreError as error:
            sender.send(error)


def _blocks(source: RowSource, chunk: Sequence[tuple[str, str]]) -> Iterator[Block]:
    """Yield the rows of some tasks and roles in blocks of limited size."""
    lines: defaultdict[str, bytearray] = defaultdict(bytearray)
    source.report = report = Report(admission=_Recorded())
    for task_id, role in chunk:
        for part, repository, row in source.rows(source.rollouts(task_id, role)):
            try:
                lines[part] += json_line(row)
            except SkippedError as error:
                report.leave(row_name(row), error)
                continue
            report.row(part, repository, row)
            if len(lines[part]) >= _BLOCK_BYTES:
                yield Block({part: bytes(lines.pop(part))}, Report(), ())
    recorded, report.admission = report.admission, Admission()
    assert isinstance(recorded, _Recorded)
    yield Block({part: bytes(data) for part, data in lines.items()}, report, tuple(recorded.ids))
