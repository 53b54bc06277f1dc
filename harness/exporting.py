"""`ssr export`: stores in, files for training out, with a card that says what is in them and what is not."""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import re
import sqlite3
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from harness.exporters.card import card
from harness.exporters.filters import Filters
from harness.exporters.formats import FORMATS
from harness.exporters.index import Index
from harness.exporters.leaving import LeftOutError
from harness.exporters.library import Library, OneTask, Rollouts
from harness.exporters.licences import licence_of
from harness.exporters.protocol import Choices, Format, Group, Row
from harness.exporters.report import Report
from harness.exporters.sources import fill, find_sources
from harness.exporters.splits import Splits
from harness.exporters.writing import Destination, Sink
from harness.terminal import Terminal
from harness.version import code_hash
from pytest_ssr import __version__
from pytest_ssr.errors import SettingsError, StoreWriteError

DONE, NO = 0, 1
_SHOWN_EVERY = 500
_NONE = (None, "", (), False)
_TREE = re.compile(r"[0-9a-f]{1,64}")


@dataclass(slots=True)
class Export:
    """One export, while it is made."""

    form: Format
    library: Library
    filters: Filters
    splits: Splits
    choices: Choices
    destination: Destination
    report: Report
    terminal: Terminal

    def groups(self) -> Iterator[Group]:
        """Yield what rows are made of: artifacts, or the rollouts of one role at one task after those of another."""
        leave = self.report.leave
        if not self.form.of_tasks:
            for task, role in self.library.index.groups():
                yield Rollouts(self.library, self.filters, task, role, leave, self.form.rewarded)
            return
        for found in self.library.tasks():
            if reason := self.filters.refusal_of_task(found):
                leave(f"artifact {found.id}", LeftOutError(reason))
            else:
                yield OneTask(found, leave)

    def write(self, folder: Path) -> None:
        """Write all rows into files in a folder, and the card beside them."""
        self.splits.learn(self.library.index.trees())
        sinks: dict[str, Sink] = {}
        try:
            for group in self.groups():
                for part, repository, row in self._rows(group):
                    if part not in sinks:
                        sinks[part] = self._sink(folder, part)
                    try:
                        sinks[part].write(row)
                    except LeftOutError as error:
                        group.leave(_name(row), error)
                        continue
                    self.report.row(part, repository, row)
                    if self.report.total % _SHOWN_EVERY == 0:
                        self.terminal.status(f"{self.form.name}: {self.report.total} rows")
            for sink in sinks.values():
                sink.close()
        except BaseException:
            for sink in sinks.values():
                sink.abandon()
            raise
        for part in sinks:
            self._measure(folder, part)

    def _sink(self, folder: Path, part: str) -> Sink:
        return self.destination.sink(folder / self.destination.name_of(part), self.form.columns)

    def _rows(self, group: Group) -> Iterator[tuple[str, str, Row]]:
        task = group.task if self.form.of_tasks else None
        try:
            for row in self.form.rows(group, self.choices):
                repository = task.repository if task is not None else _repository(row)
                part = self.splits.of(repository)
                if part is None:
                    group.leave(_name(row), LeftOutError("its project is not known, and so is not its part"))
                else:
                    yield part, repository, row
        except LeftOutError as error:
            group.leave(f"artifact {task.id}" if task is not None else "a task", error)

    def _measure(self, folder: Path, part: str) -> None:
        name = self.destination.name_of(part)
        with (folder / name).open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        size = (folder / name).stat().st_size
        self.report.files[name] = {"rows": self.report.rows[part], "bytes": size, "sha256": digest}

    def licences(self, told: dict[str, str]) -> dict[str, str]:
        """Return the licence of each project: what a user says, else what its files say."""
        trees: dict[str, list[Path]] = {}
        for name, tree in self.library.index.trees():
            for number in self.library.index.stores_of(tree) if _TREE.fullmatch(tree) else ():
                trees.setdefault(name, []).append(self.library.sources[number].path / "trees" / tree / "tree")
        return {name: told.get(name) or licence_of(trees.get(name, ())) for name in self.report.repositories}


def _name(row: Row) -> str:
    return str(row.get("rollout_id") or row.get("chosen_rollout_id") or row.get("instance_id") or "a row")


def _repository(row: Row) -> str:
    for told in (row, row.get("task"), row.get("metadata")):
        if isinstance(told, dict) and isinstance(told.get("repository"), str):
            return str(told["repository"])
    return ""


def export(arguments: argparse.Namespace) -> int:
    """Export what is asked for; 0 when there is a row, else 1, and nothing is written."""
    form = FORMATS[arguments.format]
    filters, splits, choices = _filters(arguments, form), _splits(arguments), _choices(arguments, form)
    destination = Destination.parse(arguments.out, arguments.container, tar=not form.columns)
    if destination.is_file and len(splits.names) > 1:
        raise SettingsError(f"--splits makes several files, and --out {arguments.out} is one; name a folder")
    licences = _licences(arguments.licence)
    sources = find_sources(arguments.source)
    destination.require_apart(s.path for s in sources)
    terminal, report = Terminal(quiet=arguments.json), Report()
    with _reporting(), Index() as index, destination.staging() as folder:
        terminal.status("looking what there is")
        fill(index, sources, report.leave)
        library = Library(sources, index)
        run = Export(form, library, filters, splits, choices, destination, report, terminal)
        with destination.reporting():
            run.write(folder)
            if report.total:
                found = run.licences(licences)
                made = {**_made(arguments, filters), "splits by project": _shares(splits)}
                text = card(form, report, destination, licences=found, made=made)
                (folder / destination.card).write_text(text, encoding="utf-8")
                destination.publish(folder)
    _tell(arguments, terminal, form, report, destination)
    return DONE if report.total else NO


@contextlib.contextmanager
def _reporting() -> Iterator[None]:
    """Turn an error of the index, which lies in the folder for temporary files, into one sentence."""
    try:
        yield
    except sqlite3.Error as error:
        place = tempfile.gettempdir()
        raise StoreWriteError(f"cannot write the index of what is exported, in {place}: {error}") from None


def _filters(arguments: argparse.Namespace, form: Format) -> Filters:
    filters = Filters(
        role=arguments.role,
        model=arguments.model,
        strategies=tuple(s for s in arguments.strategy.split(",") if s),
        min_reward=arguments.min_reward,
        max_reward=arguments.max_reward,
        positive=form.imitates and arguments.min_reward is None,
        min_solve_rate=arguments.min_solve_rate,
        max_solve_rate=arguments.max_solve_rate,
        min_calls=arguments.min_calls,
        max_calls=arguments.max_calls,
        max_tokens=arguments.max_tokens,
        on_policy=arguments.on_policy,
        no_flags=arguments.no_flags,
    )
    if form.of_tasks and (given := filters.of_rollouts()):
        raise SettingsError(f"{given[0]} is for rollouts; {form.name} is made of artifacts")
    return filters


def _splits(arguments: argparse.Namespace) -> Splits:
    return Splits.parse(arguments.splits, arguments.seed)


def _choices(arguments: argparse.Namespace, form: Format) -> Choices:
    """Return the choices about rows; raises SettingsError for one that this format has no use for."""
    default = Choices()
    uses = {
        "samples": ("slime-samples",),
        "segment_reward": ("slime-samples",),
        "image": ("slime-prompts", "swe-rl", "swe-bench", "swe-smith"),
        "workdir": ("slime-prompts",),
        "owner": ("slime-prompts", "swe-rl", "swe-bench", "swe-smith"),
        "repos": ("swe-rl", "swe-bench"),
    }
    given = {name: getattr(arguments, name) for name in uses}
    for name, forms in uses.items():
        if given[name] != getattr(default, name) and form.name not in forms:
            raise SettingsError(f"--{name.replace('_', '-')} says nothing about {form.name}")
    if not re.fullmatch(r"[A-Za-z0-9][\w.-]*", given["owner"]) or "__" in given["owner"]:
        raise SettingsError(f"--owner {given['owner']!r} cannot be the owner of a repository")
    return Choices(**given)


def _licences(told: Sequence[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for item in told:
        name, _, licence = item.rpartition("=")
        if not name or not licence:
            raise SettingsError(f"--licence {item!r} is none; write PROJECT=MIT")
        found[name] = licence
    return found


def _made(arguments: argparse.Namespace, filters: Filters) -> dict[str, str]:
    kept = [f"{f.name} {getattr(filters, f.name)}" for f in fields(filters) if getattr(filters, f.name) not in _NONE]
    return {
        "pytest-ssr": f"{__version__}, code {code_hash()}",
        "format": arguments.format,
        "filters": ", ".join(kept) or "none",
    }


def _shares(splits: Splits) -> str:
    return ", ".join(f"{name} {share:g}" for name, share in splits.shares.items()) + f", seed {splits.seed}"


def _tell(
    arguments: argparse.Namespace, terminal: Terminal, form: Format, report: Report, destination: Destination
) -> None:
    if arguments.json:
        told = {"format": form.name, "out": destination.out if report.total else None, **report.to_json()}
        print(json.dumps(told, indent=1))
        return
    for left in report.to_json()["left_out"]:
        terminal.say(f"left out {left['count']:>6}: {left['reason']} ({left['examples'][0]})", "missed")
    if not report.total:
        terminal.say(f"nothing to export as {form.name}; nothing is written", "bad")
        return
    for name, told in sorted(report.files.items()):
        terminal.say(f"{name}: {told['rows']} rows, {told['bytes']} bytes", "valid")
    if report.on_policy:
        terminal.say(f"on-policy: {report.on_policy[True]} of {report.on_policy.total()} rows")
    terminal.say(f"{form.name}: {report.total} rows in {destination.out}", "heading")
