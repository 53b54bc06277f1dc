"""Run `ssr audit`: measure how good the tests of a dataset's tasks are."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any

from harness.audit.card import Card
from harness.audit.figures import is_clean, sealed_text, sharp_text, sound_text
from harness.audit.files import CARDS, write_csv
from harness.audit.page import About, page
from harness.audit.strengthening import write_patches
from harness.audit.table import card_lines
from harness.audit.totals import Totals
from harness.cli.commands.evaluation_plan import report_plan
from harness.cli.exit_code import ExitCode
from harness.cli.rows import open_work, rows_to_plan, with_store_rows
from harness.cli.terminal import Terminal
from harness.cli.unit_runs import run_units_of
from harness.evaluation.reports import store_write_errors, write_lines
from harness.evaluation.rows_work import Unit
from harness.executors.pytest_executor import require_xdist
from harness.exporters.store_rows import is_store
from harness.settings.commands import AuditSettings
from harness.storage.atomic_write import write_text
from pytest_ssr import __version__
from pytest_ssr.campaign.report import display_path
from pytest_ssr.escaping import escaped_line
from pytest_ssr.progress import format_duration
from pytest_ssr.records.reasons import Reason

SUMMARY, TABLE, PAGE, STRENGTHENED = "audit.json", "cards.csv", "audit.html", "strengthened"


def audit(settings: AuditSettings) -> int:
    """Audit all tasks; return 0 if all are sound, 1 if not, 3 if some could not be audited.

    With --dry-run, only list the rows; return 0 if all can run, 1 if not.
    """
    run = settings.evaluation
    if run.jobs > 1:
        require_xdist()
    terminal = Terminal(quiet=settings.json)
    if is_store(Path(run.dataset)):
        settings = replace(settings, evaluation=with_store_rows(run, terminal))

    def report(line: str) -> None:
        terminal.echo(line, "missed")

    if run.dry_run:
        return report_plan(*rows_to_plan(settings, report), terminal, json=settings.json)
    work = open_work(settings, report)
    cards = _Cards(work.units, terminal, run.out / CARDS)
    try:
        with contextlib.ExitStack() as stack:
            # Write the cards so far, however the run ends.
            stack.callback(lambda: _write(settings, run.dataset, cards))
            run_units_of(settings, work, cards)
    finally:
        work.close()
    return _report(settings, cards)


class _Cards:
    """Collects and reports the cards of the tasks."""

    def __init__(self, units: Sequence[Unit], terminal: Terminal, path: Path) -> None:
        self.terminal = terminal
        self._by_name = {unit.name: unit for unit in units}
        self._found: dict[str, Card] = {}
        self._path, self._start = path, terminal.elapsed_s
        self._from_store = 0

    @property
    def found(self) -> list[Card]:
        """The cards so far, in the order of the dataset."""
        return [self._found[name] for name in self._by_name if name in self._found]

    @property
    def missing(self) -> int:
        """How many tasks have no card."""
        return len(self._by_name) - len(self._found)

    def begin(self, stored: Mapping[str, Card]) -> None:
        """Add the stored cards of earlier runs."""
        self._found.update(stored)
        self._from_store = len(stored)
        write_lines(self._path, [card.to_json() for card in stored.values()])
        if stored:
            self.terminal.echo(f"{len(stored)} of {len(self._by_name)} are from an earlier run")
        self._status()

    def take(self, name: str, card: Card) -> None:
        """Record the card of a task."""
        self._found[name] = card
        with store_write_errors(self._path), self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(card.to_json()) + "\n")
        sealed = f", sealed {sealed_text(card)}" if card.sealed is not None else ""
        figures = f"sound {sound_text(card)}, sharp {sharp_text(card.sharp)}{sealed}"
        self.terminal.echo(f"{escaped_line(card.task)}: {figures}", "valid" if is_clean(card) else "missed")
        self._status()

    def receive(self, unit: Unit, card: Card) -> None:
        """Record a card from another machine."""
        self.take(unit.name, card)

    def fail(self, unit: Unit, reason: Reason) -> None:
        """Record why a task has no card."""
        self.take(unit.name, Card(unit.instance.id, unit.instance.repo, unit.instance.family, problem=reason))

    def read(self, data: Mapping[str, Any]) -> Card:
        """Return a card from its JSON."""
        return Card.read(data)

    def _status(self) -> None:
        finished, total = len(self._found), len(self._by_name)
        new, elapsed_s = finished - self._from_store, self.terminal.elapsed_s - self._start
        left = f", about {format_duration(elapsed_s / new * (total - finished))} left" if new else ""
        self.terminal.status(f"{finished} of {total} tasks audited{left}")


def _write(settings: AuditSettings, dataset: str, cards: _Cards) -> None:
    """Write the cards in the order of the dataset, as a table and as a page, and what they amount to."""
    run, found = settings.evaluation, cards.found
    with store_write_errors(run.out):
        write_lines(run.out / CARDS, [card.to_json() for card in found])
        about = About(
            wanted=len(found) + cards.missing,
            dataset=dataset,
            split=run.selection.split or "test",
            changes=settings.changes,
            time_s=settings.time_s,
            seconds=round(cards.terminal.elapsed_s, 1),
            made=datetime.now(UTC).isoformat(timespec="seconds"),
            version=__version__,
        )
        summary = {
            **asdict(Totals.of(found)),
            "unsound_by_reason": _counts(p for card in found if card.sound is not None for p in card.sound.problems),
            "problems_by_reason": _counts(card.problem.code for card in found if card.problem is not None),
            **asdict(about),
        }
        write_text(run.out / SUMMARY, json.dumps(summary, indent=1) + "\n")
        write_csv(run.out / TABLE, found)
        write_text(run.out / PAGE, page(found, title=f"Audit of {_name(dataset)}", about=about))
        if settings.strengthen:
            write_patches(run.out / STRENGTHENED, found)


def _name(dataset: str) -> str:
    """Return the name of a dataset: on this machine, of its file or folder; the store of a project has its name."""
    path = Path(dataset)
    if not path.exists():
        return dataset
    path = path.resolve()
    return path.parent.name if path.name.startswith(".") else path.stem if path.is_file() else path.name


def _counts(reasons: Iterable[StrEnum]) -> dict[str, int]:
    return dict(sorted(Counter(map(str, reasons)).items()))


def _report(settings: AuditSettings, cards: _Cards) -> int:
    out, found = settings.evaluation.out, cards.found
    if settings.json:
        print((out / SUMMARY).read_text(encoding="utf-8"), end="")
    else:
        for kind, line in card_lines(found, width=shutil.get_terminal_size().columns):
            cards.terminal.echo(line, kind)
        if cards.missing:
            cards.terminal.echo(f"{cards.missing} tasks have no card", "missed")
        cards.terminal.echo(f"cards: {display_path(out / PAGE)}, {CARDS} and {TABLE} beside it")
    if cards.missing or any(not card.is_audited for card in found):
        return ExitCode.BROKEN
    return ExitCode.DONE if all(card.is_sound for card in found) else ExitCode.NO
